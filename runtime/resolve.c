#include "runtime/resolve.h"

#include <ev.h>
#include <netdb.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base.h"

struct resolve {
	struct ev_loop *loop;
	char *name;
	resolve_done *done;
	void *ctx;
	ev_async ready;
	/* what both threads touch */
	pthread_mutex_t mutex;
	bool stopped, ended;
	/* written by the thread before `ended` */
	char addresses[RESOLVE_ADDRESSES_MAX][RESOLVE_ADDRESS_LEN];
	size_t count;
	int error;
};

static void resolve_free(struct resolve *resolve)
{
	pthread_mutex_destroy(&resolve->mutex);
	free(resolve->name);
	free(resolve);
}

static void ask(struct resolve *resolve)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
	struct addrinfo *found = nullptr;
	resolve->error = getaddrinfo(resolve->name, nullptr, &hints, &found);
	if (resolve->error)
		return;
	for (const struct addrinfo *at = found; at && resolve->count < RESOLVE_ADDRESSES_MAX;
	     at = at->ai_next)
		if (getnameinfo(at->ai_addr, at->ai_addrlen, resolve->addresses[resolve->count],
				RESOLVE_ADDRESS_LEN, nullptr, 0, NI_NUMERICHOST) == 0)
			resolve->count++;
	freeaddrinfo(found);
}

static void *run(void *ctx)
{
	struct resolve *resolve = ctx;
	ask(resolve);
	pthread_mutex_lock(&resolve->mutex);
	resolve->ended = true;
	bool stopped = resolve->stopped;
	if (!stopped) /* under the lock: the loop is not freed meanwhile */
		ev_async_send(resolve->loop, &resolve->ready);
	pthread_mutex_unlock(&resolve->mutex);
	if (stopped)
		resolve_free(resolve);
	return nullptr;
}

static void on_ready(struct ev_loop *loop, ev_async *watcher, int)
{
	struct resolve *resolve = container_of(watcher, struct resolve, ready);
	ev_async_stop(loop, watcher);
	/* The thread may hold the lock still. */
	pthread_mutex_lock(&resolve->mutex);
	pthread_mutex_unlock(&resolve->mutex);
	const char *why = resolve->error ? gai_strerror(resolve->error) : "it has no address";
	resolve->done(resolve->ctx, resolve->addresses, resolve->count,
		      resolve->count ? nullptr : why);
	resolve_free(resolve);
}

struct resolve *resolve_start(struct ev_loop *loop, const char *name, resolve_done *done, void *ctx)
{
	struct resolve *resolve = hf_alloc(sizeof *resolve);
	resolve->loop = loop;
	resolve->name = hf_strdup(name);
	resolve->done = done;
	resolve->ctx = ctx;
	pthread_mutex_init(&resolve->mutex, nullptr);
	ev_async_init(&resolve->ready, on_ready);
	ev_async_start(loop, &resolve->ready);
	pthread_t thread;
	if (pthread_create(&thread, nullptr, run, resolve) != 0) {
		ev_async_stop(loop, &resolve->ready);
		resolve_free(resolve);
		return nullptr;
	}
	pthread_detach(thread);
	return resolve;
}

void resolve_stop(struct resolve *resolve)
{
	if (!resolve)
		return;
	ev_async_stop(resolve->loop, &resolve->ready);
	pthread_mutex_lock(&resolve->mutex);
	resolve->stopped = true;
	bool ended = resolve->ended;
	pthread_mutex_unlock(&resolve->mutex);
	if (ended)
		resolve_free(resolve);
}
