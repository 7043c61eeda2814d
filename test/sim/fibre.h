/* fibre.h - a function that waits on a stack of its own: worker_main inside of ev_run. One that is
 * left waiting for ever costs its stack, which fibre_drop gives to the next. */
#pragma once

struct fibre;

/* Runs `body` until it waits or returns; `out` is set before. */
void fibre_begin(struct fibre **out, void (*body)(void *ctx), void *ctx);
void fibre_wait(struct fibre *fibre);  /* from inside */
void fibre_go_on(struct fibre *fibre); /* from outside, until it waits again or returns */
bool fibre_is_over(const struct fibre *fibre);
void fibre_drop(struct fibre *fibre);
