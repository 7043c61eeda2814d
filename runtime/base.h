/* base.h - the few macros that every file may use, and allocation that cannot fail. Includes
 * nothing of ours. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define countof(array) (sizeof(array) / sizeof((array)[0]))
#define container_of(pointer, type, member) \
	((type *)((unsigned char *)(pointer) - offsetof(type, member)))

/* On in every build mode: a broken invariant stops the process before it can commit. Its claims
 * then expire and another process goes on from the last recovery point. */
#define hf_assert(expr) ((expr) ? (void)0 : hf_assert_fail(#expr, __FILE__, __LINE__, __func__))

[[noreturn]] void hf_assert_fail(const char *expr, const char *file, int line, const char *func);

/* Scope-bound ownership: `hf_cleanup(buf) struct buf text = {};` calls hf_cleanup_buf(&text). */
#define hf_cleanup(name) __attribute__((cleanup(hf_cleanup_##name)))

#define HF_DEFINE_CLEANUP(name, type, release)           \
	static inline void hf_cleanup_##name(type *slot) \
	{                                                \
		if (*slot)                               \
			release(*slot);                  \
	}

HF_DEFINE_CLEANUP(text, char *, free)

/* The one place where a process ends that lacks memory, itself or for a library. */
[[noreturn]] void hf_out_of_memory(size_t size);

/* Memory, or the end of the process: what must survive is in Postgres, and sizes are bounded by
 * limits long before they reach malloc. hf_alloc returns zeroed bytes; size 0 is allowed. */
[[nodiscard]] void *hf_alloc(size_t size);
[[nodiscard]] void *hf_realloc(void *old, size_t size);
[[nodiscard]] char *hf_strdup(const char *text);
[[nodiscard]] char *hf_strndup(const char *text, size_t len);
[[nodiscard]] char *hf_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
