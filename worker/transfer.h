/* transfer.h - one request on the wire, and what is heard of it: everything that curl is told, and
 * what its callbacks say about whether the request left and whether its answer is whole. When it
 * may go, and for how long, is downstream.c's. */
#pragma once

#include <curl/curl.h>
#include <netinet/in.h>
#include <stdint.h>

#include "runtime/buf.h"
#include "runtime/slice.h"
#include "worker/downstream.h"
#include "worker/egress.h"

constexpr size_t TRANSFER_REASON_LEN_MAX = 200;

struct transfer {
	CURL *easy;
	CURLU *url; /* of `target`; owned */
	struct egress_target target;
	const struct egress *egress;
	struct curl_slist *headers;
	size_t sent_len; /* of the request's body */
	bool (*may_send)(void *ctx);
	void *ctx;

	struct buf body;                          /* of the answer */
	char reason[TRANSFER_REASON_LEN_MAX + 8]; /* of its status line */
	size_t header_bytes;
	int64_t retry_after_ms;
	char error[CURL_ERROR_SIZE];
	char denied[INET6_ADDRSTRLEN]; /* the last address that was refused */
	bool tried;                    /* an address that is allowed */
	bool sent, withheld, answering, too_large;
	bool slow;  /* ended because its bytes came or went by drips */
	bool coded; /* the answer under way is, or was sent with a transfer coding but chunked */
};

/* Tells curl all about it but its time; `url` and `target` are set. `owner` becomes its
 * CURLOPT_PRIVATE. Body and headers of the request are borrowed. */
void transfer_prepare(struct transfer *transfer, const struct downstream_request *request,
		      void *owner);
void transfer_set_times(struct transfer *transfer, int64_t timeout_ms);
/* Not in a loop any more. */
void transfer_deinit(struct transfer *transfer);

/* Makes `text`, cleaned, its reason. */
void transfer_say(struct transfer *transfer, const char *text);
/* Bytes that have passed so far. `watched`: more must come or go now; that an answer lets wait is
 * no drip. */
int64_t transfer_passed(const struct transfer *transfer, bool *watched);
/* What came of it, borrowed from it. */
struct downstream_answer transfer_answer(struct transfer *transfer, CURLcode code);
