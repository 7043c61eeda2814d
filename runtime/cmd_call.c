/* cmd_call.c - `holdfast call`: one tools/call, its handle, and with --wait the polls until the
 * task has ended. What the server said goes to stdout, all else to stderr. A lost answer is asked
 * for again under the same effect ID, which is why that ID is known and shown before the first
 * byte leaves. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base.h"
#include "runtime/buf.h"
#include "runtime/call_show.h"
#include "runtime/clock.h"
#include "runtime/command.h"
#include "runtime/config.h"
#include "runtime/id.h"
#include "runtime/json.h"
#include "runtime/mcp_client.h"
#include "runtime/random.h"
#include "runtime/terminal.h"
#include "runtime/utf8.h"

constexpr int ASK_TRIES_MAX = 6; /* the first and five more */
constexpr int64_t ASK_DELAY_FIRST_MS = 200;
constexpr int64_t POLL_MS_DEFAULT = 1000;
constexpr int64_t POLL_MS_MIN = 10;
constexpr int64_t POLL_MS_MAX = 60'000;
constexpr size_t QUESTION_COLUMNS = 2'000;

static volatile sig_atomic_t stopped;

HF_DEFINE_CLEANUP(mcp_client, struct mcp_client *, mcp_client_close)

struct call {
	const char *tool;
	const char *effect_id; /* nullable until it is known */
	const char *args_json; /* nullable */
	struct buf members;    /* of --arg, as `"name":value,…` */
	struct buf arguments;  /* the whole object */
	struct buf meta;
	char effect_text[UUID_TEXT_LEN + 1]; /* a minted effect ID */
	char *effect_argument;               /* one that came among the arguments; heap */
	bool wait;
	bool maybe_taken; /* a request whose answer was lost may have been accepted */
	struct mcp_client *client;
	struct bar bar;
	struct call_view view;
	struct buf asked; /* the questions that were shown last */
};

static void on_signal(int)
{
	stopped = 1;
}

/* NAME=TEXT or NAME:=JSON. */
static enum hf_code on_arg(void *ctx, const char *arg, struct hf_err *err)
{
	struct call *call = ctx;
	const char *equals = strchr(arg, '=');
	if (!equals || equals == arg || (equals == arg + 1 && *arg == ':'))
		return hf_fail(err, HF_INVALID, "`%s` is neither NAME=VALUE nor NAME:=JSON", arg);
	if (!utf8_is_text(slice_of(arg)))
		return hf_fail(err, HF_INVALID, "not UTF-8");
	bool json = equals[-1] == ':';
	struct slice name = { arg, (size_t)(equals - arg) - json };
	struct slice value = slice_of(equals + 1);
	struct hf_err why;
	if (json && json_scan(value, &why) != HF_OK)
		return hf_fail(
		    err, HF_INVALID,
		    "the value of %.*s is no JSON: %s; where a text is meant, write %.*s=…",
		    (int)name.len, name.data, why.text, (int)name.len, name.data);
	if (call->members.len)
		buf_add_byte(&call->members, ',');
	json_string_encode(name, &call->members);
	buf_add_byte(&call->members, ':');
	if (json)
		buf_add_slice(&call->members, json_trim(value));
	else
		json_string_encode(value, &call->members);
	return HF_OK;
}

/* --args with the members of --arg in it. Two of one name fail the scan. */
static enum hf_code make_arguments(struct call *call, struct hf_err *err)
{
	struct slice given = json_trim(slice_of(call->args_json ? call->args_json : "{}"));
	if (json_scan(given, err) != HF_OK)
		return hf_wrap(err, "--args");
	if (json_type_of(given) != JSON_OBJECT)
		return hf_fail(err, HF_INVALID, "--args: not a JSON object");
	struct slice inside = json_trim((struct slice){ given.data + 1, given.len - 2 });
	buf_add_byte(&call->arguments, '{');
	buf_add_slice(&call->arguments, inside);
	if (inside.len && call->members.len)
		buf_add_byte(&call->arguments, ',');
	buf_add_slice(&call->arguments, buf_slice(&call->members));
	buf_add_byte(&call->arguments, '}');
	if (json_scan(buf_slice(&call->arguments), err) != HF_OK)
		return hf_wrap(err, "the arguments together");
	return HF_OK;
}

