/* http.h - HTTP/1.1 requests out of bytes; no I/O, no clock. llhttp parses; the lines, lengths and
 * header rules that it leaves to its caller are checked here, in front of it and behind it. Strict
 * on purpose: what two parsers could read in two ways is refused, and a refusal is final, since
 * where the next request would start is then anybody's guess. conn.c reads into it; one parser
 * serves all requests of a connection, one after the other. */
#pragma once

#include <stddef.h>

#include "api/call.h"
#include "runtime/slice.h"

constexpr size_t HTTP_TARGET_BYTES_MAX = 8'192;
constexpr size_t HTTP_HEADER_LINE_BYTES_MAX = 8'192;
constexpr size_t HTTP_HEADERS_MAX = 100;               /* trailer lines count too */
constexpr size_t HTTP_CHUNK_EXTENSION_BYTES_MAX = 256; /* of all chunks of a request */
constexpr size_t HTTP_TRAILER_BYTES_MAX = 8'192;

struct http;

enum http_stage {
	HTTP_STAGE_START,   /* not one byte of a request */
	HTTP_STAGE_HEAD,    /* in the request line or the headers */
	HTTP_STAGE_BODY,    /* headers are good; the body is not whole */
	HTTP_STAGE_WHOLE,   /* http_request_of tells; http_next goes on */
	HTTP_STAGE_REFUSED, /* http_refusal_of tells; nothing more is read */
};

/* Borrowed from the parser until http_next or http_free. */
struct http_request {
	struct slice method, target, path, body;
	const struct header *headers;
	size_t headers_count;
	bool keep_alive; /* the client lets the connection live */
	bool head;       /* the answer carries no body, only its length */
	bool chunks;     /* an answer may come in chunks: not before HTTP/1.1 */
};

struct http_refusal {
	int status;       /* 400, 408, 413, … */
	const char *text; /* static; for the client */
};

[[nodiscard]] struct http *http_new(size_t header_bytes_max, size_t body_bytes_max);
struct http *http_free(struct http *http); /* takes nullptr; returns nullptr */

/* Reads at most to the end of one request; returns how many bytes it took. Takes none once the
 * stage is HTTP_STAGE_WHOLE or HTTP_STAGE_REFUSED. */
size_t http_read(struct http *http, const char *bytes, size_t len);
enum http_stage http_stage_of(const struct http *http);
/* True in HTTP_STAGE_BODY while nothing of a body came that the client holds back until it gets
 * "100 Continue". */
bool http_wants_continue(const struct http *http);

const struct http_request *http_request_of(const struct http *http);
struct http_refusal http_refusal_of(const struct http *http);
/* Forgets the request; the next http_read starts another. */
void http_next(struct http *http);

/* The one header of that name (any case) in a list; `count` (nullable) gets how many there are. */
bool http_find_header(const struct header *headers, size_t headers_count, const char *name,
		      struct slice *value, size_t *count);
