/* http.c - see http.h.
 *
 * The way of the bytes: read_line and read_data cut them into lines (head, chunk heads, trailers)
 * and spans of body. Each line is checked by itself, then given to llhttp; the head only once it is
 * whole, so that the slices of a request point into one buffer that no longer moves. Where our
 * count and llhttp's differ, the request is refused: `left` and `sub` say what we expect, on_whole
 * says what llhttp saw.
 *
 * Invariants: `stage` only goes forward until http_next; after HTTP_STAGE_REFUSED nothing is read;
 * a request is whole only when both sides agree on its last byte. */
#include "api/http.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <llhttp/llhttp.h>

#include "api/http_text.h"
#include "runtime/base.h"
#include "runtime/buf.h"

constexpr size_t CONTENT_LENGTH_DIGITS_MAX = 19; /* below 2^63, no overflow to think of */
constexpr size_t CHUNK_SIZE_DIGITS_MAX = 15;
constexpr size_t CHUNK_LINE_BYTES_MAX =
    CHUNK_SIZE_DIGITS_MAX + HTTP_CHUNK_EXTENSION_BYTES_MAX + sizeof ";\r\n" - 1;
constexpr size_t METHOD_BYTES_MAX = 32;   /* the longest known one has 12 */
constexpr size_t BLANK_LINES_MAX = 1;     /* some old clients end a POST with one */
constexpr size_t KEPT_BYTES_MAX = 65'536; /* room that a quiet connection may hold on to */
constexpr char CRLF[] = "\r\n";

enum sub {
	SUB_REQUEST_LINE,
	SUB_HEADERS,
	SUB_LENGTH, /* a body of `left` bytes */
	SUB_CHUNK_LINE,
	SUB_CHUNK_DATA, /* of which `left` to come */
	SUB_CHUNK_END,  /* of CRLF, `left` to come */
	SUB_TRAILERS,
};

struct http {
	llhttp_t parser;
	enum http_stage stage;
	enum sub sub;
	struct http_refusal refusal;
	struct buf head; /* request line and headers, as received */
	struct buf body;
	struct buf line;   /* a chunk head or trailer line, while it grows */
	size_t line_start; /* in head or line: of the line that grows */
	uint64_t left;
	size_t header_bytes_max;
	size_t body_bytes_max;
	size_t blank_lines;
	size_t lines; /* of headers and trailers */
	size_t extension_bytes;
	size_t trailer_bytes;
	uint64_t chunk_bytes; /* as llhttp read the last chunk's size */
	bool chunked;
	bool expects_continue;
	bool headers_whole; /* llhttp's view */
	bool whole;         /* llhttp's view */
	bool in_value;
	struct http_request request;
	struct header headers[HTTP_HEADERS_MAX];
};

static bool refuse(struct http *http, int status, const char *text)
{
	hf_assert(http->stage != HTTP_STAGE_WHOLE);
	if (http->stage != HTTP_STAGE_REFUSED) {
		http->stage = HTTP_STAGE_REFUSED;
		http->refusal = (struct http_refusal){ status, text };
	}
	return false;
}

/* A span that llhttp may give in pieces, each behind the other in `head`. */
static void grow(struct slice *slice, const char *at, size_t len)
{
	hf_assert(!slice->data || slice->data + slice->len == at);
	if (!slice->data)
		slice->data = at;
	slice->len += len;
}

static struct http *http_of(llhttp_t *parser)
{
	return container_of(parser, struct http, parser);
}

static int on_method(llhttp_t *parser, const char *at, size_t len)
{
	grow(&http_of(parser)->request.method, at, len);
	return HPE_OK;
}

static int on_url(llhttp_t *parser, const char *at, size_t len)
{
	grow(&http_of(parser)->request.target, at, len);
	return HPE_OK;
}

