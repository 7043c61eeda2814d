#include "runtime/random.h"

#include <sys/random.h>

#include "runtime/base.h"

void random_bytes(void *bytes, size_t len)
{
	unsigned char *at = bytes;
	while (len > 0) {
		ssize_t got = getrandom(at, len, 0);
		hf_assert(got > 0);
		at += got;
		len -= (size_t)got;
	}
}

int64_t random_up_to(int64_t bound)
{
	hf_assert(bound >= 0);
	uint64_t value;
	random_bytes(&value, sizeof value);
	return (int64_t)(value % ((uint64_t)bound + 1));
}
