#include "test/sim/fibre.h"

#include <stdint.h>
#include <stdlib.h>
#include <ucontext.h>

#include "runtime/base.h"

constexpr size_t STACK_BYTES = 256 << 10;

struct fibre {
	struct fibre *next;
	ucontext_t inside, outside;
	void (*body)(void *ctx);
	void *ctx;
	bool over;
	void *stack;
};

static struct fibre *spare;

static void enter(unsigned high, unsigned low)
{
	struct fibre *fibre = (struct fibre *)((uintptr_t)high << 32 |
					       (uintptr_t)low); /* what makecontext can pass */
	fibre->body(fibre->ctx);
	fibre->over = true;
	swapcontext(&fibre->inside, &fibre->outside);
}

void fibre_begin(struct fibre **out, void (*body)(void *ctx), void *ctx)
{
	struct fibre *fibre = spare;
	if (fibre) {
		spare = fibre->next;
	} else {
		fibre = hf_alloc(sizeof *fibre);
		fibre->stack = hf_alloc(STACK_BYTES);
	}
	fibre->body = body;
	fibre->ctx = ctx;
	fibre->over = false;
	getcontext(&fibre->inside);
	fibre->inside.uc_stack.ss_sp = fibre->stack;
	fibre->inside.uc_stack.ss_size = STACK_BYTES;
	fibre->inside.uc_link = nullptr;
	uintptr_t self = (uintptr_t)fibre;
	makecontext(&fibre->inside, (void (*)(void))enter, 2, (unsigned)(self >> 32),
		    (unsigned)self);
	*out = fibre;
	fibre_go_on(fibre);
}

void fibre_wait(struct fibre *fibre)
{
	swapcontext(&fibre->inside, &fibre->outside);
}

void fibre_go_on(struct fibre *fibre)
{
	swapcontext(&fibre->outside, &fibre->inside);
}

bool fibre_is_over(const struct fibre *fibre)
{
	return fibre->over;
}

void fibre_drop(struct fibre *fibre)
{
	fibre->next = spare;
	spare = fibre;
}
