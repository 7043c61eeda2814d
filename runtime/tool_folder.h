/* tool_folder.h - a tool's folder as it lies on disk: all its files in memory, and the version that
 * names them. Blocking; for commands only. */
#pragma once

#include <stddef.h>

#include "runtime/err.h"
#include "runtime/slice.h"
#include "runtime/tool.h"

constexpr size_t TOOL_FOLDER_FILES_MAX = 1'000;
constexpr int TOOL_FOLDER_DEPTH_MAX = 8;

struct tool_file {
	char *path; /* below the folder, with '/' */
	bool executable;
	struct slice content; /* owned by the folder */
};

struct tool_folder {
	struct tool_file *files; /* sorted by path, bytewise */
	size_t count;
	size_t bytes;
	char version[65]; /* SHA-256, hex: of each file path, mode and content, in order */
};

/* Names that begin with a dot are left out. HF_MISSING: no such folder. HF_INVALID: a symbolic
 * link, a device, a name that is none for a tool. HF_LIMIT: too much. The text names the file. */
enum hf_code tool_folder_read(const char *path, struct tool_folder **out, struct hf_err *err);
struct tool_folder *tool_folder_free(struct tool_folder *folder); /* as every _free */
HF_DEFINE_CLEANUP(tool_folder, struct tool_folder *, tool_folder_free)

const struct tool_file *tool_folder_find(const struct tool_folder *folder, const char *path);
/* For tool_new. */
struct tool_files tool_folder_files(struct tool_folder *folder);
/* tool_new on the folder's tool.json, with its version; and its programs can be started. */
enum hf_code tool_folder_tool(struct tool_folder *folder, struct tool **out, struct hf_err *err);
