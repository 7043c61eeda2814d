/* list.c - see list.h. Called by tools.c, prompts.c and resources.c. */
#include "api/list.h"

#include <string.h>

#include "api/api.h"
#include "api/catalog.h"
#include "api/cursor.h"
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

int list_item_compare(const void *left, const void *right)
{
	const struct list_item *a = left, *b = right;
	return compare(a->key, b->key);
}

static const struct list_item *item_at(const struct list *list, size_t index)
{
	return (const void *)((const unsigned char *)list->items + index * list->size);
}

/* False: params.cursor is none of ours. */
static bool read_cursor(const struct request *request, struct slice *after)
{
	struct slice cursor;
	hf_cleanup(buf) struct buf text = {}, key = {};
	if (!request->rpc.params.len || !json_member(request->rpc.params, "cursor", &cursor))
		return true;
	if (json_type_of(cursor) != JSON_STRING)
		return false;
	json_string_decode(cursor, &text);
	if (cursor_read(buf_slice(&text), &key, nullptr) != HF_OK || key.len == 0)
		return false;
	*after = (struct slice){ arena_copy(request->call->arena, buf_slice(&key)), key.len };
	return true;
}

void list_begin(struct request *request, void (*go_on)(struct request *request))
{
	struct slice *after = arena_alloc(request->call->arena, sizeof *after);
	request->detail = after;
	if (!read_cursor(request, after))
		request_refuse_params(request, "params.cursor is not one of this list",
				      (struct slice){});
	else if (catalog_number(request->api->catalog) == 0)
		api_look_again(request->api, request, go_on);
	else
		go_on(request);
}

struct slice list_after(const struct request *request)
{
	const struct slice *after = request->detail;
	return *after;
}

void list_end(struct slice last, struct buf *result)
{
	if (last.len > 0) {
		buf_add_text(result, ",\"nextCursor\":\"");
		cursor_write(last, result);
		buf_add_byte(result, '"');
	}
	buf_add_format(result, ",\"ttlMs\":%lld,\"cacheScope\":\"private\",\"_meta\":{",
		       (long long)CACHE_TTL_MS);
	result_add_server_info(result);
	buf_add_text(result, "}}");
}

void list_reply(struct request *request, const struct list *list)
{
	hf_cleanup(buf) struct buf result = {};
	struct slice after = list_after(request), last = {};
	size_t first = 0;
	while (first < list->count && after.len > 0 &&
	       compare(item_at(list, first)->key, after) <= 0)
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
	if (end < list->count)
		last = item_at(list, end - 1)->key;
	list_end(last, &result);
	request_reply(request, buf_slice(&result));
}
