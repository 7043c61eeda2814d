/* http_write.c - see http_write.h. Texts that come from a caller never become header lines here;
 * `extra` is our own and is checked to be whole lines. */
#include "api/http_write.h"

#include <string.h>

#include "runtime/base.h"

static const char *reason_of(int status)
{
	static const struct {
		int status;
		const char *reason;
	} reasons[] = {
		{ 200, "OK" },
		{ 202, "Accepted" },
		{ 400, "Bad Request" },
		{ 401, "Unauthorized" },
		{ 403, "Forbidden" },
		{ 404, "Not Found" },
		{ 405, "Method Not Allowed" },
		{ 406, "Not Acceptable" },
		{ 408, "Request Timeout" },
		{ 413, "Content Too Large" },
		{ 414, "URI Too Long" },
		{ 415, "Unsupported Media Type" },
		{ 417, "Expectation Failed" },
		{ 429, "Too Many Requests" },
		{ 431, "Request Header Fields Too Large" },
		{ 501, "Not Implemented" },
		{ 503, "Service Unavailable" },
		{ 505, "HTTP Version Not Supported" },
	};
	for (size_t i = 0; i < countof(reasons); i++)
		if (reasons[i].status == status)
			return reasons[i].reason;
	return "Other";
}

static bool is_whole_lines(const char *lines)
{
	size_t len = strlen(lines);
	return len > 2 && strcmp(lines + len - 2, "\r\n") == 0 && !strstr(lines, "\r\n\r\n");
}

static void end_head(struct buf *out, bool close, const char *extra)
{
	hf_assert(!extra || is_whole_lines(extra));

	buf_add_text(out, "X-Content-Type-Options: nosniff\r\n");
	if (close)
		buf_add_text(out, "Connection: close\r\n");
	if (extra)
		buf_add_text(out, extra);
	buf_add_text(out, "\r\n");
}

void http_write_reply(struct buf *out, const struct reply *reply, bool close, bool head)
{
	hf_assert(reply->status >= 200);
	hf_assert(reply->status <= 599);
	hf_assert(reply->content_type || reply->body.len == 0);

	buf_add_format(out, "HTTP/1.1 %d %s\r\n", reply->status, reason_of(reply->status));
	if (reply->content_type)
		buf_add_format(out, "Content-Type: %s\r\n", reply->content_type);
	buf_add_format(out, "Content-Length: %zu\r\nCache-Control: no-store\r\n", reply->body.len);
	end_head(out, close, reply->extra);
	if (!head)
		buf_add_slice(out, reply->body);
}

void http_write_stream(struct buf *out, const struct stream_head *head, bool close, bool chunks)
{
	hf_assert(head->content_type);
	hf_assert(chunks || close);

	buf_add_format(out, "HTTP/1.1 200 OK\r\nContent-Type: %s\r\n", head->content_type);
	if (chunks)
		buf_add_text(out, "Transfer-Encoding: chunked\r\n");
	end_head(out, close, head->extra);
}

void http_write_chunk(struct buf *out, struct slice bytes)
{
	if (bytes.len == 0)
		return;
	buf_add_format(out, "%zx\r\n", bytes.len);
	buf_add_slice(out, bytes);
	buf_add_text(out, "\r\n");
}

void http_write_last_chunk(struct buf *out)
{
	buf_add_text(out, "0\r\n\r\n");
}

/* What a refusal owes its reader beside the status. */
static const char *extra_of(int status)
{
	switch (status) {
	case 415: /* of http.c: a content coding (RFC 9110 15.5.16) */
		return "Accept-Encoding: identity\r\n";
	case 503:
		return RETRY_AFTER;
	default:
		return nullptr;
	}
}

void http_write_refusal(struct buf *out, struct http_refusal refusal)
{
	hf_cleanup(buf) struct buf body = {};
	/* The texts are ours: no quotes, no controls. */
	buf_add_format(&body, "{\"status\":%d,\"error\":\"%s\",\"executed\":\"no\"}\n",
		       refusal.status, refusal.text);
	struct reply reply = {
		.status = refusal.status,
		.content_type = "application/json",
		.body = buf_slice(&body),
		.extra = extra_of(refusal.status),
	};
	http_write_reply(out, &reply, true, false);
}

void http_write_continue(struct buf *out)
{
	buf_add_text(out, "HTTP/1.1 100 Continue\r\n\r\n");
}
