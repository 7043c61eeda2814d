/*
 * How curl and libev meet: curl names the sockets to watch (on_socket) and the time to be called at
 * (on_timer), libev's watchers feed curl_multi_socket_action, and after each feeding `reap` takes
 * what has ended.
 *
 *   start ──┬─► waiting* ──► running* ──► done
 *           │      └─► done (no turn in time)
 *           └─► settled* ──► done (refused before the wire)
 *
 *   * suspended: a turn, the answer or the call's own timer resumes it.
 *
 * Only waiting calls are in their host's list; only running ones are known to curl, and each tells
 * the host's breaker how it ended. A host that nothing is asked of stays remembered for its budget
 * of repeats and its breaker.
 */
#include "worker/downstream.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <ev.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

#include "runtime/base.h"
#include "runtime/buf.h"
#include "runtime/clock.h"
#include "runtime/metrics.h"
#include "worker/breaker.h"
#include "worker/egress.h"
#include "worker/remote.h"
#include "worker/retry.h"
#include "worker/text.h"

constexpr size_t REASON_LEN_MAX = 200;

struct downstream {
	struct ev_loop *loop;
	CURLM *multi;
	ev_timer timer;
	struct egress *egress; /* nullptr: nobody is allowed */
	struct downstream_call *calls;
	struct remotes remotes;
	bool closing;
};

enum call_state { CALL_WAITING, CALL_RUNNING, CALL_SETTLED };

struct downstream_call {
	struct downstream *downstream;
	struct downstream_call *prev, *next;
	enum call_state state;
	ev_timer timer;
	struct egress_target target;
	struct remote *host;            /* nullptr: settled */
	struct downstream_call *behind; /* in the host's list */
	enum downstream_fate fate;      /* of a settled one */
	CURLU *url;
	CURL *easy;
	struct curl_slist *headers;
	struct buf body;
	size_t body_len; /* of the request */
	int64_t began_at, give_up_at, slow_ms, passed;
	size_t header_bytes;
	char reason[REASON_LEN_MAX + 8]; /* of the status line */
	char error[CURL_ERROR_SIZE];
	char denied[INET6_ADDRSTRLEN]; /* the last address that was refused */
	int64_t retry_after_ms;
	bool repeat, insists, sent, withheld, too_large, slow;
	struct breaker_pass pass; /* of a running one */
	bool tried;               /* an address that is allowed */
	bool told;                /* the breaker knows how it ended */
	bool hurried;             /* it had less than DOWNSTREAM_FAIR_MS left when its turn came */
	bool coded; /* the answer under way is, or was sent with a transfer coding but chunked */
	bool answering, watched;
	bool (*may_send)(void *ctx);
	void (*done)(void *ctx, const struct downstream_answer *answer);
	void *ctx;
};

struct socket_watch {
	ev_io io;
	struct downstream *downstream;
};

/* Of what curl is told nothing may be left out: a request without its key is another request. */
static void must_have(bool had_memory)
{
	if (!had_memory)
		hf_out_of_memory(0);
}

#define option_set(...) must_have(curl_easy_setopt(__VA_ARGS__) != CURLE_OUT_OF_MEMORY)

static void set_text(struct downstream_call *call, const char *text)
{
	hf_cleanup(buf) struct buf clean = {};
	text_clean(slice_of(text), REASON_LEN_MAX, &clean);
	snprintf(call->reason, sizeof call->reason, "%s", clean.data ? clean.data : "");
}

static void call_timer(struct downstream_call *call, int64_t ms)
{
	struct ev_loop *loop = call->downstream->loop;
	ev_timer_stop(loop, &call->timer);
	ev_now_update(loop);
	ev_timer_set(&call->timer, (double)(ms > 0 ? ms : 0) / 1000, 0);
	ev_timer_start(loop, &call->timer);
}

/* --- hosts and turns ----------------------------------------------------------------------------
 */

static bool has_turn(const struct remote *host, const struct downstream_call *call)
{
	return host->running < DOWNSTREAM_CALLS_PER_HOST_MAX &&
	       (!call->repeat || host->repeats < DOWNSTREAM_REPEATS_PER_HOST_MAX);
}

