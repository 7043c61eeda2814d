/* The connection's machine and the listener over real sockets: a child runs the loop, the test is
 * the client. The child's paths: /now answers at once with its body, /later after 20 ms, /late
 * after 1.5 s, /hold once the client is gone, /gone tells how many were, /big answers with
 * BIG_BYTES, /live tells how many connections live, /drain drains the listener. Streams: /stream is
 * two pieces 20 ms apart, /burst three at once, /quiet one piece and no end, /lump likewise of
 * BIG_BYTES, /endless pieces of ENDLESS_BYTES for ever, /patient lumps of BIG_BYTES, each once the
 * last is taken, then an end. */
#include "test/api/conn_rig.h"

HF_TEST(conn, a_thousand_requests_ride_on_one_connection, .init = start, .fini = stop)
{
	int fd = dial();
	for (int i = 0; i < 1'000; i++) {
		say(fd, "POST /now HTTP/1.1\r\n" HOST "Content-Length: 4\r\n\r\nping");
		expect(fd, 200, "ping");
	}
	close(fd);
}

HF_TEST(conn, pipelined_requests_are_answered_in_their_order, .init = start, .fini = stop)
{
	hf_cleanup(buf) struct buf all = {};
	for (int i = 0; i < 40; i++) {
		const char *path = i % 5 == 0 ? "/later" : "/now";
		if (i % 2)
			buf_add_format(&all,
				       "POST %s HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\n%03d",
				       path, i);
		else
			buf_add_format(&all,
				       "POST %s HTTP/1.1\r\n" HOST
				       "Transfer-Encoding: chunked\r\n\r\n"
				       "3\r\n%03d\r\n0\r\n\r\n",
				       path, i);
	}
	int fd = dial();
	say(fd, all.data);
	for (int i = 0; i < 40; i++) {
		char body[8];
		snprintf(body, sizeof body, "%03d", i);
		expect(fd, 200, body);
	}
	close(fd);
}

HF_TEST(conn, a_request_may_come_in_any_two_pieces, .init = start, .fini = stop)
{
	const char *request = "POST /now HTTP/1.1\r\n" HOST
			      "Transfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n0\r\nT: u\r\n\r\n";
	int fd = dial();
	for (size_t cut = 1; cut < strlen(request); cut++) {
		cr_assert_eq(send(fd, request, cut, 0), (ssize_t)cut);
		poll(nullptr, 0, 1);
		say(fd, request + cut);
		expect(fd, 200, "abc");
	}
	for (size_t i = 0; request[i]; i++)
		cr_assert_eq(send(fd, request + i, 1, 0), 1);
	expect(fd, 200, "abc");
	close(fd);
}

HF_TEST(conn, a_refusal_is_answered_once_and_closes, .init = start, .fini = stop)
{
	static const struct {
		const char *bytes;
		int status;
	} cases[] = {
		{ "GET / HTTP/1.1\r\n\r\n" GET("/now"), 400 },
		{ "GET / HTTP/2.0\r\n\r\n", 505 },
		{ "POST / HTTP/1.1\r\n" HOST "Content-Length: 1\r\nTransfer-Encoding: "
		  "chunked\r\n\r\n0\r\n\r\n" GET("/now"),
		  400 },
		{ "POST / HTTP/1.1\r\n" HOST "Content-Length: 200001\r\n\r\nxxx", 413 },
		{ "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n30d41\r\n", 413 },
		{ "POST / HTTP/1.1\r\n" HOST "Expect: tea\r\n\r\n", 417 },
		{ "\x16\x03\x01", 400 },
	};
	for (size_t i = 0; i < countof(cases); i++) {
		int fd = dial();
		say(fd, cases[i].bytes);
		expect_refused(fd, cases[i].status);
	}
}