static int on_header_field(llhttp_t *parser, const char *at, size_t len)
{
	struct http *http = http_of(parser);
	if (http->headers_whole)
		return HPE_OK; /* trailers are counted, never kept */
	size_t *count = &http->request.headers_count;
	if (*count == 0 || http->in_value) {
		if (*count == HTTP_HEADERS_MAX)
			return HPE_USER;
		http->headers[(*count)++] = (struct header){};
		http->in_value = false;
	}
	grow(&http->headers[*count - 1].name, at, len);
	return HPE_OK;
}

static int on_header_value(llhttp_t *parser, const char *at, size_t len)
{
	struct http *http = http_of(parser);
	if (http->headers_whole)
		return HPE_OK;
	http->in_value = true;
	if (len > 0)
		grow(&http->headers[http->request.headers_count - 1].value, at, len);
	return HPE_OK;
}

static int on_header_value_complete(llhttp_t *parser)
{
	http_of(parser)->in_value = true; /* an empty value has no span */
	return HPE_OK;
}

static int on_headers_complete(llhttp_t *parser)
{
	struct http *http = http_of(parser);
	http->headers_whole = true;
	/* Now, since llhttp forgets its flags at the end of the message. */
	http->request.keep_alive = parser->http_minor > 0 && llhttp_should_keep_alive(parser) == 1;
	http->request.chunks = parser->http_minor > 0;
	parser->upgrade = 0; /* we never switch protocols: RFC 9110 7.8 lets us ignore the wish */
	return HPE_OK;
}

static int on_body(llhttp_t *parser, const char *at, size_t len)
{
	buf_add(&http_of(parser)->body, at, len);
	return HPE_OK;
}

static int on_chunk_header(llhttp_t *parser)
{
	http_of(parser)->chunk_bytes = parser->content_length;
	return HPE_OK;
}

static int on_whole(llhttp_t *parser)
{
	http_of(parser)->whole = true;
	return HPE_OK;
}

static const llhttp_settings_t SETTINGS = {
	.on_method = on_method,
	.on_url = on_url,
	.on_header_field = on_header_field,
	.on_header_value = on_header_value,
	.on_header_value_complete = on_header_value_complete,
	.on_headers_complete = on_headers_complete,
	.on_body = on_body,
	.on_chunk_header = on_chunk_header,
	.on_message_complete = on_whole,
};

static bool parse(struct http *http, const char *bytes, size_t len)
{
	llhttp_errno_t error = llhttp_execute(&http->parser, bytes, len);
	if (error == HPE_OK)
		return true;
	if (error == HPE_INVALID_METHOD)
		return refuse(http, 501, "unknown method");
	return refuse(http, 400, "malformed request");
}

struct http *http_new(size_t header_bytes_max, size_t body_bytes_max)
{
	hf_assert(header_bytes_max > 0);
	struct http *http = hf_alloc(sizeof *http);
	http->header_bytes_max = header_bytes_max;
	http->body_bytes_max = body_bytes_max;
	http_next(http);
	return http;
}

struct http *http_free(struct http *http)
{
	if (!http)
		return nullptr;
	buf_deinit(&http->head);
	buf_deinit(&http->body);
	buf_deinit(&http->line);
	free(http);
	return nullptr;
}

static void empty(struct buf *buf)
{
	if (buf->room > KEPT_BYTES_MAX)
		buf_deinit(buf);
	else
		buf_clear(buf);
}

void http_next(struct http *http)
{
	llhttp_init(&http->parser, HTTP_REQUEST, &SETTINGS);
	empty(&http->head);
	empty(&http->body);
	buf_clear(&http->line);
	http->stage = HTTP_STAGE_START;
	http->sub = SUB_REQUEST_LINE;
	http->refusal = (struct http_refusal){};
	http->request = (struct http_request){ .headers = http->headers };
	http->line_start = http->blank_lines = http->lines = 0;
	http->extension_bytes = http->trailer_bytes = 0;
	http->left = http->chunk_bytes = 0;
	http->chunked = http->expects_continue = false;
	http->headers_whole = http->whole = http->in_value = false;
}

enum http_stage http_stage_of(const struct http *http)
{
	return http->stage;
}

bool http_wants_continue(const struct http *http)
{
	return http->stage == HTTP_STAGE_BODY && http->expects_continue;
}

