/* How curl and libev meet: curl names the sockets to watch (on_socket) and the time to be called at
 * (on_timer), libev's watchers feed curl_multi_socket_action, and after each feeding `reap` takes
 * what has ended. */
#include "worker/downstream.h"

#include <curl/curl.h>
#include <ev.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

#include "runtime/base.h"
#include "runtime/buf.h"
#include "worker/retry.h"
#include "worker/text.h"

constexpr size_t REASON_LEN_MAX = 200;

struct downstream {
	struct ev_loop *loop;
	CURLM *multi;
	ev_timer timer;
	struct downstream_call *calls;
};

struct downstream_call {
	struct downstream *downstream;
	struct downstream_call *prev, *next;
	CURL *easy;
	struct curl_slist *headers;
	struct buf body;
	size_t header_bytes;
	char reason[REASON_LEN_MAX + 8]; /* of the status line */
	char error[CURL_ERROR_SIZE];
	int64_t retry_after_ms;
	bool sent, withheld, too_large;
	bool (*may_send)(void *ctx);
	void (*done)(void *ctx, const struct downstream_answer *answer);
	void *ctx;
};

struct socket_watch {
	ev_io io;
	struct downstream *downstream;
};

static bool call_free(struct downstream_call *call)
{
	bool sent = call->sent;
	curl_multi_remove_handle(call->downstream->multi, call->easy);
	curl_easy_cleanup(call->easy);
	curl_slist_free_all(call->headers);
	*(call->prev ? &call->prev->next : &call->downstream->calls) = call->next;
	if (call->next)
		call->next->prev = call->prev;
	buf_deinit(&call->body);
	free(call);
	return sent;
}

static void set_text(struct downstream_call *call, const char *text)
{
	hf_cleanup(buf) struct buf clean = {};
	text_clean(slice_of(text), REASON_LEN_MAX, &clean);
	snprintf(call->reason, sizeof call->reason, "%s", clean.data ? clean.data : "");
}

static enum downstream_fate fate_of(const struct downstream_call *call, CURLcode code, long status)
{
	if (code == CURLE_OK)
		return DOWNSTREAM_ANSWERED;
	if (call->withheld)
		return DOWNSTREAM_WITHHELD;
	if (code == CURLE_URL_MALFORMAT || code == CURLE_UNSUPPORTED_PROTOCOL)
		return DOWNSTREAM_BAD_URL;
	if (!call->sent)
		return DOWNSTREAM_NOT_SENT;
	return call->too_large && status ? DOWNSTREAM_TOO_LARGE : DOWNSTREAM_NO_ANSWER;
}

static void finish(struct downstream_call *call, CURLcode code)
{
	long status = 0;
	curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
	struct downstream_answer answer = { .fate = fate_of(call, code, status),
					    .status = (int)status,
					    .body = buf_slice(&call->body),
					    .retry_after_ms = call->retry_after_ms };
	if (answer.fate == DOWNSTREAM_WITHHELD)
		set_text(call, "the local lease is about to end");
	else if (answer.fate == DOWNSTREAM_TOO_LARGE)
		set_text(call, "the answer is too large");
	else if (answer.fate != DOWNSTREAM_ANSWERED)
		set_text(call, call->error[0] ? call->error : curl_easy_strerror(code));
	answer.reason = call->reason;
	call->done(call->ctx, &answer);
	call_free(call);
}

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

/* Tool processes must not inherit the connection. */
static curl_socket_t on_open(void *, curlsocktype, struct curl_sockaddr *address)
{
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
		/* Each answer begins anew: an interim one (100) may stand before the real one. */
		call->retry_after_ms = -1;
		const char *space = memchr(data, ' ', len);
		while (line.len > 0 &&
		       (line.data[line.len - 1] == '\n' || line.data[line.len - 1] == '\r'))
			line.len--;
		hf_cleanup(buf) struct buf text = {};
		if (space && space < line.data + line.len)
			buf_add(&text, space + 1, (size_t)(line.data + line.len - space - 1));
		set_text(call, text.data ? text.data : "");
	} else if (has_name(line, "retry-after", &value)) {
		if (!retry_after_parse(value, time(nullptr), &call->retry_after_ms))
			call->retry_after_ms = -1;
	}
	return len;
}

