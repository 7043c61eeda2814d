/* schema_pattern.c - see schema_pattern.h. PCRE2's match limit counts anew at each starting
 * position and does not count bytes that a possessive repeat runs over, so an innocent pattern such
 * as [0-9]+[xy] is quadratic under it. Automatic callouts, before each item of the pattern, let us
 * count both. Called by schema.c and schema_check.c. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "runtime/schema_pattern.h"

#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/base.h"

struct schema_pattern {
	pcre2_code *code;
	char *text;
};

struct schema_pattern *schema_pattern_new(struct slice text, char *why, size_t why_size)
{
	hf_assert(why && why_size > 0);
	if (text.len > PATTERN_BYTES_MAX) {
		snprintf(why, why_size, "longer than %zu bytes", PATTERN_BYTES_MAX);
		return nullptr;
	}
	pcre2_compile_context *context = pcre2_compile_context_create(nullptr);
	hf_assert(context);
	pcre2_set_newline(context, PCRE2_NEWLINE_ANYCRLF);
	pcre2_set_compile_extra_options(context, PCRE2_EXTRA_ALT_BSUX);
	uint32_t options = PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C | PCRE2_DOLLAR_ENDONLY |
			   PCRE2_ALT_BSUX | PCRE2_ALLOW_EMPTY_CLASS | PCRE2_MATCH_UNSET_BACKREF |
			   PCRE2_AUTO_CALLOUT;
	int code;
	PCRE2_SIZE offset;
	pcre2_code *compiled =
	    pcre2_compile((PCRE2_SPTR)text.data, text.len, options, &code, &offset, context);
	pcre2_compile_context_free(context);
	if (!compiled) {
		PCRE2_UCHAR reason[120] = "";
		pcre2_get_error_message(code, reason, sizeof reason);
		snprintf(why, why_size, "at byte %zu: %s", offset, (const char *)reason);
		return nullptr;
	}
	struct schema_pattern *pattern = hf_alloc(sizeof *pattern);
	pattern->code = compiled;
	pattern->text = hf_strndup(text.data, text.len);
	return pattern;
}

struct schema_pattern *schema_pattern_free(struct schema_pattern *pattern)
{
	if (pattern) {
		pcre2_code_free(pattern->code);
		free(pattern->text);
		free(pattern);
	}
	return nullptr;
}

const char *schema_pattern_text(const struct schema_pattern *pattern)
{
	return pattern->text;
}

static int on_callout(pcre2_callout_block *block, void *ctx)
{
	struct schema_matcher *matcher = ctx;
	size_t from = matcher->position, to = block->current_position;
	size_t distance = from < to ? to - from : from - to;
	uint64_t steps = 1 + distance / PATTERN_STEP_BYTES;
	matcher->position = to;
	if (steps > matcher->steps)
		return PCRE2_ERROR_CALLOUT;
	matcher->steps -= steps;
	return 0;
}

static void matcher_init(struct schema_matcher *matcher)
{
	matcher->context = pcre2_match_context_create(nullptr);
	matcher->data = pcre2_match_data_create(1, nullptr);
	hf_assert(matcher->context && matcher->data);
	pcre2_set_match_limit(matcher->context, PATTERN_MATCH_LIMIT);
	pcre2_set_heap_limit(matcher->context, PATTERN_HEAP_KIB_MAX);
	pcre2_set_callout(matcher->context, on_callout, matcher);
}

void schema_matcher_deinit(struct schema_matcher *matcher)
{
	pcre2_match_context_free(matcher->context);
	pcre2_match_data_free(matcher->data);
	*matcher = (struct schema_matcher){};
}

enum schema_match schema_pattern_match(const struct schema_pattern *pattern,
				       struct schema_matcher *matcher, struct slice text)
{
	hf_assert(pattern && matcher);
	if (!matcher->context)
		matcher_init(matcher);
	matcher->position = 0;
	int found = pcre2_match(pattern->code, (PCRE2_SPTR)text.data, text.len, 0,
				PCRE2_NO_UTF_CHECK, matcher->data, matcher->context);
	if (found >= 0)
		return MATCH_YES;
	/* Whatever else it says, it gave up: over a limit, or recursing for ever. */
	return found == PCRE2_ERROR_NOMATCH ? MATCH_NO : MATCH_LIMIT;
}
