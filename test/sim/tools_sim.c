/* tools_sim.c - the tools of a world, each from a word, a letter a phase:
 *   s sql · p K U program (pure, keyed, unsafe) · a program (pure) that asks
 *   w wait · i wait for input
 *   g k l u http (pure, keyed, lookup, unsafe) · q as k, with a short window of its key
 *   v c http (keyed) that is verified; where it does not show, v is unknown and c goes on
 * and behind a letter ~ and the letter of its undo step. To widen the harness add a line to
 * `words`. */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/base.h"
#include "test/sim/model.h"
#include "test/sim/sim.h"

struct tool *tools[TOOLS_MAX];
int tools_count;

static const struct {
	const char *phases;
	int weight; /* how many of the tasks are of it */
	const char *more;
} words[] = {
	{ "k", 14, "" },
	{ "l", 10, "" },
	{ "u", 10, "" },
	{ "p", 8, "" },
	{ "s", 6, "" },
	{ "K", 6, "" },
	{ "U", 6, "" },
	{ "g", 2, "" },
	{ "q", 5, "" },
	{ "k", 4, ",\"on_disconnect\":\"continue\"" },
	{ "l", 3, ",\"deadline_ms\":9000" },
	{ "k", 3, ",\"deadline_ms\":6000" },
	{ "v", 4, "" },
	{ "c", 3, "" },
	{ "w", 2, "" },
	{ "i", 3, "" },
	{ "a", 3, "" },
	{ "k~k", 4, "" },
	{ "sks", 4, "" },
	{ "pkl", 5, ",\"crash_limit\":3" },
	{ "s~sk~kp", 4, "" },
	{ "l~lu~kU", 3, "" },
	{ "Kwu", 3, "" },
	{ "spklKwus", 3, "" },
	{ "s~sk~kl~lu~uK~KvpU", 2, "" },
};
static_assert(countof(words) <= TOOLS_MAX);

/* The model borrows them. */
static struct model_tool model_tools[TOOLS_MAX];
static struct model_phase model_phases[TOOLS_MAX][PHASES_MAX];
static int undos[TOOLS_MAX][PHASES_MAX];
static const char *inputs[TOOLS_MAX][PHASES_MAX];

#define FORM                                                                    \
	"{\"method\":\"elicitation/create\",\"params\":{\"message\":\"Sure?\"," \
	"\"requestedSchema\":{\"type\":\"object\",\"properties\":{}}}}"
#define RETRIES \
	"\"attempts\":4,\"backoff_first_ms\":100,\"backoff_max_ms\":1000,\"timeout_ms\":8000"
#define SEND "\"request\":{\"method\":\"POST\",\"url\":\"http://down/do/%d/{/task/effect_id}\"}"

/* Only some of those that send also look whether it came. */
static void add_verify(struct buf *out, char letter, int place)
{
	if (letter == 'v' || letter == 'c')
		buf_add_format(out,
			       ",\"verify\":{\"request\":{\"method\":\"GET\","
			       "\"url\":\"http://down/see/%d/{/task/effect_id}\"},"
			       "\"done_when\":\"/seen\",\"within_ms\":%d,\"every_ms\":400%s}",
			       place, letter == 'v' ? 5'000 : 1'500,
			       letter == 'c' ? ",\"otherwise\":\"continue\"" : "");
}

static void add_phase(struct buf *out, char letter, const char *name, int place)
{
	if (name)
		buf_add_format(out, "{\"name\":\"%s\",", name);
	else
		buf_add_text(out, "{");
	switch (letter) {
	case 's':
		buf_add_text(out, "\"kind\":\"sql\",\"file\":\"one.sql\"," RETRIES);
		break;
	case 'p':
	case 'K':
	case 'U':
	case 'a':
		buf_add_format(
		    out, "\"kind\":\"program\",\"command\":[\"./%s\"],\"effect\":\"%s\"%s," RETRIES,
		    letter == 'a' ? "asks" : "tool",
		    letter == 'K'   ? "keyed"
		    : letter == 'U' ? "unsafe"
				    : "pure",
		    letter == 'K' ? ",\"key_ttl_ms\":60000" : "");
		break;
	case 'w':
		buf_add_text(out, "\"kind\":\"wait\",\"ms\":700");
		break;
	case 'i':
		buf_add_format(out,
			       "\"kind\":\"wait\",\"input\":{\"requests\":{\"sure%d\":" FORM
			       "},\"timeout_ms\":6000}",
			       place);
		break;
	case 'g':
		buf_add_format(
		    out,
		    "\"kind\":\"http\",\"effect\":\"pure\"," RETRIES ",\"request\":"
		    "{\"method\":\"GET\",\"url\":\"http://down/do/%d/{/task/effect_id}\"}",
		    place);
		break;
	case 'l':
		buf_add_format(
		    out,
		    "\"kind\":\"http\",\"effect\":\"lookup\",\"visible_within_ms\":3000," RETRIES
		    "," SEND ",\"reconcile\":{\"request\":{\"method\":\"GET\","
		    "\"url\":\"http://down/find/%d/{/task/effect_id}\"},"
		    "\"done_when\":\"/items/0/id\",\"absent_when_empty\":\"/items\"}",
		    place, place);
		break;
	case 'u':
		buf_add_format(out, "\"kind\":\"http\",\"effect\":\"unsafe\"," RETRIES "," SEND,
			       place);
		break;
	case 'q':
		buf_add_format(
		    out,
		    "\"kind\":\"http\",\"effect\":\"keyed\",\"key_header\":"
		    "\"Idempotency-Key\",\"key_ttl_ms\":10000,\"attempts\":30,"
		    "\"backoff_first_ms\":300,\"backoff_max_ms\":2000,\"timeout_ms\":3000," SEND,
		    place);
		break;
	default: /* k, v, c */
		buf_add_format(out,
			       "\"kind\":\"http\",\"effect\":\"keyed\",\"key_header\":"
			       "\"Idempotency-Key\",\"key_ttl_ms\":60000," RETRIES "," SEND,
			       place);
		break;
	}
	add_verify(out, letter, place);
}

