/* packs.h - the prompts and resources that requests may name, as last read from the store
 * (runtime/pack.h has their form). Replaced whole; what it hands out is valid until then, so
 * nothing keeps a pointer across a callback. */
#pragma once

#include "api/list.h"
#include "runtime/store.h"

struct prompt {
	struct list_item item; /* by name */
	struct slice complete, messages;
	struct slice ask; /* what is asked first (rounds.h), or empty */
	bool ask_go_on;
};

struct resource {
	struct list_item item; /* by URI, or URI template */
	struct slice contents; /* of a URI: the one element of `contents` */
	/* of a template; nothing of it stands in Holdfast's own, which artifacts.c reads */
	struct slice complete, media_type; /* the latter with its quotes */
	struct slice text, json;           /* one of them */
};

struct packs {
	struct list prompts, resources; /* by name, by URI */
	struct list templates;          /* by URI template, with Holdfast's own */
	/* private */
	char **docs; /* what the lists point into */
	size_t docs_count;
};
[[nodiscard]] struct packs *packs_new(void);
struct packs *packs_free(struct packs *packs); /* takes nullptr; returns nullptr */

/* A pack that does not read is left out and logged. */
void packs_replace(struct packs *packs, const struct store_pack *stored, size_t count);

const struct prompt *packs_prompt(const struct packs *packs, struct slice name);
const struct resource *packs_resource(const struct packs *packs, struct slice uri);
const struct resource *packs_template(const struct packs *packs, struct slice uri_template);
/* The first template of a pack, in their order, of which the URI is one; appends its variables to
 * `values` as an object. */
const struct resource *packs_template_of(const struct packs *packs, struct slice uri,
					 struct buf *values);
