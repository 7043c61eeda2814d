/* list.c - see list.h. */
#include "api/list.h"

#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "api/cursor.h"
#include "api/refresh.h"
#include "api/result.h"
#include "runtime/base.h"
#include "runtime/config.h"
#include "runtime/json.h"

constexpr int64_t CACHE_TTL_MS = 5'000; /* of ttlMs */

static int compare(struct slice a, struct slice b)
{
	size_t least = a.len < b.len ? a.len : b.len;
	int order = least ? memcmp(a.data, b.data, least) : 0;
	return order ? order : (a.len > b.len) - (a.len < b.len);
}

static int compare_items(const void *left, const void *right)
{
	const struct list_item *a = left, *b = right;
	return compare(a->key, b->key);
}

static struct list_item *item_at(const struct list *list, size_t index)
{
	return (void *)((unsigned char *)list->items + index * list->size);
}

void *list_add(struct list *list, struct list_item item)
{
	list->items = hf_realloc(list->items, (list->count + 1) * list->size);
	struct list_item *added = item_at(list, list->count++);
	memset(added, 0, list->size);
	*added = item;
	return added;
}

void list_sort(struct list *list)
{
	if (list->count > 1)
		qsort(list->items, list->count, list->size, compare_items);
}

const void *list_find(const struct list *list, struct slice key)
{
	for (size_t i = 0; i < list->count; i++)
		if (slice_equal(item_at(list, i)->key, key))
			return item_at(list, i);
	return nullptr;
}

void list_page(const struct list *list, struct slice after, size_t most, struct buf *out,
	       struct slice *last)
{
	hf_assert(most > 0);

	size_t at = 0, taken = 0;
	bool comma = !after.len && list->front.len;
	if (comma)
		buf_add_slice(out, list->front);
	while (at < list->count && compare(item_at(list, at)->key, after) <= 0)
		at++;
	for (; at < list->count && taken < most; at++, taken++, comma = true) {
		if (comma)
			buf_add_byte(out, ',');
		buf_add_slice(out, item_at(list, at)->published);
	}
	*last = at < list->count ? item_at(list, at - 1)->key : (struct slice){};
}

/* False: params.cursor is none of ours. */
static bool read_cursor(const struct request *request, struct slice *after)
{
	struct slice cursor;
	hf_cleanup(buf) struct buf text = {}, key = {};
	if (!json_member(request->rpc.params, "cursor", &cursor))
		return true;
	if (json_type_of(cursor) != JSON_STRING)
		return false;
	json_string_decode(cursor, &text);
	if (cursor_read(buf_slice(&text), &key, nullptr) != HF_OK || key.len == 0)
		return false;
	*after = arena_slice(request->call->arena, buf_slice(&key));
	return true;
}

void list_begin(struct request *request, void (*go_on)(struct request *request))
{
	struct slice *after = arena_alloc(request->call->arena, sizeof *after);
	request->detail = after;
	if (!read_cursor(request, after))
		request_refuse_params(
		    request, "params.cursor was not given by this list; begin again without one",
		    (struct slice){});
	else if (!refresh_has_read(request->api->refresh))
		refresh_look_again(request, go_on);
	else
		go_on(request);
}

void list_end(struct slice last, struct buf *result)
{
	if (last.len > 0) {
		buf_add_text(result, ",\"nextCursor\":\"");
		cursor_write(last, result);
		buf_add_byte(result, '"');
	}
	buf_add_format(result, ",\"ttlMs\":%lld,\"cacheScope\":\"private\"",
		       (long long)CACHE_TTL_MS);
	result_end(result);
}

void list_reply(struct request *request, const struct list *list)
{
	const struct slice *after = request->detail;
	struct slice last;
	hf_cleanup(buf) struct buf result = {};
	buf_add_format(&result, "{\"resultType\":\"complete\",\"%s\":[", list->member);
	list_page(list, *after, (size_t)request->api->config->list_page, &result, &last);
	buf_add_byte(&result, ']');
	list_end(last, &result);
	request_reply(request, buf_slice(&result));
}
