/* pack.h - what a folder offers beside its tool: prompts (prompts/NAME.json) and resources
 * (resources/resources.json). A folder without a tool is named by pack.json. It is checked and
 * compiled into one JSON document, with the files that it names in it, so that the API needs
 * neither checks nor files. For commands only. */
#pragma once

#include "runtime/buf.h"
#include "runtime/err.h"
#include "runtime/tool_folder.h"

constexpr size_t PACK_DOC_BYTES_MAX = 8 << 20;  /* compiled; each API process holds it */
constexpr size_t PACK_FILE_BYTES_MAX = 4 << 20; /* of one that a prompt or resource names */
constexpr size_t PACK_ENTRIES_MAX = 2'000;

enum pack_kind { PACK_PROMPT, PACK_RESOURCE };

/* A name that no other pack may have: of a prompt, a URI or a URI template. */
struct pack_entry {
	enum pack_kind kind;
	char *key;
	char *file; /* that declares it */
};

struct pack {
	char *name;
	bool has_tool; /* and its name is the tool's */
	char version[65];
	/* {"prompts": [{"name", "published", "complete", "messages", "ask", "askGoOn"}],
	 *  "resources": [{"uri", "published", "contents"}],
	 *  "templates": [{"uriTemplate", "published", "complete", "mimeType", "text" or "json"}]}:
	 * `published` is what a list tells, `complete` {"argument": ["value", …]}, `messages`,
	 * `text` and `json` are templates of template.h. */
	struct buf doc;
	struct pack_entry *entries; /* none: the folder offers nothing beside its tool */
	size_t count;
	size_t prompts, resources; /* how many of either kind */
};

/* `tool_name` is that of the folder's tool.json, nullptr where it has none: then pack.json must be
 * there. HF_INVALID: as tool_new. HF_LIMIT: too much, the text begins with the
 * file. */
enum hf_code pack_new(struct tool_folder *folder, const char *tool_name, struct pack **out,
		      struct hf_err *err);
struct pack *pack_free(struct pack *pack); /* as every _free */
HF_DEFINE_CLEANUP(pack, struct pack *, pack_free)