const struct http_request *http_request_of(const struct http *http)
{
	hf_assert(http->stage == HTTP_STAGE_WHOLE);
	return &http->request;
}

struct http_refusal http_refusal_of(const struct http *http)
{
	hf_assert(http->stage == HTTP_STAGE_REFUSED);
	return http->refusal;
}

/* "METHOD SP target SP HTTP/1.x", single spaces, nothing else. llhttp forgives more. */
static bool check_method(struct http *http, struct slice method)
{
	if (!text_is_token(method))
		return refuse(http, 400, "malformed method");
	if (method.len > METHOD_BYTES_MAX)
		return refuse(http, 501, "unknown method");
	return true;
}

static bool check_request_line(struct http *http, struct slice line)
{
	struct slice method, target, version = line;
	if (!text_split(&version, ' ', &method) || !text_split(&version, ' ', &target))
		return refuse(http, 400, "malformed request line");
	if (!check_method(http, method))
		return false;
	if (target.len > HTTP_TARGET_BYTES_MAX)
		return refuse(http, 414, "target too long");
	if (version.len != strlen("HTTP/1.1") || memcmp(version.data, "HTTP/", 5) != 0 ||
	    !text_is_digit(version.data[5]) || version.data[6] != '.' ||
	    !text_is_digit(version.data[7]))
		return refuse(http, 400, "malformed request line");
	if (version.data[5] != '1' || version.data[7] > '1')
		return refuse(http, 505, "only HTTP/1.1 and HTTP/1.0 are spoken here");
	if (slice_is(method, "CONNECT"))
		return refuse(http, 501, "unknown method");
	return true;
}

static bool check_header_line(struct http *http, struct slice line)
{
	struct slice name, value = line;
	if (line.data[0] == ' ' || line.data[0] == '\t')
		return refuse(http, 400, "folded header line");
	if (!text_split(&value, ':', &name) || !text_is_token(name))
		return refuse(http, 400, "malformed header line");
	if (++http->lines > HTTP_HEADERS_MAX)
		return refuse(http, 431, "too many or too long headers");
	return true;
}

static bool header_one(const struct http *http, const char *name, struct slice *value,
		       size_t *count)
{
	return http_find_header(http->headers, http->request.headers_count, name, value, count);
}

/* Splits the target of absolute-form into what Host must repeat and the path. */
static bool check_absolute(struct http *http, struct slice host, struct slice *path)
{
	struct slice rest = *path;
	size_t scheme = text_begins_any_case(rest, slice_of("http://")) ? 7 : 8;
	rest = (struct slice){ rest.data + scheme, rest.len - scheme };
	size_t len = 0;
	while (len < rest.len && rest.data[len] != '/' && rest.data[len] != '?')
		len++;
	struct slice authority = { rest.data, len };
	if (!text_is_authority(authority) || !text_equal_any_case(authority, host))
		return refuse(http, 400, "target and Host differ");
	*path = (struct slice){ rest.data + len, rest.len - len };
	return true;
}

static bool check_target(struct http *http, struct slice host)
{
	struct http_request *request = &http->request;
	struct slice path = request->target, before;
	if (slice_is(path, "*")) {
		if (!slice_is(request->method, "OPTIONS"))
			return refuse(http, 400, "malformed target");
		request->path = path;
		return true;
	}
	if ((text_begins_any_case(path, slice_of("http://")) ||
	     text_begins_any_case(path, slice_of("https://"))) &&
	    !check_absolute(http, host, &path))
		return false;
	struct slice query = path;
	if (text_split(&query, '?', &before)) {
		path = before;
		if (!text_is_uri(query, ":@/?"))
			return refuse(http, 400, "malformed target");
	}
	if (path.len == 0 && request->target.data[0] != '/' && request->target.data[0] != '?')
		path = slice_of("/"); /* absolute-form without a path */
	if (path.len == 0 || path.data[0] != '/' || !text_is_uri(path, ":@/"))
		return refuse(http, 400, "malformed target");
	request->path = path;
	return true;
}

