/* http_request.c - the templates of a request, filled in. What cannot be sent as it is written is
 * an error of the tool, and told before anything leaves. */
#include "worker/http_request.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "runtime/base.h"
#include "runtime/json.h"
#include "worker/phase.h"

constexpr size_t URL_LEN_MAX = 8'192;
constexpr size_t BODY_BYTES_MAX = 64 << 20;

enum hf_code http_request_fill(struct http_request *request, const struct request_spec *spec,
			       const struct run *run, struct buf *artifact, struct hf_err *err)
{
	const struct template_scope *scope = run_scope(run);
	request->url.max = URL_LEN_MAX;
	request->body.max = BODY_BYTES_MAX;
	if (template_text(spec->url, true, scope, &request->url, err) != HF_OK)
		return hf_wrap(err, "url");
	if (request->url.overflow || request->url.len == 0)
		return hf_fail(err, HF_LIMIT, "the URL is empty or over %zu bytes", URL_LEN_MAX);
	request->has_body = spec->json.len > 0 || spec->body_artifact.len > 0;
	if (spec->json.len > 0 && template_json(spec->json, scope, &request->body, err) != HF_OK)
		return hf_wrap(err, "json");
	if (request->body.overflow)
		return hf_fail(err, HF_LIMIT, "the body is over %zu bytes", BODY_BYTES_MAX);
	if (spec->body_artifact.len == 0)
		return HF_OK;
	hf_cleanup(buf) struct buf name = {};
	if (template_json(spec->body_artifact, scope, &name, err) != HF_OK)
		return hf_wrap(err, "body_artifact");
	if (json_type_of(buf_slice(&name)) != JSON_STRING)
		return hf_fail(err, HF_INVALID,
			       "body_artifact gives no string, but the name of an artifact is one");
	json_string_decode(buf_slice(&name), artifact);
	return HF_OK;
}

bool http_request_attach(struct http_request *request, struct slice media_type,
			 struct slice content)
{
	buf_add_slice(&request->media_type, media_type);
	buf_add_slice(&request->body, content);
	return !request->body.overflow;
}

static bool header_is_clean(const char *line)
{
	for (; *line; line++)
		if ((unsigned char)*line < 0x20 || *line == 0x7F)
			return false;
	return true;
}

static enum hf_code add_header(struct http_request *request, const char *name, const char *value,
			       struct hf_err *err)
{
	if (request->headers_count == HTTP_HEADERS_MAX)
		return hf_fail(err, HF_LIMIT, "more than %zu headers", HTTP_HEADERS_MAX);
	/* curl's spelling of a header without a value has a semicolon. */
	char *line = *value ? hf_format("%s: %s", name, value) : hf_format("%s;", name);
	request->headers[request->headers_count++] = line;
	if (!header_is_clean(line))
		return hf_fail(err, HF_INVALID, "a control character in the value of header %s",
			       name);
	return HF_OK;
}

/* The headers of the template, whose values may be strings, numbers or booleans. */
static enum hf_code add_spec_headers(struct http_request *request, const struct request_spec *spec,
				     const struct run *run, bool *typed, struct hf_err *err)
{
	if (spec->headers.len == 0)
		return HF_OK;
	hf_cleanup(buf) struct buf filled = {};
	if (template_json(spec->headers, run_scope(run), &filled, err) != HF_OK)
		return hf_wrap(err, "headers");
	struct slice name, value;
	for (size_t at = 0; json_object_next(buf_slice(&filled), &at, &name, &value);) {
		hf_cleanup(buf) struct buf name_text = {}, value_text = {};
		json_string_decode(name, &name_text);
		if (json_type_of(value) == JSON_STRING)
			json_string_decode(value, &value_text);
		else
			buf_add_slice(&value_text, value);
		*typed =
		    *typed || (name_text.data && strcasecmp(name_text.data, "content-type") == 0);
		hf_try(add_header(request, name_text.data, value_text.data ? value_text.data : "",
				  err));
	}
	return HF_OK;
}

static bool has_header(const struct http_request *request, const char *name)
{
	size_t len = strlen(name);
	for (size_t i = 0; i < request->headers_count; i++)
		if (strncasecmp(request->headers[i], name, len) == 0 &&
		    (request->headers[i][len] == ':' || request->headers[i][len] == ';'))
			return true;
	return false;
}

/* The caller's trace with a span of this attempt, where the template names none of its own. Its
 * baggage stays here: it may hold anything, and downstream is not the caller's to tell it. */
static enum hf_code add_trace_headers(struct http_request *request, const struct run *run,
				      struct hf_err *err)
{
	const struct trace *trace = run_trace(run);
	const char *parent = run_traceparent(run);
	if (!*parent || has_header(request, "traceparent") || has_header(request, "tracestate"))
		return HF_OK;
	hf_try(add_header(request, "traceparent", parent, err));
	if (!trace->state.len)
		return HF_OK;
	char *state = hf_strndup(trace->state.data, trace->state.len);
	enum hf_code code = add_header(request, "tracestate", state, err);
	free(state);
	return code;
}

enum hf_code http_request_set_headers(struct http_request *request, const struct request_spec *spec,
				      const struct run *run, const char *key_header,
				      struct hf_err *err)
{
	bool typed = false;
	hf_try(add_spec_headers(request, spec, run, &typed, err));
	if (key_header)
		hf_try(add_header(request, key_header, run_key(run), err));
	if (request->has_body && !typed)
		hf_try(add_header(request, "Content-Type",
				  request->media_type.len > 0 ? request->media_type.data
							      : "application/json",
				  err));
	return add_trace_headers(request, run, err);
}

void http_request_clear(struct http_request *request)
{
	for (size_t i = 0; i < request->headers_count; i++)
		free(request->headers[i]);
	buf_deinit(&request->url);
	buf_deinit(&request->body);
	buf_deinit(&request->media_type);
	*request = (struct http_request){};
}
