/* The parser's bar: what is well-framed is read as sent however it is cut, and what two parsers
 * could read in two ways is refused with the same status however it is cut. */
#include "api/http.h"

#include <stdlib.h>
#include <string.h>

#include "api/http_write.h"
#include "runtime/base.h"
#include "runtime/buf.h"
#include "test/test.h"

constexpr size_t HEADER_BYTES_MAX = 32'768;
constexpr size_t BODY_BYTES_MAX = 4'096;

#define HOST                "Host: a.example\r\n"
#define GET(headers)        "GET /x HTTP/1.1\r\n" HOST headers "\r\n"
#define POST(headers, body) "POST /mcp HTTP/1.1\r\n" HOST headers "\r\n" body
#define CHUNKED(body)       POST("Transfer-Encoding: chunked\r\n", body)

/* Bytes that may hold a NUL. */
#define BYTES(text) { (text), sizeof(text) - 1 }

struct good {
	struct slice bytes;
	const char *path, *body;
	bool closes;
};

static const struct good goods[] = {
	{ BYTES(GET("")), "/x", "", false },
	{ BYTES("GET /a/b?c=d&e=/? HTTP/1.1\r\nhOST:a:80 \t\r\n\r\n"), "/a/b", "", false },
	{ BYTES("GET /%41%7e HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n"), "/%41%7e", "", false },
	{ BYTES("GET http://a.example/y?z HTTP/1.1\r\n" HOST "\r\n"), "/y", "", false },
	{ BYTES("GET HTTP://A.EXAMPLE HTTP/1.1\r\n" HOST "\r\n"), "/", "", false },
	{ BYTES("GET http://a HTTP/1.1\r\nHost: a\r\n\r\n"), "/", "", false },
	{ BYTES("OPTIONS * HTTP/1.1\r\n" HOST "\r\n"), "*", "", false },
	{ BYTES("\r\n" GET("")), "/x", "", false },
	{ BYTES(GET("X:\r\nY: \t a b\xc3\xa9\t \r\n")), "/x", "", false },
	{ BYTES(GET("Connection: keep-alive\r\n")), "/x", "", false },
	{ BYTES(GET("Connection: close\r\n")), "/x", "", true },
	{ BYTES(GET("Connection: x, Close\r\n")), "/x", "", true },
	{ BYTES(GET("Connection: Upgrade\r\nUpgrade: h2c\r\n")), "/x", "", false },
	{ BYTES("GET / HTTP/1.0\r\n\r\n"), "/", "", true },
	{ BYTES("GET / HTTP/1.0\r\nConnection: keep-alive\r\nExpect: 100-continue\r\n\r\n"), "/",
	  "", true },
	{ BYTES(GET("Content-Length: 2\r\n") "ab"), "/x", "ab", false },
	{ BYTES(POST("Content-Length: 0\r\n", "")), "/mcp", "", false },
	{ BYTES(POST("Content-Length: 0005\r\n", "a\nb\r\n")), "/mcp", "a\nb\r\n", false },
	{ BYTES(POST("", "")), "/mcp", "", false },
	{ BYTES(POST("Expect: 100-Continue\r\nContent-Length: 3\r\n", "abc")), "/mcp", "abc",
	  false },
	{ BYTES(POST("Content-Encoding: identity\r\nContent-Length: 1\r\n", "a")), "/mcp", "a",
	  false },
	{ BYTES(POST("Upgrade: x\r\nConnection: upgrade\r\nContent-Length: 1\r\n", "a")), "/mcp",
	  "a", false },
	{ BYTES(CHUNKED("0\r\n\r\n")), "/mcp", "", false },
	{ BYTES(CHUNKED("3\r\nabc\r\n000a\r\n0\r\n\r\n12345\r\n0\r\n\r\n")), "/mcp",
	  "abc0\r\n\r\n12345", false },
	{ BYTES(CHUNKED("3;n=v;q=\"a; \\\"b\";z\r\nabc\r\n0;x\r\n\r\n")), "/mcp", "abc", false },
	{ BYTES(CHUNKED("1\r\na\r\n0\r\nX-Sum: 1\r\nY:\r\n\r\n")), "/mcp", "a", false },
	{ BYTES(POST("Transfer-Encoding: \tChunked \r\n", "1\r\na\r\n0\r\n\r\n")), "/mcp", "a",
	  false },
};

