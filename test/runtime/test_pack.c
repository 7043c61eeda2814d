/* A folder becomes the document that the API reads. Faults and their places: test/system. */
#include "runtime/pack.h"

#include <string.h>

#include "runtime/base.h"
#include "runtime/json.h"
#include "test/test.h"

static struct tool_file file(const char *path, const char *content)
{
	return (struct tool_file){ .path = hf_strdup(path),
				   .content = slice_of(hf_strdup(content)) };
}

/* Of up to two files and pack.json; freed by tool_folder_free. */
static struct tool_folder *folder_of(const char *path, const char *content, const char *other_path,
				     const char *other)
{
	struct tool_folder *folder = hf_alloc(sizeof *folder);
	folder->files = hf_alloc(3 * sizeof *folder->files);
	folder->files[folder->count++] = file("pack.json", "{\"name\":\"p\"}");
	folder->files[folder->count++] = file(path, content);
	if (other_path)
		folder->files[folder->count++] = file(other_path, other);
	memset(folder->version, 'a', sizeof folder->version - 1);
	return folder;
}

static void assert_doc(struct tool_folder *folder, size_t prompts, size_t resources,
		       const char *doc)
{
	struct pack *pack = nullptr;
	struct hf_err err = {};
	cr_assert_eq(pack_new(folder, nullptr, &pack, &err), HF_OK, "%s", err.text);
	cr_assert_str_eq(pack->doc.data, doc);
	cr_assert_str_eq(pack->name, "p");
	cr_assert_str_eq(pack->version, folder->version);
	cr_assert_eq(pack->prompts, prompts);
	cr_assert_eq(pack->resources, resources);
	cr_assert_eq(pack->count, prompts + resources);
	pack_free(pack);
	tool_folder_free(folder);
}

HF_TEST(pack, a_prompt_is_compiled_with_what_completes_it_apart)
{
	assert_doc(
	    folder_of(
		"prompts/ask.json",
		"{\"title\": \"Ask\", \"description\": \"d\","
		" \"arguments\": [{\"name\": \"a\", \"complete\": [\"x\"], \"required\": true},"
		" {\"name\": \"b\"}],"
		" \"messages\": [{\"role\": \"user\","
		" \"content\": {\"type\": \"text\", \"text\": \"{/args/a}\"}}]}",
		nullptr, nullptr),
	    1, 0,
	    "{\"prompts\":[{\"name\":\"ask\",\"published\":{\"name\":\"ask\",\"title\":\"Ask\","
	    "\"description\":\"d\",\"arguments\":[{\"name\":\"a\",\"required\":true},"
	    "{\"name\":\"b\"}]},\"complete\":{\"a\":[\"x\"]},\"messages\":[{\"role\":\"user\","
	    "\"content\":{\"type\": \"text\", \"text\": \"{/args/a}\"}}]}],"
	    "\"resources\":[],\"templates\":[]}");
}

/* The file's braces are no references. */
HF_TEST(pack, a_file_goes_into_a_prompt_with_its_braces_as_they_are)
{
	assert_doc(
	    folder_of("prompts/p.json",
		      "{\"messages\": [{\"role\": \"user\", \"content\": {\"type\": \"resource\","
		      " \"resource\": {\"uri\": \"a:b\", \"mimeType\": \"text/x\","
		      " \"file\": \"prompts/t\"}}},"
		      " {\"role\": \"assistant\", \"content\": {\"type\": \"audio\","
		      " \"mimeType\": \"audio/x\", \"file\": \"prompts/t\"}}]}",
		      "prompts/t", "{/args/a}"),
	    1, 0,
	    "{\"prompts\":[{\"name\":\"p\",\"published\":{\"name\":\"p\"},\"complete\":{},"
	    "\"messages\":[{\"role\":\"user\",\"content\":{\"type\":\"resource\",\"resource\":{"
	    "\"uri\":\"a:b\",\"mimeType\":\"text/x\",\"text\":\"{{/args/a}\"}}},"
	    "{\"role\":\"assistant\",\"content\":{\"type\":\"audio\",\"mimeType\":\"audio/x\","
	    "\"data\":\"ey9hcmdzL2F9\"}}]}],\"resources\":[],\"templates\":[]}");
}

