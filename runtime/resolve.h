/* resolve.h - the addresses of a name, asked for in a thread of its own, since getaddrinfo blocks
 * for as long as name servers please. */
#pragma once

#include <stddef.h>

struct ev_loop;
struct resolve;

constexpr size_t RESOLVE_ADDRESSES_MAX = 8;
constexpr size_t RESOLVE_ADDRESS_LEN = 64; /* numeric, with a zone, terminated */

/* `count` 0: `why` says why. Exactly one call, from the loop, unless stopped before. */
typedef void resolve_done(void *ctx, const char (*addresses)[RESOLVE_ADDRESS_LEN], size_t count,
			  const char *why);

/* nullptr where no thread can be had. Gone by itself after `done`. */
struct resolve *resolve_start(struct ev_loop *loop, const char *name, resolve_done *done,
			      void *ctx);
/* Its thread ends when it will; `done` is not called. */
void resolve_stop(struct resolve *resolve);