static void leave_list(struct downstream_call *call)
{
	struct remote *host = call->host;
	struct downstream_call **at = &host->waiting;
	while (*at != call)
		at = &(*at)->behind;
	*at = call->behind;
	if (host->waiting_end == &call->behind)
		host->waiting_end = at;
	call->behind = nullptr;
}

static void call_run(struct downstream_call *call)
{
	int64_t left = call->give_up_at - clock_boot_ms();
	int64_t timeout_ms = left > 0 ? left : 1;
	call->hurried = timeout_ms < DOWNSTREAM_FAIR_MS;
	int64_t connect_ms =
	    timeout_ms < DOWNSTREAM_CONNECT_MS_MAX ? timeout_ms : DOWNSTREAM_CONNECT_MS_MAX;
	option_set(call->easy, CURLOPT_TIMEOUT_MS, (long)timeout_ms);
	option_set(call->easy, CURLOPT_CONNECTTIMEOUT_MS, (long)connect_ms);
	call->state = CALL_RUNNING;
	call->host->running++;
	call->host->repeats += call->repeat;
	call->pass = breaker_pass(&call->host->breaker, clock_boot_ms());
	call_timer(call, call->slow_ms);
	CURLMcode code = curl_multi_add_handle(call->downstream->multi, call->easy);
	must_have(code != CURLM_OUT_OF_MEMORY);
	hf_assert(code == CURLM_OK);
}

/* Ends without a word on the wire, once the loop is there. */
static void settle(struct downstream_call *call, enum downstream_fate fate, const char *text)
{
	call->state = CALL_SETTLED;
	call->fate = fate;
	call->host = nullptr; /* which may be forgotten now */
	set_text(call, text);
	call_timer(call, 0);
}

/* --- the breaker --------------------------------------------------------------------------------
 */

/* True: settled, since its host is not asked now. */
static bool breaker_refuses(struct downstream_call *call)
{
	hf_cleanup(buf) struct buf text = {};
	int64_t wait_ms = call->insists ? 0 : remote_wait_ms(call->host, &text);
	if (wait_ms == 0)
		return false;
	settle(call, DOWNSTREAM_BREAKER, text.data);
	call->retry_after_ms = wait_ms;
	return true;
}

static enum breaker_result result_of(const struct downstream_call *call,
				     const struct downstream_answer *answer, CURLcode code)
{
	constexpr int TIMEOUT = 408, TOO_MANY = 429;
	bool ours = code == CURLE_OPERATION_TIMEDOUT && !call->slow && call->hurried;
	switch (answer->fate) {
	case DOWNSTREAM_NOT_SENT:
	case DOWNSTREAM_NO_ANSWER:
		return ours ? BREAKER_NOTHING : BREAKER_FAILED;
	case DOWNSTREAM_ANSWERED:
	case DOWNSTREAM_UNREADABLE:
		return answer->status >= 500 || answer->status == TIMEOUT ||
			       answer->status == TOO_MANY
			   ? BREAKER_FAILED
			   : BREAKER_WORKED;
	case DOWNSTREAM_NO_BUDGET:
	case DOWNSTREAM_BREAKER:
	case DOWNSTREAM_WITHHELD:
	case DOWNSTREAM_BAD_URL:
	case DOWNSTREAM_DENIED:
		break;
	}
	return BREAKER_NOTHING;
}

/* In order, but a first request may pass repeats that are not let through. */
static void give_turns(struct remote *host)
{
	for (struct downstream_call *call = host->waiting, *behind; call; call = behind) {
		behind = call->behind;
		bool refused = !call->insists && breaker_wait_ms(&host->breaker, clock_boot_ms());
		if (!refused && !has_turn(host, call))
			continue;
		leave_list(call);
		if (!breaker_refuses(call))
			call_run(call);
	}
}

/* --- the end of a call --------------------------------------------------------------------------
 */

