/* tool_http.c - phases of kind http in tool.json: their requests, how one is read back after its
 * answer was lost (reconcile), and how one that was accepted is seen (verify). */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "runtime/base.h"
#include "runtime/json.h"
#include "runtime/tool_parse.h"

constexpr int64_t HTTP_TIMEOUT_MS = 30'000;
constexpr int64_t VERIFY_EVERY_MS = 1'000;
constexpr int64_t URL_BYTES_MAX = 4'096;

static const char *const look_methods[] = { "GET", "POST", nullptr }; /* of what only looks */

void request_spec_deinit(struct request_spec *request)
{
	free(request->method);
	free((void *)(uintptr_t)request->url.data); /* ours: unescaped */
	*request = (struct request_spec){};
}

/* What the runtime sets itself, and "$from", which would make a template of the whole object. */
static bool header_is_ours(const char *name)
{
	static const char *const ours[] = { "host",       "content-length", "transfer-encoding",
					    "connection", "expect",         "te",
					    "upgrade",    "$from" };
	for (size_t i = 0; i < countof(ours); i++)
		if (strcasecmp(name, ours[i]) == 0)
			return true;
	return false;
}

static bool header_stood_before(struct slice headers, size_t index, const char *name)
{
	struct slice raw, value;
	for (size_t at = 0, i = 0; i < index && json_object_next(headers, &at, &raw, &value); i++) {
		char *other = json_string_dup(raw);
		bool same = strcasecmp(other, name) == 0;
		free(other);
		if (same)
			return true;
	}
	return false;
}

static enum hf_code header_check(struct tool_parse *parse, struct slice headers, size_t index,
				 const char *name, const char *key_header)
{
	if (!name_is_token(name))
		return tool_bad(parse, "is no header name");
	if (header_is_ours(name))
		return tool_bad(parse, "is set by the runtime");
	if (key_header && strcasecmp(name, key_header) == 0)
		return tool_bad(parse, "is the key_header, which carries the derived key");
	if (header_stood_before(headers, index, name))
		return tool_bad(parse, "stands twice");
	return HF_OK;
}

static enum hf_code headers_check(struct tool_parse *parse, struct slice headers,
				  const char *key_header, size_t phase)
{
	size_t mark = path_down_text(parse, "headers"), at = 0, i = 0;
	struct slice raw, value;
	for (; json_object_next(headers, &at, &raw, &value); i++) {
		char *name = json_string_dup(raw);
		size_t inner = path_down_text(parse, name);
		enum hf_code code = header_check(parse, headers, i, name, key_header);
		free(name);
		hf_try(code);
		if (json_type_of(value) != JSON_STRING)
			return tool_bad(parse, "must be a string");
		hf_try(references_check(parse, value, phase));
		path_up(parse, inner);
	}
	path_up(parse, mark);
	return HF_OK;
}

static enum hf_code body_check(struct tool_parse *parse, const struct request_spec *request,
			       size_t phase)
{
	size_t mark = parse->path.len;
	bool bodiless = strcmp(request->method, "GET") == 0 || strcmp(request->method, "HEAD") == 0;
	if (request->json.len) {
		path_down_text(parse, "json");
		if (bodiless)
			return tool_bad(parse, "%s has no body", request->method);
		if (request->body_artifact.len)
			return tool_bad(parse,
					"stands beside body_artifact: a request has one body");
		hf_try(references_check(parse, request->json, phase));
		path_up(parse, mark);
	}
	if (request->body_artifact.len) {
		path_down_text(parse, "body_artifact");
		struct slice from;
		if (bodiless)
			return tool_bad(parse, "%s has no body", request->method);
		if (json_type_of(request->body_artifact) != JSON_STRING &&
		    !json_member(request->body_artifact, "$from", &from))
			return tool_bad(parse, "must be a string or {\"$from\": …}");
		hf_try(references_check(parse, request->body_artifact, phase));
		path_up(parse, mark);
	}
	return HF_OK;
}

