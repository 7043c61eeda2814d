/* contents.c - see contents.h. */
#include "api/contents.h"

#include "api/list.h"
#include "runtime/base.h"
#include "runtime/content.h"
#include "runtime/json.h"

void resource_add_contents(struct slice uri, struct slice media_type, struct slice bytes,
			   struct buf *out)
{
	buf_add_text(out, "{\"uri\":");
	json_string_encode(uri, out);
	buf_add_text(out, ",\"mimeType\":");
	json_string_encode(media_type, out);
	buf_add_byte(out, ',');
	content_add(media_type, bytes, out);
	buf_add_byte(out, '}');
}

void resource_reply(struct request *request, struct slice contents)
{
	hf_cleanup(buf) struct buf result = {};
	buf_add_text(&result, "{\"resultType\":\"complete\",\"contents\":[");
	buf_add_slice(&result, contents);
	buf_add_byte(&result, ']');
	list_end((struct slice){}, &result);
	request_reply(request, buf_slice(&result));
}

void resource_refuse_unknown(struct request *request, struct slice uri)
{
	hf_cleanup(buf) struct buf data = {};
	buf_add_text(&data, "{\"executed\":\"no\",\"uri\":");
	json_string_encode(uri, &data);
	buf_add_byte(&data, '}');
	request_refuse_params(request, "Resource not found", buf_slice(&data));
}
