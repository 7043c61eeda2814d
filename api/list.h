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
	void *items;        /* structs that begin with a list_item, sorted, no two keys alike */
	size_t size;        /* of one */
	size_t count;
	struct slice front; /* JSON in front of all of them, in no page's count; or empty */
};

/* Room for one more, which begins with `item` and is else zero; to be sorted once all are there. */
void *list_add(struct list *list, struct list_item item);
/* By key, bytewise. */
void list_sort(struct list *list);
const void *list_find(const struct list *list, struct slice key); /* nullptr: none has it */
/* Appends up to `most` of the items whose keys come behind `after`, with commas between; in front
 * of all of them, where `after` is empty, what stands there. Where more follow, `last` is the key
 * of the last one appended; else empty. */
void list_page(const struct list *list, struct slice after, size_t most, struct buf *out,
	       struct slice *last);

/* Calls `go_on` once params.cursor and the catalog are read; refuses a cursor that no list gave (""
 * is one like any other, A16.1). */
void list_begin(struct request *request, void (*go_on)(struct request *request));
/* From a `go_on`: answers with the page; ends the request. */
void list_reply(struct request *request, const struct list *list);
/* What stands behind the array of a page, or of what was read: the cursor to what follows `last`
 * (empty: nothing does), and how long it may be kept. Private: a list may come to depend on who
 * asks, and a shared cache would outlive the change. */
void list_end(struct slice last, struct buf *result);
