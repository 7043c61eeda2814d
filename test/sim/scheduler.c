/* scheduler.c - what happens next: a heap of events by time, and by chance among those of one
 * moment. The clock leaps from one to the next. */
#include <stdlib.h>

#include "runtime/base.h"
#include "runtime/clock.h"
#include "test/sim/sim.h"

constexpr int64_t DATABASE_START_MS = 1'900'000'000'000; /* some day, away from every edge */
constexpr int64_t BOOT_MS = 50'000;                      /* the boot clock when the world begins */

int64_t now_us;
static struct event **heap;
static size_t count_, room;

int64_t database_ms(void)
{
	return DATABASE_START_MS + now_us / MS;
}

int64_t clock_boot_ms(void)
{
	int64_t offset = running_process ? running_process->boot_offset_ms : 0;
	return BOOT_MS + offset + now_us / MS;
}

int64_t clock_wall_ms(void)
{
	return database_ms();
}

static bool is_before(const struct event *a, const struct event *b)
{
	return a->at_us != b->at_us ? a->at_us < b->at_us : a->tie < b->tie;
}

static void put(struct event *event, size_t at)
{
	heap[at] = event;
	event->spot = at + 1;
}

static void rise(struct event *event, size_t at)
{
	for (; at > 0 && is_before(event, heap[(at - 1) / 2]); at = (at - 1) / 2)
		put(heap[(at - 1) / 2], at);
	put(event, at);
}

static void sink(struct event *event, size_t at)
{
	for (size_t child; (child = 2 * at + 1) < count_; at = child) {
		if (child + 1 < count_ && is_before(heap[child + 1], heap[child]))
			child++;
		if (!is_before(heap[child], event))
			break;
		put(heap[child], at);
	}
	put(event, at);
}

void event_drop(struct event *event)
{
	if (!event->spot)
		return;
	size_t at = event->spot - 1;
	event->spot = 0;
	struct event *last = heap[--count_];
	if (last == event)
		return;
	if (at > 0 && is_before(last, heap[(at - 1) / 2]))
		rise(last, at);
	else
		sink(last, at);
}

void event_set(struct event *event, int64_t at_us)
{
	hf_assert(event->fire);
	event_drop(event);
	event->at_us = at_us > now_us ? at_us : now_us;
	event->tie = dice();
	if (count_ == room) {
		room = room ? 2 * room : 1'024;
		heap = hf_realloc(heap, room * sizeof(struct event *));
	}
	rise(event, count_++);
}

bool scheduler_step(void)
{
	if (count_ == 0)
		return false;
	struct event *event = heap[0];
	event_drop(event);
	now_us = event->at_us;
	struct process *process = event->process;
	if (process && !process->alive)
		return true;
	if (process && now_us < process->go_on_us) {
		event_set(event, process->go_on_us + dice_between(0, 500));
		return true;
	}
	tally->events++;
	as_process(process, event->fire(event));
	return true;
}