static bool word_is_among(const char *word, const char *const *words)
{
	for (; *words; words++)
		if (strcmp(word, *words) == 0)
			return true;
	return false;
}

static enum hf_code request_read(struct tool_parse *parse, struct slice object,
				 const char *const *methods, const char *key_header, size_t phase,
				 struct request_spec *request)
{
	enum { METHOD, URL, HEADERS, JSON, ARTIFACT, COUNT };
	static const struct member members[COUNT] = {
		[METHOD] = { "method", MEMBER_STRING, true, 1, 16 },
		[URL] = { "url", MEMBER_STRING, true, 1, URL_BYTES_MAX },
		[HEADERS] = { "headers", MEMBER_OBJECT, false, 0, 0 },
		[JSON] = { "json", MEMBER_ANY, false, 0, 0 },
		[ARTIFACT] = { "body_artifact", MEMBER_ANY, false, 0, 0 },
	};
	struct slice values[COUNT];
	size_t mark = path_down_text(parse, "request");
	parse->key_named = false;
	hf_try(members_read(parse, object, members, COUNT, values));
	request->method = member_text(values[METHOD]);
	char *url = member_text(values[URL]);
	request->url = slice_of(url);
	request->headers = values[HEADERS];
	request->json = values[JSON];
	request->body_artifact = values[ARTIFACT];
	size_t inner = path_down_text(parse, "method");
	if (!word_is_among(request->method, methods))
		return tool_bad(parse, "\"%s\" is none of %s", request->method,
				methods[2] ? "GET, HEAD, POST, PUT, PATCH, DELETE" : "GET, POST");
	path_up(parse, inner);
	path_down_text(parse, "url");
	hf_try(url_check(parse, url));
	hf_try(references_check(parse, values[URL], phase));
	path_up(parse, inner);
	if (values[HEADERS].len)
		hf_try(headers_check(parse, values[HEADERS], key_header, phase));
	hf_try(body_check(parse, request, phase));
	request->names_key = parse->key_named;
	path_up(parse, mark);
	return HF_OK;
}

static enum hf_code reconcile_read(struct tool_parse *parse, struct slice object, size_t number,
				   struct phase_spec *phase)
{
	enum { REQUEST, DONE_WHEN, ABSENT, COUNT };
	static const struct member members[COUNT] = {
		[REQUEST] = { "request", MEMBER_OBJECT, true, 0, 0 },
		[DONE_WHEN] = { "done_when", MEMBER_STRING, true, 1, 255 },
		[ABSENT] = { "absent_when_empty", MEMBER_STRING, false, 1, 255 },
	};
	struct slice values[COUNT];
	size_t mark = path_down_text(parse, "reconcile");
	hf_try(members_read(parse, object, members, COUNT, values));
	hf_try(
	    request_read(parse, values[REQUEST], look_methods, nullptr, number, &phase->reconcile));
	phase->done_when = member_text(values[DONE_WHEN]);
	phase->absent_when_empty = member_text(values[ABSENT]);
	size_t inner = path_down_text(parse, "done_when");
	hf_try(pointer_check(parse, phase->done_when));
	path_up(parse, inner);
	if (phase->absent_when_empty) {
		path_down_text(parse, "absent_when_empty");
		hf_try(pointer_check(parse, phase->absent_when_empty));
	}
	path_up(parse, mark);
	return HF_OK;
}

