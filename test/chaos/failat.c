/* failat.c - the nth allocation of a process fails, once: preloaded into a worker or an API process
 * by oom.py, which arms it through a page that both have mapped, as killat.c. Never armed at the
 * start: a library that does not get up is not what is asked. Built with the system's compiler. */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>

#include "trap.h"

/* The C library's own, behind the names that are taken here. */
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *memory, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

static bool fails(char name)
{
	uint32_t at;
	if (!trap_counts(&at))
		return false;
	page->where[0] = name;
	__atomic_store_n(&page->died, at, __ATOMIC_SEQ_CST);
	errno = ENOMEM;
	return true;
}

void *malloc(size_t size)
{
	return fails('m') ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
	return fails('c') ? NULL : __libc_calloc(count, size);
}

void *realloc(void *memory, size_t size)
{
	return fails('r') ? NULL : __libc_realloc(memory, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
	return fails('a') ? NULL : __libc_memalign(alignment, size);
}

int posix_memalign(void **out, size_t alignment, size_t size)
{
	void *memory = fails('a') ? NULL : __libc_memalign(alignment, size);
	if (!memory)
		return ENOMEM;
	*out = memory;
	return 0;
}
