/* subscription.c - see subscription.h. Called by listen.c. */
#include "api/subscription.h"

#include "api/ladder.h"
#include "api/result.h"
#include "runtime/base.h"
#include "runtime/json.h"

static constexpr char TOO_MANY[] = "params.notifications.taskIds names too many tasks: 64 at most";
static_assert(SUBSCRIPTION_TASKS_MAX == 64);

static bool is_bool(struct slice value)
{
	return json_type_of(value) == JSON_TRUE || json_type_of(value) == JSON_FALSE;
}

static bool is_strings(struct slice value)
{
	struct slice element;
	if (json_type_of(value) != JSON_ARRAY)
		return false;
	for (size_t at = 0; json_array_next(value, &at, &element);)
		if (json_type_of(element) != JSON_STRING)
			return false;
	return true;
}

static const char *find_fault(struct slice filter)
{
	static const struct {
		const char *name, *fault;
		bool (*fits)(struct slice value);
	} members[] = {
		{ "toolsListChanged", "params.notifications.toolsListChanged must be a boolean",
		  is_bool },
		{ "promptsListChanged", "params.notifications.promptsListChanged must be a boolean",
		  is_bool },
		{ "resourcesListChanged",
		  "params.notifications.resourcesListChanged must be a boolean", is_bool },
		{ "resourceSubscriptions",
		  "params.notifications.resourceSubscriptions must be an array of strings",
		  is_strings },
		{ "taskIds", "params.notifications.taskIds must be an array of strings",
		  is_strings },
	};
	struct slice value;
	for (size_t i = 0; i < countof(members); i++)
		if (json_member(filter, members[i].name, &value) && !members[i].fits(value))
			return members[i].fault;
	return nullptr;
}

static void add_task(struct subscription *out, struct slice string)
{
	struct task_id id;
	hf_cleanup(buf) struct buf text = {};
	json_string_decode(string, &text);
	if (!task_id_parse(buf_slice(&text), &id))
		return;
	for (size_t i = 0; i < out->tasks_count; i++)
		if (task_id_equal(&out->tasks[i], &id))
			return;
	out->tasks[out->tasks_count++] = id;
}

static bool find_filter(struct slice params, struct slice *filter)
{
	return json_member(params, "notifications", filter) && json_type_of(*filter) == JSON_OBJECT;
}

bool subscription_names_tasks(struct slice params)
{
	struct slice filter, ids;
	return find_filter(params, &filter) && json_member(filter, "taskIds", &ids);
}

const char *subscription_read(struct slice params, struct subscription *out)
{
	struct slice filter, value, element;
	*out = (struct subscription){};
	if (!find_filter(params, &filter))
		return "params.notifications must be an object";
	const char *fault = find_fault(filter);
	if (fault)
		return fault;

	out->tools_changed =
	    json_member(filter, "toolsListChanged", &value) && json_type_of(value) == JSON_TRUE;
	out->names_tasks = json_member(filter, "taskIds", &value);
	size_t named = 0;
	for (size_t at = 0; out->names_tasks && json_array_next(value, &at, &element);) {
		if (++named > SUBSCRIPTION_TASKS_MAX)
			return TOO_MANY;
		add_task(out, element);
	}
	return nullptr;
}

static void begin(const char *method, struct slice id, struct buf *out)
{
	buf_add_format(out, "{\"jsonrpc\":\"2.0\",\"method\":\"%s\",\"params\":{\"_meta\":{",
		       method);
	buf_add_text(out, "\"" MCP_SUBSCRIPTION "\":");
	buf_add_slice(out, id);
	buf_add_byte(out, '}');
}

void subscription_ack(struct slice id, const struct subscription *honoured, struct buf *out)
{
	char text[TASK_ID_TEXT_LEN + 1];
	const char *comma = "";
	begin("notifications/subscriptions/acknowledged", id, out);
	buf_add_text(out, ",\"notifications\":{");
	if (honoured->tools_changed) {
		buf_add_text(out, "\"toolsListChanged\":true");
		comma = ",";
	}
	if (honoured->names_tasks) {
		buf_add_format(out, "%s\"taskIds\":[", comma);
		for (size_t i = 0; i < honoured->tasks_count; i++)
			buf_add_format(out, "%s\"%s\"", i > 0 ? "," : "",
				       task_id_format(&honoured->tasks[i], text));
		buf_add_byte(out, ']');
	}
	buf_add_text(out, "}}}");
}

void subscription_tools_changed(struct slice id, struct buf *out)
{
	begin("notifications/tools/list_changed", id, out);
	buf_add_text(out, "}}");
}

void subscription_task(struct slice params, struct buf *out)
{
	buf_add_text(out, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tasks\",\"params\":");
	buf_add_slice(out, params);
	buf_add_byte(out, '}');
}

void subscription_end(struct slice id, struct buf *out)
{
	buf_add_text(out, "{\"resultType\":\"complete\",\"_meta\":{\"" MCP_SUBSCRIPTION "\":");
	buf_add_slice(out, id);
	buf_add_byte(out, ',');
	result_add_server_info(out);
	buf_add_text(out, "}}");
}