struct bad {
	struct slice bytes;
	int status;
};

static const struct bad bads[] = {
	/* the request line */
	{ BYTES("GET /\r\n\r\n"), 400 },
	{ BYTES("GET / HTTP/1.1 \r\n" HOST "\r\n"), 400 },
	{ BYTES("GET  / HTTP/1.1\r\n" HOST "\r\n"), 400 },
	{ BYTES("GET\t/\tHTTP/1.1\r\n" HOST "\r\n"), 400 },
	{ BYTES(" GET / HTTP/1.1\r\n" HOST "\r\n"), 400 },
	{ BYTES("GET / y HTTP/1.1\r\n" HOST "\r\n"), 400 },
	{ BYTES("G[T / HTTP/1.1\r\n" HOST "\r\n"), 400 },
	{ BYTES("FROB / HTTP/1.1\r\n" HOST "\r\n"), 501 },
	{ BYTES("CONNECT a.example:80 HTTP/1.1\r\n" HOST "\r\n"), 501 },
	/* over 32 bytes: known by its beginning */
	{ BYTES("ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFGH / HTTP/1.1\r\n" HOST "\r\n"), 501 },
	{ BYTES("ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFGH / HTTP/9.9\r\n" HOST "\r\n"), 501 },
	{ BYTES("GET / http/1.1\r\n" HOST "\r\n"), 400 },
	{ BYTES("GET / HTTP/1.10\r\n" HOST "\r\n"), 400 },
	{ BYTES("GET / HTTP/01.1\r\n" HOST "\r\n"), 400 },
	{ BYTES("GET / HTTP/1,1\r\n" HOST "\r\n"), 400 },
	{ BYTES("GET / HTTP/0.9\r\n" HOST "\r\n"), 505 },
	{ BYTES("GET / HTTP/1.2\r\n" HOST "\r\n"), 505 },
	{ BYTES("GET / HTTP/3.0\r\n" HOST "\r\n"), 505 },
	{ BYTES("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505 },
	{ BYTES("\r\n\r\n" GET("")), 400 },
	{ BYTES("\r" GET("")), 400 },
	{ BYTES("\n" GET("")), 400 },
	{ BYTES("\x16\x03\x01\x02"), 400 },
	/* the target */
	{ BYTES("GET x HTTP/1.1\r\n" HOST "\r\n"), 400 },
	{ BYTES("GET ?x HTTP/1.1\r\n" HOST "\r\n"), 400 },
	{ BYTES("GET * HTTP/1.1\r\n" HOST "\r\n"), 400 },
	{ BYTES("GET /x#y HTTP/1.1\r\n" HOST "\r\n"), 400 },
	{ BYTES("GET /%4 HTTP/1.1\r\n" HOST "\r\n"), 400 },
	{ BYTES("GET /%zz HTTP/1.1\r\n" HOST "\r\n"), 400 },
	{ BYTES("GET /<x> HTTP/1.1\r\n" HOST "\r\n"), 400 },
	{ BYTES("GET /\xc3\xa9 HTTP/1.1\r\n" HOST "\r\n"), 400 },
	{ BYTES("GET /\0 HTTP/1.1\r\n" HOST "\r\n"), 400 },
	{ BYTES("GET /\x7f HTTP/1.1\r\n" HOST "\r\n"), 400 },
	{ BYTES("GET http://b.example/ HTTP/1.1\r\n" HOST "\r\n"), 400 },
	{ BYTES("GET http://a.example@b/ HTTP/1.1\r\n" HOST "\r\n"), 400 },
	{ BYTES("GET http://u@a.example/ HTTP/1.1\r\nHost: u@a.example\r\n\r\n"), 400 },
	{ BYTES("GET http:///x HTTP/1.1\r\n" HOST "\r\n"), 400 },
	{ BYTES("GET ftp://a.example/ HTTP/1.1\r\n" HOST "\r\n"), 400 },
	/* Host */
	{ BYTES("GET / HTTP/1.1\r\n\r\n"), 400 },
	{ BYTES("GET / HTTP/1.1\r\nHost:\r\n\r\n"), 400 },
	{ BYTES("GET / HTTP/1.1\r\nHost: a, b\r\n\r\n"), 400 },
	{ BYTES("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"), 400 },
	{ BYTES("GET / HTTP/1.1\r\nHost: a:8x\r\n\r\n"), 400 },
	{ BYTES("GET / HTTP/1.1\r\nHost: a:123456\r\n\r\n"), 400 },
	{ BYTES("GET / HTTP/1.1\r\nHost: [::1\r\n\r\n"), 400 },
	{ BYTES("GET / HTTP/1.1\r\nHost: [::1]x\r\n\r\n"), 400 },
	{ BYTES(GET(HOST)), 400 },
	{ BYTES("GET / HTTP/1.0\r\n" HOST HOST "\r\n"), 400 },
	/* header lines */
	{ BYTES(GET("X : y\r\n")), 400 },
	{ BYTES(GET("X\t: y\r\n")), 400 },
	{ BYTES(GET("X Y: z\r\n")), 400 },
	{ BYTES(GET("X\r\n")), 400 },
	{ BYTES(GET(": y\r\n")), 400 },
	{ BYTES(GET("X@: y\r\n")), 400 },
	{ BYTES(GET("X\xc3: y\r\n")), 400 },
	{ BYTES(GET("X\0: y\r\n")), 400 },
	{ BYTES(GET("X: y\0z\r\n")), 400 },
	{ BYTES(GET("X: y\x1bz\r\n")), 400 },
	{ BYTES(GET("X: y\x7f\r\n")), 400 },
	{ BYTES(GET("X: y\r\n z\r\n")), 400 },
	{ BYTES(GET("X: y\r\n\tz\r\n")), 400 },
	{ BYTES("GET / HTTP/1.1\r\n Host: a\r\n\r\n"), 400 },
	{ BYTES(GET("X: y\rZ: a\r\n")), 400 },
	{ BYTES(GET("X: y\n")), 400 },
	{ BYTES("GET / HTTP/1.1\nHost: a\n\n"), 400 },
	{ BYTES("GET / HTTP/1.1\r\n" HOST "\n"), 400 },
	{ BYTES("GET / HTTP/1.1\r\n" HOST "\r\r\n"), 400 },
	/* how long the body is */
	{ BYTES(POST("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n")), 400 },
	{ BYTES(POST("Transfer-Encoding: chunked\r\nContent-Length: 3\r\n", "0\r\n\r\n")), 400 },
	{ BYTES(POST("Content-Length: 3\r\nContent-Length: 3\r\n", "abc")), 400 },
	{ BYTES(POST("Content-Length: 3\r\nContent-Length: 4\r\n", "abc")), 400 },
	{ BYTES(POST("Content-Length: 3, 3\r\n", "abc")), 400 },
	{ BYTES(POST("Content-Length:\r\n", "")), 400 },
	{ BYTES(POST("Content-Length: +3\r\n", "abc")), 400 },
	{ BYTES(POST("Content-Length: -1\r\n", "")), 400 },
	{ BYTES(POST("Content-Length: 0x3\r\n", "abc")), 400 },
	{ BYTES(POST("Content-Length: 3 4\r\n", "abc")), 400 },
	{ BYTES(POST("Content-Length: 3;\r\n", "abc")), 400 },
	{ BYTES(POST("Content-Length: 18446744073709551619\r\n", "abc")), 400 },
	{ BYTES(POST("Content-Length: 4097\r\n", "")), 413 },
	{ BYTES(POST("Content-Length: 4097\r\nExpect: 100-continue\r\n", "")), 413 },
	{ BYTES(POST("Content-Length: 9223372036854775807\r\n", "")), 413 },
	{ BYTES(POST("Transfer-Encoding:\r\n", "0\r\n\r\n")), 400 },
	{ BYTES(POST("Transfer-Encoding: identity\r\n", "")), 400 },
	{ BYTES(POST("Transfer-Encoding: chunke\r\n", "0\r\n\r\n")), 400 },
	{ BYTES(POST("Transfer-Encoding: chunked;x\r\n", "0\r\n\r\n")), 400 },
	{ BYTES(POST("Transfer-Encoding: chunked, chunked\r\n", "0\r\n\r\n")), 400 },
	{ BYTES(POST("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n")), 400 },
	{ BYTES(POST("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "")), 400 },
	{ BYTES("POST / HTTP/1.0\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400 },
	/* chunks */
	{ BYTES(CHUNKED("\r\n")), 400 },
	{ BYTES(CHUNKED("g\r\n")), 400 },
	{ BYTES(CHUNKED("0x1\r\na\r\n")), 400 },
	{ BYTES(CHUNKED("+1\r\na\r\n")), 400 },
	{ BYTES(CHUNKED("-1\r\na\r\n")), 400 },
	{ BYTES(CHUNKED(" 1\r\na\r\n")), 400 },
	{ BYTES(CHUNKED("1 \r\na\r\n")), 400 },
	{ BYTES(CHUNKED("1 ;x\r\na\r\n")), 400 },
	{ BYTES(CHUNKED("1;\r\na\r\n")), 400 },
	{ BYTES(CHUNKED("1;x=\r\na\r\n")), 400 },
	{ BYTES(CHUNKED("1;x=\"y\r\na\r\n")), 400 },
	{ BYTES(CHUNKED("1;x=\"y\\\"\r\na\r\n")), 400 },
	{ BYTES(CHUNKED("1;x y\r\na\r\n")), 400 },
	{ BYTES(CHUNKED("0000000000000001\r\na\r\n")), 400 },
	{ BYTES(CHUNKED("10000000000000001\r\na\r\n")), 400 },
	{ BYTES(CHUNKED("1001\r\n")), 413 },
	{ BYTES(CHUNKED("fffffffffffffff\r\n")), 413 },
	{ BYTES(CHUNKED("1\na\n0\n\n")), 400 },
	{ BYTES(CHUNKED("1\r\nab\r\n")), 400 },
	{ BYTES(CHUNKED("1\r\na\n0\r\n\r\n")), 400 },
	{ BYTES(CHUNKED("1\r\na\r0\r\n\r\n")), 400 },
	{ BYTES(CHUNKED("1\r\na0\r\n\r\n")), 400 },
	{ BYTES(CHUNKED("1;a\nb\r\na\r\n")), 400 },
	{ BYTES(CHUNKED("1;a\rb\r\na\r\n")), 400 },
	{ BYTES(CHUNKED("1;a\0b\r\na\r\n")), 400 },
	{ BYTES(CHUNKED("0\r\n X: y\r\n\r\n")), 400 },
	{ BYTES(CHUNKED("0\r\nX : y\r\n\r\n")), 400 },
	{ BYTES(CHUNKED("0\r\nX\r\n\r\n")), 400 },
	{ BYTES(CHUNKED("0\r\nX: y\n\r\n")), 400 },
	{ BYTES(CHUNKED("0\r\nContent-Length: 1\r\n\r\n")), 400 },
	{ BYTES(CHUNKED("0\r\ntransfer-encoding: chunked\r\n\r\n")), 400 },
	{ BYTES(CHUNKED("0\r\nAuthorization: Bearer x\r\n\r\n")), 400 },
	{ BYTES(CHUNKED("0\r\n\n")), 400 },
	/* wishes */
	{ BYTES(POST("Expect: 100-continue, x\r\nContent-Length: 1\r\n", "a")), 417 },
	{ BYTES(POST("Expect: x\r\n", "")), 417 },
	{ BYTES(POST("Expect: 100-continue\r\nExpect: 100-continue\r\n", "")), 417 },
	{ BYTES(POST("Content-Encoding: gzip\r\nContent-Length: 1\r\n", "a")), 415 },
};

static struct http *parser(void)
{
	return http_new(HEADER_BYTES_MAX, BODY_BYTES_MAX);
}

/* Reads `bytes` in pieces that end at `cut` (0: none) or after each byte; returns what it took. */
static size_t feed(struct http *http, struct slice bytes, size_t cut, bool each_byte)
{
	size_t taken = 0;
	while (taken < bytes.len && http_stage_of(http) < HTTP_STAGE_WHOLE) {
		size_t end = each_byte ? taken + 1 : (taken < cut ? cut : bytes.len);
		/* A copy of exactly that size, so that a sanitizer sees any look beyond it. */
		char *piece = hf_alloc(end - taken);
		memcpy(piece, bytes.data + taken, end - taken);
		size_t n = http_read(http, piece, end - taken);
		free(piece);
		cr_assert_gt(n, 0);
		taken += n;
	}
	return taken;
}

static void expect_good(struct http *http, const struct good *good, size_t taken)
{
	cr_assert_eq(http_stage_of(http), HTTP_STAGE_WHOLE, "refused: %s", good->bytes.data);
	cr_assert_eq(taken, good->bytes.len, "end of %s", good->bytes.data);
	const struct http_request *request = http_request_of(http);
	cr_assert(slice_is(request->path, good->path), "path of %s", good->bytes.data);
	cr_assert(slice_is(request->body, good->body), "body of %s", good->bytes.data);
	cr_assert_eq(request->keep_alive, !good->closes, "life of %s", good->bytes.data);
}

HF_TEST(http, well_framed_requests_read_the_same_however_they_are_cut)
{
	struct http *http = parser();
	for (size_t i = 0; i < countof(goods); i++) {
		for (size_t cut = 0; cut < goods[i].bytes.len; cut++) {
			size_t taken = feed(http, goods[i].bytes, cut, false);
			expect_good(http, &goods[i], taken);
			http_next(http);
		}
		size_t taken = feed(http, goods[i].bytes, 0, true);
		expect_good(http, &goods[i], taken);
		http_next(http);
	}
	http_free(http);
}

HF_TEST(http, ambiguous_requests_are_refused_the_same_however_they_are_cut)
{
	for (size_t i = 0; i < countof(bads); i++) {
		for (size_t cut = 0; cut <= bads[i].bytes.len; cut++) {
			struct http *http = parser();
			feed(http, bads[i].bytes, cut, cut == bads[i].bytes.len);
			cr_assert_eq(http_stage_of(http), HTTP_STAGE_REFUSED, "accepted: %s",
				     bads[i].bytes.data);
			int status = http_refusal_of(http).status;
			cr_assert_eq(status, bads[i].status, "%d for %s", status,
				     bads[i].bytes.data);
			cr_assert_eq(http_read(http, "GET", 3), 0);
			http_free(http);
		}
	}
}

HF_TEST(http, each_pair_of_pipelined_requests_comes_apart_where_the_first_ends)
{
	struct http *http = parser();
	for (size_t i = 0; i < countof(goods); i++)
		for (size_t j = 0; j < countof(goods); j++) {
			hf_cleanup(buf) struct buf both = {};
			buf_add_slice(&both, goods[i].bytes);
			buf_add_slice(&both, goods[j].bytes);
			size_t taken = feed(http, buf_slice(&both), 0, false);
			expect_good(http, &goods[i], taken);
			http_next(http);
			struct slice rest = { both.data + taken, both.len - taken };
			expect_good(http, &goods[j], feed(http, rest, 0, false));
			http_next(http);
		}
	http_free(http);
}

HF_TEST(http, headers_keep_their_bytes_and_lose_the_space_around)
{
	struct http *http = parser();
	feed(http, slice_of(GET("X-One: \t a  b \t\r\nEmpty:\r\nTwo: 1\r\ntwo: 2\r\n")), 0, true);
	const struct http_request *request = http_request_of(http);
	struct slice value;
	size_t count;
	cr_assert_eq(request->headers_count, 5);
	cr_assert(slice_is(request->method, "GET"));
	cr_assert(slice_is(request->headers[1].name, "X-One"));
	cr_assert(http_find_header(request->headers, 5, "x-ONE", &value, &count));
	cr_assert(slice_is(value, "a  b"));
	cr_assert(http_find_header(request->headers, 5, "empty", &value, nullptr));
	cr_assert_eq(value.len, 0);
	cr_assert_not(http_find_header(request->headers, 5, "two", &value, &count));
	cr_assert_eq(count, 2);
	cr_assert_not(http_find_header(request->headers, 5, "thre", &value, &count));
	cr_assert_eq(count, 0);
	http_free(http);
}

/* Feeds `head`, then `piece` again and again; the status that ends it, 0 when none did. */
static int status_after(const char *head, const char *piece, size_t times, const char *tail)
{
	struct http *http = parser();
	hf_cleanup(buf) struct buf all = {};
	buf_add_text(&all, head);
	for (size_t i = 0; i < times; i++)
		buf_add_text(&all, piece);
	buf_add_text(&all, tail);
	feed(http, buf_slice(&all), 0, false);
	int status = http_stage_of(http) == HTTP_STAGE_REFUSED ? http_refusal_of(http).status : 0;
	if (status == 0)
		cr_assert_eq(http_stage_of(http), HTTP_STAGE_WHOLE, "%s", head);
	http_free(http);
	return status;
}

HF_TEST(http, each_length_has_its_bound_and_its_status)
{
	const char *get = "GET /x HTTP/1.1\r\n" HOST;
	const char *chunked = "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n";
	const char *ends = " HTTP/1.1\r\n" HOST "\r\n";
	cr_assert_eq(status_after("GET /", "a", HTTP_TARGET_BYTES_MAX - 1, ends), 0);
	cr_assert_eq(status_after("GET /", "a", HTTP_TARGET_BYTES_MAX, ends), 414);
	cr_assert_eq(status_after("GET /", "a", HTTP_TARGET_BYTES_MAX * 2, ""), 414);
	cr_assert_eq(status_after(get, "X: y\r\n", HTTP_HEADERS_MAX - 1, "\r\n"), 0);
	cr_assert_eq(status_after(get, "X: y\r\n", HTTP_HEADERS_MAX, "\r\n"), 431);
	cr_assert_eq(status_after("GET / HTTP/1.1\r\n" HOST "X:", "y",
				  HTTP_HEADER_LINE_BYTES_MAX - 2, "\r\n\r\n"),
		     0);
	cr_assert_eq(status_after("GET / HTTP/1.1\r\n" HOST "X:", "y",
				  HTTP_HEADER_LINE_BYTES_MAX - 1, "\r\n\r\n"),
		     431);
	cr_assert_eq(status_after("GET / HTTP/1.1\r\n" HOST "X:", "y", 9'000, ""), 431);
	hf_cleanup(buf) struct buf line = {};
	buf_add_text(&line, "X: ");
	for (int i = 0; i < 4'000; i++)
		buf_add_byte(&line, 'y');
	buf_add_text(&line, "\r\n");
	cr_assert_eq(status_after(get, line.data, 8, "\r\n"), 0);
	cr_assert_eq(status_after(get, line.data, 9, "\r\n"), 431);
	cr_assert_eq(status_after(chunked, "1\r\na\r\n", BODY_BYTES_MAX, "0\r\n\r\n"), 0);
	cr_assert_eq(status_after(chunked, "1\r\na\r\n", BODY_BYTES_MAX + 1, ""), 413);
	cr_assert_eq(status_after(chunked, "1;x=y\r\na\r\n", 64, "0\r\n\r\n"), 0);
	cr_assert_eq(status_after(chunked, "1;x=y\r\na\r\n", 65, ""), 400);
	cr_assert_eq(status_after("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n1;",
				  "x", 300, ""),
		     400);
	cr_assert_eq(status_after("POST / HTTP/1.1\r\n" HOST
				  "Transfer-Encoding: chunked\r\n\r\n0\r\n",
				  "X: y\r\n", 101, ""),
		     431);
	cr_assert_eq(status_after("POST / HTTP/1.1\r\n" HOST
				  "Transfer-Encoding: chunked\r\n\r\n0\r\n",
				  line.data, 3, ""),
		     431);
}

HF_TEST(http, only_a_body_that_is_held_back_wants_a_continue)
{
	struct http *http = parser();
	const char *head = POST("Expect: 100-continue\r\nContent-Length: 2\r\n", "");
	feed(http, slice_of(head), 0, false);
	cr_assert_eq(http_stage_of(http), HTTP_STAGE_BODY);
	cr_assert(http_wants_continue(http));
	http_read(http, "a", 1);
	cr_assert_not(http_wants_continue(http));
	http_read(http, "b", 1);
	cr_assert_eq(http_stage_of(http), HTTP_STAGE_WHOLE);
	http_next(http);
	feed(http, slice_of(POST("Expect: 100-continue\r\n", "")), 0, false);
	cr_assert_eq(http_stage_of(http), HTTP_STAGE_WHOLE);
	http_free(http);
}

HF_TEST(http, a_blank_line_between_requests_is_not_a_request)
{
	struct http *http = parser();
	http_read(http, "\r", 1);
	cr_assert_eq(http_stage_of(http), HTTP_STAGE_HEAD);
	http_read(http, "\n", 1);
	cr_assert_eq(http_stage_of(http), HTTP_STAGE_START);
	http_free(http);
}

HF_TEST(http, answers_are_framed_by_their_length)
{
	hf_cleanup(buf) struct buf out = {};
	struct reply reply = {
		.status = 200,
		.content_type = "text/plain",
		.body = slice_of("hello"),
		.extra = "X: y\r\n",
	};
	http_write_reply(&out, &reply, false, false);
	cr_assert(strncmp(out.data, "HTTP/1.1 200 OK\r\n", 17) == 0);
	cr_assert(strstr(out.data, "\r\nContent-Length: 5\r\n"));
	cr_assert(strstr(out.data, "X: y\r\n\r\nhello"));
	cr_assert_null(strstr(out.data, "Connection:"));
	buf_clear(&out);
	http_write_reply(&out, &reply, true, true);
	cr_assert(strstr(out.data, "\r\nContent-Length: 5\r\n"));
	cr_assert(strstr(out.data, "\r\nConnection: close\r\n"));
	cr_assert_null(strstr(out.data, "hello"));
	buf_clear(&out);
	http_write_reply(&out, &(struct reply){ .status = 202 }, false, false);
	cr_assert(strstr(out.data, "\r\nContent-Length: 0\r\n"));
	buf_clear(&out);
	http_write_refusal(&out, (struct http_refusal){ 431, "too much" });
	cr_assert(strncmp(out.data, "HTTP/1.1 431 ", 13) == 0);
	cr_assert(strstr(out.data, "\r\nConnection: close\r\n"));
	cr_assert(strstr(out.data, "\"executed\":\"no\""));
}
