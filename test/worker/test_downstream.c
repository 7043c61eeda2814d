/* test_downstream.c - one request, one send, and the truth about what came of it: against a peer in
 * this process that reads a request, counts it, and plays a script. */
#include "test/worker/downstream_rig.h"

HF_TEST(downstream, an_answer_is_taken_as_it_is, .init = set_up, .fini = tear_down)
{
	static const struct {
		const char *answer;
		int status;
		const char *reason, *body;
		int64_t retry_after_ms;
	} cases[] = {
		{ "HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}", 201, "201 Created", "{}",
		  -1 },
		{ "HTTP/1.1 204 No Content\r\n\r\n", 204, "204 No Content", "", -1 },
		{ "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n"
		  "{\"ok\":true}",
		  200, "200 OK", "{\"ok\":true}", -1 },
		{ "HTTP/1.1 429 Too Many\r\nRetry-After: 2\r\nContent-Length: 0\r\n\r\n", 429,
		  "429 Too Many", "", 2'000 },
		{ "HTTP/1.1 503 X\r\nretry-after: junk\r\nContent-Length: 0\r\n\r\n", 503, "503 X",
		  "", -1 },
		{ "HTTP/1.1 307 Moved\r\nLocation: http://127.0.0.1:1/steal\r\nContent-Length: "
		  "0\r\n\r\n",
		  307, "307 Moved", "", -1 },
		{ "HTTP/1.1 200 \xff\x1b\r\nTransfer-Encoding: "
		  "chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		  200, "200 ??", "abc", -1 },
	};
	for (size_t i = 0; i < countof(cases); i++) {
		peer.trick = ANSWER;
		peer.answer = slice_of(cases[i].answer);
		ask("POST", url, slice_of("{\"n\":1}"), 5'000);
		cr_assert_eq(outcome.fate, DOWNSTREAM_ANSWERED, "case %zu: %s", i,
			     outcome.reason.data);
		cr_assert_eq(outcome.status, cases[i].status);
		cr_assert_eq(outcome.retry_after_ms, cases[i].retry_after_ms, "case %zu", i);
		cr_assert_str_eq(outcome.reason.data, cases[i].reason);
		cr_assert_str_eq(outcome.body.data ? outcome.body.data : "", cases[i].body);
		cr_assert_eq(peer.requests, (int)i + 1, "one request, no redirect");
		cr_assert_eq(peer.connections, (int)i + 1);
	}
}

HF_TEST(downstream, the_request_is_what_was_asked_for, .init = set_up, .fini = tear_down)
{
	static const char *const methods[] = { "GET", "POST", "PUT", "PATCH", "DELETE" };
	peer.trick = ANSWER;
	peer.answer = slice_of("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
	for (size_t i = 0; i < countof(methods); i++) {
		char line[64];
		ask(methods[i], url, (struct slice){}, 5'000);
		snprintf(line, sizeof line, "%s /a?b=c HTTP/1.1\r\n", methods[i]);
		cr_assert_eq(strncmp(peer.seen.data, line, strlen(line)), 0, "%s", peer.seen.data);
		cr_assert(strstr(peer.seen.data, "\r\nIdempotency-Key: k1\r\n"));
		cr_assert(strstr(peer.seen.data, "\r\nX-Empty:\r\n"));
		cr_assert(strstr(peer.seen.data, "\r\nAccept-Encoding: identity\r\n"));
		cr_assert(!strcasestr(peer.seen.data, "expect:"));
		cr_assert(!strcasestr(peer.seen.data, "content-type:"));
	}
	/* A body over curl's limit for "Expect: 100-continue". */
	constexpr size_t LEN = 2 << 20;
	char *large = hf_alloc(LEN);
	memset(large, 'b', LEN);
	ask("PUT", url, (struct slice){ large, LEN }, 10'000);
	cr_assert_eq(outcome.status, 200);
	cr_assert(!strcasestr(peer.seen.data, "expect:"));
	cr_assert_eq(strlen(strstr(peer.seen.data, "\r\n\r\n") + 4), LEN);
	free(large);
}

HF_TEST(downstream, what_was_sent_without_an_answer_is_sent_once, .init = set_up, .fini = tear_down)
{
	static const enum trick tricks[] = { RESET, CLOSE, SILENT, HALF };
	for (size_t i = 0; i < countof(tricks); i++) {
		peer.trick = tricks[i];
		ask("POST", url, slice_of("{}"), 300);
		cr_assert_eq(outcome.fate, DOWNSTREAM_NO_ANSWER, "trick %zu: %s", i,
			     outcome.reason.data);
		cr_assert_gt(outcome.reason.len, 0);
		cr_assert_eq(peer.requests, (int)i + 1);
		if (peer.fd >= 0)
			peer_drop(false);
	}
}

/* curl sends again by itself where a connection it had kept turns out to be closed. Here the
 * peer keeps each connection, then resets the next request, or the old connection in between. */
HF_TEST(downstream, no_request_rides_on_a_connection_of_another, .init = set_up, .fini = tear_down)
{
	peer.answer = slice_of("HTTP/1.1 200 OK\r\nConnection: keep-alive\r\n"
			       "Content-Length: 2\r\n\r\n{}");
	for (int i = 0; i < 5; i++) {
		peer.trick = STAY;
		ask("POST", url, slice_of("{}"), 5'000);
		cr_assert_eq(outcome.fate, DOWNSTREAM_ANSWERED);
		if (i % 2 == 0 && peer.fd >= 0)
			peer_drop(true);
		peer.trick = RESET;
		ask("POST", url, slice_of("{}"), 5'000);
		cr_assert_eq(outcome.fate, DOWNSTREAM_NO_ANSWER);
		cr_assert_eq(peer.requests, 2 * (i + 1), "each ask is one request");
		cr_assert_eq(peer.connections, 2 * (i + 1), "and one connection");
	}
	static const char *const refusals[] = {
		"HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 401 No\r\nWWW-Authenticate: Basic realm=\"x\"\r\nContent-Length: "
		"0\r\n\r\n",
		"HTTP/1.1 425 Too Early\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: "
		"0\r\n\r\n",
	};
	for (size_t i = 0; i < countof(refusals); i++) {
		int before = peer.requests;
		peer.trick = STAY;
		peer.answer = slice_of(refusals[i]);
		ask("PUT", url, slice_of("{}"), 5'000);
		cr_assert_eq(outcome.fate, DOWNSTREAM_ANSWERED);
		cr_assert_eq(peer.requests, before + 1, "%s", outcome.reason.data);
	}
}

/* `pattern` with the peer's port for PORT. */
static void with_port(const char *pattern, char *out, size_t size)
{
	const char *mark = strstr(pattern, "PORT");
	if (mark)
		snprintf(out, size, "%.*s%d%s", (int)(mark - pattern), pattern, port_of_peer,
			 mark + 4);
	else
		snprintf(out, size, "%s", pattern);
}

/* No redirect is followed, wherever it leads, and its body is not taken for an answer. */
HF_TEST(downstream, redirects_are_answers, .init = set_up, .fini = tear_down)
{
	static const int codes[] = { 300, 301, 302, 303, 305, 307, 308 };
	static const char *const places[] = { "http://127.0.0.1:PORT/other", "/other",
					      "//127.0.0.1:PORT/other", "http://[::1]:PORT/other" };
	char location[64], answer[256];
	for (size_t i = 0; i < countof(codes) * countof(places); i++) {
		with_port(places[i % countof(places)], location, sizeof location);
		snprintf(answer, sizeof answer,
			 "HTTP/1.1 %d X\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n",
			 codes[i / countof(places)], location);
		peer.trick = STAY;
		peer.answer = slice_of(answer);
		ask("POST", url, slice_of("{}"), 5'000);
		cr_assert_eq(outcome.fate, DOWNSTREAM_ANSWERED);
		cr_assert_eq(outcome.status, codes[i / countof(places)]);
		cr_assert_eq(peer.connections, (int)i + 1);
		cr_assert_eq(peer.requests, (int)i + 1);
	}
}

/* Other spellings of this machine, its neighbours and its metadata, of places where nothing may be
 * sent, and of what is no URL for us. Any host is on the list here: it is the address that counts,
 * as it stands when the socket is opened. */
HF_TEST(downstream, odd_spellings_lead_nowhere, .init = set_up, .fini = tear_down)
{
	static const struct {
		const char *url;
		enum downstream_fate fate;
	} cases[] = {
		{ "http://127.0.0.1:PORT/", DOWNSTREAM_DENIED },
		{ "http://127.1:PORT/", DOWNSTREAM_DENIED },
		{ "http://127.0.1:PORT/", DOWNSTREAM_DENIED },
		{ "http://0x7f000001:PORT/", DOWNSTREAM_DENIED },
		{ "http://0x7f.0.0.0x1:PORT/", DOWNSTREAM_DENIED },
		{ "http://2130706433:PORT/", DOWNSTREAM_DENIED },
		{ "http://017700000001:PORT/", DOWNSTREAM_DENIED },
		{ "http://0177.0.0.1:PORT/", DOWNSTREAM_DENIED },
		{ "http://127.0.0.1.:PORT/", DOWNSTREAM_BAD_URL },
		{ "http://%31%32%37.0.0.1:PORT/", DOWNSTREAM_DENIED },
		{ "http://0:PORT/", DOWNSTREAM_DENIED },
		{ "http://0.0.0.0:PORT/", DOWNSTREAM_DENIED },
		{ "http://[::]:PORT/", DOWNSTREAM_DENIED },
		{ "http://[::1]:PORT/", DOWNSTREAM_DENIED },
		{ "http://[0:0:0:0:0:0:0:1]:PORT/", DOWNSTREAM_DENIED },
		{ "http://[::127.0.0.1]:PORT/", DOWNSTREAM_DENIED },
		{ "http://[::ffff:127.0.0.1]:PORT/", DOWNSTREAM_DENIED },
		{ "http://[::ffff:7f00:1]:PORT/", DOWNSTREAM_DENIED },
		{ "http://[64:ff9b::7f00:1]:PORT/", DOWNSTREAM_DENIED },
		{ "http://[2002:7f00:1::]:PORT/", DOWNSTREAM_DENIED },
		{ "http://169.254.169.254:PORT/latest/meta-data/", DOWNSTREAM_DENIED },
		{ "http://[fe80::1]:PORT/", DOWNSTREAM_DENIED },
		{ "http://100.64.0.1:PORT/", DOWNSTREAM_DENIED },
		{ "http://10.0.0.1:PORT/", DOWNSTREAM_DENIED },
		{ "http://224.0.0.1:PORT/", DOWNSTREAM_DENIED },
		{ "http://localhost:PORT/", DOWNSTREAM_DENIED },
		{ "http://a.example#@127.0.0.1:PORT/", DOWNSTREAM_NOT_SENT }, /* to a.example */
		{ "http://a.example@127.0.0.1:PORT/", DOWNSTREAM_BAD_URL },
		{ "http://a.example:80@127.0.0.1:PORT/", DOWNSTREAM_BAD_URL },
		{ "http://[fe80::1%25lo]:PORT/", DOWNSTREAM_BAD_URL },
		/* 127.0.0.1 in enclosed digits */
		{ "http://\xe2\x91\xa0\xe2\x91\xa1\xe2\x91\xa6.0.0.1:PORT/", DOWNSTREAM_BAD_URL },
		{ "http:/127.0.0.1:PORT/", DOWNSTREAM_DENIED },   /* read as with two slashes */
		{ "http:///127.0.0.1:PORT/", DOWNSTREAM_DENIED }, /* or with three */
		{ "http:\\\\127.0.0.1:PORT/", DOWNSTREAM_BAD_URL },
		{ "//127.0.0.1:PORT/", DOWNSTREAM_BAD_URL },
		{ "http://127.0.0.1:PORT0000/", DOWNSTREAM_BAD_URL },
		{ "file:///etc/passwd", DOWNSTREAM_BAD_URL },
		{ "file://127.0.0.1:PORT/etc/passwd", DOWNSTREAM_BAD_URL },
		{ "gopher://127.0.0.1:PORT/_x", DOWNSTREAM_BAD_URL },
		{ "dict://127.0.0.1:PORT/d:x", DOWNSTREAM_BAD_URL },
		{ "ftp://127.0.0.1:PORT/x", DOWNSTREAM_BAD_URL },
		{ "ws://127.0.0.1:PORT/x", DOWNSTREAM_BAD_URL },
		{ "127.0.0.1:PORT/x", DOWNSTREAM_BAD_URL },
	};
	guard("*", nullptr, "{}");
	for (size_t i = 0; i < countof(cases); i++) {
		char text[128];
		with_port(cases[i].url, text, sizeof text);
		ask("GET", text, (struct slice){}, 3'000);
		cr_assert_eq(outcome.fate, cases[i].fate, "%s: %d, %s", text, outcome.fate,
			     outcome.reason.data);
		cr_assert_eq(peer.connections, 0, "%s", text);
	}
}

HF_TEST(downstream, only_listed_hosts_are_asked, .init = set_up, .fini = tear_down)
{
	char here[64], conf[128];
	peer.trick = ANSWER;
	peer.answer = slice_of("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
	snprintf(here, sizeof here, "127.0.0.1:%d", port_of_peer);
	snprintf(conf, sizeof conf, "{\"store\": \"http://%s/base\"}", here);

	guard("a.example", "127.0.0.0/8", conf);
	ask("GET", url, (struct slice){}, 2'000);
	cr_assert_eq(outcome.fate, DOWNSTREAM_DENIED);
	cr_assert(strstr(outcome.reason.data, "host not allowed: 127.0.0.1"), "%s",
		  outcome.reason.data);
	cr_assert_eq(peer.connections, 0);

	/* A name leads where its addresses do; a name that a list of addresses covers is asked. */
	char name[64];
	snprintf(name, sizeof name, "http://localhost:%d/", port_of_peer);
	guard("localhost", nullptr, "{}");
	ask("GET", name, (struct slice){}, 2'000);
	cr_assert_eq(outcome.fate, DOWNSTREAM_DENIED);
	cr_assert(strstr(outcome.reason.data, "address not allowed: "), "%s", outcome.reason.data);
	cr_assert_eq(peer.connections, 0);
	guard("localhost", "127.0.0.0/8,::1", "{}");
	ask("GET", name, (struct slice){}, 2'000);
	cr_assert_eq(outcome.fate, DOWNSTREAM_ANSWERED, "%s", outcome.reason.data);

	guard(nullptr, nullptr, conf); /* the demo: its address is spelt out there */
	ask("GET", url, (struct slice){}, 2'000);
	cr_assert_eq(outcome.fate, DOWNSTREAM_ANSWERED, "%s", outcome.reason.data);

	downstream_close(downstream);
	downstream = downstream_open(loop, &limits);
	ask("GET", url, (struct slice){}, 2'000);
	cr_assert_eq(outcome.fate, DOWNSTREAM_DENIED, "unguarded, nobody is asked");
}

/* What counts is each address that a name leads to at that moment (rebinding). One that is not
 * allowed is passed over; the end is final only where none was tried. */
HF_TEST(downstream, names_are_judged_by_their_addresses, .init = set_up, .fini = tear_down)
{
	static const struct {
		const char *host;
		bool listens;
		enum downstream_fate fate;
	} cases[] = {
		{ "good.example", true, DOWNSTREAM_ANSWERED },
		{ "bad.example", true, DOWNSTREAM_DENIED },
		{ "both.example", true, DOWNSTREAM_ANSWERED },
		{ "good.example", false, DOWNSTREAM_NOT_SENT },
		{ "bad.example", false, DOWNSTREAM_DENIED },
		{ "both.example", false, DOWNSTREAM_NOT_SENT },
		{ "none.example", true, DOWNSTREAM_NOT_SENT },
	};
	int closed;
	close(listen_somewhere(&closed));
	guard("*.example", "127.0.0.1", "{}");
	peer.trick = ANSWER;
	peer.answer = slice_of("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
	for (size_t i = 0; i < countof(cases); i++) {
		char to[64];
		snprintf(to, sizeof to, "http://%s:%d/", cases[i].host,
			 cases[i].listens ? port_of_peer : closed);
		ask("GET", to, (struct slice){}, 2'000);
		cr_assert_eq(outcome.fate, cases[i].fate, "%s: %d %s", to, outcome.fate,
			     outcome.reason.data);
	}
	cr_assert_eq(peer.connections, 2);
}

/* A resolver that hangs costs the call its time, not the loop. */
HF_TEST(downstream, a_slow_name_holds_nobody_up, .init = set_up, .fini = tear_down)
{
	double start = ev_time();
	guard("*.example", "127.0.0.1", "{}");
	ask("GET", "http://slow.example/", (struct slice){}, 200);
	cr_assert_eq(outcome.fate, DOWNSTREAM_NOT_SENT);
	begin("GET", "http://slow.example/", (struct slice){}, 10'000);
	ev_run(loop, EVRUN_NOWAIT);
	downstream_close(downstream);
	downstream = nullptr;
	cr_assert_lt(ev_time() - start, 5.0, "%.3f s", ev_time() - start);
}

/* "hello hello hello" */
static const unsigned char zipped[] = { 0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03,
					0xcb, 0x48, 0xcd, 0xc9, 0xc9, 0x57, 0xc8, 0x40, 0x90, 0x00,
					0x80, 0x88, 0xf9, 0xe5, 0x11, 0x00, 0x00, 0x00 };

HF_TEST(downstream, codings_are_refused, .init = set_up, .fini = tear_down)
{
	static const struct {
		const char *header;
		bool refused;
	} cases[] = {
		{ "Content-Encoding: gzip", true },
		{ "content-encoding:GZIP ", true },
		{ "Content-Encoding: br", true },
		{ "Content-Encoding: gzip, gzip, gzip", true },
		{ "Content-Encoding: identity\r\nContent-Encoding: gzip", true },
		{ "Transfer-Encoding: gzip", true },
		{ "Content-Encoding: identity", false },
		{ "Content-Encoding:", false },
		{ "X-Content-Encoding: gzip", false },
	};
	for (size_t i = 0; i < countof(cases); i++) {
		hf_cleanup(buf) struct buf answer = {};
		buf_add_format(&answer, "HTTP/1.1 201 Made\r\n%s\r\n\r\n", cases[i].header);
		buf_add(&answer, zipped, sizeof zipped);
		peer.trick = ANSWER;
		peer.answer = buf_slice(&answer);
		ask("POST", url, slice_of("{}"), 5'000);
		cr_assert_eq(outcome.fate,
			     cases[i].refused ? DOWNSTREAM_UNREADABLE : DOWNSTREAM_ANSWERED,
			     "%s: %d %s", cases[i].header, outcome.fate, outcome.reason.data);
		cr_assert_eq(outcome.status, 201);
		cr_assert_eq(outcome.body.len, cases[i].refused ? 0 : sizeof zipped);
	}
	/* Nothing there that would be coded. */
	peer.answer = slice_of("HTTP/1.1 204 X\r\nContent-Encoding: gzip\r\n\r\n");
	ask("POST", url, slice_of("{}"), 5'000);
	cr_assert_eq(outcome.fate, DOWNSTREAM_ANSWERED);
}

HF_TEST(downstream, drips_are_cut_and_patience_is_not, .init = set_up, .fini = tear_down)
{
	slow_ms = 100;
	peer.trick = DRIP;
	ask("GET", url, (struct slice){}, 5'000);
	cr_assert_eq(outcome.fate, DOWNSTREAM_NO_ANSWER);
	cr_assert(strstr(outcome.reason.data, "too slow"), "%s", outcome.reason.data);
	if (peer.fd >= 0)
		peer_drop(false);
	/* An answer may let wait for as long as the phase allows, whatever the body's size. */
	constexpr size_t LEN = 1 << 20;
	char *large = hf_alloc(LEN);
	static const size_t lens[] = { 0, 1, 1'000, 100'000, LEN };
	for (size_t i = 0; i < countof(lens); i++) {
		peer.trick = SILENT;
		ask("POST", url, (struct slice){ large, lens[i] }, 500);
		cr_assert_eq(outcome.fate, DOWNSTREAM_NO_ANSWER);
		cr_assert(!strstr(outcome.reason.data, "too slow"), "%zu: %s", lens[i],
			  outcome.reason.data);
		if (peer.fd >= 0)
			peer_drop(false);
	}
	/* A peer that takes nothing more: the request drips. */
	constexpr size_t HUGE = 32 << 20;
	large = hf_realloc(large, HUGE);
	memset(large, 'x', HUGE);
	peer.trick = SILENT;
	begin("POST", url, (struct slice){ large, HUGE }, 5'000);
	while (!outcome.done) {
		ev_run(loop, EVRUN_ONCE);
		if (peer.fd >= 0)
			ev_io_stop(loop, &peer.io);
	}
	cr_assert(strstr(outcome.reason.data, "too slow"), "%s", outcome.reason.data);
	free(large);
	slow_ms = 0;
}

/* --- turns and the budget -----------------------------------------------------------------------
 */

/* A peer that answers nobody before it is told to. */
struct crowd {
	ev_io listen;
	int fds[512];
	size_t count;
	size_t done[DOWNSTREAM_ANSWERED + 1]; /* by fate */
	int64_t wait_ms;
};

static struct crowd crowd;

static void on_crowd(struct ev_loop *, ev_io *io, int)
{
	int fd = accept4(io->fd, nullptr, nullptr, SOCK_CLOEXEC);
	cr_assert(fd >= 0);
	crowd.fds[crowd.count++] = fd;
}

static void on_crowd_done(void *, const struct downstream_answer *answer)
{
	crowd.done[answer->fate]++;
	crowd.wait_ms = answer->retry_after_ms;
}

static void crowd_open(void)
{
	int port;
	crowd = (struct crowd){};
	ev_io_init(&crowd.listen, on_crowd, listen_somewhere(&port), EV_READ);
	ev_io_start(loop, &crowd.listen);
	ev_unref(loop);
	snprintf(url, sizeof url, "http://127.0.0.1:%d/", port);
}

static void crowd_close(void)
{
	ev_ref(loop);
	ev_io_stop(loop, &crowd.listen);
	close(crowd.listen.fd);
	for (size_t i = 0; i < crowd.count; i++)
		if (crowd.fds[i] >= 0)
			close(crowd.fds[i]);
}

static struct downstream_call *crowd_call(bool repeat, int64_t timeout_ms)
{
	static const char *const headers[] = { nullptr };
	struct downstream_request request = { .method = "GET",
					      .url = url,
					      .headers = headers,
					      .repeat = repeat,
					      .timeout_ms = timeout_ms,
					      .may_send = may_send };
	return downstream_start(downstream, &request, on_crowd_done, nullptr);
}

/* Or longer: so many turns, which no machine that stands still takes away. */
static void run_for(double seconds)
{
	for (int turns = (int)(seconds * 1'000); turns > 0; turns--) {
		usleep(1'000);
		ev_run(loop, EVRUN_NOWAIT);
	}
}

static void answer_one(size_t i)
{
	char request[1'024];
	cr_assert_gt(recv(crowd.fds[i], request, sizeof request, 0), 0);
	cr_assert_gt(send(crowd.fds[i], "HTTP/1.1 204 X\r\n\r\n", 18, MSG_NOSIGNAL), 0);
	close(crowd.fds[i]);
	crowd.fds[i] = -1;
}

HF_TEST(downstream, a_host_gets_so_many_requests_at_a_time, .init = set_up, .fini = tear_down)
{
	constexpr int MAX = DOWNSTREAM_CALLS_PER_HOST_MAX,
		      REPEATS = DOWNSTREAM_REPEATS_PER_HOST_MAX;
	struct downstream_call *last = nullptr;
	crowd_open();
	for (int i = 0; i < MAX; i++) /* repeats first: they must not take every turn */
		crowd_call(true, 20'000);
	run_for(0.2);
	cr_assert_eq(crowd.count, REPEATS);
	for (int i = 0; i < MAX; i++)
		last = crowd_call(false, 20'000);
	run_for(0.2);
	cr_assert_eq(crowd.count, MAX, "%zu", crowd.count);
	/* Another host is another matter. */
	peer.trick = ANSWER;
	peer.answer = slice_of("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
	char other[64];
	snprintf(other, sizeof other, "http://127.0.0.1:%d/", port_of_peer);
	ask("GET", other, (struct slice){}, 2'000);
	cr_assert_eq(outcome.fate, DOWNSTREAM_ANSWERED);
	/* One ends, one begins; who waits can be called off, and gives up in time. */
	answer_one(MAX - 1);
	run_for(0.2);
	cr_assert_eq(crowd.count, MAX + 1);
	cr_assert(!downstream_abandon(last));
	crowd_call(false, 50);
	run_for(0.2);
	cr_assert_eq(crowd.done[DOWNSTREAM_NOT_SENT], 1);
	for (size_t i = 0; i < crowd.count; i++) {
		if (crowd.fds[i] >= 0)
			answer_one(i);
		run_for(0.005);
	}
	run_for(0.1);
	cr_assert_eq(crowd.done[DOWNSTREAM_ANSWERED], 2 * MAX - 1);
	cr_assert_eq(crowd.count, 2 * MAX - 1);
	crowd_close();
}

HF_TEST(downstream, repeats_beyond_the_budget_stay_at_home, .init = set_up, .fini = tear_down)
{
	constexpr int SURPLUS = 200; /* more than is saved anew while they are asked for: 4 s */
	crowd_open();
	for (int64_t i = 0; i < RETRY_SAVED_MAX + SURPLUS; i++)
		crowd_call(true, 20'000);
	cr_assert_eq(crowd.done[DOWNSTREAM_NO_BUDGET], 0, "done must not come from inside");
	run_for(0.2);
	cr_assert_gt(crowd.done[DOWNSTREAM_NO_BUDGET], 0);
	cr_assert_leq(crowd.done[DOWNSTREAM_NO_BUDGET], SURPLUS);
	cr_assert_geq(crowd.wait_ms, RETRY_WAIT_MS_MIN);
	cr_assert_leq(crowd.wait_ms, RETRY_WAIT_MS_MAX);
	/* First requests are never told to wait. */
	size_t before = crowd.done[DOWNSTREAM_NO_BUDGET];
	crowd_call(false, 20'000);
	run_for(0.1);
	cr_assert_eq(crowd.done[DOWNSTREAM_NO_BUDGET], before);
	crowd_close();
}

HF_TEST(downstream, a_host_that_is_down_is_left_alone, .init = set_up, .fini = tear_down)
{
	int port;
	char closed[64];
	limits.failures = 5;
	guard("127.0.0.1", "127.0.0.0/8", "{}");
	close(listen_somewhere(&port));
	snprintf(closed, sizeof closed, "http://127.0.0.1:%d/", port);
	for (int i = 0; i < 5; i++) {
		ask("POST", closed, slice_of("{}"), 2'000);
		cr_assert_eq(outcome.fate, DOWNSTREAM_NOT_SENT, "%s", outcome.reason.data);
	}
	ask("POST", closed, slice_of("{}"), 2'000);
	cr_assert_eq(outcome.fate, DOWNSTREAM_BREAKER);
	cr_assert(strstr(outcome.reason.data, "breaker open for 127.0.0.1:"), "%s",
		  outcome.reason.data);
	cr_assert_gt(outcome.retry_after_ms, 0);
	cr_assert_leq(outcome.retry_after_ms, 200);
	/* Another host is another matter. */
	peer.trick = ANSWER;
	peer.answer = slice_of("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
	ask("GET", url, (struct slice){}, 2'000);
	cr_assert_eq(outcome.fate, DOWNSTREAM_ANSWERED, "%s", outcome.reason.data);
	run_for(0.21);
	ask("POST", closed, slice_of("{}"), 2'000);
	cr_assert_eq(outcome.fate, DOWNSTREAM_NOT_SENT, "a probe: %s", outcome.reason.data);
	ask("POST", closed, slice_of("{}"), 2'000);
	cr_assert_eq(outcome.fate, DOWNSTREAM_BREAKER, "one probe");
}

HF_TEST(downstream, what_its_host_says_counts_for_its_breaker, .init = set_up, .fini = tear_down)
{
	static const struct {
		const char *answer;
		bool opens;
	} cases[] = {
		{ "HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n", false },
		{ "HTTP/1.1 409 X\r\nContent-Length: 0\r\n\r\n", false },
		{ "HTTP/1.1 422 X\r\nContent-Length: 0\r\n\r\n", false },
		{ "HTTP/1.1 429 X\r\nContent-Length: 0\r\n\r\n", true },
		{ "HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n", true },
		{ "HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n", true },
	};
	limits.failures = 3;
	for (size_t i = 0; i < countof(cases); i++) {
		guard("127.0.0.1", "127.0.0.0/8", "{}");
		peer.trick = ANSWER;
		peer.answer = slice_of(cases[i].answer);
		for (int n = 0; n < 3; n++) {
			ask("GET", url, (struct slice){}, 2'000);
			cr_assert_eq(outcome.fate, DOWNSTREAM_ANSWERED, "%s", outcome.reason.data);
		}
		ask("GET", url, (struct slice){}, 2'000);
		cr_assert_eq(outcome.fate,
			     cases[i].opens ? DOWNSTREAM_BREAKER : DOWNSTREAM_ANSWERED, "%s",
			     cases[i].answer);
	}
}

/* Until so many have come, or have ended so; for ten seconds at most. */
static void crowd_await(const size_t *counter, size_t wanted)
{
	for (int i = 0; i < 200 && *counter < wanted; i++)
		run_for(0.05);
	cr_assert_eq(*counter, wanted, "%zu of %zu", *counter, wanted);
}

HF_TEST(downstream, who_waits_for_a_turn_is_told_when_the_breaker_opens, .init = set_up,
	.fini = tear_down)
{
	constexpr int MAX = DOWNSTREAM_CALLS_PER_HOST_MAX;
	limits.failures = 3;
	limits.pause_ms = limits.pause_ms_max = 10'000;
	guard("127.0.0.1", "127.0.0.0/8", "{}");
	crowd_open();
	for (int i = 0; i < MAX + 20; i++)
		crowd_call(false, 20'000);
	crowd_await(&crowd.count, MAX);
	for (size_t i = 0; i < 3; i++) {
		close(crowd.fds[i]);
		crowd.fds[i] = -1;
		crowd_await(&crowd.done[DOWNSTREAM_NO_ANSWER], i + 1);
	}
	/* Each of the first two made room for one more. */
	crowd_await(&crowd.done[DOWNSTREAM_BREAKER], 20 - 2);
	crowd_await(&crowd.count, MAX + 2);
	/* What is on its way is not touched, and its success is old news. */
	for (size_t i = 3; i < crowd.count; i++)
		answer_one(i);
	crowd_await(&crowd.done[DOWNSTREAM_ANSWERED], MAX - 1);
	crowd_call(false, 20'000);
	crowd_await(&crowd.done[DOWNSTREAM_BREAKER], 20 - 2 + 1);
	crowd_close();
}

/* Many hosts come and go; the table stays small and the calls are well. */
HF_TEST(downstream, more_hosts_than_are_remembered_harm_nobody, .init = set_up, .fini = tear_down)
{
	char to[64];
	allowed = false;
	for (size_t i = 0; i < 2 * DOWNSTREAM_HOSTS_MAX; i++) {
		snprintf(to, sizeof to, "http://127.0.%zu.%zu:%d/", i / 200, i % 200 + 1,
			 port_of_peer);
		ask("GET", to, (struct slice){}, 2'000);
		cr_assert(outcome.fate == DOWNSTREAM_NOT_SENT ||
			      outcome.fate == DOWNSTREAM_WITHHELD,
			  "%s", outcome.reason.data);
	}
}

HF_TEST(downstream, what_never_left_is_known_not_to_have_left, .init = set_up, .fini = tear_down)
{
	int port;
	char closed[64];
	close(listen_somewhere(&port));
	snprintf(closed, sizeof closed, "http://127.0.0.1:%d/", port);
	ask("POST", closed, slice_of("{}"), 2'000);
	cr_assert_eq(outcome.fate, DOWNSTREAM_NOT_SENT, "refused: %s", outcome.reason.data);

	/* A TLS hello that is answered by silence: connected, but not a byte of the request left.
	 */
	peer.trick = SILENT;
	char tls[72];
	snprintf(tls, sizeof tls, "https%s", url + strlen("http"));
	ask("POST", tls, slice_of("{}"), 300);
	cr_assert_eq(outcome.fate, DOWNSTREAM_NOT_SENT, "TLS: %s", outcome.reason.data);
	if (peer.fd >= 0)
		peer_drop(false);

	allowed = false;
	ask("POST", url, slice_of("{}"), 2'000);
	cr_assert_eq(outcome.fate, DOWNSTREAM_WITHHELD);
	cr_assert_eq(peer.requests, 0);

	static const char *const bad[] = { "file:///etc/passwd", "gopher://127.0.0.1/", "http://",
					   "" };
	for (size_t i = 0; i < countof(bad); i++) {
		ask("GET", bad[i], (struct slice){}, 2'000);
		cr_assert_eq(outcome.fate, DOWNSTREAM_BAD_URL, "%s: %s", bad[i],
			     outcome.reason.data);
	}
}

HF_TEST(downstream, a_flood_is_cut, .init = set_up, .fini = tear_down)
{
	peer.trick = FLOOD;
	ask("GET", url, (struct slice){}, 10'000);
	cr_assert_eq(outcome.fate, DOWNSTREAM_UNREADABLE, "%s", outcome.reason.data);
	cr_assert_eq(outcome.status, 200);
	cr_assert_leq(outcome.body.len, DOWNSTREAM_ANSWER_BYTES_MAX);
}

HF_TEST(downstream, abandoning_says_whether_it_may_have_left, .init = set_up, .fini = tear_down)
{
	peer.trick = SILENT;
	struct downstream_call *call = begin("POST", url, slice_of("{}"), 5'000);
	cr_assert(!downstream_sent(call));
	cr_assert(!downstream_abandon(call), "nothing left yet");

	call = begin("POST", url, slice_of("{}"), 5'000);
	while (peer.requests == 0)
		ev_run(loop, EVRUN_ONCE);
	cr_assert(downstream_sent(call));
	cr_assert(downstream_abandon(call));
	cr_assert(!outcome.done);
}
