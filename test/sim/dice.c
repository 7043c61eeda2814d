/* dice.c - the one source of chance: what the harness draws, and what the product draws from
 * runtime/random.h, whose functions are here. */
#include "runtime/base.h"
#include "runtime/random.h"
#include "test/sim/sim.h"

static uint64_t state;

static uint64_t mixed(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
	return x ^ (x >> 31);
}

void dice_seed(uint64_t seed)
{
	state = mixed(seed + 0x9e3779b97f4a7c15U);
}

uint64_t dice(void)
{
	state += 0x9e3779b97f4a7c15U;
	return mixed(state);
}

int64_t dice_between(int64_t low, int64_t high)
{
	return high <= low ? low : low + (int64_t)(dice() % (uint64_t)(high - low + 1));
}

bool dice_hits(int in_10000)
{
	return (int)(dice() % 10'000) < in_10000;
}

void random_bytes(void *bytes, size_t len)
{
	unsigned char *at = bytes;
	for (size_t i = 0; i < len; i += sizeof(uint64_t)) {
		uint64_t drawn = dice();
		memcpy(at + i, &drawn, len - i < sizeof drawn ? len - i : sizeof drawn);
	}
}

int64_t random_up_to(int64_t bound)
{
	return (int64_t)(dice() % ((uint64_t)bound + 1));
}