static enum hf_code read_file(void *, const char *, struct slice *content, bool *executable,
			      struct hf_err *)
{
	*content = slice_of("SELECT '{}'");
	if (executable)
		*executable = true;
	return HF_OK;
}

static struct tool *tool_make(int number, const char *word, const char *more)
{
	hf_cleanup(buf) struct buf doc = {};
	buf_add_format(&doc,
		       "{\"name\":\"tool_%d\",\"description\":\"%s\",\"effect_id\":\"required\","
		       "\"inputSchema\":{\"type\":\"object\",\"required\":[\"effect_id\"],"
		       "\"properties\":{\"effect_id\":{\"type\":\"string\"}}},"
		       "\"result\":{\"text\":\"done\"},\"answer_window_ms\":3000,"
		       "\"park_ttl_ms\":20000%s%s,\"phases\":[",
		       number, word, more,
		       strstr(more, "deadline_ms") ? "" : ",\"deadline_ms\":120000");
	int place = 0;
	for (const char *at = word; *at; at++, place++) {
		char name[8];
		snprintf(name, sizeof name, "p%d", place);
		if (place)
			buf_add_text(&doc, ",");
		add_phase(&doc, *at, name, place);
		if (at[1] == '~') {
			buf_add_text(&doc, ",\"undo\":");
			add_phase(&doc, at[2], nullptr, PHASES_MAX + place);
			buf_add_text(&doc, "}");
			at += 2;
		}
		buf_add_text(&doc, "}");
	}
	buf_add_text(&doc, "]}");
	struct tool *tool;
	struct hf_err err = {};
	const struct tool_files files = { read_file, nullptr };
	if (tool_new(buf_slice(&doc), &files, &tool, &err) != HF_OK) {
		fprintf(stderr, "tool \"%s\": %s\n", word, err.text);
		exit(2);
	}
	tool->id = number;
	return tool;
}

void tools_make(void)
{
	for (size_t i = 0; i < countof(words); i++)
		tools[tools_count++] = tool_make((int)i + 1, words[i].phases, words[i].more);
}

struct tool *tool_draw(void)
{
	int sum = 0;
	for (size_t i = 0; i < countof(words); i++)
		sum += words[i].weight;
	int64_t drawn = dice_between(0, sum - 1);
	int i = 0;
	while (drawn >= words[i].weight)
		drawn -= words[i++].weight;
	return tools[i];
}

void tools_add(struct model *model)
{
	for (int i = 0; i < tools_count; i++) {
		const struct tool *tool = tools[i];
		struct model_tool *added = &model_tools[i];
		*added = (struct model_tool){ .tool = tool->id,
					      .name = tool->name,
					      .result_ttl_ms = tool->result_ttl_ms,
					      .tombstone_ttl_ms = tool->tombstone_ttl_ms,
					      .deadline_ms = tool->deadline_ms,
					      .park_ttl_ms = tool->park_ttl_ms,
					      .phases = model_phases[i],
					      .phases_count = (int)tool->phases_count,
					      .undos = undos[i],
					      .inputs = inputs[i] };
		for (size_t p = 0; p < tool->phases_count; p++) {
			static const char *const sure[] = { "sure0", "sure1", "sure2", "sure3",
							    "sure4", "sure5", "sure6", "sure7" };
			const struct phase_spec *phase = &tool->phases[p];
			model_phases[i][p] =
			    (struct model_phase){ phase->name, effect_class_name(phase->effect),
						  phase->type == PHASE_WAIT,
						  phase->type == PHASE_WAIT &&
						      phase->input.len == 0 };
			if (phase->undo)
				undos[i][added->undos_count++] = (int)p;
			if (phase->input.len)
				inputs[i][added->inputs_count++] = sure[p];
		}
		model_tool_add(model, added);
	}
}

int place_of(struct slice name)
{
	bool undo = name.len > 5 && memcmp(name.data, "undo:", 5) == 0;
	if (undo)
		name = (struct slice){ name.data + 5, name.len - 5 };
	if (name.len != 2 || name.data[0] != 'p')
		return -1;
	return name.data[1] - '0' + (undo ? PHASES_MAX : 0);
}
