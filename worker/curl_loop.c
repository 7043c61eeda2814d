/* curl_loop.c - on_socket and on_timer are what curl names, on_ready and on_time what feed it;
 * after each feeding `reap` takes what has ended. */
#include "worker/curl_loop.h"

#include <ev.h>
#include <stdlib.h>

#include "runtime/base.h"
#include "runtime/timer.h"

struct curl_loop {
	struct ev_loop *loop;
	CURLM *multi;
	ev_timer timer;
	void (*done)(void *owner, CURLcode code);
};

struct socket_watch {
	ev_io io;
	struct curl_loop *curl;
};

void curl_must_have(bool had_memory)
{
	if (!had_memory)
		hf_out_of_memory(0);
}

static void reap(struct curl_loop *curl)
{
	int left;
	for (CURLMsg *msg; (msg = curl_multi_info_read(curl->multi, &left));) {
		if (msg->msg != CURLMSG_DONE)
			continue;
		CURLcode code = msg->data.result; /* `msg` dies with its handle */
		char *owner = nullptr;
		curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, &owner);
		hf_assert(owner);
		curl->done(owner, code);
	}
}

static void feed(struct curl_loop *curl, curl_socket_t fd, int what)
{
	int running;
	CURLMcode code = curl_multi_socket_action(curl->multi, fd, what, &running);
	curl_must_have(code != CURLM_OUT_OF_MEMORY);
	hf_assert(code == CURLM_OK);
	reap(curl);
}

static void on_ready(struct ev_loop *, ev_io *io, int events)
{
	struct socket_watch *watch = container_of(io, struct socket_watch, io);
	feed(watch->curl, io->fd,
	     (events & EV_READ ? CURL_CSELECT_IN : 0) | (events & EV_WRITE ? CURL_CSELECT_OUT : 0));
}

static void on_time(struct ev_loop *, ev_timer *timer, int)
{
	feed(container_of(timer, struct curl_loop, timer), CURL_SOCKET_TIMEOUT, 0);
}

static int on_timer(CURLM *, long ms, void *ctx)
{
	struct curl_loop *curl = ctx;
	if (ms < 0)
		ev_timer_stop(curl->loop, &curl->timer);
	else
		timer_set(curl->loop, &curl->timer, ms);
	return 0;
}

static int on_socket(CURL *, curl_socket_t fd, int what, void *ctx, void *socket_ctx)
{
	struct curl_loop *curl = ctx;
	struct socket_watch *watch = socket_ctx;
	if (watch)
		ev_io_stop(curl->loop, &watch->io);
	if (what == CURL_POLL_REMOVE) {
		free(watch);
		return 0;
	}
	if (!watch) {
		watch = hf_alloc(sizeof *watch);
		watch->curl = curl;
		ev_init(&watch->io, on_ready);
		curl_multi_assign(curl->multi, fd, watch);
	}
	ev_io_set(&watch->io, fd,
		  (what & CURL_POLL_IN ? EV_READ : 0) | (what & CURL_POLL_OUT ? EV_WRITE : 0));
	ev_io_start(curl->loop, &watch->io);
	return 0;
}

struct curl_loop *curl_loop_open(struct ev_loop *loop, void (*done)(void *owner, CURLcode code))
{
	static bool ready;
	if (!ready)
		hf_assert(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK);
	ready = true;
	struct curl_loop *curl = hf_alloc(sizeof *curl);
	curl->loop = loop;
	curl->done = done;
	curl->multi = curl_multi_init();
	curl_must_have(curl->multi);
	ev_init(&curl->timer, on_time);
	curl_multi_setopt(curl->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
	curl_multi_setopt(curl->multi, CURLMOPT_SOCKETDATA, curl);
	curl_multi_setopt(curl->multi, CURLMOPT_TIMERFUNCTION, on_timer);
	curl_multi_setopt(curl->multi, CURLMOPT_TIMERDATA, curl);
	return curl;
}

struct curl_loop *curl_loop_close(struct curl_loop *curl)
{
	curl_multi_cleanup(curl->multi);
	ev_timer_stop(curl->loop, &curl->timer);
	free(curl);
	return nullptr;
}

void curl_loop_add(struct curl_loop *curl, CURL *easy)
{
	CURLMcode code = curl_multi_add_handle(curl->multi, easy);
	curl_must_have(code != CURLM_OUT_OF_MEMORY);
	hf_assert(code == CURLM_OK);
}

void curl_loop_remove(struct curl_loop *curl, CURL *easy)
{
	curl_multi_remove_handle(curl->multi, easy);
}
