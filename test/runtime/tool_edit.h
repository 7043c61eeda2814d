/* tool_edit.h - for the tests of tool.json: one good text, and edits of it that are read or
 * refused. An edit replaces the first `from`. */
#pragma once

#include <stdlib.h>
#include <string.h>

#include "runtime/base.h"
#include "runtime/tool.h"
#include "test/test.h"

struct edit {
	const char *from, *to;
	const char *expected; /* how the text begins, after "tool.json#" */
};

/* Heap. */
static inline char *edited(const char *good, const char *from, const char *to)
{
	const char *at = strstr(good, from);
	cr_assert_not_null(at, "the edit \"%s\" applies to nothing", from);
	return hf_format("%.*s%s%s", (int)(at - good), good, to, at + strlen(from));
}

/* The caller's to free. */
static inline struct tool *read_tool(const char *doc, const struct tool_files *files)
{
	struct tool *tool = nullptr;
	struct hf_err err = {};
	cr_assert_eq(tool_new(slice_of(doc), files, &tool, &err), HF_OK, "%s", err.text);
	return tool;
}

static inline void check_refused(const char *good, const struct tool_files *files,
				 const struct edit *edits, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		char *doc = edited(good, edits[i].from, edits[i].to);
		char *expected = hf_format("tool.json#%s", edits[i].expected);
		struct tool *tool = nullptr;
		struct hf_err err = {};
		cr_expect_eq(tool_new(slice_of(doc), files, &tool, &err), HF_INVALID,
			     "\"%s\" was accepted", edits[i].to);
		cr_expect_eq(strncmp(err.text, expected, strlen(expected)), 0,
			     "\"%s\":\n  said     %s\n  expected %s", edits[i].to, err.text,
			     expected);
		cr_expect_null(tool);
		free(expected);
		free(doc);
	}
}
