/* schema_pattern.h - the patterns of schemas: PCRE2 set to mean what ECMA-262 means where JSON
 * Schemas use it ($ is the very end, \d is ASCII, \u0041 works), unanchored, over code points.
 * Strings come from callers who may be hostile, patterns from tool authors who may be careless:
 * one budget of steps bounds all matching of one check. */
#pragma once

#include <stdint.h>

#include "runtime/slice.h"

constexpr size_t PATTERN_BYTES_MAX = 2000;
constexpr uint32_t PATTERN_MATCH_LIMIT = 10'000'000; /* of one starting position */
constexpr uint32_t PATTERN_HEAP_KIB_MAX = 32 << 10;
constexpr uint64_t PATTERN_STEPS_MAX = 1'000'000; /* and one more for each byte of the value */
constexpr uint64_t PATTERN_STEP_BYTES = 64;       /* scanned at a stretch count as a step */

struct schema_pattern;

/* nullptr: no pattern; `why` then says where and why. `text` is UTF-8 without NUL. */
[[nodiscard]] struct schema_pattern *schema_pattern_new(struct slice text, char *why,
							size_t why_size);
struct schema_pattern *schema_pattern_free(struct schema_pattern *pattern);
const char *schema_pattern_text(const struct schema_pattern *pattern);

/* What the matches of one check share. */
struct schema_matcher {
	uint64_t steps; /* left */
	/* private */
	size_t position;
	struct pcre2_real_match_context_8 *context;
	struct pcre2_real_match_data_8 *data;
};

enum schema_match { MATCH_YES, MATCH_NO, MATCH_LIMIT };

/* A zeroed matcher with its steps set is ready. `text` is UTF-8. */
enum schema_match schema_pattern_match(const struct schema_pattern *pattern,
				       struct schema_matcher *matcher, struct slice text);
void schema_matcher_deinit(struct schema_matcher *matcher);
