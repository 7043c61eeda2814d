#include "runtime/base.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void hf_assert_fail(const char *expr, const char *file, int line, const char *func)
{
	fprintf(stderr, "%s:%d: %s: broken invariant: %s\n", file, line, func, expr);
	abort();
}

void hf_out_of_memory(size_t size)
{
	fprintf(stderr, "holdfast: out of memory (%zu bytes wanted)\n", size);
	abort();
}

void *hf_alloc(size_t size)
{
	void *bytes = calloc(1, size ? size : 1);
	if (!bytes)
		hf_out_of_memory(size);
	return bytes;
}

void *hf_realloc(void *old, size_t size)
{
	void *bytes = realloc(old, size ? size : 1);
	if (!bytes)
		hf_out_of_memory(size);
	return bytes;
}

char *hf_strdup(const char *text)
{
	hf_assert(text);
	return hf_strndup(text, strlen(text));
}

char *hf_strndup(const char *text, size_t len)
{
	hf_assert(text || len == 0);
	char *copy = hf_alloc(len + 1);
	if (len)
		memcpy(copy, text, len);
	return copy;
}

char *hf_format(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	char *text = nullptr;
	int len = vasprintf(&text, format, args);
	va_end(args);
	if (len < 0)
		hf_out_of_memory(0);
	return text;
}