static bool check_host(struct http *http, struct slice *host)
{
	size_t count;
	if (!header_one(http, "host", host, &count)) {
		if (count > 1)
			return refuse(http, 400, "more than one Host");
		if (http->parser.http_minor > 0)
			return refuse(http, 400, "no Host");
		return true;
	}
	return text_is_authority(*host) || refuse(http, 400, "malformed Host");
}

static bool read_length(struct http *http, struct slice text, uint64_t *length)
{
	if (text.len == 0 || text.len > CONTENT_LENGTH_DIGITS_MAX)
		return refuse(http, 400, "malformed Content-Length");
	*length = 0;
	for (size_t i = 0; i < text.len; i++) {
		if (!text_is_digit(text.data[i]))
			return refuse(http, 400, "malformed Content-Length");
		*length = *length * 10 + (uint64_t)(text.data[i] - '0');
	}
	return true;
}

/* RFC 9112 6: exactly one way to tell where the body ends. */
static bool check_length(struct http *http)
{
	struct slice length, coding;
	size_t lengths, codings;
	bool has_length = header_one(http, "content-length", &length, &lengths);
	bool has_coding = header_one(http, "transfer-encoding", &coding, &codings);
	if (lengths > 1 || codings > 1 || (lengths && codings))
		return refuse(http, 400, "ambiguous body length");
	if (has_coding) {
		if (http->parser.http_minor == 0 || !text_is_any_case(coding, "chunked") ||
		    !(http->parser.flags & F_CHUNKED))
			return refuse(http, 400, "Transfer-Encoding is not just chunked");
		http->chunked = true;
		return true;
	}
	if (has_length && !read_length(http, length, &http->left))
		return false;
	if (http->left > http->body_bytes_max)
		return refuse(http, 413, "body too large");
	return true;
}

static bool check_wishes(struct http *http)
{
	struct slice value;
	size_t count;
	header_one(http, "content-encoding", &value, &count);
	if (count > 1 || (count == 1 && !text_is_any_case(value, "identity")))
		return refuse(http, 415, "content codings are not accepted");
	header_one(http, "expect", &value, &count);
	if (count > 0) {
		if (count > 1 || !text_is_any_case(value, "100-continue"))
			return refuse(http, 417, "only Expect: 100-continue is known");
		/* RFC 9110 10.1.1: a 1.0 client's is ignored. */
		http->expects_continue = http->parser.http_minor > 0;
	}
	return true;
}

/* The head is whole: llhttp first, then what it leaves to its caller. */
static bool end_head(struct http *http)
{
	if (!parse(http, http->head.data, http->head.len))
		return false;
	struct http_request *request = &http->request;
	if (!http->headers_whole || request->headers_count != http->lines)
		return refuse(http, 400, "malformed request");
	for (size_t i = 0; i < request->headers_count; i++)
		http->headers[i].value = slice_trim(http->headers[i].value);
	struct slice host = {};
	if (!check_host(http, &host) || !check_target(http, host) || !check_length(http) ||
	    !check_wishes(http))
		return false;
	request->head = slice_is(request->method, "HEAD");
	http->stage = HTTP_STAGE_BODY;
	http->sub = http->chunked ? SUB_CHUNK_LINE : SUB_LENGTH;
	http->line_start = 0;
	return true;
}

static bool check_end(struct http *http)
{
	if (!http->whole)
		return refuse(http, 400, "malformed request");
	hf_assert(!http->body.overflow);
	http->request.body = buf_slice(&http->body);
	http->stage = HTTP_STAGE_WHOLE;
	return true;
}