/* An effect ID among the arguments is the caller's own carrier: then _meta has none. */
static enum hf_code make_effect_id(struct call *call, struct hf_err *err)
{
	struct slice argument;
	if (call->effect_id && !utf8_is_text(slice_of(call->effect_id)))
		return hf_fail(err, HF_INVALID, "--effect-id: not UTF-8");
	if (!call->effect_id && json_member(buf_slice(&call->arguments), "effect_id", &argument)) {
		call->effect_argument = json_string_dup(argument);
		call->effect_id = call->effect_argument;
		return HF_OK;
	}
	if (!call->effect_id) {
		struct uuid minted = uuid_new();
		call->effect_id = uuid_format(&minted, call->effect_text);
		fprintf(stderr, "effect ID  %s (made here; give it again to get the same task)\n",
			call->effect_id);
	}
	buf_add_text(&call->meta, "\"dev.holdfast/effect-id\":");
	json_string_encode(slice_of(call->effect_id), &call->meta);
	return HF_OK;
}

/* Until then or until a signal came. */
static void wait_ms(int64_t ms)
{
	int64_t end = clock_boot_ms() + ms;
	for (int64_t left = ms; left > 0 && !stopped; left = end - clock_boot_ms())
		poll(nullptr, 0, left > 1000 ? 1000 : (int)left);
}

/* One request, and again where its answer was lost or it was refused for now. */
static enum hf_code ask(struct call *call, const char *method, const char *name,
			struct slice params, struct slice meta, struct mcp_answer *answer,
			struct hf_err *err)
{
	enum hf_code code;
	int64_t backoff_ms = ASK_DELAY_FIRST_MS;
	for (int tries = 1;; tries++, backoff_ms *= 2) {
		code = mcp_request(call->client, method, name, params, meta, answer, err);
		bool again = code == HF_NET || code == HF_BUSY;
		call->maybe_taken |= code != HF_OK && answer->maybe_taken;
		if (!again || tries == ASK_TRIES_MAX)
			break;
		int64_t delay_ms = backoff_ms / 2 + random_up_to(backoff_ms / 2);
		if (answer->retry_after_ms > delay_ms)
			delay_ms = answer->retry_after_ms;
		bar_clear(&call->bar);
		fprintf(stderr, "%s; asking again in %" PRId64 " ms (%d of %d)\n", err->text,
			delay_ms, tries, ASK_TRIES_MAX - 1);
		wait_ms(delay_ms);
		if (stopped)
			return hf_fail(err, HF_CANCELLED, "interrupted");
	}
	/* Refused to the end, but in words that MCP knows: those tell more. */
	return code == HF_BUSY && answer->error.len ? HF_OK : code;
}

/* What a handle or a poll says of the task. */
static void read_status(struct call *call, struct slice task, int64_t *poll_ms)
{
	struct slice value, meta, effect;
	if (json_member(task, "status", &value) && json_type_of(value) == JSON_STRING) {
		free(call->view.status);
		call->view.status = json_string_dup(value);
	}
	if (json_member(task, "pollIntervalMs", &value) && json_type_of(value) == JSON_NUMBER &&
	    json_integer(value, poll_ms))
		*poll_ms = *poll_ms < POLL_MS_MIN   ? POLL_MS_MIN
			   : *poll_ms > POLL_MS_MAX ? POLL_MS_MAX
						    : *poll_ms;
	if (json_member(task, "_meta", &meta) &&
	    json_member(meta, "dev.holdfast/effect", &effect) &&
	    json_member(effect, "replayed", &value))
		call->view.replayed = json_type_of(value) == JSON_TRUE;
}

static bool is_open(const struct call *call)
{
	static const char *const words[] = { "completed", "failed", "cancelled" };
	for (size_t i = 0; i < countof(words); i++)
		if (call->view.status && strcmp(call->view.status, words[i]) == 0)
			return false;
	return true;
}

