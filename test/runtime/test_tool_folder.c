/* A folder becomes a version: what goes in, what is refused, and that the hash stays what it is. */
#include "runtime/tool_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base.h"
#include "test/test.h"

struct place {
	char root[64];
};

static struct place place_make(void)
{
	struct place place = { "/tmp/holdfast-test-XXXXXX" };
	cr_assert_not_null(mkdtemp(place.root));
	return place;
}

static void place_remove(const struct place *place)
{
	char *command = hf_format("rm -rf '%s'", place->root);
	cr_expect_eq(system(command), 0);
	free(command);
}

static void put(const struct place *place, const char *path, const char *content, mode_t mode)
{
	char *whole = hf_format("%s/%s", place->root, path);
	FILE *file = fopen(whole, "w");
	cr_assert_not_null(file);
	fputs(content, file);
	fclose(file);
	cr_assert_eq(chmod(whole, mode), 0);
	free(whole);
}

static struct place example(void)
{
	struct place place = place_make();
	char *bin = hf_format("%s/bin", place.root);
	cr_assert_eq(mkdir(bin, 0755), 0);
	free(bin);
	put(&place, "tool.json", "{}", 0600);
	put(&place, "bin/run", "#!/bin/sh\n", 0750);
	put(&place, "a.txt", "", 0644);
	put(&place, "bin.txt", "x", 0644);
	return place;
}

static char *version_of(const struct place *place)
{
	struct tool_folder *folder = nullptr;
	struct hf_err err = {};
	cr_assert_eq(tool_folder_read(place->root, &folder, &err), HF_OK, "%s", err.text);
	char *version = hf_strdup(folder->version);
	tool_folder_free(folder);
	return version;
}

HF_TEST(tool_folder, holds_all_files_sorted)
{
	struct place place = example();
	struct tool_folder *folder = nullptr;
	struct hf_err err = {};
	cr_assert_eq(tool_folder_read(place.root, &folder, &err), HF_OK, "%s", err.text);
	static const char *const paths[] = { "a.txt", "bin.txt", "bin/run", "tool.json" };
	cr_assert_eq(folder->count, countof(paths));
	for (size_t i = 0; i < countof(paths); i++)
		cr_expect_str_eq(folder->files[i].path, paths[i]);
	cr_expect_eq(folder->bytes, 13);
	const struct tool_file *run = tool_folder_find(folder, "bin/run");
	cr_expect(run->executable);
	cr_expect(slice_is(run->content, "#!/bin/sh\n"));
	cr_expect(!tool_folder_find(folder, "tool.json")->executable);
	cr_expect_null(tool_folder_find(folder, "run"));
	tool_folder_free(folder);
	place_remove(&place);
}

HF_TEST(tool_folder, the_version_is_the_hash_of_paths_modes_and_contents)
{
	/* Computed apart, with Python's hashlib. */
	static const char golden[] =
	    "37e640e4a755f337c4897fdf53d84e0fd2f9f3c7dd510ff8a1d5720b2db3dfe1";
	struct place place = example();
	char *version = version_of(&place);
	cr_expect_str_eq(version, golden);
	free(version);
	static const struct {
		const char *path, *content;
		mode_t mode;
		bool same;
	} changes[] = {
		{ ".hidden", "left out", 0644, true }, { "a.txt", "", 0600, true },
		{ "a.txt", "", 0755, false },          { "a.txt", "y", 0644, false },
		{ "a.txt", "", 0644, true },           { "b.txt", "", 0644, false },
	};
	for (size_t i = 0; i < countof(changes); i++) {
		put(&place, changes[i].path, changes[i].content, changes[i].mode);
		version = version_of(&place);
		cr_expect_eq(strcmp(version, golden) == 0, changes[i].same, "change %zu", i);
		free(version);
	}
	place_remove(&place);
}