static bool call_free(struct downstream_call *call)
{
	bool sent = call->sent;
	struct remote *host = call->host;
	struct downstream *downstream = call->downstream;
	ev_timer_stop(downstream->loop, &call->timer);
	if (call->state == CALL_WAITING)
		leave_list(call);
	if (call->state == CALL_RUNNING) {
		curl_multi_remove_handle(downstream->multi, call->easy);
		if (!call->told)
			remote_tell(&downstream->remotes, host, call->pass, BREAKER_NOTHING, "");
		host->running--;
		host->repeats -= call->repeat;
	}
	curl_easy_cleanup(call->easy);
	curl_url_cleanup(call->url);
	curl_slist_free_all(call->headers);
	*(call->prev ? &call->prev->next : &downstream->calls) = call->next;
	if (call->next)
		call->next->prev = call->prev;
	buf_deinit(&call->body);
	free(call);
	if (host && !downstream->closing)
		give_turns(host);
	return sent;
}

static enum downstream_fate fate_of(const struct downstream_call *call, CURLcode code, long status)
{
	if (code == CURLE_OK)
		return DOWNSTREAM_ANSWERED;
	if (call->withheld)
		return DOWNSTREAM_WITHHELD;
	if (code == CURLE_URL_MALFORMAT || code == CURLE_UNSUPPORTED_PROTOCOL)
		return DOWNSTREAM_BAD_URL;
	if (call->denied[0] && !call->tried)
		return DOWNSTREAM_DENIED;
	if (!call->sent)
		return DOWNSTREAM_NOT_SENT;
	bool unreadable = status && !call->slow && (call->too_large || call->coded);
	return unreadable && code == CURLE_WRITE_ERROR ? DOWNSTREAM_UNREADABLE
						       : DOWNSTREAM_NO_ANSWER;
}

static void explain(struct downstream_call *call, enum downstream_fate fate, CURLcode code)
{
	char text[REASON_LEN_MAX];
	if (fate == DOWNSTREAM_WITHHELD) {
		set_text(call, "held back right before it was sent");
	} else if (fate == DOWNSTREAM_DENIED) {
		snprintf(text, sizeof text,
			 "address not allowed: %s is not public and not in allow_addresses",
			 call->denied);
		set_text(call, text);
	} else if (fate == DOWNSTREAM_UNREADABLE) {
		set_text(call, call->too_large ? "the answer is too large"
					       : "the answer is coded (compressed), though no "
						 "coding was asked for");
	} else if (fate == DOWNSTREAM_NO_ANSWER && call->slow) {
		set_text(call, "too slow: the bytes came or went by drips");
	} else if (fate != DOWNSTREAM_ANSWERED) {
		set_text(call, call->error[0] ? call->error : curl_easy_strerror(code));
	}
}

static const char *const fate_names[] = {
	[DOWNSTREAM_NOT_SENT] = "not_sent",   [DOWNSTREAM_NO_BUDGET] = "no_budget",
	[DOWNSTREAM_BREAKER] = "breaker",     [DOWNSTREAM_WITHHELD] = "withheld",
	[DOWNSTREAM_BAD_URL] = "bad_url",     [DOWNSTREAM_DENIED] = "denied",
	[DOWNSTREAM_NO_ANSWER] = "no_answer", [DOWNSTREAM_UNREADABLE] = "unreadable",
	[DOWNSTREAM_ANSWERED] = "answered",
};

static void count_end(const struct downstream_call *call, enum downstream_fate fate)
{
	metric_add(METRIC_downstream_calls_total, fate_names[fate], 1);
	metric_add(METRIC_downstream_seconds_total, nullptr, clock_boot_ms() - call->began_at);
}

static void finish(struct downstream_call *call, CURLcode code)
{
	long status = 0;
	curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
	struct downstream_answer answer = { .fate = fate_of(call, code, status),
					    .status = (int)status,
					    .body = buf_slice(&call->body),
					    .retry_after_ms = call->retry_after_ms };
	explain(call, answer.fate, code);
	answer.reason = call->reason;
	count_end(call, answer.fate);
	if (answer.fate == DOWNSTREAM_ANSWERED)
		metric_add(METRIC_downstream_answers_total, metric_status(answer.status), 1);
	remote_tell(&call->downstream->remotes, call->host, call->pass,
		    result_of(call, &answer, code), call->reason);
	call->told = true;
	call->done(call->ctx, &answer);
	call_free(call);
}

static void tell_settled(struct downstream_call *call)
{
	count_end(call, call->fate);
	call->done(call->ctx,
		   &(struct downstream_answer){ .fate = call->fate,
						.reason = call->reason,
						.retry_after_ms = call->retry_after_ms });
	call_free(call);
}