HF_TEST(pack, resources_are_whole_and_templates_wait_for_their_uri)
{
	assert_doc(
	    folder_of("resources/resources.json",
		      "{\"resources\": [{\"uri\": \"\\u0061:b\", \"name\": \"n\", \"json\": [1]},"
		      " {\"uriTemplate\": \"a:{b}\", \"name\": \"m\", \"text\": \"{/args/b}\","
		      " \"complete\": {\"b\": [\"1\"]}}]}",
		      nullptr, nullptr),
	    0, 2,
	    "{\"prompts\":[],\"resources\":[{\"uri\":\"a:b\",\"published\":{"
	    "\"uri\":\"\\u0061:b\",\"name\":\"n\",\"mimeType\":\"application/json\",\"size\":3},"
	    "\"contents\":{\"uri\":\"\\u0061:b\",\"mimeType\":\"application/json\","
	    "\"text\":\"[1]\"}}],\"templates\":[{\"uriTemplate\":\"a:{b}\",\"published\":{"
	    "\"uriTemplate\":\"a:{b}\",\"name\":\"m\",\"mimeType\":\"text/plain\"},"
	    "\"complete\":{\"b\": [\"1\"]},\"mimeType\":\"text/plain\","
	    "\"text\":\"{/args/b}\"}]}");
}

HF_TEST(pack, a_tool_names_its_folder_and_a_folder_needs_a_name)
{
	struct tool_folder *folder = folder_of("x", "", nullptr, nullptr);
	struct pack *pack = nullptr;
	struct hf_err err = {};
	cr_assert_eq(pack_new(folder, "t", &pack, &err), HF_INVALID);
	cr_assert_str_eq(err.text, "pack.json#: stands beside tool.json, which names this folder");
	strcpy(folder->files[0].path, "pack.jsn");
	cr_assert_eq(pack_new(folder, nullptr, &pack, &err), HF_INVALID);
	cr_assert_str_eq(err.text, "tool.json: is not there, nor is pack.json");
	cr_assert_eq(pack_new(folder, "t", &pack, &err), HF_OK);
	cr_assert_str_eq(pack->name, "t");
	cr_assert(pack->has_tool);
	cr_assert_eq(pack->count, 0);
	pack_free(pack);
	tool_folder_free(folder);
}

HF_TEST(pack, a_prompt_asks_first)
{
#define QUESTION(message)                                                             \
	"{\"method\":\"elicitation/create\",\"params\":{\"message\":\"" message "\"," \
	"\"requestedSchema\":{\"type\":\"object\",\"properties\":{}}}}"
#define MESSAGES(text)                                                              \
	"\"messages\":[{\"role\":\"user\",\"content\":{\"type\":\"text\",\"text\":" \
	"\"" text "\"}}]"
	assert_doc(
	    folder_of("prompts/ask.json",
		      "{\"arguments\":[{\"name\":\"a\"}],\"ask\":[{\"k\":" QUESTION(
			  "{/args/a}") "}],\"ask_otherwise\":\"continue\"," MESSAGES("{/input/k/"
										     "action}") "}",
		      nullptr, nullptr),
	    1, 0,
	    "{\"prompts\":[{\"name\":\"ask\",\"published\":{\"name\":\"ask\",\"arguments\":"
	    "[{\"name\":\"a\"}]},\"complete\":{}," MESSAGES(
		"{/input/k/action}") ",\"ask\":[{\"k\":" QUESTION("{/args/a}") "}],\"askGoOn\":"
									       "true}],"
									       "\"resources\":[],"
									       "\"templates\":[]}");
	static const struct {
		const char *doc, *expected;
	} bad[] = {
		{ "{\"ask\":[{\"k\":" QUESTION("{/args/b}") "}]," MESSAGES("a") "}",
		  "prompts/ask.json#/ask/0/k: /args/b: inputSchema has no property" },
		{ "{\"ask\":[{\"k\":" QUESTION("{/minted/effect_id}") "}]," MESSAGES("a") "}",
		  "prompts/ask.json#/ask/0/k: \"/minted/effect_id\": here only /args and /input" },
		{ "{\"ask\":[{\"k\":{\"method\":\"ping\"}}]," MESSAGES("a") "}",
		  "prompts/ask.json#/ask/0/k/method: must be" },
		{ "{\"ask\":[{\"k\":" QUESTION("q") "}]," MESSAGES("{/input/l/x}") "}",
		  "prompts/ask.json#/messages/0/content: {/input/l/x}: a prompt knows" },
		{ "{\"ask_otherwise\":\"continue\"," MESSAGES("a") "}",
		  "prompts/ask.json#/ask_otherwise: goes with \"ask\"" },
	};
	for (size_t i = 0; i < countof(bad); i++) {
		struct tool_folder *folder =
		    folder_of("prompts/ask.json", bad[i].doc, nullptr, nullptr);
		struct pack *pack = nullptr;
		struct hf_err err = {};
		cr_expect_eq(pack_new(folder, nullptr, &pack, &err), HF_INVALID, "%zu", i);
		cr_expect_eq(strncmp(err.text, bad[i].expected, strlen(bad[i].expected)), 0, "%s",
			     err.text);
		pack_free(pack);
		tool_folder_free(folder);
	}
}
