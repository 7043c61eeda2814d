/* refresh.h - when the store is asked for the catalog: once a second, and whenever a request names
 * what is not in it, which may have been applied a moment ago. What is read goes to the hooks. */
#pragma once

#include <stdint.h>

struct ev_loop;
struct request;
struct refresh;
struct store;
struct store_catalog;

struct refresh_hooks {
	/* The number of the catalog that is known. */
	int64_t (*known)(void *ctx);
	/* Another one was read; its memory is the store's. */
	void (*changed)(void *ctx, const struct store_catalog *found);
	void *ctx;
};

/* Reads at once, and from then on. Nothing of it is called from inside. */
struct refresh *refresh_new(struct ev_loop *loop, struct store *store,
			    const struct refresh_hooks *hooks);
/* Reads once more and then calls `go_on`, with looked_again set; ends the request where the store
 * is away. */
void refresh_look_again(struct request *request, void (*go_on)(struct request *request));
/* A catalog was read at least once. */
bool refresh_has_read(const struct refresh *refresh);
/* The store is closed by then, and nobody waits. nullptr is fine. Returns nullptr. */
struct refresh *refresh_free(struct refresh *refresh);
