#include "runtime/clock.h"

#include <time.h>

#include "runtime/base.h"

static int64_t read_ms(clockid_t id)
{
	struct timespec now;
	clock_gettime(id, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1'000'000;
}

int64_t clock_boot_ms(void)
{
	return read_ms(CLOCK_BOOTTIME);
}

int64_t clock_wall_ms(void)
{
	return read_ms(CLOCK_REALTIME);
}

void clock_rest_ms(int64_t ms)
{
	hf_assert(ms >= 0);
	struct timespec left = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1'000'000 };
	while (nanosleep(&left, &left) != 0)
		;
}