HF_TEST(tool_folder, what_is_no_plain_file_is_refused)
{
	static const struct {
		const char *path;
		bool link;
		const char *expected;
	} cases[] = {
		{ "link", true, "link: is a symbolic link" },
		{ "fifo", false, "fifo: is no file" },
		{ "od\nd", false, "od?d: file names of a tool" },
	};
	for (size_t i = 0; i < countof(cases); i++) {
		struct place place = example();
		char *path = hf_format("%s/%s", place.root, cases[i].path);
		int made = cases[i].link ? symlink("tool.json", path) : mkfifo(path, 0600);
		cr_assert_eq(made, 0);
		free(path);
		struct tool_folder *folder = nullptr;
		struct hf_err err = {};
		cr_expect_eq(tool_folder_read(place.root, &folder, &err), HF_INVALID);
		cr_expect_eq(strncmp(err.text, cases[i].expected, strlen(cases[i].expected)), 0,
			     "said: %s", err.text);
		cr_expect_null(folder);
		place_remove(&place);
	}
}

/* tool.json with `command` in a phase, or in its undo step. */
static void put_tool(const struct place *place, const char *command, bool undo)
{
	const char *other = "[\"./good\"]";
	char *doc = hf_format("{\"name\":\"t\",\"description\":\"d\",\"inputSchema\":{\"type\":"
			      "\"object\",\"properties\":"
			      "{\"effect_id\":{\"type\":\"string\"}},\"required\":[\"effect_id\"]},"
			      "\"phases\":[{\"name\":"
			      "\"p\",\"kind\":\"program\",\"effect\":\"pure\",\"command\":%s,"
			      "\"undo\":{\"kind\":\"program\","
			      "\"effect\":\"pure\",\"command\":%s}}],\"result\":{\"text\":\"t\"}}",
			      undo ? other : command, undo ? command : other);
	put(place, "tool.json", doc, 0644);
	put(place, "good", "#! /bin/sh -e", 0755);
	free(doc);
}

HF_TEST(tool_folder, a_program_that_cannot_be_started_is_refused)
{
	static const struct {
		const char *command, *content; /* of file x */
		const char *expected;          /* behind the phase's pointer; nullptr: good */
	} cases[] = {
		{ "[\"./x\"]", "#!/bin/sh\n", nullptr },
		{ "[\"./x\"]", "#!/bin/sh", nullptr },
		{ "[\"./x\"]", "\177ELF\r\n", nullptr },
		{ "[\"sh\", \"x\"]", "no program", nullptr },
		{ "[\"/bin/x\"]", "no program", nullptr },
		{ "[\"./x\"]", "", "/command/0: ./x is neither ELF nor begins with #!" },
		{ "[\"./x\"]", "import sys\n",
		  "/command/0: ./x is neither ELF nor begins with #!" },
		{ "[\"./x\"]", "\xef\xbb\xbf#!/bin/sh\n",
		  "/command/0: ./x is neither ELF nor begins with #!" },
		{ "[\"./x\"]", "#!/bin/sh\r\ntrue\r\n",
		  "/command/0: ./x has a #! line that ends in CR LF: it must end in LF alone" },
		{ "[\"./x\"]", "#!/bin/sh\r",
		  "/command/0: ./x has a #! line that ends in CR LF: it must end in LF alone" },
		{ "[\"./x\"]", "#! \t\n/bin/sh",
		  "/command/0: ./x has a #! line that names no program" },
		{ "[\"x\"]", "#!/bin/sh\n",
		  "/command/0: \"x\" is looked for in PATH alone: write \"./x\" for the file of "
		  "this "
		  "folder" },
	};
	for (size_t i = 0; i < 2 * countof(cases); i++) {
		bool undo = i % 2;
		struct place place = place_make();
		struct tool_folder *folder = nullptr;
		struct tool *tool = nullptr;
		struct hf_err err = {};
		put_tool(&place, cases[i / 2].command, undo);
		put(&place, "x", cases[i / 2].content, 0755);
		cr_assert_eq(tool_folder_read(place.root, &folder, &err), HF_OK, "%s", err.text);
		enum hf_code code = tool_folder_tool(folder, &tool, &err);
		char *expected = cases[i / 2].expected
				     ? hf_format("tool.json#/phases/0%s%s", undo ? "/undo" : "",
						 cases[i / 2].expected)
				     : nullptr;
		cr_expect_eq(code, expected ? HF_INVALID : HF_OK, "case %zu: %s", i, err.text);
		cr_expect_eq(!tool, expected != nullptr, "case %zu", i);
		if (expected)
			cr_expect_str_eq(err.text, expected);
		free(expected);
		tool_free(tool);
		tool_folder_free(folder);
		place_remove(&place);
	}
}

