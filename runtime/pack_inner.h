/* pack_inner.h - what pack.c, pack_prompt.c and pack_resource.c share; nobody else includes it. */
#pragma once

#include "runtime/json.h"
#include "runtime/pack.h"
#include "runtime/tool_parse.h"

constexpr size_t PACK_REFERENCES_MAX = 256;  /* of a prompt or template: each is looked up */
constexpr int64_t PACK_COMPLETE_MAX = 1'000; /* values offered for one argument */

struct pack_reader {
	struct tool_folder *folder;
	struct tool_parse parse;
	struct pack *pack;
	size_t references;                        /* of the prompt or template at hand */
	struct buf prompts, resources, templates; /* elements of the arrays of the document */
};

/* Its file's JSON, scanned; errors from now on name that file. */
enum hf_code pack_doc_read(struct pack_reader *reader, const struct tool_file *file,
			   struct slice *doc);
/* A file that is named at the current path, of at most PACK_FILE_BYTES_MAX. */
enum hf_code pack_file_read(struct pack_reader *reader, struct slice path, struct slice *content);
/* Notes a key at the current path; it is of this pack once. */
enum hf_code pack_entry_add(struct pack_reader *reader, enum pack_kind kind, const char *key);
/* The values that complete an argument: an array of strings at the current path. */
enum hf_code pack_values_check(struct pack_reader *reader, struct slice values);
/* Counts one more at the current path. */
enum hf_code pack_reference_count(struct pack_reader *reader);
/* Each reference of a template at the current path, by `found`, which tells what is wrong. */
enum hf_code pack_references_check(struct pack_reader *reader, struct slice value,
				   enum hf_code (*found)(void *ctx, struct slice pointer,
							 struct hf_err *err),
				   void *ctx);
/* The media type at the current path. */
enum hf_code pack_media_type_check(struct pack_reader *reader, struct slice value);
/* Appends ,"name":value where there is a value; without the comma right behind a brace. */
void pack_member_add(struct buf *out, const char *name, struct slice value);

/* `name`: of the prompt, as its file's. */
enum hf_code pack_prompt_read(struct pack_reader *reader, const char *name, struct slice doc);
enum hf_code pack_resources_read(struct pack_reader *reader, struct slice doc);