HF_TEST(conn, a_refused_body_that_still_comes_does_not_take_the_answer_away, .init = start,
	.fini = stop)
{
	int fd = dial();
	hf_cleanup(buf) struct buf body = {};
	say(fd, "POST /now HTTP/1.1\r\n" HOST "Content-Length: 3000000\r\n\r\n");
	poll(nullptr, 0, 20);
	for (int i = 0; i < 3'000'000; i++)
		buf_add_byte(&body, 'x');
	say(fd, body.data); /* no reset while we still send */
	expect_refused(fd, 413);
}

HF_TEST(conn, connection_close_is_obeyed_and_what_follows_is_not_read, .init = start, .fini = stop)
{
	int fd = dial();
	say(fd, "GET /later HTTP/1.1\r\n" HOST "Connection: close\r\n\r\n" GET("/now"));
	expect_refused(fd, 200);
	fd = dial();
	say(fd, "GET /now HTTP/1.0\r\n\r\n" GET("/now"));
	expect_refused(fd, 200);
}

HF_TEST(conn, a_body_is_asked_for_when_the_client_waits, .init = start, .fini = stop)
{
	int fd = dial();
	say(fd, "POST /now HTTP/1.1\r\n" HOST "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n");
	expect(fd, 100, "");
	say(fd, "ok");
	expect(fd, 200, "ok");
	say(fd,
	    "POST /now HTTP/1.1\r\n" HOST "Expect: 100-continue\r\nContent-Length: 2\r\n\r\nok");
	expect(fd, 200, "ok");
	close(fd);
}

