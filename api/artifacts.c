/* artifacts.c - see artifacts.h. Called by resources.c. A task of another owner, one that never
 * was, one without such an artifact and a URI of another form get one and the same answer (V8). */
#include "api/artifacts.h"

#include "api/contents.h"
#include "runtime/base.h"
#include "runtime/json.h"
#include "runtime/store.h"
#include "runtime/uri_template.h"

const char artifact_template_published[] =
    "{\"uriTemplate\":\"holdfast://tasks/{taskId}/artifacts/{name}\",\"name\":\"task_artifact\","
    "\"title\":\"Artifact of a task\",\"description\":\"What a phase of one of your own tasks made "
    "and kept under that name, once the phase is done.\"}";

struct reading {
	struct slice uri;
	struct task_id id;
	struct slice name;
};

static void refuse_large(struct request *request, const struct store_artifact *artifact)
{
	const struct reading *reading = request->detail;
	hf_cleanup(buf) struct buf data = {};
	buf_add_text(&data, "{\"type\":\"resource_too_large\",\"executed\":\"no\",\"uri\":");
	json_string_encode(reading->uri, &data);
	buf_add_format(&data, ",\"size\":%lld,\"sizeMax\":%zu}", (long long)artifact->size,
		       ARTIFACT_READ_BYTES_MAX);
	const char *message =
	    arena_format(request->call->arena,
			 "The artifact has %lld bytes; up to %zu are read in one answer",
			 (long long)artifact->size, ARTIFACT_READ_BYTES_MAX);
	request_refuse_params(request, message, buf_slice(&data));
}

static void on_artifact(void *ctx, enum hf_code code, const struct store_artifact *artifact,
			const struct hf_err *err)
{
	struct request *request = ctx;
	const struct reading *reading = request->detail;
	if (code == HF_MISSING) {
		resource_refuse_unknown(request, reading->uri);
	} else if (code != HF_OK) {
		request_unavailable(request, code, err, "no");
	} else if (artifact->size > (int64_t)ARTIFACT_READ_BYTES_MAX) {
		refuse_large(request, artifact);
	} else {
		hf_cleanup(buf) struct buf contents = {};
		resource_add_contents(reading->uri, artifact->media_type, artifact->content,
				      &contents);
		resource_reply(request, buf_slice(&contents));
	}
}

/* Each may bring ARTIFACT_READ_BYTES_MAX, on a connection that all reads share. */
static void read_stored(struct request *request)
{
	const struct reading *reading = request->detail;
	struct principal *principal = request->principal;
	struct api *api = request->api;
	if (principal->reads >= AUTH_READS_MAX) {
		request_refuse_bound(
		    request, 429, "artifact_reads_per_principal",
		    "Nothing was read: too many artifacts at once for this caller; try "
		    "again shortly");
		return;
	}
	if (api->artifact_reads >= ARTIFACT_READS_MAX) {
		request_refuse_bound(
		    request, 503, "artifact_reads",
		    "Nothing was read: too many artifacts at once; try again shortly");
		return;
	}
	const struct artifact_look look = { principal->owner, &reading->id, reading->name,
					    ARTIFACT_READ_BYTES_MAX };
	struct hold *hold = hold_new(principal, &principal->reads, &api->artifact_reads);
	store_artifact_of(api->store, &look, (struct store_end){ hold_free, hold }, on_artifact,
			  request);
}

static struct slice variable(struct slice values, const char *name, struct arena *arena)
{
	struct slice value;
	bool there = json_member(values, name, &value);
	hf_assert(there);
	return json_string_copy(value, arena);
}

void artifact_read(struct request *request, struct slice uri)
{
	struct arena *arena = request->call->arena;
	struct reading *reading = arena_alloc(arena, sizeof *reading);
	reading->uri = uri;
	request->detail = reading;
	hf_cleanup(buf) struct buf values = {};
	if (!uri_template_match(slice_of(ARTIFACT_TEMPLATE), uri, &values) ||
	    !task_id_parse(variable(buf_slice(&values), "taskId", arena), &reading->id)) {
		resource_refuse_unknown(request, uri);
		return;
	}
	reading->name = variable(buf_slice(&values), "name", arena);
	request_with_owner(request, read_stored);
}