static enum hf_code verify_read(struct tool_parse *parse, struct slice object, size_t number,
				struct phase_spec *phase)
{
	enum { REQUEST, DONE_WHEN, WITHIN, EVERY, OTHERWISE, COUNT };
	static const struct member members[COUNT] = {
		[REQUEST] = { "request", MEMBER_OBJECT, true, 0, 0 },
		[DONE_WHEN] = { "done_when", MEMBER_STRING, true, 1, 255 },
		[WITHIN] = { "within_ms", MEMBER_INTEGER, true, 1, TOOL_TIME_MS_MAX },
		[EVERY] = { "every_ms", MEMBER_INTEGER, false, 1, TOOL_TIME_MS_MAX },
		[OTHERWISE] = { "otherwise", MEMBER_STRING, false, 0, 0 },
	};
	struct verify_spec *verify = &phase->verify;
	struct slice values[COUNT];
	size_t mark = path_down_text(parse, "verify");
	hf_try(members_read(parse, object, members, COUNT, values));
	parse->own_state = true;
	hf_try(
	    request_read(parse, values[REQUEST], look_methods, nullptr, number, &verify->request));
	parse->own_state = false;
	verify->done_when = member_text(values[DONE_WHEN]);
	verify->within_ms = member_integer(values[WITHIN], 0);
	verify->every_ms = member_integer(values[EVERY], VERIFY_EVERY_MS);
	size_t inner = path_down_text(parse, "done_when");
	hf_try(pointer_check(parse, verify->done_when));
	path_up(parse, inner);
	static const char *const words[] = { "unknown", "continue" };
	int word;
	hf_try(member_word(parse, "otherwise", values[OTHERWISE], words, countof(words), &word));
	verify->go_on = word == 1;
	path_up(parse, mark);
	return HF_OK;
}

enum hf_code phase_http_read(struct tool_parse *parse, struct slice object, size_t number,
			     struct phase_spec *phase)
{
	enum { REQUEST = PHASE_MEMBERS, KEY_HEADER, KEY_TTL, VISIBLE, RECONCILE, VERIFY, COUNT };
	static const struct member members[COUNT] = {
		PHASE_MEMBER_TABLE,
		[REQUEST] = { "request", MEMBER_OBJECT, true, 0, 0 },
		[KEY_HEADER] = { "key_header", MEMBER_STRING, false, 1, 64 },
		[KEY_TTL] = { "key_ttl_ms", MEMBER_INTEGER, false, 1, TOOL_TIME_MS_MAX },
		[VISIBLE] = { "visible_within_ms", MEMBER_INTEGER, false, 0, TOOL_TIME_MS_MAX },
		[RECONCILE] = { "reconcile", MEMBER_OBJECT, false, 0, 0 },
		[VERIFY] = { "verify", MEMBER_OBJECT, false, 0, 0 },
	};
	static const enum effect_class owner[COUNT] = {
		[KEY_HEADER] = EFFECT_KEYED,
		[KEY_TTL] = EFFECT_KEYED,
		[VISIBLE] = EFFECT_LOOKUP,
		[RECONCILE] = EFFECT_LOOKUP,
	};
	static const char *const methods[] = { "GET",   "HEAD",   "POST", "PUT",
					       "PATCH", "DELETE", nullptr };
	struct slice values[COUNT];
	hf_try(members_read(parse, object, members, COUNT, values));
	hf_try(phase_common_read(parse, values, HTTP_TIMEOUT_MS, phase));
	for (int i = KEY_HEADER; i <= RECONCILE; i++)
		hf_try(phase_class_check(parse, phase, owner[i], members[i].name, values[i]));
	phase->key_header = member_text(values[KEY_HEADER]);
	phase->key_ttl_ms = member_integer(values[KEY_TTL], 0);
	phase->visible_within_ms = member_integer(values[VISIBLE], 0);
	if (phase->key_header &&
	    (!name_is_token(phase->key_header) || header_is_ours(phase->key_header))) {
		path_down_text(parse, "key_header");
		return tool_bad(parse, "\"%s\" can't carry a key", phase->key_header);
	}
	hf_try(request_read(parse, values[REQUEST], methods, phase->key_header, number,
			    &phase->request));
	if (values[RECONCILE].len)
		hf_try(reconcile_read(parse, values[RECONCILE], number, phase));
	if (values[VERIFY].len && phase->effect == EFFECT_PURE) {
		path_down_text(parse, "verify");
		return tool_bad(parse, "a pure phase leaves nothing to be seen");
	}
	return values[VERIFY].len ? verify_read(parse, values[VERIFY], number, phase) : HF_OK;
}
