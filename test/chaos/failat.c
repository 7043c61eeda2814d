/* failat.c - the nth allocation of a process fails, once: preloaded into a worker or an API process
 * by oom.py, which arms it through a page that both have mapped, as killat.c. Never armed at the
 * start: a library that does not get up is not what is asked. Built with the system's compiler. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* As points.py has it. */
struct page {
	uint32_t at;    /* the allocation that fails; 0: none */
	uint32_t count; /* of allocations since it was armed */
	uint32_t died;  /* the one that failed */
	char where[20]; /* and which call that was */
};

/* The C library's own, behind the names that are taken here. */
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *memory, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

static struct page *page;
static pid_t self; /* a child that is about to become a tool does not count */

__attribute__((constructor)) static void map_page(void)
{
	const char *path = getenv("KILLAT");
	int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	if (file < 0)
		return;
	void *memory = mmap(NULL, sizeof(struct page), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	close(file);
	self = getpid();
	page = memory == MAP_FAILED ? NULL : memory;
}

static bool fails(char name)
{
	uint32_t at = page ? __atomic_load_n(&page->at, __ATOMIC_SEQ_CST) : 0;
	if (at == 0 || getpid() != self ||
	    __atomic_add_fetch(&page->count, 1, __ATOMIC_SEQ_CST) != at)
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