HF_TEST(conn, head_gets_the_length_without_the_body, .init = start, .fini = stop)
{
	int fd = dial();
	say(fd, "HEAD /gone HTTP/1.1\r\n" HOST "\r\n");
	char text[1'024] = "";
	cr_assert_gt(recv(fd, text, sizeof text - 1, 0), 0);
	cr_assert(strstr(text, "\r\nContent-Length: 1\r\n"));
	cr_assert_eq(strcmp(text + strlen(text) - 4, "\r\n\r\n"), 0);
	say(fd, GET("/now"));
	expect(fd, 200, "");
	close(fd);
}

HF_TEST(conn, a_client_that_leaves_while_its_call_is_out_is_noticed, .init = start, .fini = stop)
{
	int fd = dial();
	say(fd, GET("/hold"));
	close(fd);
	wait_for_number(GET("/gone"), 1);

	fd = dial(); /* with a request behind it */
	say(fd, GET("/hold") GET("/now"));
	poll(nullptr, 0, 20);
	shutdown(fd, SHUT_WR);
	wait_for_number(GET("/gone"), 2);
	close(fd);

	fd = dial(); /* by a reset */
	say(fd, GET("/hold"));
	until_read(); /* else the reset would take it away */
	reset(fd);
	wait_for_number(GET("/gone"), 3);

	fd = dial(); /* behind more than we are willing to read */
	say(fd, GET("/hold"));
	hf_cleanup(buf) struct buf more = {};
	while (more.len < 100'000)
		buf_add_text(&more, GET("/now"));
	say(fd, more.data);
	poll(nullptr, 0, 20);
	close(fd);
	wait_for_number(GET("/gone"), 4);
	wait_for_number(GET("/live"), 1);
}

HF_TEST(conn, what_waits_behind_a_call_is_bounded, .init = start, .fini = stop)
{
	int fd = dial();
	say(fd, GET("/hold"));
	hf_cleanup(buf) struct buf more = {};
	while (more.len < 1'000'000)
		buf_add_text(&more, GET("/now"));
	size_t sent = 0;
	for (int quiet = 0; quiet < 5; quiet++) { /* until nobody reads */
		ssize_t n;
		while ((n = send(fd, more.data, more.len, MSG_DONTWAIT | MSG_NOSIGNAL)) > 0) {
			sent += (size_t)n;
			quiet = 0;
			cr_assert_lt(sent, 64'000'000);
		}
		poll(nullptr, 0, 20);
	}
	close(fd);
}

HF_TEST(conn, a_client_that_leaves_before_a_late_answer_harms_nobody, .init = start, .fini = stop)
{
	for (int i = 0; i < 20; i++) {
		int fd = dial();
		say(fd, GET("/later"));
		if (i % 2)
			reset(fd);
		else
			close(fd);
	}
	wait_for_number(GET("/live"), 1);
}

/* Reads until the bytes so far end with `end`; nullptr: until the stream does. */
static void hear_until(int fd, const char *end, struct buf *out)
{
	buf_clear(out);
	buf_add_text(out, "");
	while (!end || out->len < strlen(end) ||
	       strcmp(out->data + out->len - strlen(end), end) != 0) {
		char c;
		ssize_t n = recv(fd, &c, 1, 0);
		cr_assert_geq(n, 0, "stuck after %s", out->data);
		if (n == 0) {
			cr_assert_null(end, "ended after %s", out->data);
			return;
		}
		buf_add_byte(out, c);
	}
}

HF_TEST(conn, a_stream_comes_in_chunks_and_the_connection_lives_on, .init = start, .fini = stop)
{
	hf_cleanup(buf) struct buf got = {};
	int fd = dial();
	for (int i = 0; i < 3; i++) {
		say(fd, GET("/stream"));
		hear_until(fd, "\r\n\r\n", &got);
		cr_assert(strstr(got.data, "HTTP/1.1 200 OK\r\n"));
		cr_assert(strstr(got.data, "\r\nTransfer-Encoding: chunked\r\n"));
		cr_assert(strstr(got.data, "\r\nCache-Control: no-cache\r\n"));
		cr_assert_null(strstr(got.data, "Content-Length"));
		cr_assert_null(strstr(got.data, "Connection: close"));
		hear_until(fd, "0\r\n\r\n", &got);
		cr_assert_str_eq(got.data, "4\r\none \r\n3\r\ntwo\r\n0\r\n\r\n");
		say(fd, GET("/burst") GET("/now"));
		hear_until(fd, "\r\n\r\n", &got);
		hear_until(fd, "0\r\n\r\n", &got);
		cr_assert_str_eq(got.data, "1\r\na\r\n2\r\nbc\r\n0\r\n\r\n");
		expect(fd, 200, "");
	}
	say(fd, "GET /stream HTTP/1.1\r\n" HOST "Connection: close\r\n\r\n");
	hear_until(fd, "0\r\n\r\n", &got);
	cr_assert(strstr(got.data, "\r\nConnection: close\r\n"));
	hear_until(fd, nullptr, &got);
	cr_assert_eq(got.len, 0);
	close(fd);
	cr_assert_eq(ask_number(GET("/gone")), 0);
}

HF_TEST(conn, a_client_without_chunks_gets_a_stream_up_to_the_end, .init = start, .fini = stop)
{
	hf_cleanup(buf) struct buf got = {};
	int fd = dial();
	say(fd, "GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
	hear_until(fd, nullptr, &got);
	cr_assert_null(strstr(got.data, "Transfer-Encoding"));
	cr_assert(strstr(got.data, "\r\nConnection: close\r\n"));
	cr_assert_str_eq(strstr(got.data, "\r\n\r\n"), "\r\n\r\none two");
	close(fd);

	fd = dial();
	say(fd, "HEAD /burst HTTP/1.1\r\n" HOST "\r\n" GET("/now"));
	hear_until(fd, "\r\n\r\n", &got);
	expect(fd, 200, "");
	close(fd);
}

static void leave_by(int fd, int way)
{
	if (way == 0)
		shutdown(fd, SHUT_WR);
	else if (way == 1)
		close(fd);
	else
		reset(fd);
}

HF_TEST(conn, who_hangs_up_on_a_stream_is_gone_at_once_and_hears_no_more, .init = start,
	.fini = stop)
{
	static const char *const requests[] = { GET("/quiet"), GET("/quiet") GET("/now"),
						GET("/endless") };
	unsigned gone = 0;
	for (size_t i = 0; i < countof(requests); i++) {
		for (int way = 0; way < 3; way++) {
			hf_cleanup(buf) struct buf got = {};
			int fd = dial();
			say(fd, requests[i]);
			hear_until(fd, i == 2 ? "\r\n1\r\ne\r\n" : "quiet\r\n", &got);
			int64_t left_at = now_ms();
			leave_by(fd, way);
			wait_for_number(GET("/gone"), ++gone);
			cr_assert_lt(now_ms() - left_at, 10'000, "request %zu, way %d", i, way);
			if (way > 0)
				continue;
			char rest[4'096];
			ssize_t n;
			while ((n = recv(fd, rest, sizeof rest, 0)) > 0)
				cr_assert_null(memmem(rest, (size_t)n, "too late", 8));
			close(fd);
		}
	}
	wait_for_number(GET("/live"), 1);
}

HF_TEST(conn, a_stream_that_is_not_read_is_dropped_and_one_that_is_goes_on, .init = start,
	.fini = stop)
{
	int deaf = dial_narrow(), keen = dial_narrow();
	int64_t start_at = now_ms();
	say(deaf, GET("/endless"));
	say(keen, GET("/endless"));
	static char got[1'000'000];
	for (int i = 0; i < 30; i++)
		cr_assert_eq(recv(keen, got, sizeof got, MSG_WAITALL), (ssize_t)sizeof got);
	wait_for_number(GET("/gone"), 1);
	cr_assert_lt(now_ms() - start_at, 20'000); /* not by the write time-out */
	cr_assert_eq(recv(keen, got, sizeof got, MSG_WAITALL), (ssize_t)sizeof got);
	close(keen);
	wait_for_number(GET("/gone"), 2);
	cr_assert_eq(ask_number(GET("/slow")), 1); /* the keen one left by itself */
	close(deaf);
	wait_for_number(GET("/live"), 1);
}

HF_TEST(conn, who_streams_is_told_when_all_of_it_is_taken, .init = start, .fini = stop)
{
	int fd = dial_narrow();
	static char got[1'000'000];
	size_t total = 0;
	for (int i = 0; i < 2; i++) { /* the connection lives on */
		say(fd, GET("/patient"));
		size_t letters = 0;
		bool whole = false;
		while (!whole) {
			ssize_t n = recv(fd, got, sizeof got, 0);
			cr_assert_gt(n, 0, "after %zu", letters);
			for (ssize_t at = 0; at < n; at++)
				letters += got[at] == 'l';
			whole = n >= 5 && memcmp(got + n - 5, "0\r\n\r\n", 5) == 0;
		}
		cr_assert_geq(letters, 2 * BIG_BYTES);
		total += letters;
	}
	cr_assert_lt(total, 4 * BIG_BYTES + 100); /* and those of the heads */
	close(fd);
	cr_assert_eq(ask_number(GET("/gone")), 0);
}

/* Times as short as they can be where a machine stands still for a second. */
static void start_hasty(void)
{
	struct listener_limits limits = LIMITS;
	limits.header_timeout_ms = 1'500;
	limits.body_timeout_ms = 4'500;
	limits.idle_timeout_ms = 6'000;
	limits.write_timeout_ms = 2'000;
	start_with(&limits);
}

HF_TEST(conn, slow_clients_are_told_so_and_silent_ones_are_closed, .init = start_hasty,
	.fini = stop)
{
	int silent = dial(), head = dial(), body = dial(), idle = dial(), drip = dial();
	int64_t start_at = now_ms();
	say(head, "GET /now HTTP/1.1\r\nHost:");
	say(body, "POST /now HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nabc");
	say(idle, GET("/now"));
	expect(idle, 200, "");
	for (int i = 0; i < 4; i++) { /* bytes alone buy no time */
		say(drip, "G");
		poll(nullptr, 0, 50);
	}
	expect_refused(head, 408);
	expect_refused(drip, 408);
	cr_assert_lt(now_ms() - start_at, 4'400);
	expect_refused(body, 408);
	cr_assert_geq(now_ms() - start_at, 4'450);
	hf_cleanup(buf) struct buf got = {};
	cr_assert_eq(hear(silent, &got, nullptr), 0);
	cr_assert_geq(now_ms() - start_at, 1'480);
	cr_assert_eq(hear(idle, &got, nullptr), 0);
	cr_assert_geq(now_ms() - start_at, 5'950);
	close(silent);
	close(idle);
}

HF_TEST(conn, a_peer_that_does_not_read_is_dropped_and_one_that_does_gets_it_all,
	.init = start_hasty, .fini = stop)
{
	int deaf = dial_narrow(), slow = dial_narrow();
	say(deaf, GET("/big"));
	say(slow, GET("/big"));
	hf_cleanup(buf) struct buf got = {};
	for (int i = 0; i < 16; i++) { /* longer than the time-out, but never without reading */
		poll(nullptr, 0, 150);
		void *room = buf_reserve(&got, 500'000);
		ssize_t n = recv(slow, room, 500'000, MSG_WAITALL);
		cr_assert_eq(n, 500'000);
		buf_grew(&got, (size_t)n);
	}
	wait_for_number(GET("/live"), 2); /* `slow` and who asks */
	size_t head = (size_t)(strstr(got.data, "\r\n\r\n") + 4 - got.data);
	size_t left = BIG_BYTES + head - got.len;
	void *room = buf_reserve(&got, left);
	cr_assert_eq(recv(slow, room, left, MSG_WAITALL), (ssize_t)left);
	close(deaf);
	close(slow);
}

static void start_demanding(void)
{
	struct listener_limits limits = LIMITS;
	limits.write_timeout_ms = 2'000;
	limits.write_bytes_per_s = BIG_BYTES;
	limits.held_bytes_max = 2 * BIG_BYTES - 1;
	start_with(&limits);
}

/* Each bit of reading buys time, but not for ever: all of it is due in 3 s. */
HF_TEST(conn, who_reads_too_slowly_is_dropped, .init = start_demanding, .fini = stop)
{
	static const char *const paths[] = { GET("/big"), GET("/lump") };
	static char got[65'536];
	for (size_t i = 0; i < countof(paths); i++) {
		int slow = dial_narrow();
		int64_t start_at = now_ms();
		say(slow, paths[i]);
		ssize_t n = 1;
		size_t total = 0;
		while (n > 0 && now_ms() - start_at < 20'000) {
			poll(nullptr, 0, 50);
			n = recv(slow, got, sizeof got, 0);
			total += n > 0 ? (size_t)n : 0;
		}
		cr_expect_leq(n, 0, "it goes on");
		cr_expect_lt(total, BIG_BYTES);
		cr_expect_gt(now_ms() - start_at, 2'500);
		close(slow);
	}
	int keen = dial_narrow();
	say(keen, GET("/big"));
	expect(keen, 200, nullptr);
	close(keen);
}

HF_TEST(conn, large_answers_that_nobody_takes_are_bounded_in_sum, .init = start_demanding,
	.fini = stop)
{
	int first = dial_narrow(), second = dial_narrow();
	for (int i = 0; i < 3; i++) {
		say(first, GET("/big"));
		wait_for_number(GET("/live"), 3);
		say(second, GET("/big"));
		expect(second, 503, nullptr);
		say(second, "POST /now HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\nok");
		expect(second, 200, "ok");
		expect(first, 200, nullptr);
	}
	say(second, GET("/big"));
	expect(second, 200, nullptr); /* and there is room again */
	say(first, GET("/lump"));
	until_read();
	say(second, GET("/big"));
	expect(second, 503, nullptr);
	close(first); /* with what it had not taken */
	wait_for_number(GET("/gone"), 1);
	say(second, GET("/big"));
	expect(second, 200, nullptr);
	close(second);
}

HF_TEST(conn, a_stream_whose_last_piece_is_not_taken_is_dropped_in_time, .init = start_hasty,
	.fini = stop)
{
	int deaf = dial_narrow(), slow = dial_narrow();
	int64_t start_at = now_ms();
	say(deaf, GET("/lump"));
	say(slow, GET("/lump"));
	static char got[500'000];
	for (int i = 0; i < 16; i++) { /* longer than the time-out, but never without reading */
		poll(nullptr, 0, 150);
		cr_assert_eq(recv(slow, got, sizeof got, MSG_WAITALL), (ssize_t)sizeof got);
	}
	cr_assert_gt(now_ms() - start_at, 2'300);
	wait_for_number(GET("/gone"), 1);
	for (size_t i = 16; i < BIG_BYTES / sizeof got; i++)
		cr_assert_eq(recv(slow, got, sizeof got, MSG_WAITALL), (ssize_t)sizeof got);
	poll(nullptr, 0, 2'500); /* silence is no fault where nothing is left to take */
	cr_assert_eq(ask_number(GET("/gone")), 1);
	cr_assert_eq(ask_number(GET("/slow")), 1);
	close(deaf);
	close(slow);
}

HF_TEST(conn, many_clients_share_one_loop, .init = start, .fini = stop)
{
	int fds[250];
	for (size_t i = 0; i < countof(fds); i++)
		fds[i] = dial();
	int64_t start_at = now_ms();
	for (int round = 0; round < 4; round++) {
		for (size_t i = 0; i < countof(fds); i++)
			say(fds[i], GET("/later"));
		for (size_t i = 0; i < countof(fds); i++)
			expect(fds[i], 200, "");
	}
	cr_assert_lt(now_ms() - start_at, 15'000); /* one after the other: 20 s */
	for (size_t i = 0; i < countof(fds); i++)
		close(fds[i]);
	wait_for_number(GET("/live"), 1);
}

static void start_small(void)
{
	struct listener_limits limits = LIMITS;
	limits.connections_per_address_max = 3;
	start_with(&limits);
}

HF_TEST(conn, who_is_over_the_limit_gets_503, .init = start_small, .fini = stop)
{
	int fds[3];
	for (size_t i = 0; i < countof(fds); i++) {
		fds[i] = dial();
		say(fds[i], GET("/now"));
		expect(fds[i], 200, "");
	}
	expect_refused(dial(), 503);
	close(fds[0]);
	hf_cleanup(buf) struct buf got = {};
	int status = 503;
	for (int i = 0; i < 2'000 && status == 503; i++) { /* until it is seen to have left */
		poll(nullptr, 0, 10);
		int fd = dial();
		say(fd, GET("/live"));
		status = hear(fd, &got, nullptr);
		close(fd);
	}
	cr_assert_eq(status, 200);
	cr_assert(slice_is(buf_slice(&got), "3"));
	close(fds[1]);
	close(fds[2]);
}

/* CPU time of the child in hundredths of a second. */
static long child_ticks(void)
{
	char path[64], text[512] = "";
	snprintf(path, sizeof path, "/proc/%d/stat", (int)child);
	FILE *file = fopen(path, "r");
	cr_assert(file);
	cr_assert_gt(fread(text, 1, sizeof text - 1, file), 0);
	fclose(file);
	unsigned long user = 0, kernel = 0;
	cr_assert_eq(sscanf(strrchr(text, ')'),
			    ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
			    &kernel),
		     2);
	return (long)(user + kernel);
}

static void start_without_descriptors(void)
{
	start();
	/* Four for the child's own, and a few: the rest has to wait for its turn. */
	const struct rlimit few = { 16, 16 };
	cr_assert_eq(prlimit(child, RLIMIT_NOFILE, &few, nullptr), 0);
}

HF_TEST(conn, out_of_descriptors_it_accepts_later, .init = start_without_descriptors, .fini = stop)
{
	int fds[40];
	for (size_t i = 0; i < 20; i++) {
		fds[i] = dial();
		say(fds[i], GET("/hold"));
	}
	long before = child_ticks();
	poll(nullptr, 0, 500);
	cr_assert_lt(child_ticks() - before, 6, "spins while it cannot accept");
	for (size_t i = 0; i < 20; i++)
		close(fds[i]);
	for (size_t i = 0; i < countof(fds); i++) {
		fds[i] = dial();
		say(fds[i], "GET /now HTTP/1.1\r\n" HOST "Connection: close\r\n\r\n");
	}
	for (size_t i = 0; i < countof(fds); i++) {
		expect(fds[i], 200, "");
		close(fds[i]);
	}
}

HF_TEST(conn, drained_it_answers_what_is_out_and_closes, .init = start)
{
	int idle = dial(), busy = dial(), half = dial(), last = dial(), stream = dial();
	int64_t start_at = now_ms();
	say(idle, GET("/now"));
	expect(idle, 200, "");
	say(half, "POST /now HTTP/1.1\r\n" HOST "Content-Length: 4\r\n\r\nab");
	say(busy, GET("/late"));
	say(stream, GET("/stream"));
	until_read();
	say(last, GET("/drain"));
	expect_refused(last, 200);
	say(half, "cd");
	expect_refused(half, 200);
	expect_refused(busy, 200);
	hf_cleanup(buf) struct buf got = {};
	hear_until(stream, nullptr, &got);
	cr_assert(strstr(got.data, "3\r\ntwo\r\n0\r\n\r\n"));
	close(stream);
	cr_assert_eq(hear(idle, &got, nullptr), 0);
	cr_assert_lt(now_ms() - start_at, 20'000); /* not by the idle time-out */
	close(idle);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	cr_assert_neq(connect(fd, (struct sockaddr *)&server_at, sizeof server_at), 0);
	close(fd);
	int status = -1;
	waitpid(child, &status, 0);
	cr_assert(WIFEXITED(status));
	cr_assert_eq(WEXITSTATUS(status), 0);
}

static void ignore_call(struct call *call)
{
	*(struct call **)call->server = call;
}

HF_TEST(conn, a_call_outlives_its_listener)
{
	struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO);
	struct call *call = nullptr;
	struct listener *listener = nullptr;
	struct hf_err err = {};
	cr_assert_eq(listener_open(loop, "127.0.0.1:0", &LIMITS, ignore_call, &call, &listener,
				   &err),
		     HF_OK);
	serve_at(listener_address(listener));
	int fd = dial();
	say(fd, GET("/x?y"));
	while (!call)
		ev_run(loop, EVRUN_ONCE);
	struct slice host;
	cr_assert(slice_is(call->path, "/x"));
	cr_assert(slice_is(call->target, "/x?y"));
	cr_assert(call_header(call, "HOST", &host, nullptr));
	listener_close(listener);
	cr_assert(call->gone);
	cr_assert(slice_is(host, "a"));
	call_reply(call, &(struct reply){ .status = 200 });
	close(fd);
	ev_loop_destroy(loop);
}

HF_TEST(listener, refuses_what_is_no_address)
{
	static const char *const bad[] = { "",        "127.0.0.1",     ":80",         "127.0.0.1:",
					   "a:b",     "1.2.3.4:99999", "::1:80",      "[::1]",
					   "[::1:80", "1.2.3.4:80x",   "127.0.0.1:-1" };
	struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO);
	for (size_t i = 0; i < countof(bad); i++) {
		struct listener *listener = nullptr;
		struct hf_err err = {};
		cr_assert_eq(listener_open(loop, bad[i], &LIMITS, on_call, nullptr, &listener,
					   &err),
			     HF_INVALID, "%s", bad[i]);
		cr_assert_null(listener);
	}
	ev_loop_destroy(loop);
}
