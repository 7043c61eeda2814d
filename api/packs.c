/* packs.c - see packs.h. Filled by api.c each time the store's number has changed; read by
 * prompts.c, resources.c and completion.c. What the documents hold was checked when they were
 * compiled, so it is only taken apart here. */
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

struct packs {
	char **docs; /* what everything below points into */
	size_t docs_count;
	struct prompt *prompts; /* each sorted by key */
	struct resource *resources, *templates;
	size_t prompts_count, resources_count, templates_count;
};

static void clear(struct packs *packs)
{
	for (size_t i = 0; i < packs->docs_count; i++)
		free(packs->docs[i]);
	free(packs->docs);
	free(packs->prompts);
	free(packs->resources);
	free(packs->templates);
	*packs = (struct packs){};
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

/* --- Reading ---------------------------------------------------------------------------------- */

static struct slice member(struct slice object, const char *name)
{
	struct slice value;
	return json_member(object, name, &value) ? value : (struct slice){};
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

static void read_prompts(struct packs *packs, struct slice entries)
{
	struct slice entry;
	for (size_t at = 0; entries.len && json_array_next(entries, &at, &entry);)
		packs->prompts[packs->prompts_count++] = (struct prompt){
			.item = item(entry, "name"),
			.complete = member(entry, "complete"),
			.messages = member(entry, "messages"),
			.ask = member(entry, "ask"),
			.ask_go_on = member(entry, "askGoOn").len > 0,
		};
}

static void read_resources(struct packs *packs, struct slice entries)
{
	struct slice entry;
	for (size_t at = 0; entries.len && json_array_next(entries, &at, &entry);)
		packs->resources[packs->resources_count++] = (struct resource){
			.item = item(entry, "uri"),
			.contents = member(entry, "contents"),
		};
}

static void read_templates(struct packs *packs, struct slice entries)
{
	struct slice entry;
	for (size_t at = 0; entries.len && json_array_next(entries, &at, &entry);)
		packs->templates[packs->templates_count++] = (struct resource){
			.item = item(entry, "uriTemplate"),
			.complete = member(entry, "complete"),
			.media_type = member(entry, "mimeType"),
			.text = member(entry, "text"),
			.json = member(entry, "json"),
		};
}

static size_t count_of(struct slice doc, const char *name)
{
	struct slice entries, entry;
	size_t count = 0;
	if (json_member(doc, name, &entries))
		for (size_t at = 0; json_array_next(entries, &at, &entry);)
			count++;
	return count;
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
	size_t prompts = packs->prompts_count + count_of(doc, "prompts");
	size_t resources = packs->resources_count + count_of(doc, "resources");
	size_t templates = packs->templates_count + count_of(doc, "templates");
	packs->prompts = hf_realloc(packs->prompts, prompts * sizeof *packs->prompts);
	packs->resources = hf_realloc(packs->resources, resources * sizeof *packs->resources);
	packs->templates = hf_realloc(packs->templates, templates * sizeof *packs->templates);
	read_prompts(packs, member(doc, "prompts"));
	read_resources(packs, member(doc, "resources"));
	read_templates(packs, member(doc, "templates"));
}

void packs_replace(struct packs *packs, const struct store_pack *stored, size_t count)
{
	clear(packs);
	packs->docs = hf_alloc(count * sizeof *packs->docs);
	/* Holdfast's own; no pack may have one of its scheme. */
	packs->templates = hf_alloc(sizeof *packs->templates);
	packs->templates[packs->templates_count++].item = (struct list_item){
		.key = slice_of(ARTIFACT_TEMPLATE),
		.published = slice_of(artifact_template_published),
	};
	for (size_t i = 0; i < count; i++)
		read_pack(packs, &stored[i]);
	if (packs->prompts_count > 1)
		qsort(packs->prompts, packs->prompts_count, sizeof *packs->prompts,
		      list_item_compare);
	if (packs->resources_count > 1)
		qsort(packs->resources, packs->resources_count, sizeof *packs->resources,
		      list_item_compare);
	qsort(packs->templates, packs->templates_count, sizeof *packs->templates,
	      list_item_compare);
}

/* --- Finding ---------------------------------------------------------------------------------- */

const struct prompt *packs_prompt(const struct packs *packs, struct slice name)
{
	for (size_t i = 0; i < packs->prompts_count; i++)
		if (slice_equal(packs->prompts[i].item.key, name))
			return &packs->prompts[i];
	return nullptr;
}

const struct resource *packs_resource(const struct packs *packs, struct slice uri)
{
	for (size_t i = 0; i < packs->resources_count; i++)
		if (slice_equal(packs->resources[i].item.key, uri))
			return &packs->resources[i];
	return nullptr;
}

const struct resource *packs_template(const struct packs *packs, struct slice uri_template)
{
	for (size_t i = 0; i < packs->templates_count; i++)
		if (slice_equal(packs->templates[i].item.key, uri_template))
			return &packs->templates[i];
	return nullptr;
}

const struct resource *packs_template_of(const struct packs *packs, struct slice uri,
					 struct buf *values)
{
	for (size_t i = 0; i < packs->templates_count; i++)
		if (uri_template_match(packs->templates[i].item.key, uri, values))
			return &packs->templates[i];
	return nullptr;
}

struct list packs_prompts_list(const struct packs *packs)
{
	return (struct list){ "prompts", packs->prompts, sizeof *packs->prompts,
			      packs->prompts_count };
}

struct list packs_resources_list(const struct packs *packs)
{
	return (struct list){ "resources", packs->resources, sizeof *packs->resources,
			      packs->resources_count };
}

struct list packs_templates_list(const struct packs *packs)
{
	return (struct list){ "resourceTemplates", packs->templates, sizeof *packs->templates,
			      packs->templates_count };
}
