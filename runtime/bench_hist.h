/* bench_hist.h - how long things took: counts in buckets of at most 0.8 % width, so that millions
 * of times need no list and no sorting. A zeroed struct is empty. */
#pragma once

#include <stdint.h>

constexpr unsigned HIST_FINE_BITS = 7; /* buckets to a power of two: 128 */
constexpr unsigned HIST_BUCKETS = (64 - HIST_FINE_BITS + 1) << HIST_FINE_BITS;

struct hist {
	uint64_t counts[HIST_BUCKETS];
	uint64_t total;
};

static inline unsigned hist_bucket(uint64_t ns)
{
	constexpr uint64_t FINE = 1 << HIST_FINE_BITS;
	if (ns < FINE)
		return (unsigned)ns;
	unsigned shift = 63 - (unsigned)__builtin_clzll(ns) - HIST_FINE_BITS;
	return ((shift + 1) << HIST_FINE_BITS) + (unsigned)((ns >> shift) - FINE);
}

static inline void hist_add(struct hist *hist, int64_t ns)
{
	hist->counts[hist_bucket(ns > 0 ? (uint64_t)ns : 0)]++;
	hist->total++;
}

/* The middle of the bucket that the share `part` (0…1) of the times does not pass, in ms. */
static inline double hist_ms(const struct hist *hist, double part)
{
	constexpr uint64_t FINE = 1 << HIST_FINE_BITS;
	uint64_t rank = (uint64_t)(part * (double)(hist->total ? hist->total - 1 : 0));
	uint64_t seen = 0;
	for (unsigned i = 0; i < HIST_BUCKETS; i++) {
		seen += hist->counts[i];
		if (seen <= rank)
			continue;
		if (i < FINE)
			return (double)i / 1e6;
		unsigned shift = (i >> HIST_FINE_BITS) - 1;
		double low = (double)((FINE + (i & (FINE - 1))) << shift);
		return (low + (double)(1ull << shift) / 2) / 1e6;
	}
	return 0;
}