/* What curl's own low-speed limit cannot tell apart: that an answer lets wait is no drip. */
static void look_for_drips(struct downstream_call *call)
{
	curl_off_t up = 0, down = 0;
	curl_easy_getinfo(call->easy, CURLINFO_SIZE_UPLOAD_T, &up);
	curl_easy_getinfo(call->easy, CURLINFO_SIZE_DOWNLOAD_T, &down);
	int64_t passed = (int64_t)up + (int64_t)down + (int64_t)call->header_bytes;
	bool watched = call->sent && (call->answering || (size_t)up < call->body_len);
	bool slow = watched && call->watched && passed - call->passed < DOWNSTREAM_SLOW_BYTES;
	call->watched = watched;
	call->passed = passed;
	call->slow = slow;
	if (slow)
		finish(call, CURLE_OPERATION_TIMEDOUT);
	else
		call_timer(call, call->slow_ms);
}

static void on_call_time(struct ev_loop *, ev_timer *timer, int)
{
	struct downstream_call *call = container_of(timer, struct downstream_call, timer);
	switch (call->state) {
	case CALL_WAITING:
		metric_add(METRIC_bound_refused_total, "calls_per_host", 1);
		leave_list(call);
		settle(call, DOWNSTREAM_NOT_SENT, "no turn in time: its host has its most calls");
		break;
	case CALL_RUNNING:
		look_for_drips(call);
		break;
	case CALL_SETTLED:
		tell_settled(call);
		break;
	}
}

/* --- libev and curl -----------------------------------------------------------------------------
 */

static void reap(struct downstream *downstream)
{
	int left;
	for (CURLMsg *msg; (msg = curl_multi_info_read(downstream->multi, &left));) {
		if (msg->msg != CURLMSG_DONE)
			continue;
		CURLcode code = msg->data.result; /* `msg` dies with its handle */
		char *call = nullptr;
		curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, &call);
		hf_assert(call);
		finish((struct downstream_call *)(void *)call, code);
	}
}

static void feed(struct downstream *downstream, curl_socket_t fd, int what)
{
	int running;
	CURLMcode code = curl_multi_socket_action(downstream->multi, fd, what, &running);
	must_have(code != CURLM_OUT_OF_MEMORY);
	hf_assert(code == CURLM_OK);
	reap(downstream);
}

static void on_ready(struct ev_loop *, ev_io *io, int events)
{
	struct socket_watch *watch = container_of(io, struct socket_watch, io);
	feed(watch->downstream, io->fd,
	     (events & EV_READ ? CURL_CSELECT_IN : 0) | (events & EV_WRITE ? CURL_CSELECT_OUT : 0));
}

static void on_time(struct ev_loop *, ev_timer *timer, int)
{
	feed(container_of(timer, struct downstream, timer), CURL_SOCKET_TIMEOUT, 0);
}

static int on_timer(CURLM *, long ms, void *ctx)
{
	struct downstream *downstream = ctx;
	ev_timer_stop(downstream->loop, &downstream->timer);
	if (ms < 0)
		return 0;
	ev_now_update(downstream->loop);
	ev_timer_set(&downstream->timer, (double)ms / 1000, 0);
	ev_timer_start(downstream->loop, &downstream->timer);
	return 0;
}

static int on_socket(CURL *, curl_socket_t fd, int what, void *ctx, void *socket_ctx)
{
	struct downstream *downstream = ctx;
	struct socket_watch *watch = socket_ctx;
	if (watch)
		ev_io_stop(downstream->loop, &watch->io);
	if (what == CURL_POLL_REMOVE) {
		free(watch);
		return 0;
	}
	if (!watch) {
		watch = hf_alloc(sizeof *watch);
		watch->downstream = downstream;
		ev_init(&watch->io, on_ready);
		curl_multi_assign(downstream->multi, fd, watch);
	}
	ev_io_set(&watch->io, fd,
		  (what & CURL_POLL_IN ? EV_READ : 0) | (what & CURL_POLL_OUT ? EV_WRITE : 0));
	ev_io_start(downstream->loop, &watch->io);
	return 0;
}

