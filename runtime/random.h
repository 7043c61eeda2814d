/* random.h - bytes that nobody can guess, from getrandom; and a cheap fraction for jitter. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Fills `len` bytes; ends the process where the kernel has none to give. */
void random_bytes(void *bytes, size_t len);
/* Uniform in [0, bound]; for jitter, never for secrets. */
int64_t random_up_to(int64_t bound);
