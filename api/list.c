/* list.c - see list.h. Called by prompts.c and resources.c. */
#include "api/list.h"

#include <string.h>

#include "api/cursor.h"
#include "api/result.h"
#include "runtime/base.h"
#include "runtime/config.h"
#include "runtime/json.h"

static int compare(struct slice a, struct slice b)
{
	size_t least = a.len < b.len ? a.len : b.len;
	int order = least ? memcmp(a.data, b.data, least) : 0;
	return order ? order : (a.len > b.len) - (a.len < b.len);
}

int list_item_compare(const void *left, const void *right)
{
	const struct list_item *a = left, *b = right;
	return compare(a->key, b->key);
}

static const struct list_item *item_at(const struct list *list, size_t index)
{
	return (const void *)((const unsigned char *)list->items + index * list->size);
}

/* False: params.cursor is none of ours. Without a cursor the last key told is empty. */
static bool read_cursor(const struct request *request, struct buf *last)
{
	struct slice value;
	hf_cleanup(buf) struct buf text = {};
	if (!request->rpc.params.len || !json_member(request->rpc.params, "cursor", &value))
		return true;
	if (json_type_of(value) != JSON_STRING)
		return false;
	json_string_decode(value, &text);
	return cursor_read(buf_slice(&text), last, nullptr) == HF_OK;
}

void list_reply(struct request *request, const struct list *list)
{
	hf_cleanup(buf) struct buf last = {}, result = {};
	if (!read_cursor(request, &last)) {
		request_refuse_params(request, "params.cursor is not one of this list",
				      (struct slice){});
		return;
	}
	size_t first = 0;
	while (first < list->count && last.len > 0 &&
	       compare(item_at(list, first)->key, buf_slice(&last)) <= 0)
		first++;
	size_t page = (size_t)request->api->config->list_page;
	size_t end = list->count - first > page ? first + page : list->count;

	buf_add_format(&result, "{\"resultType\":\"complete\",\"%s\":[", list->member);
	for (size_t i = first; i < end; i++) {
		if (i > first)
			buf_add_byte(&result, ',');
		buf_add_slice(&result, item_at(list, i)->published);
	}
	buf_add_byte(&result, ']');
	if (end < list->count) {
		buf_add_text(&result, ",\"nextCursor\":\"");
		cursor_write(item_at(list, end - 1)->key, &result);
		buf_add_byte(&result, '"');
	}
	buf_add_format(&result, ",\"ttlMs\":%lld,\"cacheScope\":\"private\",\"_meta\":{",
		       (long long)LIST_CACHE_TTL_MS);
	result_add_server_info(&result);
	buf_add_text(&result, "}}");
	request_reply(request, buf_slice(&result));
}