/* --- what curl calls back for -------------------------------------------------------------------
 */

/* The address is the one that will be connected to, whatever names and numbers led to it. Tool
 * processes must not inherit the connection. */
static curl_socket_t on_open(void *ctx, curlsocktype, struct curl_sockaddr *address)
{
	struct downstream_call *call = ctx;
	const struct sockaddr *to = &address->addr;
	if (!egress_address_allowed(call->downstream->egress, &call->target, to)) {
		const void *bytes = &((const struct sockaddr_in *)(const void *)to)->sin_addr;
		if (to->sa_family == AF_INET6)
			bytes = &((const struct sockaddr_in6 *)(const void *)to)->sin6_addr;
		if (!inet_ntop(to->sa_family, bytes, call->denied, sizeof call->denied))
			strcpy(call->denied, "?");
		return CURL_SOCKET_BAD;
	}
	call->tried = true;
	return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

static int on_connected(void *ctx, char *, char *, int, int)
{
	struct downstream_call *call = ctx;
	call->withheld = !call->may_send(call->ctx);
	if (call->withheld)
		return CURL_PREREQFUNC_ABORT;
	call->sent = true;
	return CURL_PREREQFUNC_OK;
}

static bool has_name(struct slice line, const char *name, struct slice *value)
{
	size_t len = strlen(name);
	if (line.len <= len || line.data[len] != ':' || strncasecmp(line.data, name, len) != 0)
		return false;
	*value = (struct slice){ line.data + len + 1, line.len - len - 1 };
	return true;
}

static bool is_coding(struct slice value, const char *none)
{
	while (value.len > 0 && strchr(" \t\r\n", value.data[value.len - 1]))
		value.len--;
	while (value.len > 0 && (*value.data == ' ' || *value.data == '\t')) {
		value.data++;
		value.len--;
	}
	return value.len > 0 &&
	       (value.len != strlen(none) || strncasecmp(value.data, none, value.len) != 0);
}

/* Each answer begins anew: an interim one (100) may stand before the real one. */
static void begin_answer(struct downstream_call *call, struct slice line)
{
	call->retry_after_ms = -1;
	call->coded = false;
	const char *space = memchr(line.data, ' ', line.len);
	while (line.len > 0 && (line.data[line.len - 1] == '\n' || line.data[line.len - 1] == '\r'))
		line.len--;
	hf_cleanup(buf) struct buf text = {};
	if (space && space < line.data + line.len)
		buf_add(&text, space + 1, (size_t)(line.data + line.len - space - 1));
	set_text(call, text.data ? text.data : "");
	call->answering = call->reason[0] != '1';
}

static size_t on_header(char *data, size_t, size_t len, void *ctx)
{
	struct downstream_call *call = ctx;
	struct slice line = { data, len }, value;
	call->header_bytes += len;
	if (call->header_bytes > DOWNSTREAM_HEADER_BYTES_MAX) {
		call->too_large = true;
		return 0;
	}
	if (len > 5 && memcmp(data, "HTTP/", 5) == 0) {
		begin_answer(call, line);
	} else if (has_name(line, "retry-after", &value)) {
		if (!retry_after_parse(value, time(nullptr), &call->retry_after_ms))
			call->retry_after_ms = -1;
	} else if (has_name(line, "content-encoding", &value)) {
		call->coded = call->coded || is_coding(value, "identity");
	} else if (has_name(line, "transfer-encoding", &value)) {
		/* curl undoes these unasked. */
		call->coded = call->coded || is_coding(value, "chunked");
	}
	return len;
}

/* What comes here has no transfer coding any more, so the bound counts what is kept. */
static size_t on_body(char *data, size_t, size_t len, void *ctx)
{
	struct downstream_call *call = ctx;
	if (!call->coded)
		buf_add(&call->body, data, len);
	call->too_large = call->body.overflow;
	return call->coded || call->too_large ? 0 : len;
}

/* --- start --------------------------------------------------------------------------------------
 */

struct downstream *downstream_open(struct ev_loop *loop, const struct breaker_limits *limits)
{
	static bool ready;
	if (!ready)
		hf_assert(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK);
	ready = true;
	struct downstream *downstream = hf_alloc(sizeof *downstream);
	downstream->loop = loop;
	downstream->remotes =
	    (struct remotes){ .count_max = DOWNSTREAM_HOSTS_MAX, .limits = *limits };
	downstream->multi = curl_multi_init();
	must_have(downstream->multi);
	ev_init(&downstream->timer, on_time);
	curl_multi_setopt(downstream->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
	curl_multi_setopt(downstream->multi, CURLMOPT_SOCKETDATA, downstream);
	curl_multi_setopt(downstream->multi, CURLMOPT_TIMERFUNCTION, on_timer);
	curl_multi_setopt(downstream->multi, CURLMOPT_TIMERDATA, downstream);
	return downstream;
}

void downstream_close(struct downstream *downstream)
{
	if (!downstream)
		return;
	downstream->closing = true;
	while (downstream->calls)
		call_free(downstream->calls);
	remotes_deinit(&downstream->remotes);
	curl_multi_cleanup(downstream->multi);
	ev_timer_stop(downstream->loop, &downstream->timer);
	egress_free(downstream->egress);
	free(downstream);
}

enum hf_code downstream_guard(struct downstream *downstream, const char *hosts,
			      const char *addresses, struct slice conf, struct hf_err *err)
{
	if (downstream->egress)
		return HF_OK;
	return egress_open(hosts, addresses, conf, &downstream->egress, err);
}

static void set_method(CURL *easy, const struct downstream_request *request)
{
	bool carries = request->has_body || strcmp(request->method, "POST") == 0 ||
		       strcmp(request->method, "PUT") == 0 || strcmp(request->method, "PATCH") == 0;
	if (carries) {
		option_set(easy, CURLOPT_POST, 1L);
		option_set(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body.len);
		option_set(easy, CURLOPT_POSTFIELDS, request->body.len ? request->body.data : "");
	} else if (strcmp(request->method, "HEAD") == 0) {
		option_set(easy, CURLOPT_NOBODY, 1L);
	}
	option_set(easy, CURLOPT_CUSTOMREQUEST, request->method);
}

static bool header_given(const char *const *headers, const char *name)
{
	struct slice value;
	for (; *headers; headers++)
		if (has_name(slice_of(*headers), name, &value))
			return true;
	return false;
}

static void header_add(struct downstream_call *call, const char *line)
{
	struct curl_slist *longer = curl_slist_append(call->headers, line);
	must_have(longer);
	call->headers = longer;
}

static void set_headers(struct downstream_call *call, const char *const *headers)
{
	/* An empty value keeps curl from adding the header by itself: "Expect" would allow a second
	 * try, the type would be that of a form. */
	header_add(call, "Expect:");
	if (!header_given(headers, "content-type"))
		header_add(call, "Content-Type:");
	if (!header_given(headers, "accept-encoding"))
		header_add(call, "Accept-Encoding: identity");
	if (!header_given(headers, "user-agent"))
		header_add(call, "User-Agent: holdfast");
	for (; *headers; headers++)
		header_add(call, *headers);
	option_set(call->easy, CURLOPT_HTTPHEADER, call->headers);
}

static void set_options(struct downstream_call *call)
{
	CURL *easy = call->easy;
	option_set(easy, CURLOPT_PRIVATE, call);
	option_set(easy, CURLOPT_CURLU, call->url);
	option_set(easy, CURLOPT_PROTOCOLS_STR, "http,https");
	option_set(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	option_set(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
	option_set(easy, CURLOPT_SSL_VERIFYPEER, 1L);
	option_set(easy, CURLOPT_SSL_VERIFYHOST, 2L);
	option_set(easy, CURLOPT_PROXY, "");
	option_set(easy, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
	option_set(easy, CURLOPT_NOSIGNAL, 1L);
	/* Else a call that ends while its name is looked up waits for the resolver's thread. */
	option_set(easy, CURLOPT_QUICK_EXIT, 1L);
	/* On a reused connection that turns out to be closed curl sends again without asking, which
	 * is a second send of an un-keyed request. */
	option_set(easy, CURLOPT_FRESH_CONNECT, 1L);
	option_set(easy, CURLOPT_FORBID_REUSE, 1L);
	option_set(easy, CURLOPT_FOLLOWLOCATION, 0L);
	option_set(easy, CURLOPT_ERRORBUFFER, call->error);
	option_set(easy, CURLOPT_OPENSOCKETFUNCTION, on_open);
	option_set(easy, CURLOPT_OPENSOCKETDATA, call);
	option_set(easy, CURLOPT_PREREQFUNCTION, on_connected);
	option_set(easy, CURLOPT_PREREQDATA, call);
	option_set(easy, CURLOPT_HEADERFUNCTION, on_header);
	option_set(easy, CURLOPT_HEADERDATA, call);
	option_set(easy, CURLOPT_WRITEFUNCTION, on_body);
	option_set(easy, CURLOPT_WRITEDATA, call);
}

/* Finds the host, or settles a call that may not go there. */
static void find_host(struct downstream_call *call, const char *url)
{
	struct hf_err err = {};
	char text[REASON_LEN_MAX + EGRESS_HOST_LEN_MAX];
	const struct egress *egress = call->downstream->egress;
	if (egress_url(url, &call->url, &call->target, &err) != HF_OK) {
		settle(call, DOWNSTREAM_BAD_URL, err.text);
		return;
	}
	if (!egress || !egress_host_allowed(egress, &call->target)) {
		snprintf(text, sizeof text, "host not allowed: %s, port %d (allow_hosts)",
			 call->target.host, call->target.port);
		settle(call, DOWNSTREAM_DENIED, text);
		return;
	}
	call->host = remote_get(&call->downstream->remotes, &call->target);
	if (breaker_refuses(call))
		return;
	int64_t wait_ms = 0;
	if (call->repeat)
		wait_ms = retry_budget_take(&call->host->budget, clock_boot_ms());
	else
		retry_budget_earn(&call->host->budget);
	if (wait_ms > 0) {
		metric_add(METRIC_bound_refused_total, "retry_budget", 1);
		settle(call, DOWNSTREAM_NO_BUDGET,
		       "waits: its host has had its share of repeats for now");
		call->retry_after_ms = wait_ms;
	}
}

static void join_list(struct downstream_call *call, int64_t timeout_ms)
{
	*call->host->waiting_end = call;
	call->host->waiting_end = &call->behind;
	call_timer(call, timeout_ms);
	give_turns(call->host);
}

struct downstream_call *
downstream_start(struct downstream *downstream, const struct downstream_request *request,
		 void (*done)(void *ctx, const struct downstream_answer *answer), void *ctx)
{
	hf_assert(request->timeout_ms > 0);
	struct downstream_call *call = hf_alloc(sizeof *call);
	*call = (struct downstream_call){ .downstream = downstream,
					  .next = downstream->calls,
					  .easy = curl_easy_init(),
					  .body.max = DOWNSTREAM_ANSWER_BYTES_MAX,
					  .body_len = request->body.len,
					  .began_at = clock_boot_ms(),
					  .give_up_at = clock_boot_ms() + request->timeout_ms,
					  .slow_ms = request->slow_ms ? request->slow_ms
								      : DOWNSTREAM_SLOW_MS,
					  .retry_after_ms = -1,
					  .repeat = request->repeat,
					  .insists = request->insists,
					  .may_send = request->may_send,
					  .done = done,
					  .ctx = ctx };
	must_have(call->easy);
	if (call->next)
		call->next->prev = call;
	downstream->calls = call;
	ev_init(&call->timer, on_call_time);
	find_host(call, request->url);
	if (call->state == CALL_SETTLED)
		return call;
	set_options(call);
	set_method(call->easy, request);
	set_headers(call, request->headers);
	join_list(call, request->timeout_ms);
	return call;
}

void downstream_collect(const struct downstream *downstream)
{
	int64_t running = 0, waiting = 0;
	for (const struct downstream_call *call = downstream->calls; call; call = call->next) {
		running += call->state == CALL_RUNNING;
		waiting += call->state == CALL_WAITING;
	}
	metric_set(METRIC_downstream_calls_open, "running", running);
	metric_set(METRIC_downstream_calls_open, "waiting", waiting);
	remotes_collect(&downstream->remotes);
}

bool downstream_sent(const struct downstream_call *call)
{
	return call->sent;
}

bool downstream_cancel(struct downstream_call *call)
{
	return call_free(call);
}
