/* listen.h - the streams of subscriptions/listen (A14, T10): first the acknowledgement, then the
 * state of each task that was named, then what changes, until all of those tasks are over, the
 * process stops, or the stream has had its time. Nothing of a stream outlives it. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct api;

constexpr int64_t LISTEN_TELL_EVERY_MS = 500;    /* of one task, while its status stays the same */
constexpr size_t LISTEN_BODY_BYTES_MAX = 32'768; /* it is kept for as long as the stream */
/* A reader that leaves so much is told no more until it has read it: then what is new by then. One
 * that takes nothing for write_timeout_ms is cut off. */
constexpr size_t LISTEN_UNSENT_BYTES_MAX = 65'536;
constexpr int64_t LISTEN_FUTURE_MS = 604'800'000; /* task IDs from beyond are nobody's */
constexpr unsigned LISTEN_CATCH_UP_MAX = 4;       /* tasks looked at for a reader that has read */

struct listens;
[[nodiscard]] struct listens *listens_new(struct api *api);
/* None may be left. Takes nullptr; returns nullptr. */
struct listens *listens_free(struct listens *listens);

void listens_collect(const struct listens *listens); /* for /metrics */

/* tools/list answers otherwise than before. */
void listens_tools_changed(struct listens *listens);
/* Ends all of them, now and from now on, each with its result. */
void listens_drain(struct listens *listens);
