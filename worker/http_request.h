/* http_request.h - a request of tool.json on its way to become one on the wire: its templates
 * filled in, its headers complete, its body there. For phase_http.c. */
#pragma once

#include "runtime/buf.h"
#include "runtime/err.h"
#include "runtime/slice.h"

struct request_spec;
struct run;

constexpr size_t HTTP_HEADERS_MAX = 64;

struct http_request {
	struct buf url, body;
	struct buf media_type;               /* of a body that was attached */
	char *headers[HTTP_HEADERS_MAX + 1]; /* nullptr-terminated */
	size_t headers_count;
	bool has_body;
};

/* URL and body; `request` is empty. `artifact` becomes the name of the artifact that is to be
 * attached as the body, where the tool says so. HF_INVALID, HF_MISSING, HF_LIMIT: the templates do
 * not fit what the phases gave. */
enum hf_code http_request_fill(struct http_request *request, const struct request_spec *spec,
			       const struct run *run, struct buf *artifact, struct hf_err *err);
/* False: too large. */
bool http_request_attach(struct http_request *request, struct slice media_type,
			 struct slice content);
/* Once its body is there: those of the template, the derived key under `key_header` (nullptr: it
 * carries none), the type of the body and the trace. */
enum hf_code http_request_set_headers(struct http_request *request, const struct request_spec *spec,
				      const struct run *run, const char *key_header,
				      struct hf_err *err);
/* Makes it empty. */
void http_request_clear(struct http_request *request);