static void draw(struct call *call, struct slice task)
{
	struct slice meta, number, message;
	double fraction = -1;
	if (json_member(task, "_meta", &meta) &&
	    json_member(meta, "dev.holdfast/progress", &number) &&
	    json_type_of(number) == JSON_NUMBER) {
		char text[32] = {};
		memcpy(text, number.data, number.len < sizeof text ? number.len : sizeof text - 1);
		fraction = strtod(text, nullptr);
		fraction = fraction >= 0 && fraction <= 1 ? fraction : -1;
	}
	hf_cleanup(buf) struct buf text = {};
	if (json_member(task, "statusMessage", &message) && json_type_of(message) == JSON_STRING)
		json_string_decode(message, &text);
	else if (call->view.status)
		buf_add_text(&text, call->view.status);
	bar_draw(&call->bar, fraction, buf_slice(&text));
}

/* How it stands, and what to do next. */
static void advise(const struct call *call)
{
	if (!call->view.task_id && !call->maybe_taken) {
		fputs("nothing was done\n", stderr);
		return;
	}
	fputs(call->view.task_id
		  ? "the task goes on. To ask again, repeat this call with\n  --effect-id '"
		  : "the call may have been accepted. To find out, repeat it with\n  --effect-id '",
	      stderr);
	print_clean(stderr, slice_of(call->effect_id ? call->effect_id : ""));
	fputs("' --wait\n", stderr);
	if (call->view.task_id)
		fprintf(stderr, "or, as an administrator: holdfast task show %s\n",
			call->view.task_id);
}

static int lost(struct call *call, enum hf_code code, const struct hf_err *err)
{
	bar_clear(&call->bar);
	int exit = code == HF_CANCELLED ? call_show_open(&call->view, EXIT_FAILED)
					: call_show_failure(&call->view, err->text);
	advise(call);
	return exit;
}

/* What the task asks, each question once: this command can't answer. */
static void show_questions(struct call *call, struct slice task)
{
	struct slice requests, key, request;
	if (!json_member(task, "inputRequests", &requests) ||
	    json_type_of(requests) != JSON_OBJECT || slice_equal(requests, buf_slice(&call->asked)))
		return;
	buf_clear(&call->asked);
	buf_add_slice(&call->asked, requests);
	bar_clear(&call->bar);
	fputs("the task waits for an answer, which a client that declares Tasks gives by "
	      "tasks/update:\n",
	      stderr);
	for (size_t at = 0; json_object_next(requests, &at, &key, &request);) {
		hf_cleanup(buf) struct buf name = {};
		json_string_decode(key, &name);
		fputs("  ", stderr);
		print_clean(stderr, buf_slice(&name));
		fputs("  ", stderr);
		print_cut(stderr, request, QUESTION_COLUMNS);
		putc('\n', stderr);
	}
}

/* Polls until the task has ended; the first at once. */
static int follow(struct call *call, int64_t poll_ms)
{
	hf_cleanup(mcp_answer) struct mcp_answer answer = {};
	hf_cleanup(buf) struct buf params = {};
	struct hf_err err;
	buf_add_text(&params, "\"taskId\":");
	json_string_encode(slice_of(call->view.task_id), &params);
	for (;;) {
		enum hf_code code = ask(call, "tasks/get", call->view.task_id, buf_slice(&params),
					(struct slice){}, &answer, &err);
		if (code != HF_OK)
			return lost(call, code, &err);
		if (answer.error.len) {
			bar_clear(&call->bar);
			return call_show_error(&call->view, answer.error);
		}
		read_status(call, answer.result, &poll_ms);
		if (!is_open(call))
			break;
		if (!call->view.json) {
			show_questions(call, answer.result);
			draw(call, answer.result);
		}
		wait_ms(poll_ms);
		if (stopped)
			return lost(call, HF_CANCELLED, &err);
	}
	bar_clear(&call->bar);
	struct slice value;
	if (json_member(answer.result, "result", &value) && json_type_of(value) == JSON_OBJECT)
		return call_show_result(&call->view, value);
	if (json_member(answer.result, "error", &value) && json_type_of(value) == JSON_OBJECT)
		return call_show_error(&call->view, value);
	return call_show_ended(&call->view, answer.result);
}

