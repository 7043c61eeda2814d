/* list.h - a page of a list that is told in the order of its keys, from where a cursor says
 * (A16.1, A16.2). */
#pragma once

#include "api/mcp.h"
#include "runtime/slice.h"

constexpr int64_t LIST_CACHE_TTL_MS = 5'000; /* of ttlMs */

struct list_item {
	struct slice key;       /* at most CURSOR_NAME_LEN_MAX bytes */
	struct slice published; /* JSON */
};
struct list {
	const char *member; /* of the result: "prompts" */
	const void *items;  /* structs that begin with a list_item, sorted, no two keys alike */
	size_t size;        /* of one */
	size_t count;
};

/* For qsort: by key, bytewise. */
int list_item_compare(const void *left, const void *right);

/* Answers with the page behind params.cursor, or that the cursor is none; ends the request.
 * Private: a list may come to depend on who asks, and a shared cache would outlive the change. */
void list_reply(struct request *request, const struct list *list);