HF_TEST(tool_folder, a_reference_under_another_name_is_refused)
{
	static const struct {
		const char *text, *expected; /* of the result; nullptr: good */
	} cases[] = {
		{ "{\"$from\": \"/state/p\"}", nullptr },
		{ "{\"$ref\": \"#/$defs/x\", \"$set\": {\"$inc\": 1}}", nullptr },
		{ "{\"from\": \"/state/p\"}", nullptr },
		{ "[1, {\"$form\": \"/state/p\"}]",
		  "tool.json#/result/structured/x/1/$form: would stay as it stands: {\"$from\": "
		  "\"/state/p\"} is what puts a value in" },
		{ "{\"$\": \"/args/n\"}",
		  "tool.json#/result/structured/x/$: would stay as it stands: {\"$from\": "
		  "\"/args/n\"} is what puts a value in" },
	};
	for (size_t i = 0; i < countof(cases); i++) {
		struct place place = place_make();
		struct tool_folder *folder = nullptr;
		struct tool *tool = nullptr;
		struct hf_err err = {};
		char *doc =
		    hf_format("{\"name\":\"t\",\"description\":\"d\",\"effect_id\":\"optional\","
			      "\"inputSchema\":{\"default\":{\"$x\":\"/args/"
			      "n\"},\"type\":\"object\"},\"phases\":"
			      "[{\"name\":\"p\",\"kind\":\"program\",\"effect\":\"pure\","
			      "\"command\":[\"true\"]}],"
			      "\"result\":{\"text\":\"t\",\"structured\":{\"x\":%s}}}",
			      cases[i].text);
		put(&place, "tool.json", doc, 0644);
		free(doc);
		cr_assert_eq(tool_folder_read(place.root, &folder, &err), HF_OK, "%s", err.text);
		cr_expect_eq(tool_folder_tool(folder, &tool, &err),
			     cases[i].expected ? HF_INVALID : HF_OK, "case %zu: %s", i, err.text);
		if (cases[i].expected)
			cr_expect_str_eq(err.text, cases[i].expected);
		tool_free(tool);
		tool_folder_free(folder);
		place_remove(&place);
	}
}

HF_TEST(tool_folder, too_deep_too_large_and_absent_are_told_apart)
{
	struct place place = example();
	struct tool_folder *folder = nullptr;
	struct hf_err err = {};
	char *large = hf_format("%s/a.txt", place.root);
	cr_assert_eq(truncate(large, (off_t)TOOL_FILE_BYTES_MAX), 0);
	cr_expect_eq(tool_folder_read(place.root, &folder, &err), HF_LIMIT);
	cr_assert_eq(truncate(large, 0), 0);
	free(large);
	char *deep = hf_format("mkdir -p '%s/1/2/3/4/5/6/7/8/9'", place.root);
	cr_assert_eq(system(deep), 0);
	free(deep);
	cr_expect_eq(tool_folder_read(place.root, &folder, &err), HF_LIMIT);
	place_remove(&place);
	cr_expect_eq(tool_folder_read(place.root, &folder, &err), HF_MISSING);
	cr_expect_null(folder);
}