/* 1 to 15 hexadecimal digits, then nothing or ";" and extensions, which are skipped. */
static bool check_chunk_line(struct http *http, struct slice line)
{
	uint64_t size = 0;
	size_t digits = 0;
	for (; digits < line.len && text_is_hex(line.data[digits]); digits++) {
		char c = line.data[digits];
		unsigned value =
		    text_is_digit(c) ? (unsigned)(c - '0') : ((unsigned)c | 0x20) - 'a' + 10;
		if (digits == CHUNK_SIZE_DIGITS_MAX)
			return refuse(http, 400, "malformed chunk size");
		size = size * 16 + value;
	}
	if (digits == 0 ||
	    !text_is_chunk_extensions((struct slice){ line.data + digits, line.len - digits }))
		return refuse(http, 400, "malformed chunk size");
	http->extension_bytes += line.len - digits;
	if (http->extension_bytes > HTTP_CHUNK_EXTENSION_BYTES_MAX)
		return refuse(http, 400, "chunk extensions too long");
	if (size > http->body_bytes_max - http->body.len)
		return refuse(http, 413, "body too large");
	http->left = size;
	return true;
}

static bool end_chunk_line(struct http *http)
{
	struct slice line = { http->line.data, http->line.len - 2 }, size, rest = line;
	if (!check_chunk_line(http, line))
		return false;
	/* RFC 9112 7.1.1: extensions that we do not know are ignored. llhttp 8 knows but one. */
	if (!text_split(&rest, ';', &size))
		size = line;
	if (!parse(http, size.data, size.len) || !parse(http, CRLF, sizeof CRLF - 1))
		return false;
	if (http->chunk_bytes != http->left || http->whole)
		return refuse(http, 400, "malformed chunk size");
	http->sub = http->left ? SUB_CHUNK_DATA : SUB_TRAILERS;
	buf_clear(&http->line);
	return true;
}

static bool end_trailer_line(struct http *http)
{
	struct slice line = { http->line.data, http->line.len - 2 };
	if (line.len > 0) {
		if (!check_header_line(http, line))
			return false;
		if (text_is_forbidden_trailer(line))
			return refuse(http, 400, "forbidden trailer");
		http->trailer_bytes += http->line.len;
		if (http->trailer_bytes > HTTP_TRAILER_BYTES_MAX)
			return refuse(http, 431, "trailers too long");
	}
	if (!parse(http, http->line.data, http->line.len))
		return false;
	if (line.len == 0)
		return check_end(http);
	if (http->whole)
		return refuse(http, 400, "malformed request");
	buf_clear(&http->line);
	return true;
}

static bool end_head_line(struct http *http)
{
	struct slice line = { http->head.data + http->line_start,
			      http->head.len - http->line_start - 2 };
	if (http->sub == SUB_REQUEST_LINE && line.len == 0) {
		if (++http->blank_lines > BLANK_LINES_MAX)
			return refuse(http, 400, "malformed request line");
		buf_clear(&http->head);
		http->stage = HTTP_STAGE_START;
		return true;
	}
	http->line_start = http->head.len;
	if (http->sub == SUB_REQUEST_LINE) {
		http->sub = SUB_HEADERS;
		return check_request_line(http, line);
	}
	return line.len ? check_header_line(http, line) : end_head(http);
}

/* A request line that is still growing begins with a method, or waits in vain: what follows a body
 * that was longer than its length, and other protocols' hellos, are answered at once. */
static bool check_method_so_far(struct http *http)
{
	if (http->head.data[0] == '\r')
		return true; /* a blank line */
	size_t most = METHOD_BYTES_MAX + 1;
	size_t len = http->head.len < most ? http->head.len : most;
	const char *space = memchr(http->head.data, ' ', len);
	struct slice method = { http->head.data, space ? (size_t)(space - http->head.data) : len };
	return check_method(http, method);
}

/* A line that is still growing must stay within what it could be once whole. */
static bool check_room(struct http *http, const struct buf *into)
{
	size_t len = into->len - http->line_start;
	switch (http->sub) {
	case SUB_REQUEST_LINE:
		if (len > HTTP_TARGET_BYTES_MAX + sizeof "OPTIONS  HTTP/1.1\r\n")
			return refuse(http, 414, "target too long");
		break;
	case SUB_CHUNK_LINE:
		if (len > CHUNK_LINE_BYTES_MAX)
			return refuse(http, 400, "chunk line too long");
		break;
	default:
		if (len > HTTP_HEADER_LINE_BYTES_MAX + 2)
			return refuse(http, 431, "too many or too long headers");
		break;
	}
	if (into == &http->head && into->len > http->header_bytes_max)
		return refuse(http, 431, "too many or too long headers");
	return true;
}