static int take_handle(struct call *call, struct slice handle)
{
	struct slice value;
	int64_t poll_ms = POLL_MS_DEFAULT;
	if (json_member(handle, "taskId", &value))
		call->view.task_id = json_string_dup(value);
	if (!call->view.task_id)
		return call_show_failure(&call->view, "the handle has no taskId");
	read_status(call, handle, &poll_ms);
	if (call->view.replayed && !call->view.json)
		fprintf(stderr, "this effect ID is known: the same task, nothing runs twice\n");
	if (!call->wait && is_open(call))
		return call_show_open(&call->view, EXIT_DONE);
	if (!call->view.json) {
		fputs("task       ", stderr);
		print_clean(stderr, slice_of(call->view.task_id));
		putc('\n', stderr);
	}
	return follow(call, poll_ms);
}

static int run(struct call *call)
{
	hf_cleanup(mcp_answer) struct mcp_answer answer = {};
	hf_cleanup(buf) struct buf params = {};
	struct hf_err err;
	buf_add_text(&params, "\"name\":");
	json_string_encode(slice_of(call->tool), &params);
	buf_add_text(&params, ",\"arguments\":");
	buf_add_slice(&params, buf_slice(&call->arguments));
	enum hf_code code = ask(call, "tools/call", call->tool, buf_slice(&params),
				buf_slice(&call->meta), &answer, &err);
	if (code != HF_OK)
		return lost(call, code, &err);
	if (answer.error.len)
		return call_show_error(&call->view, answer.error);
	struct slice type;
	bool has_type = json_member(answer.result, "resultType", &type);
	if (has_type && json_string_is(type, "task"))
		return take_handle(call, answer.result);
	if (has_type && !json_string_is(type, "complete"))
		return call_show_failure(&call->view, "the server asks for what `call` cannot do");
	call->view.status = hf_strdup("completed");
	return call_show_result(&call->view, answer.result);
}

static int start(struct call *call, const struct config *config)
{
	struct hf_err err;
	if (config->arguments_count != 1)
		return command_usage("call", "give one tool's name");
	call->tool = config->arguments[0];
	if (!*call->tool || !utf8_is_text(slice_of(call->tool)))
		return command_usage("call", "the tool's name is empty or not UTF-8");
	if (!config->url || !*config->url)
		return command_usage("call", "no API named: set HOLDFAST_URL or --url");
	const char *token = config->token && *config->token ? config->token : nullptr;
	if (make_arguments(call, &err) != HF_OK)
		return command_usage("call", err.text);
	hf_cleanup(mcp_client) struct mcp_client *client = nullptr;
	if (mcp_client_open(config->url, token, &stopped, &client, &err) != HF_OK)
		return command_usage("call", err.text);
	if (make_effect_id(call, &err) != HF_OK)
		return command_usage("call", err.text);
	call->view.effect_id = call->effect_id;
	call->client = client;
	bar_init(&call->bar);
	/* A second Ctrl-C ends the program as usual. */
	const struct sigaction action = { .sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND };
	sigaction(SIGINT, &action, nullptr);
	sigaction(SIGTERM, &action, nullptr);
	return run(call);
}

int cmd_call(int argc, char **argv)
{
	struct call call = {};
	const struct own_flag own[] = {
		{ "arg", .take = on_arg, .ctx = &call },  { "args", .text = &call.args_json },
		{ "effect-id", .text = &call.effect_id }, { "wait", .on = &call.wait },
		{ "json", .on = &call.view.json },        {}
	};
	hf_cleanup(config) struct config config;
	int code = command_load("call", 'c', argc, argv, own, &config);
	if (code == EXIT_DONE)
		code = start(&call, &config);
	buf_deinit(&call.members);
	buf_deinit(&call.arguments);
	buf_deinit(&call.meta);
	buf_deinit(&call.asked);
	free(call.effect_argument);
	call_view_deinit(&call.view);
	return code;
}