static size_t on_body(char *data, size_t, size_t len, void *ctx)
{
	struct downstream_call *call = ctx;
	buf_add(&call->body, data, len);
	call->too_large = call->body.overflow;
	return call->body.overflow ? 0 : len;
}

struct downstream *downstream_open(struct ev_loop *loop)
{
	static bool ready;
	if (!ready)
		hf_assert(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK);
	ready = true;
	struct downstream *downstream = hf_alloc(sizeof *downstream);
	downstream->loop = loop;
	downstream->multi = curl_multi_init();
	hf_assert(downstream->multi);
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
	while (downstream->calls)
		call_free(downstream->calls);
	curl_multi_cleanup(downstream->multi);
	ev_timer_stop(downstream->loop, &downstream->timer);
	free(downstream);
}

static void set_method(CURL *easy, const struct downstream_request *request)
{
	bool carries = request->has_body || strcmp(request->method, "POST") == 0 ||
		       strcmp(request->method, "PUT") == 0 || strcmp(request->method, "PATCH") == 0;
	if (carries) {
		curl_easy_setopt(easy, CURLOPT_POST, 1L);
		curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body.len);
		curl_easy_setopt(easy, CURLOPT_POSTFIELDS,
				 request->body.len ? request->body.data : "");
	} else if (strcmp(request->method, "HEAD") == 0) {
		curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
	}
	curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request->method);
}

static bool header_given(const char *const *headers, const char *name)
{
	struct slice value;
	for (; *headers; headers++)
		if (has_name(slice_of(*headers), name, &value))
			return true;
	return false;
}

static void set_headers(struct downstream_call *call, const char *const *headers)
{
	/* An empty value keeps curl from adding the header by itself: "Expect" would allow a second
	 * try, the type would be that of a form. */
	call->headers = curl_slist_append(nullptr, "Expect:");
	if (!header_given(headers, "content-type"))
		call->headers = curl_slist_append(call->headers, "Content-Type:");
	if (!header_given(headers, "user-agent"))
		call->headers = curl_slist_append(call->headers, "User-Agent: holdfast");
	for (; *headers; headers++)
		call->headers = curl_slist_append(call->headers, *headers);
	hf_assert(call->headers);
	curl_easy_setopt(call->easy, CURLOPT_HTTPHEADER, call->headers);
}

static void set_options(struct downstream_call *call, const struct downstream_request *request)
{
	CURL *easy = call->easy;
	int64_t connect_ms = request->timeout_ms < DOWNSTREAM_CONNECT_MS_MAX
				 ? request->timeout_ms
				 : DOWNSTREAM_CONNECT_MS_MAX;
	curl_easy_setopt(easy, CURLOPT_PRIVATE, call);
	curl_easy_setopt(easy, CURLOPT_URL, request->url);
	curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
	curl_easy_setopt(easy, CURLOPT_PROXY, "");
	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	/* On a reused connection that turns out to be closed curl sends again without asking, which
	 * is a second send of an un-keyed request. */
	curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, 1L);
	curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, 1L);
	curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
	curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)request->timeout_ms);
	curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)connect_ms);
	curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, call->error);
	curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, on_open);
	curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, on_connected);
	curl_easy_setopt(easy, CURLOPT_PREREQDATA, call);
	curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
	curl_easy_setopt(easy, CURLOPT_HEADERDATA, call);
	curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(easy, CURLOPT_WRITEDATA, call);
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
					  .retry_after_ms = -1,
					  .may_send = request->may_send,
					  .done = done,
					  .ctx = ctx };
	hf_assert(call->easy);
	if (call->next)
		call->next->prev = call;
	downstream->calls = call;
	set_options(call, request);
	set_method(call->easy, request);
	set_headers(call, request->headers);
	hf_assert(curl_multi_add_handle(downstream->multi, call->easy) == CURLM_OK);
	return call;
}

bool downstream_sent(const struct downstream_call *call)
{
	return call->sent;
}

bool downstream_cancel(struct downstream_call *call)
{
	return call_free(call);
}
