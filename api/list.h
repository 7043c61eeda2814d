/* list.h - a page of a list that is told in the order of its keys, from where a cursor says
 * (A16.1, A16.2). */
#pragma once

#include "api/request.h"
#include "runtime/slice.h"

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

/* Calls `go_on` once params.cursor and the catalog are read; refuses a cursor that no list gave (""
 * is one like any other, A16.1). In `go_on`, list_after is the key behind which the page begins,
 * empty for the first. */
void list_begin(struct request *request, void (*go_on)(struct request *request));
struct slice list_after(const struct request *request);
/* What stands behind the array of a page, or of what was read: the cursor to what follows `last`
 * (empty: nothing does), and how long it may be kept. Private: a list may come to depend on who
 * asks, and a shared cache would outlive the change. */
void list_end(struct slice last, struct buf *result);
/* From a `go_on`: answers with the page; ends the request. */
void list_reply(struct request *request, const struct list *list);