/* CR and LF only together, no other control but a tab; before a line is whole, so that what will
 * never be one is answered at once. `previous` is the byte before in the same line, or 0. */
static bool check_bytes(struct http *http, char previous, const char *bytes, size_t len)
{
	for (size_t i = 0; i < len; previous = bytes[i++]) {
		unsigned char c = (unsigned char)bytes[i];
		if ((c == '\n') != (previous == '\r'))
			return refuse(http, 400, "line not ended by CR LF");
		if ((c < ' ' && c != '\t' && c != '\r' && c != '\n') || c == 0x7f)
			return refuse(http, 400, "control character");
	}
	return true;
}

static size_t read_line(struct http *http, const char *bytes, size_t len)
{
	bool in_head = http->sub == SUB_REQUEST_LINE || http->sub == SUB_HEADERS;
	struct buf *into = in_head ? &http->head : &http->line;
	const char *end = memchr(bytes, '\n', len);
	size_t take = end ? (size_t)(end - bytes) + 1 : len;
	char previous = into->len > http->line_start ? into->data[into->len - 1] : '\0';
	if (!check_bytes(http, previous, bytes, take))
		return take;
	buf_add(into, bytes, take);
	if (!check_room(http, into))
		return take;
	if (!end) {
		if (http->sub == SUB_REQUEST_LINE)
			(void)check_method_so_far(http);
		return take;
	}
	if (in_head)
		(void)end_head_line(http);
	else if (http->sub == SUB_CHUNK_LINE)
		(void)end_chunk_line(http);
	else
		(void)end_trailer_line(http);
	return take;
}

static size_t read_data(struct http *http, const char *bytes, size_t len)
{
	size_t take = len < http->left ? len : (size_t)http->left;
	if (http->sub == SUB_CHUNK_END &&
	    memcmp(bytes, CRLF + sizeof CRLF - 1 - http->left, take) != 0) {
		(void)refuse(http, 400, "chunk not ended by CR LF");
		return take;
	}
	if (take && !parse(http, bytes, take))
		return take;
	http->left -= take;
	if (http->left > 0)
		return take;
	if (http->sub == SUB_LENGTH) {
		(void)check_end(http);
	} else if (http->sub == SUB_CHUNK_DATA) {
		http->sub = SUB_CHUNK_END;
		http->left = sizeof CRLF - 1;
	} else {
		http->sub = SUB_CHUNK_LINE;
	}
	return take;
}

size_t http_read(struct http *http, const char *bytes, size_t len)
{
	hf_assert(bytes || len == 0);
	size_t taken = 0;
	while (taken < len && http->stage < HTTP_STAGE_WHOLE) {
		bool data = http->sub == SUB_LENGTH || http->sub == SUB_CHUNK_DATA ||
			    http->sub == SUB_CHUNK_END;
		if (http->stage == HTTP_STAGE_START)
			http->stage = HTTP_STAGE_HEAD;
		if (http->stage == HTTP_STAGE_BODY)
			http->expects_continue = false; /* the body comes unasked */
		taken += data ? read_data(http, bytes + taken, len - taken)
			      : read_line(http, bytes + taken, len - taken);
		if (http->stage == HTTP_STAGE_BODY && http->sub == SUB_LENGTH && http->left == 0)
			(void)check_end(http); /* no body to wait for */
		hf_assert(taken <= len);
	}
	return taken;
}

bool http_find_header(const struct header *headers, size_t headers_count, const char *name,
		      struct slice *value, size_t *count)
{
	size_t found = 0;
	struct slice last = {};
	for (size_t i = 0; i < headers_count; i++) {
		if (!text_is_any_case(headers[i].name, name))
			continue;
		found++;
		last = headers[i].value;
	}
	if (count)
		*count = found;
	if (found)
		*value = last;
	return found == 1;
}
