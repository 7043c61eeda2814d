/* packs.c - see packs.h. Filled by serve.c each time the store's number has changed. What the
 * documents hold was checked when they were compiled, so it is only taken apart here. */
#include "api/packs.h"

#include <stdlib.h>
#include <string.h>

#include "api/artifacts.h"
#include "api/cursor.h"
#include "runtime/base.h"
#include "runtime/json.h"
#include "runtime/log.h"
#include "runtime/uri_template.h"

static_assert(URI_LEN_MAX <= CURSOR_NAME_LEN_MAX); /* keys of lists */

static void clear(struct packs *packs)
{
	for (size_t i = 0; i < packs->docs_count; i++)
		free(packs->docs[i]);
	free(packs->docs);
	free(packs->prompts.items);
	free(packs->resources.items);
	free(packs->templates.items);
}

struct packs *packs_new(void)
{
	struct packs *packs = hf_alloc(sizeof *packs);
	packs_replace(packs, nullptr, 0);
	return packs;
}

struct packs *packs_free(struct packs *packs)
{
	if (!packs)
		return nullptr;
	clear(packs);
	free(packs);
	return nullptr;
}

static struct slice member(struct slice object, const char *name)
{
	struct slice value = {};
	json_member(object, name, &value);
	return value;
}

/* A key was written without escapes. */
static struct list_item item(struct slice entry, const char *key)
{
	struct slice raw = member(entry, key);
	hf_assert(raw.len >= 2);
	return (struct list_item){
		.key = { raw.data + 1, raw.len - 2 },
		.published = member(entry, "published"),
	};
}

static void read_prompts(struct list *prompts, struct slice entries)
{
	struct slice entry;
	for (size_t at = 0; json_array_next(entries, &at, &entry);) {
		struct prompt *prompt = list_add(prompts, item(entry, "name"));
		prompt->complete = member(entry, "complete");
		prompt->messages = member(entry, "messages");
		prompt->ask = member(entry, "ask");
		prompt->ask_go_on = member(entry, "askGoOn").len > 0;
	}
}

/* `key`: "uri" or "uriTemplate". */
static void read_resources(struct list *resources, struct slice entries, const char *key)
{
	struct slice entry;
	for (size_t at = 0; json_array_next(entries, &at, &entry);) {
		struct resource *resource = list_add(resources, item(entry, key));
		resource->contents = member(entry, "contents");
		resource->complete = member(entry, "complete");
		resource->media_type = member(entry, "mimeType");
		resource->text = member(entry, "text");
		resource->json = member(entry, "json");
	}
}

static void read_pack(struct packs *packs, const struct store_pack *stored)
{
	struct hf_err err = {};
	if (json_scan(stored->doc, &err) != HF_OK) {
		hf_cleanup(buf) struct buf name = {};
		buf_add_slice(&name, stored->name);
		log_error("stored pack does not read", "pack", name.data, "error", err.text,
			  nullptr);
		return;
	}
	char *text = hf_strndup(stored->doc.data, stored->doc.len);
	struct slice doc = { text, stored->doc.len };
	packs->docs[packs->docs_count++] = text;
	read_prompts(&packs->prompts, member(doc, "prompts"));
	read_resources(&packs->resources, member(doc, "resources"), "uri");
	read_resources(&packs->templates, member(doc, "templates"), "uriTemplate");
}

void packs_replace(struct packs *packs, const struct store_pack *stored, size_t count)
{
	clear(packs);
	*packs = (struct packs){
		.docs = hf_alloc(count * sizeof *packs->docs),
		.prompts = { .member = "prompts", .size = sizeof(struct prompt) },
		.resources = { .member = "resources", .size = sizeof(struct resource) },
		.templates = { .member = "resourceTemplates", .size = sizeof(struct resource) },
	};
	/* Holdfast's own; no pack may have one of its scheme. */
	list_add(&packs->templates, (struct list_item){
					.key = slice_of(ARTIFACT_TEMPLATE),
					.published = slice_of(artifact_template_published),
				    });
	for (size_t i = 0; i < count; i++)
		read_pack(packs, &stored[i]);
	list_sort(&packs->prompts);
	list_sort(&packs->resources);
	list_sort(&packs->templates);
}

const struct prompt *packs_prompt(const struct packs *packs, struct slice name)
{
	return list_find(&packs->prompts, name);
}

const struct resource *packs_resource(const struct packs *packs, struct slice uri)
{
	return list_find(&packs->resources, uri);
}

const struct resource *packs_template(const struct packs *packs, struct slice uri_template)
{
	return list_find(&packs->templates, uri_template);
}

const struct resource *packs_template_of(const struct packs *packs, struct slice uri,
					 struct buf *values)
{
	const struct resource *templates = packs->templates.items;
	for (size_t i = 0; i < packs->templates.count; i++)
		if (uri_template_match(templates[i].item.key, uri, values))
			return &templates[i];
	return nullptr;
}
