/* resources.c - resources/list, resources/templates/list and resources/read (A18). What packs
 * declare is in memory; artifacts of tasks are read from the store by artifacts.c. Nothing can be
 * subscribed to. */
#include "api/artifacts.h"
#include "api/contents.h"
#include "api/http_text.h"
#include "api/list.h"
#include "api/mcp.h"
#include "api/packs.h"
#include "api/refresh.h"
#include "runtime/base.h"
#include "runtime/json.h"
#include "runtime/template.h"

constexpr size_t RESOURCE_BYTES_MAX = 8 << 20; /* of what a template makes */

static void list_resources(struct request *request)
{
	list_reply(request, &request->api->packs->resources);
}

void mcp_resources_list(struct request *request)
{
	list_begin(request, list_resources);
}

static void list_templates(struct request *request)
{
	list_reply(request, &request->api->packs->templates);
}

void mcp_resources_templates_list(struct request *request)
{
	list_begin(request, list_templates);
}

/* The text that a template makes of the URI's variables. */
static enum hf_code fill(const struct resource *resource, struct slice values, struct buf *out,
			 struct hf_err *err)
{
	const struct template_scope scope = { .args = values };
	hf_cleanup(buf) struct buf made = {};
	made.max = RESOURCE_BYTES_MAX;
	hf_try(template_json(resource->text.len ? resource->text : resource->json, &scope, &made,
			     err));
	if (made.overflow)
		return hf_fail(err, HF_LIMIT, "the resource has over %zu bytes",
			       RESOURCE_BYTES_MAX);
	if (resource->text.len > 0)
		buf_add_slice(out, buf_slice(&made)); /* a JSON string already */
	else
		json_string_encode(buf_slice(&made), out);
	return HF_OK;
}

static void reply_template(struct request *request, const struct resource *resource,
			   struct slice uri, struct slice values)
{
	struct hf_err err = {};
	hf_cleanup(buf) struct buf contents = {};
	buf_add_text(&contents, "{\"uri\":");
	json_string_encode(uri, &contents);
	buf_add_text(&contents, ",\"mimeType\":");
	buf_add_slice(&contents, resource->media_type);
	buf_add_text(&contents, ",\"text\":");
	if (fill(resource, values, &contents, &err) != HF_OK) {
		request_refuse_params(request, arena_strdup(request->call->arena, err.text),
				      (struct slice){});
		return;
	}
	buf_add_byte(&contents, '}');
	resource_reply(request, buf_slice(&contents));
}

static void read_declared(struct request *request, struct slice uri)
{
	const struct packs *packs = request->api->packs;
	const struct resource *resource = packs_resource(packs, uri);
	hf_cleanup(buf) struct buf values = {};
	if (resource)
		resource_reply(request, resource->contents);
	else if ((resource = packs_template_of(packs, uri, &values)))
		reply_template(request, resource, uri, buf_slice(&values));
	else if (!request->looked_again)
		refresh_look_again(request, mcp_resources_read);
	else
		resource_refuse_unknown(request, uri);
}

void mcp_resources_read(struct request *request)
{
	struct slice uri;
	if (!request_text(request, "uri", &uri))
		return;
	if (text_begins_any_case(uri, slice_of(ARTIFACT_SCHEME)))
		artifact_read(request, uri);
	else
		read_declared(request, uri);
}
