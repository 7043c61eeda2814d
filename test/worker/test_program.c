/* test_program.c - program phases with real processes and a pretended run: what each way of ending
 * comes to, and that nothing is left of it. The tools are this program itself, started with the
 * name of one as its last argument; those in plain mode stand further below. */
#include <errno.h>
#include <ev.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base.h"
#include "runtime/buf.h"
#include "runtime/clock.h"
#include "runtime/json.h"
#include "runtime/log.h"
#include "runtime/value.h"
#include "test/test.h"
#include "worker/host.h"
#include "worker/rundir.h"
#include "worker/sdk/c/tool.h"

/* The unit under test is compiled in here with every name that it calls in run.c and worker.c
 * replaced, since the real ones are linked into the same binary for other tests. */
#define phase_program    pretended_phase_program
#define worker_hosts     pretended_worker_hosts
#define ask_look         pretended_ask_look
#define ask_close        pretended_ask_close
#define ask_text         pretended_ask_text
#define say_run          pretended_say_run
#define say_type         pretended_say_type
#define say_value        pretended_say_value
#define say_vars         pretended_say_vars
#define run_phase_number pretended_run_phase_number
#define run_loop         pretended_run_loop
#define run_worker       pretended_run_worker
#define run_tool         pretended_run_tool
#define run_phase        pretended_run_phase
#define run_task         pretended_run_task
#define run_task_id      pretended_run_task_id
#define run_tool_folder  pretended_run_tool_folder
#define run_key          pretended_run_key
#define run_derive       pretended_run_derive
#define run_trace        pretended_run_trace
#define run_traceparent  pretended_run_traceparent
#define run_states_json  pretended_run_states_json
#define run_attempt      pretended_run_attempt
#define run_time_left_ms pretended_run_time_left_ms
#define run_may_send     pretended_run_may_send
#define run_progress     pretended_run_progress
#define run_checkpoint   pretended_run_checkpoint
#define run_recall       pretended_run_recall
#define run_artifact_put pretended_run_artifact_put
#define run_phase_done   pretended_run_phase_done
#include "worker/ask.c"
#include "worker/phase_program.c"
#include "worker/say.c"

/* What ends at once has ended by then, also where two forks of this program take their time. */
constexpr int64_t GRACE_MS = 600;

/* --- the tools -------------------------------------------------------------------------------- */

static void write_raw(const char *bytes, size_t len)
{
	ssize_t sent = write(3, bytes, len);
	(void)sent;
}

static int be_twice(struct tool_run *run)
{
	msgpack_packer *pack = tool_pack(run);
	msgpack_pack_map(pack, 2);
	tool_pack_text(pack, "twice");
	msgpack_pack_int64(pack, 2 * tool_int(tool_args(run), "n", 0));
	tool_pack_text(pack, "pid");
	msgpack_pack_int64(pack, getpid());
	return tool_result(run);
}

static int be_steps(struct tool_run *run)
{
	const msgpack_object *before = tool_recall(run, "a");
	msgpack_pack_int(tool_pack(run), 41);
	tool_checkpoint(run, "a");
	const msgpack_object *after = tool_recall(run, "a");
	tool_artifact(run, "page.txt", "text/plain", "\0page", 5);
	tool_progress(run, 0.5, "half of %s", tool_phase_name(run));
	printf("%s %s %s\n", tool_task_id(run), tool_effect_id(run), tool_name(run));
	const char *first = tool_key(run, 0), *second = tool_key(run, 1);
	const msgpack_object *collect = tool_state(run, "collect");
	msgpack_packer *pack = tool_pack(run);
	msgpack_pack_map(pack, 7);
	tool_pack_text(pack, "age");
	msgpack_pack_int64(pack, tool_int(tool_find(tool_input(run), "who"), "age", -1));
	tool_pack_text(pack, "before");
	before ? msgpack_pack_true(pack) : msgpack_pack_false(pack);
	tool_pack_text(pack, "after");
	msgpack_pack_object(pack, *after);
	tool_pack_text(pack, "keys");
	msgpack_pack_array(pack, 2);
	tool_pack_text(pack, first);
	tool_pack_text(pack, second);
	tool_pack_text(pack, "rows");
	msgpack_pack_int64(pack, tool_int(collect, "rows", -1));
	tool_pack_text(pack, "attempt");
	msgpack_pack_int(pack, tool_attempt(run));
	tool_pack_text(pack, "left");
	tool_time_left_ms(run) > 0 ? msgpack_pack_true(pack) : msgpack_pack_false(pack);
	return tool_result(run);
}

static void pack_form(msgpack_packer *pack)
{
	msgpack_pack_map(pack, 2);
	tool_pack_text(pack, "method");
	tool_pack_text(pack, "elicitation/create");
	tool_pack_text(pack, "params");
	msgpack_pack_map(pack, 2);
	tool_pack_text(pack, "message");
	tool_pack_text(pack, "Sure?");
	tool_pack_text(pack, "requestedSchema");
	msgpack_pack_map(pack, 2);
	tool_pack_text(pack, "type");
	tool_pack_text(pack, "object");
	tool_pack_text(pack, "properties");
	msgpack_pack_map(pack, 0);
}

/* Asks under the key of its arguments; the answer's action is its result. */
static int be_curious(struct tool_run *run)
{
	const char *key = tool_text(run, tool_args(run), "key", "");
	pack_form(tool_pack(run));
	const msgpack_object *answer = tool_ask(run, key, tool_int(tool_args(run), "ms", 0));
	msgpack_packer *pack = tool_pack(run);
	msgpack_pack_map(pack, 1);
	tool_pack_text(pack, "action");
	tool_pack_text(pack, tool_text(run, answer, "action", "none"));
	return tool_result(run);
}

static int be_rude(struct tool_run *run)
{
	tool_pack_text(tool_pack(run), "no request");
	tool_ask(run, "k", 0);
	return 1;
}

static int be_no(struct tool_run *run)
{
	return tool_error(run, "no data for %s", tool_text(run, tool_args(run), "month", "?"));
}

static int be_later(struct tool_run *run)
{
	return tool_retry(run, "not now");
}

static int be_silent(struct tool_run *)
{
	fprintf(stderr, "forgot the result\n");
	return 0;
}

static int be_killed(struct tool_run *)
{
	fprintf(stderr, "about to die \xff\x1b[1m\n");
	return kill(getpid(), SIGTERM);
}

static int be_exit(struct tool_run *run)
{
	fprintf(stderr, "last words\n");
	exit((int)tool_int(tool_args(run), "n", 0));
}

static int be_hanging(struct tool_run *)
{
	fprintf(stderr, "hanging\n");
	for (;;)
		pause();
}

static int be_garbage(struct tool_run *)
{
	write_raw("HTTP/1.1 200 OK\r\n\r\n", 19);
	for (;;)
		pause();
}

static int be_unknown_type(struct tool_run *)
{
	write_raw("\0\0\0\x08\x81\xa1t\xa4what", 12);
	for (;;)
		pause();
}

static int be_cut(struct tool_run *)
{
	write_raw("\0\0\1\0\x81\xa1t", 7);
	exit(0);
}

static int be_closing(struct tool_run *)
{
	close(3);
	for (;;)
		pause();
}

static int be_talkative(struct tool_run *run)
{
	static char line[4096];
	memset(line, 'x', sizeof line);
	line[sizeof line - 1] = '\n';
	for (int i = 0; i < 512; i++)
		fwrite(line, sizeof line, 1, stdout);
	return be_twice(run);
}

static int be_flooding(struct tool_run *run)
{
	for (int i = 0; i < 100'000; i++)
		tool_progress(run, i / 1e5, "step %d", i);
	return be_twice(run);
}

static int be_asking_only(struct tool_run *)
{
	for (;;)
		write_raw("\0\0\0\x14\x82\xa1t\xa6recall\xa4name\xa4none", 24);
}

static int be_not_json(struct tool_run *run)
{
	msgpack_pack_double(tool_pack(run), NAN);
	return tool_result(run);
}

static int be_huge(struct tool_run *run)
{
	static char zeros[2 << 20];
	msgpack_packer *pack = tool_pack(run);
	msgpack_pack_str(pack, sizeof zeros);
	msgpack_pack_str_body(pack, zeros, sizeof zeros);
	return tool_result(run);
}

static int be_doubled(struct tool_run *run)
{
	be_twice(run);
	return be_twice(run);
}

static int be_patient(struct tool_run *run)
{
	tool_progress(run, 0.1, "sent");
	while (!tool_cancelled(run))
		usleep(1000);
	return be_twice(run);
}

/* Heeds a cancel: nothing was sent. */
static int be_obedient(struct tool_run *run)
{
	tool_progress(run, 0.1, "waiting");
	while (!tool_cancelled(run))
		usleep(1000);
	return tool_error(run, "stopped");
}

/* An array of 1 500 levels. */
static int be_deep(struct tool_run *run)
{
	msgpack_packer *pack = tool_pack(run);
	for (int i = 0; i < 1500; i++)
		msgpack_pack_array(pack, i < 1499);
	return tool_result(run);
}

static int be_not_utf8(struct tool_run *run)
{
	tool_pack_text(tool_pack(run), "\xb0\xa1");
	return tool_result(run);
}

static int be_storing(struct tool_run *run)
{
	msgpack_pack_int(tool_pack(run), 1);
	tool_checkpoint(run, "one");
	return be_twice(run);
}

static int be_environment(struct tool_run *run)
{
	msgpack_packer *pack = tool_pack(run);
	size_t count = 0;
	while (environ[count])
		count++;
	msgpack_pack_array(pack, count);
	for (size_t i = 0; i < count; i++)
		tool_pack_text(pack, environ[i]);
	return tool_result(run);
}

static int be_files(struct tool_run *run)
{
	bool fresh = access("left", F_OK) != 0;
	fclose(fopen("left", "w"));
	mkdir("folder", 0);
	int open_count = 0;
	for (int fd = 0; fd < 200; fd++)
		open_count += fcntl(fd, F_GETFD) >= 0;
	msgpack_packer *pack = tool_pack(run);
	msgpack_pack_map(pack, 3);
	tool_pack_text(pack, "fresh");
	fresh ? msgpack_pack_true(pack) : msgpack_pack_false(pack);
	tool_pack_text(pack, "open");
	msgpack_pack_int(pack, open_count);
	tool_pack_text(pack, "leader");
	getpid() == getsid(0) && getpid() == getpgrp() ? msgpack_pack_true(pack)
						       : msgpack_pack_false(pack);
	return tool_result(run);
}

/* A child, one that left the session, and one whose parent is gone: their numbers as progress. */
static int be_family(struct tool_run *run)
{
	int pipe_ends[2];
	if (pipe(pipe_ends) < 0)
		return 1;
	for (int kind = 0; kind < 3; kind++) {
		if (fork() != 0)
			continue;
		signal(SIGTERM, SIG_IGN);
		if (kind > 0)
			setsid();
		if (kind == 2 && fork() != 0)
			_exit(0);
		pid_t self = getpid();
		ssize_t sent = write(pipe_ends[1], &self, sizeof self);
		(void)sent;
		for (;;)
			pause();
	}
	pid_t pids[3] = {};
	for (int i = 0; i < 3; i++) {
		if (read(pipe_ends[0], &pids[i], sizeof pids[i]) < 0)
			return 1;
	}
	tool_progress(run, 0.5, "%d %d %d", pids[0], pids[1], pids[2]);
	if (tool_int(tool_args(run), "n", 0))
		return kill(getpid(), SIGKILL);
	for (;;)
		pause();
}

static const struct {
	const char *name;
	int (*run)(struct tool_run *run);
} tools[] = {
	{ "twice", be_twice },
	{ "steps", be_steps },
	{ "no", be_no },
	{ "later", be_later },
	{ "silent", be_silent },
	{ "killed", be_killed },
	{ "exit", be_exit },
	{ "hanging", be_hanging },
	{ "garbage", be_garbage },
	{ "unknown_type", be_unknown_type },
	{ "cut", be_cut },
	{ "closing", be_closing },
	{ "talkative", be_talkative },
	{ "flooding", be_flooding },
	{ "asking_only", be_asking_only },
	{ "not_json", be_not_json },
	{ "huge", be_huge },
	{ "doubled", be_doubled },
	{ "patient", be_patient },
	{ "storing", be_storing },
	{ "environment", be_environment },
	{ "files", be_files },
	{ "family", be_family },
	{ "obedient", be_obedient },
	{ "deep", be_deep },
	{ "not_utf8", be_not_utf8 },
	{ "curious", be_curious },
	{ "rude", be_rude },
};

/* --- the tools in plain mode ------------------------------------------------------------------ */

static struct buf read_whole(int fd)
{
	struct buf whole = {};
	ssize_t got;
	while ((got = read(fd, buf_reserve(&whole, 4096), 4096)) > 0)
		buf_grew(&whole, (size_t)got);
	return whole;
}

static int plain_environment(void)
{
	static const char *const names[] = { "HOLDFAST_TASK",      "HOLDFAST_TOOL",
					     "HOLDFAST_PHASE",     "HOLDFAST_ATTEMPT",
					     "HOLDFAST_EFFECT_ID", "HOLDFAST_KEY",
					     "HOLDFAST_RIG" };
	struct buf arguments = read_whole(STDIN_FILENO);
	int file = open(getenv("HOLDFAST_STATE_FILE"), O_RDONLY);
	struct buf states = read_whole(file);
	close(file);
	printf("{\"args\":%s,\"state\":%s,\"input\":%s", arguments.data, states.data,
	       getenv("HOLDFAST_INPUT"));
	for (size_t i = 0; i < countof(names); i++)
		printf(",\"%s\":\"%s\"", names[i] + strlen("HOLDFAST_"), getenv(names[i]));
	long long left = atoll(getenv("HOLDFAST_DEADLINE_MS"));
	long long then = atoll(getenv("HOLDFAST_DEADLINE"));
	bool timely = left > 0 && left <= 20'000 && then - left <= clock_wall_ms();
	bool fresh = access("left", F_OK) != 0 && access(getenv("HOME"), W_OK) == 0;
	fclose(fopen("left", "w"));
	int open_count = 0;
	for (int fd = 0; fd < 200; fd++)
		open_count += fcntl(fd, F_GETFD) >= 0;
	bool secret = getenv("HOLDFAST_SECRET");
	char path[4096];
	ssize_t len = readlink("/proc/self/exe", path, sizeof path);
	while (len > 0 && path[len - 1] != '/')
		len--;
	bool found = len > 1 && strncmp(getenv("PATH"), path, (size_t)len - 1) == 0;
	printf(",\"timely\":%d,\"fresh\":%d,\"open\":%d,\"secret\":%d,\"path\":%d}\n", timely,
	       fresh, open_count, secret, found);
	return 0;
}

static int plain_printing(void)
{
	struct buf text = read_whole(STDIN_FILENO);
	fwrite(text.data + 1, 1, text.len - 2, stdout); /* without its quotes */
	return 0;
}

static int plain_exit_with(void)
{
	struct buf number = read_whole(STDIN_FILENO);
	fprintf(stderr, "last words\n");
	printf("{}");
	return atoi(number.data);
}

static int plain_killed(void)
{
	printf("{}");
	fflush(stdout);
	return kill(getpid(), SIGKILL);
}

static int plain_hanging(void)
{
	fprintf(stderr, "hanging\n");
	if (fork() == 0)
		setsid();
	for (;;)
		pause();
}

static int plain_flooding(void)
{
	static char line[4096];
	memset(line, 'x', sizeof line);
	for (;;)
		fwrite(line, sizeof line, 1, stdout);
}

static int step_connect(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	snprintf(address.sun_path, sizeof address.sun_path, "%s", getenv("HOLDFAST_SOCKET"));
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	return connect(fd, (struct sockaddr *)&address, sizeof address) == 0 ? fd : -1;
}

/* {t: type, name: "a"}, with a value where there is one. */
static struct buf step_frame(const char *type, const char *value)
{
	struct buf out = {};
	size_t start = frame_begin(&out);
	frame_map(&out, value ? 3 : 2);
	frame_text(&out, slice_of("t"));
	frame_text(&out, slice_of(type));
	frame_text(&out, slice_of("name"));
	frame_text(&out, slice_of("a"));
	if (value) {
		frame_text(&out, slice_of("value"));
		frame_text(&out, slice_of(value));
	}
	return frame_end(&out, start) ? out : (struct buf){};
}

static void step_send(int fd, struct buf frame)
{
	ssize_t sent = write(fd, frame.data, frame.len);
	(void)sent;
}

/* The whole of one answer: its type, or its value; "" where the connection was closed. */
static const char *step_answer(int fd)
{
	static struct buf in;
	struct frame frame;
	size_t used;
	struct hf_err err;
	struct slice text;
	buf_clear(&in);
	while (frame_next(buf_slice(&in), &frame, &used, &err) == FRAME_PART) {
		ssize_t got = read(fd, buf_reserve(&in, 4096), 4096);
		if (got <= 0)
			return "";
		buf_grew(&in, (size_t)got);
	}
	if (!frame_get_text(&frame, "value", &text))
		text = slice_is(frame.type, "value") ? slice_of("nil") : frame.type;
	return hf_strndup(text.data, text.len);
}

static const char *step_ask(const char *type, const char *value)
{
	int fd = step_connect();
	step_send(fd, step_frame(type, value));
	const char *answer = step_answer(fd);
	close(fd);
	return answer;
}

static int plain_steps(void)
{
	printf("[\"%s\"", step_ask("recall", nullptr));
	printf(",\"%s\"", step_ask("checkpoint", "one"));
	printf(",\"%s\"", step_ask("recall", nullptr));
	/* A question that comes in two halves does not hold up another. */
	int slow = step_connect();
	struct buf frame = step_frame("recall", nullptr);
	step_send(slow, (struct buf){ .data = frame.data, .len = 9 });
	printf(",\"%s\"", step_ask("recall", nullptr));
	step_send(slow, (struct buf){ .data = frame.data + 9, .len = frame.len - 9 });
	printf(",\"%s\"", step_answer(slow));
	/* Nonsense closes its own connection alone. */
	int bad = step_connect();
	step_send(bad,
		  (struct buf){ .data = (char *)(uintptr_t)"GET / HTTP/1.1\r\n\r\n", .len = 18 });
	printf(",\"%s\"", step_answer(bad));
	printf(",\"%s\"", step_ask("result", "one"));
	printf(",\"%s\"", step_ask("checkpoint", nullptr));
	int far = step_connect();
	step_send(far, (struct buf){ .data = (char *)(uintptr_t)"\0\x20\0\0....", .len = 8 });
	printf(",\"%s\"", step_answer(far));
	printf(",\"%s\"]", step_ask("recall", nullptr));
	return 0;
}

/* More questions at once than are served at once, and the answers in the other order. */
static int plain_crowd(void)
{
	enum { COUNT = 3 * PLAIN_CONNECTIONS_MAX };
	int fds[COUNT];
	for (int i = 0; i < COUNT; i++)
		fds[i] = step_connect();
	int answered = 0;
	for (int i = 0; i < COUNT; i++) {
		step_send(fds[i], step_frame("checkpoint", "x"));
		answered += strcmp(step_answer(fds[i]), "ok") == 0;
		close(fds[i]);
	}
	printf("%d", answered);
	return 0;
}

static void leave(const char *name, const char *text)
{
	char path[4096];
	snprintf(path, sizeof path, "%s/%s", getenv("HOLDFAST_ARTIFACTS"), name);
	FILE *file = fopen(path, "w");
	fputs(text, file);
	fclose(file);
}

static int plain_leaving(void)
{
	struct buf what = read_whole(STDIN_FILENO);
	char path[4096];
	snprintf(path, sizeof path, "%s/odd", getenv("HOLDFAST_ARTIFACTS"));
	leave("b.PDF", "second");
	leave("a.txt", "first");
	if (strstr(what.data, "folder"))
		mkdir(path, 0700);
	else if (strstr(what.data, "link") && symlink("/etc/passwd", path) < 0)
		return 1;
	else if (strstr(what.data, "fifo"))
		mkfifo(path, 0700);
	for (int i = 0; strstr(what.data, "many") && i < 64; i++) {
		char name[16];
		snprintf(name, sizeof name, "%d", i);
		leave(name, "x");
	}
	return strstr(what.data, "fail") != nullptr;
}

static const struct {
	const char *name;
	int (*run)(void);
} plain_tools[] = {
	{ "environment", plain_environment },
	{ "printing", plain_printing },
	{ "exit", plain_exit_with },
	{ "killed", plain_killed },
	{ "hanging", plain_hanging },
	{ "flooding", plain_flooding },
	{ "steps", plain_steps },
	{ "crowd", plain_crowd },
	{ "leaving", plain_leaving },
};

static void be_a_plain_tool(const char *name)
{
	for (size_t i = 0; i < countof(plain_tools); i++) {
		if (strcmp(name, plain_tools[i].name) != 0)
			continue;
		int status = plain_tools[i].run();
		fflush(stdout);
		_exit(status); /* what it leaks is nobody's concern */
	}
	_exit(99);
}

/* Before Criterion's main: as a tool this process is nothing else. */
[[gnu::constructor]] static void be_a_tool(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "test-plain") == 0)
		be_a_plain_tool(argv[2]);
	if (argc != 3 || strcmp(argv[1], "test-tool") != 0)
		return;
	for (size_t i = 0; i < countof(tools); i++) {
		if (strcmp(argv[2], tools[i].name) == 0)
			exit(tool_main(tools[i].run));
	}
	exit(99);
}

/* --- the pretended worker and run ------------------------------------------------------------- */

struct worker {
	struct host_pool *hosts;
	int64_t cancel_grace_ms;
};

struct run {
	struct worker *worker;
	struct tool tool;
	struct phase_spec phase;
	struct claimed_task task;
	int64_t time_ms;
	void *state;
	/* what it was told */
	bool done;
	enum phase_outcome outcome;
	struct buf result, text, answer, progress, artifact, checkpoint;
	int64_t delay_ms;
	bool maybe_sent, has_checkpoint;
	int progress_count;
	bool may_send;
	/* a store that is slow, or says no */
	bool hold, refuse;
	void (*held)(void *ctx, bool ok);
	void *held_ctx;
};

struct host_pool *worker_hosts(const struct worker *worker)
{
	return worker->hosts;
}
struct ev_loop *run_loop(const struct run *)
{
	return ev_default_loop(0);
}
struct worker *run_worker(const struct run *run)
{
	return run->worker;
}
const struct tool *run_tool(const struct run *run)
{
	return &run->tool;
}
const struct phase_spec *run_phase(const struct run *run)
{
	return &run->phase;
}
const struct claimed_task *run_task(const struct run *run)
{
	return &run->task;
}
int run_phase_number(const struct run *)
{
	return 0;
}
const char *run_task_id(const struct run *)
{
	return "tsk_test";
}
const char *run_tool_folder(const struct run *)
{
	return "/proc/self";
}
const char *run_key(const struct run *)
{
	return "key0";
}
enum hf_code run_derive(const struct run *, uint32_t call, char *text, struct hf_err *)
{
	snprintf(text, DERIVED_KEY_LEN + 1, "key%u", call);
	return HF_OK;
}
const struct trace *run_trace(const struct run *)
{
	static struct trace trace;
	trace = (struct trace){ .state = slice_of("a=1"), .baggage = slice_of("k=v") };
	return &trace;
}
const char *run_traceparent(const struct run *)
{
	return "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
}
struct slice run_states_json(struct run *)
{
	return slice_of("{\"collect\":{\"rows\":60}}");
}
int run_attempt(const struct run *)
{
	return 3;
}
int64_t run_time_left_ms(const struct run *run)
{
	return run->time_ms;
}
bool run_may_send(const struct run *run)
{
	return run->may_send;
}
void run_progress(struct run *run, double, struct slice text)
{
	buf_clear(&run->progress);
	buf_add_slice(&run->progress, text);
	run->progress_count++;
}

static void answer_stored(struct run *run, void (*done)(void *ctx, bool ok), void *ctx)
{
	run->held = done;
	run->held_ctx = ctx;
	if (!run->hold)
		done(ctx, !run->refuse);
}

void run_checkpoint(struct run *run, struct slice, struct slice value,
		    void (*done)(void *ctx, bool ok), void *ctx)
{
	if (!run->has_checkpoint)
		buf_add_slice(&run->checkpoint, value);
	run->has_checkpoint = true;
	answer_stored(run, done, ctx);
}
bool run_recall(struct run *run, struct slice name, struct slice *value)
{
	if (!run->has_checkpoint || !slice_is(name, "a"))
		return false;
	*value = buf_slice(&run->checkpoint);
	return true;
}
void run_artifact_put(struct run *run, struct slice name, struct slice media_type,
		      struct slice content, void (*done)(void *ctx, bool ok), void *ctx)
{
	buf_add_slice(&run->artifact, name);
	buf_add_slice(&run->artifact, media_type);
	buf_add_slice(&run->artifact, content);
	answer_stored(run, done, ctx);
}
void run_phase_done(struct run *run, const struct phase_result *result)
{
	cr_assert_not(run->done, "done twice");
	run->done = true;
	run->outcome = result->outcome;
	run->maybe_sent = result->maybe_sent;
	struct hf_err err;
	if (result->outcome == PHASE_DONE)
		cr_assert_eq(value_to_json(result->state, &run->result, &err), HF_OK);
	else
		buf_add_slice(&run->result, result->state);
	run->delay_ms = result->delay_ms;
	buf_add_text(&run->text, result->text ? result->text : "");
	buf_add_text(&run->answer, result->answer ? result->answer : "");
	ev_break(ev_default_loop(0), EVBREAK_ALL);
}

static char state_dir[64];
static struct worker worker;

static void set_up(void)
{
	snprintf(state_dir, sizeof state_dir, "/tmp/hf-test-program-XXXXXX");
	cr_assert(mkdtemp(state_dir));
	struct hf_err err;
	log_init(LOG_ERROR, "test");
	setenv("HOLDFAST_SECRET", "secret", 1);
	setenv("HOLDFAST_RIG", "rig", 1);
	cr_assert_eq(host_pool_open(ev_default_loop(0), state_dir, GRACE_MS, &worker.hosts, &err),
		     HF_OK, "%s", err.text);
}

static void tear_down(void)
{
	host_pool_close(worker.hosts);
	cr_expect(rundir_clear(state_dir));
	char name[80];
	snprintf(name, sizeof name, "%s/run", state_dir);
	cr_expect_eq(rmdir(name), -1, "cleared already");
	cr_expect_eq(rmdir(state_dir), 0, "the pool left something behind");
	/* Nothing that this process started is left, not even a zombie. */
	cr_expect_eq(waitpid(-1, nullptr, WNOHANG), -1);
	ev_loop_destroy(ev_default_loop(0));
}

static char self[4096];
static char role[] = "test-tool", plain_role[] = "test-plain", tool_label[] = "sample",
	    phase_label[] = "render";
static char passed[] = "HOLDFAST_RIG", not_set[] = "HOLDFAST_NOT_SET";
static char *command[] = { self, role, nullptr, nullptr };

static void begin(struct run *run, const char *tool, const char *args, enum effect_class effect)
{
	static char *env[] = { passed, not_set, nullptr };
	ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
	cr_assert(len > 0);
	self[len] = '\0';
	command[1] = role;
	command[2] = (char *)(uintptr_t)tool;
	*run = (struct run){
		.worker = &worker,
		.tool = { .name = tool_label, .version = "1" },
		.phase = { .name = phase_label, .effect = effect, .command = command, .env = env },
		.task = { .effect_id = slice_of("e-1"),
			  .arguments = slice_of(args),
			  .inputs = slice_of("{\"who\":{\"age\":36}}") },
		.time_ms = 20'000,
		.may_send = true,
	};
}

static void begin_plain(struct run *run, const char *tool, const char *args,
			enum effect_class effect)
{
	begin(run, tool, args, effect);
	run->phase.plain = true;
	command[1] = plain_role;
}

static void end(struct run *run)
{
	buf_deinit(&run->result);
	buf_deinit(&run->text);
	buf_deinit(&run->answer);
	buf_deinit(&run->progress);
	buf_deinit(&run->artifact);
	buf_deinit(&run->checkpoint);
}

static void finish(struct run *run)
{
	if (!run->state)
		run->state = phase_program.start(run);
	while (!run->done)
		ev_run(ev_default_loop(0), EVRUN_ONCE);
}

/* Until the tool has said something. */
static void until_progress(struct run *run)
{
	run->state = phase_program.start(run);
	while (!run->progress_count && !run->done)
		ev_run(ev_default_loop(0), EVRUN_ONCE);
	cr_assert_not(run->done, "%s", run->text.data);
}

static int64_t result_int(const struct run *run, const char *name)
{
	struct slice value;
	int64_t number = -1;
	if (json_member(buf_slice(&run->result), name, &value))
		json_integer(value, &number);
	return number;
}

/* --- tests ------------------------------------------------------------------------------------ */

struct ending {
	const char *tool, *args;
	enum effect_class effect;
	int64_t time_ms;
	enum phase_outcome outcome;
	const char *text; /* part of the text */
	bool maybe_sent;
};

static const struct ending endings[] = {
	{ "twice", "{\"n\":4}", EFFECT_PURE, 0, PHASE_DONE, "", false },
	{ "twice", "", EFFECT_KEYED, 0, PHASE_DONE, "", false },
	{ "no", "{\"month\":\"2016-01\"}", EFFECT_PURE, 0, PHASE_TOOL_ERROR, "no data for 2016-01",
	  false },
	{ "later", "{}", EFFECT_KEYED, 0, PHASE_RETRY, "not now", true },
	{ "silent", "{}", EFFECT_PURE, 0, PHASE_TOOL_ERROR, "forgot the result", false },
	{ "killed", "{}", EFFECT_PURE, 0, PHASE_CRASHED,
	  "render was killed by signal 15 (Terminated). Its last output: about to die", false },
	{ "killed", "{}", EFFECT_KEYED, 0, PHASE_CRASHED, "signal 15", true },
	{ "exit", "{\"n\":3}", EFFECT_PURE, 0, PHASE_TOOL_ERROR,
	  "render failed (exit 3). Its last output: last words", false },
	{ "exit", "{\"n\":75}", EFFECT_PURE, 0, PHASE_RETRY, "asked for a retry (exit 75)", false },
	{ "exit", "{\"n\":0}", EFFECT_PURE, 0, PHASE_CRASHED, "without a result (exit 0)", false },
	{ "hanging", "{}", EFFECT_PURE, 1'500, PHASE_RETRY, "timed out after 1500 ms. Its last",
	  false },
	{ "hanging", "{}", EFFECT_KEYED, 300, PHASE_RETRY, "timed out after 300 ms", true },
	{ "garbage", "{}", EFFECT_PURE, 0, PHASE_CRASHED, "broke the frame protocol", false },
	{ "unknown_type", "{}", EFFECT_PURE, 0, PHASE_CRASHED, "of a type that is not in it",
	  false },
	{ "cut", "{}", EFFECT_PURE, 0, PHASE_CRASHED, "without a result (exit 0)", false },
	{ "closing", "{}", EFFECT_PURE, 0, PHASE_CRASHED, "closed its frame pipe", false },
	{ "talkative", "{\"n\":4}", EFFECT_PURE, 0, PHASE_DONE, "", false },
	{ "flooding", "{\"n\":4}", EFFECT_PURE, 0, PHASE_DONE, "", false },
	{ "asking_only", "{}", EFFECT_PURE, 300, PHASE_RETRY, "timed out", false },
	{ "not_json", "{}", EFFECT_PURE, 0, PHASE_TOOL_ERROR, "has no JSON form", false },
	{ "deep", "{}", EFFECT_PURE, 0, PHASE_TOOL_ERROR, "has no JSON form", false },
	{ "not_utf8", "{}", EFFECT_PURE, 0, PHASE_DONE, "", false },
	{ "huge", "{}", EFFECT_PURE, 0, PHASE_TOOL_ERROR, "belong into an artifact", false },
	{ "no such tool", "{}", EFFECT_PURE, 0, PHASE_TOOL_ERROR, "exit 99", false },
};

HF_TEST(program, each_ending_has_its_outcome, .init = set_up, .fini = tear_down)
{
	for (size_t i = 0; i < countof(endings); i++) {
		const struct ending *ending = &endings[i];
		struct run run;
		begin(&run, ending->tool, ending->args, ending->effect);
		if (ending->time_ms)
			run.time_ms = ending->time_ms;
		finish(&run);
		cr_expect_eq(run.outcome, ending->outcome, "%s %s: outcome %d, %s", ending->tool,
			     ending->args, run.outcome, run.text.data);
		cr_expect(strstr(run.text.data, ending->text), "%s: %s", ending->tool,
			  run.text.data);
		cr_expect_eq(run.maybe_sent, ending->maybe_sent, "%s", ending->tool);
		end(&run);
	}
}

HF_TEST(program, a_question_ends_the_process_until_it_is_answered, .init = set_up,
	.fini = tear_down)
{
	static const char asked[] = "{\"phase\":0,\"how\":null,\"request\":null,\"answer\":null}";
	static const char declined[] =
	    "{\"phase\":0,\"how\":\"answer\",\"request\":{\"method\":\"roots/list\"},"
	    "\"answer\":{\"roots\":[],\"action\":\"was read\"}}";
	static const char silent[] =
	    "{\"phase\":0,\"how\":\"silence\",\"request\":null,\"answer\":null}";
	static const char elsewhere[] =
	    "{\"phase\":1,\"how\":null,\"request\":null,\"answer\":null}";
	static const struct {
		const char *tool, *args, *row;
		enum effect_class effect;
		int asks;
		enum phase_outcome outcome;
		const char *said; /* in the result or the text */
		bool maybe_sent;
	} cases[] = {
		{ "curious", "{\"key\":\"k\",\"ms\":70}", nullptr, EFFECT_PURE, 1, PHASE_ASK,
		  "[{\"key\":\"k\",\"request\":{\"method\":\"elicitation/create\"", false },
		{ "curious", "{\"key\":\"k\",\"ms\":70}", asked, EFFECT_UNSAFE, 1, PHASE_ASK,
		  "asks: Sure?", false },
		{ "curious", "{\"key\":\"k\",\"ms\":70}", nullptr, EFFECT_KEYED, 1, PHASE_ASK,
		  "asks: Sure?", true },
		{ "curious", "{\"key\":\"k\"}", declined, EFFECT_PURE, 1, PHASE_DONE,
		  "{\"action\":\"was read\"}", false },
		{ "curious", "{\"key\":\"k\"}", silent, EFFECT_PURE, 1, PHASE_DONE,
		  "{\"action\":\"none\"}", false },
		{ "curious", "{\"key\":\"k\"}", elsewhere, EFFECT_PURE, 1, PHASE_FAILED,
		  "another phase has used", false },
		{ "curious", "{\"key\":\"k\"}", nullptr, EFFECT_PURE, 2, PHASE_FAILED,
		  "does not declare", false },
		{ "curious", "{\"key\":\"k.2\"}", nullptr, EFFECT_PURE, 1, PHASE_FAILED,
		  "the key of a question", false },
		{ "curious", "{\"key\":\"k\",\"ms\":-1}", nullptr, EFFECT_PURE, 1, PHASE_ASK,
		  "asks", false },
		{ "rude", "{}", nullptr, EFFECT_PURE, 1, PHASE_FAILED, "must be an object", false },
	};
	for (size_t i = 0; i < countof(cases); i++) {
		struct run run;
		struct claimed_step step = { .kind = STEP_INBOX, .name = slice_of("k") };
		begin(&run, cases[i].tool, cases[i].args, cases[i].effect);
		run.task.asks = cases[i].asks;
		if (cases[i].row) {
			step.state = slice_of(cases[i].row);
			run.task.steps = &step;
			run.task.steps_count = 1;
		}
		finish(&run);
		cr_expect_eq(run.outcome, cases[i].outcome, "case %zu: %d, %s", i, run.outcome,
			     run.text.data);
		const char *state = run.result.data ? run.result.data : "";
		cr_expect(strstr(state, cases[i].said) || strstr(run.text.data, cases[i].said),
			  "case %zu: %s, %s", i, state, run.text.data);
		cr_expect_eq(run.maybe_sent, cases[i].maybe_sent, "case %zu", i);
		if (run.outcome == PHASE_ASK)
			cr_expect_eq(run.delay_ms, strstr(cases[i].args, "70") ? 70 : 0, "case %zu",
				     i);
		end(&run);
	}
}

HF_TEST(program, a_program_that_is_not_there_fails_at_once, .init = set_up, .fini = tear_down)
{
	static char missing[][24] = { "./none", "no-such-program-here", "sub/none", "./cwd" };
	for (size_t i = 0; i < countof(missing); i++) {
		struct run run;
		begin(&run, "twice", "{}", EFFECT_PURE);
		char *words[] = { missing[i], nullptr };
		run.phase.command = words;
		finish(&run);
		/* A folder can be "executed"; only exec finds out, and that is this machine's
		 * fault. */
		cr_expect_eq(run.outcome, i < 3 ? PHASE_FAILED : PHASE_CRASHED, "%zu: %s", i,
			     run.text.data);
		end(&run);
	}
}

HF_TEST(program, everything_that_can_be_asked_is_answered, .init = set_up, .fini = tear_down)
{
	static const char want[] =
	    "{\"age\":36,\"before\":false,\"after\":41,\"keys\":[\"key0\",\"key1\"],"
	    "\"rows\":60,\"attempt\":3,\"left\":true}";
	struct run run;
	begin(&run, "steps", "{}", EFFECT_KEYED);
	finish(&run);
	cr_assert_eq(run.outcome, PHASE_DONE, "%s", run.text.data);
	cr_expect_str_eq(run.result.data, want);
	cr_expect_str_eq(run.progress.data, "half of render");
	cr_expect_eq(run.artifact.len, strlen("page.txttext/plain") + 5);

	struct run second;
	begin(&second, "steps", "{}", EFFECT_KEYED);
	second.has_checkpoint = true;
	value_from_json(slice_of("\"first\""), &second.checkpoint);
	finish(&second);
	cr_expect(strstr(second.result.data, "{\"age\":36,\"before\":true,\"after\":\"first\""),
		  "%s", second.result.data);
	end(&run);
	end(&second);
}

HF_TEST(program, a_process_serves_many_runs_and_is_then_replaced, .init = set_up, .fini = tear_down)
{
	int64_t first = 0;
	for (int i = 0; i <= HOST_TASKS_MAX; i++) {
		struct run run;
		begin(&run, "twice", "{\"n\":21}", EFFECT_PURE);
		finish(&run);
		cr_assert_eq(result_int(&run, "twice"), 42);
		if (i == 0)
			first = result_int(&run, "pid");
		cr_assert_eq(result_int(&run, "pid") == first, i < HOST_TASKS_MAX, "run %d", i);
		end(&run);
	}
}

HF_TEST(program, a_second_result_never_answers_the_next_task, .init = set_up, .fini = tear_down)
{
	for (int i = 0; i < 20; i++) {
		char args[32];
		snprintf(args, sizeof args, "{\"n\":%d}", i);
		struct run run;
		begin(&run, "doubled", args, EFFECT_PURE);
		finish(&run);
		/* The process is replaced; where its second word came late, the run is done again.
		 */
		if (run.outcome == PHASE_DONE)
			cr_assert_eq(result_int(&run, "twice"), 2 * i);
		else
			cr_assert_eq(run.outcome, PHASE_CRASHED, "%s", run.text.data);
		end(&run);
	}
}

HF_TEST(program, runs_at_once_have_processes_of_their_own, .init = set_up, .fini = tear_down,
	.timeout = 30)
{
	constexpr int count = 7;
	struct run runs[count];
	for (int i = 0; i < count; i++) {
		begin(&runs[i], "twice", "{\"n\":1}", EFFECT_PURE);
		runs[i].state = phase_program.start(&runs[i]);
	}
	for (int i = 0; i < count; i++)
		finish(&runs[i]);
	for (int i = 0; i < count; i++) {
		for (int other = 0; other < i; other++)
			cr_expect_neq(result_int(&runs[i], "pid"), result_int(&runs[other], "pid"));
		end(&runs[i]);
	}
	/* Some wait for the next runs, the rest are let go. */
	while (host_pool_count(worker.hosts) > HOST_IDLE_MAX)
		ev_run(ev_default_loop(0), EVRUN_ONCE);
	for (int i = 0; i < 20; i++) {
		usleep(1'000);
		ev_run(ev_default_loop(0), EVRUN_NOWAIT);
	}
	cr_expect_eq(host_pool_count(worker.hosts), HOST_IDLE_MAX);
	host_pool_kill(worker.hosts);
	while (host_pool_count(worker.hosts))
		ev_run(ev_default_loop(0), EVRUN_ONCE);
}

static void check_family_is_dead(const struct run *run)
{
	pid_t pids[3];
	cr_assert_eq(sscanf(run->progress.data, "%d %d %d", &pids[0], &pids[1], &pids[2]), 3);
	for (int i = 0; i < 3; i++) {
		cr_expect_eq(kill(pids[i], 0), -1, "member %d of the family lives", i);
		cr_expect_eq(errno, ESRCH);
	}
}

HF_TEST(program, cancel_kills_and_reaps_the_whole_family, .init = set_up, .fini = tear_down)
{
	for (int lost = 0; lost < 2; lost++) {
		struct run run;
		begin(&run, "family", "{}", EFFECT_PURE);
		until_progress(&run);
		phase_program.cancel(run.state, lost);
		phase_program.cancel(run.state, lost);
		cr_assert_not(run.done, "cancel calls nobody back");
		finish(&run);
		cr_expect_eq(run.outcome, lost ? PHASE_LOST : PHASE_CANCELLED, "%s", run.text.data);
		check_family_is_dead(&run);
		end(&run);
	}
	cr_assert_eq(host_pool_count(worker.hosts), 0);
}

HF_TEST(program, a_crash_leaves_nobody_for_the_next_attempt, .init = set_up, .fini = tear_down)
{
	struct run run;
	begin(&run, "family", "{\"n\":1}", EFFECT_PURE);
	finish(&run);
	cr_expect_eq(run.outcome, PHASE_CRASHED);
	check_family_is_dead(&run);
	end(&run);
}

HF_TEST(program, a_cancelled_keyed_run_may_still_answer, .init = set_up, .fini = tear_down)
{
	struct run run;
	begin(&run, "patient", "{\"n\":3}", EFFECT_KEYED);
	until_progress(&run);
	phase_program.cancel(run.state, false);
	finish(&run);
	cr_expect_eq(run.outcome, PHASE_DONE);
	cr_expect_eq(result_int(&run, "twice"), 6);
	end(&run);
}

HF_TEST(program, a_keyed_run_that_says_it_stopped_is_cancelled, .init = set_up, .fini = tear_down)
{
	struct run run;
	begin(&run, "obedient", "{}", EFFECT_KEYED);
	until_progress(&run);
	phase_program.cancel(run.state, false);
	finish(&run);
	cr_expect_eq(run.outcome, PHASE_CANCELLED, "%s", run.text.data);
	end(&run);
}

HF_TEST(program, a_keyed_run_that_does_not_heed_a_cancel_is_unknown, .init = set_up,
	.fini = tear_down)
{
	struct run run;
	begin(&run, "family", "{}", EFFECT_KEYED);
	until_progress(&run);
	int64_t before = clock_boot_ms();
	phase_program.cancel(run.state, false);
	finish(&run);
	cr_expect_eq(run.outcome, PHASE_UNKNOWN);
	cr_expect(run.maybe_sent);
	cr_expect_geq(clock_boot_ms() - before, GRACE_MS, "it got its grace");
	check_family_is_dead(&run);
	end(&run);
}

HF_TEST(program, a_lost_claim_gives_no_grace, .init = set_up, .fini = tear_down)
{
	struct run run;
	begin(&run, "family", "{}", EFFECT_KEYED);
	until_progress(&run);
	phase_program.cancel(run.state, false);
	phase_program.cancel(run.state, true);
	int64_t before = clock_boot_ms();
	finish(&run);
	cr_expect_eq(run.outcome, PHASE_LOST);
	cr_expect_lt(clock_boot_ms() - before, GRACE_MS);
	end(&run);
}

HF_TEST(program, nothing_keyed_starts_on_a_stale_lease, .init = set_up, .fini = tear_down)
{
	struct run run;
	begin(&run, "twice", "{\"n\":1}", EFFECT_KEYED);
	run.may_send = false;
	run.state = phase_program.start(&run);
	for (int i = 0; i < 3; i++)
		ev_run(ev_default_loop(0), EVRUN_ONCE);
	cr_assert_eq(host_pool_count(worker.hosts), 0);
	run.may_send = true;
	finish(&run);
	cr_expect_eq(run.outcome, PHASE_DONE);

	struct run stopped;
	begin(&stopped, "twice", "{}", EFFECT_KEYED);
	stopped.may_send = false;
	stopped.state = phase_program.start(&stopped);
	phase_program.cancel(stopped.state, false);
	finish(&stopped);
	cr_expect_eq(stopped.outcome, PHASE_CANCELLED, "it never ran");
	cr_expect_not(stopped.maybe_sent);
	end(&run);
	end(&stopped);
}

HF_TEST(program, closing_the_pool_ends_hosts_in_use_and_calls_nobody, .init = set_up,
	.fini = tear_down)
{
	struct host_pool *kept = worker.hosts;
	struct hf_err err;
	struct run run;
	cr_assert_eq(host_pool_open(ev_default_loop(0), state_dir, GRACE_MS, &worker.hosts, &err),
		     HF_OK);
	begin(&run, "family", "{}", EFFECT_PURE);
	until_progress(&run);
	host_pool_close(worker.hosts);
	cr_expect_not(run.done);
	check_family_is_dead(&run);
	struct program *program = run.state;
	program->host = nullptr;
	program->lost = true;
	program_step(program);
	cr_expect(run.done);
	worker.hosts = kept;
	end(&run);
}

HF_TEST(program, an_end_waits_for_what_is_being_stored, .init = set_up, .fini = tear_down)
{
	struct run run;
	begin(&run, "storing", "{}", EFFECT_PURE);
	run.hold = true;
	run.state = phase_program.start(&run);
	while (!run.held)
		ev_run(ev_default_loop(0), EVRUN_ONCE);
	phase_program.cancel(run.state, false);
	while (host_pool_count(worker.hosts))
		ev_run(ev_default_loop(0), EVRUN_ONCE);
	cr_assert_not(run.done, "the checkpoint is still on its way");
	run.held(run.held_ctx, true);
	cr_assert(run.done);
	cr_expect_eq(run.outcome, PHASE_CANCELLED);
	end(&run);
}

HF_TEST(program, a_checkpoint_that_the_fence_refuses_ends_the_run, .init = set_up,
	.fini = tear_down)
{
	struct run run;
	begin(&run, "storing", "{}", EFFECT_PURE);
	run.refuse = true;
	finish(&run);
	cr_expect_eq(run.outcome, PHASE_LOST);
	end(&run);
}

HF_TEST(program, the_environment_is_only_what_is_named, .init = set_up, .fini = tear_down)
{
	static const char *const want[] = { "\"PATH=/usr/local/bin:/usr/bin:/bin\"",
					    "\"HOME=",
					    "\"TMPDIR=",
					    "\"LANG=C.UTF-8\"",
					    "\"HOLDFAST_TOOL_DIR=",
					    "\"HOLDFAST_RUN_DIR=",
					    "\"HOLDFAST_RIG=rig\"" };
	struct run run;
	begin(&run, "environment", "{}", EFFECT_PURE);
	finish(&run);
	struct slice value;
	size_t at = 0, count = 0;
	while (json_array_next(buf_slice(&run.result), &at, &value))
		count++;
	cr_expect_eq(count, countof(want), "%s", run.result.data);
	for (size_t i = 0; i < countof(want); i++)
		cr_expect(strstr(run.result.data, want[i]), "%s", want[i]);
	end(&run);
}

HF_TEST(program, each_run_finds_an_empty_folder_and_four_descriptors, .init = set_up,
	.fini = tear_down)
{
	for (int i = 0; i < 3; i++) {
		struct run run;
		begin(&run, "files", "{}", EFFECT_PURE);
		finish(&run);
		cr_expect_str_eq(run.result.data, "{\"fresh\":true,\"open\":4,\"leader\":true}");
		end(&run);
	}
}

HF_TEST(program, what_a_killed_worker_left_is_removed_by_the_next, .init = set_up,
	.fini = tear_down)
{
	/* A worker in another process: it is killed while its tool's family runs. */
	int ends[2];
	cr_assert_eq(pipe(ends), 0);
	pid_t other = fork();
	if (other == 0) {
		ev_loop_fork(ev_default_loop(0));
		struct hf_err err;
		struct run run;
		cr_assert_eq(host_pool_open(ev_default_loop(0), state_dir, 0, &worker.hosts, &err),
			     HF_OK);
		begin(&run, "family", "{}", EFFECT_PURE);
		until_progress(&run);
		ssize_t sent = write(ends[1], run.progress.data, run.progress.len + 1);
		(void)sent;
		kill(getpid(), SIGKILL);
	}
	struct run run = {};
	char text[64] = {};
	cr_assert(read(ends[0], text, sizeof text - 1) > 0);
	buf_add_text(&run.progress, text);
	cr_assert_eq(waitpid(other, nullptr, 0), other);

	struct host_pool *next;
	struct hf_err err;
	cr_assert_eq(host_pool_open(ev_default_loop(0), state_dir, 0, &next, &err), HF_OK);
	/* This process is their subreaper by chance, so it has to reap them. */
	for (int i = 0; i < 400 && waitpid(-1, nullptr, WNOHANG) >= 0; i++)
		usleep(5'000);
	check_family_is_dead(&run);
	host_pool_close(next);
	end(&run);
}

/* --- plain mode ------------------------------------------------------------------------------- */

static const struct ending plain_endings[] = {
	{ "printing", "\" {\"n\": [1, \"x\"]}\n\"", EFFECT_PURE, 0, PHASE_DONE, "", false },
	{ "printing", "\"\n\"", EFFECT_KEYED, 0, PHASE_DONE, "", false },
	{ "printing", "\"done!\"", EFFECT_PURE, 0, PHASE_TOOL_ERROR,
	  "render wrote no JSON to stdout: ", false },
	{ "printing", "\"{} {}\"", EFFECT_PURE, 0, PHASE_TOOL_ERROR, "wrote no JSON", false },
	{ "printing", "\"{\"a\":1,\"a\":2}\"", EFFECT_KEYED, 0, PHASE_TOOL_ERROR, "wrote no JSON",
	  true },
	{ "exit", "75", EFFECT_KEYED, 0, PHASE_RETRY, "asked for a retry (exit 75)", true },
	{ "exit", "3", EFFECT_PURE, 0, PHASE_TOOL_ERROR,
	  "render failed (exit 3). Its last output: last words", false },
	{ "exit", "127", EFFECT_PURE, 0, PHASE_TOOL_ERROR, "render failed (exit 127)", false },
	{ "killed", "{}", EFFECT_PURE, 0, PHASE_CRASHED, "killed by signal 9", false },
	{ "hanging", "{}", EFFECT_PURE, 1'500, PHASE_RETRY, "timed out after 1500 ms. Its last",
	  false },
	{ "flooding", "{}", EFFECT_PURE, 0, PHASE_TOOL_ERROR, "wrote over 1048576 bytes", false },
	{ "leaving", "{}", EFFECT_PURE, 0, PHASE_DONE, "", false },
	{ "leaving", "\"folder\"", EFFECT_PURE, 0, PHASE_TOOL_ERROR, "left odd, which is no file",
	  false },
	{ "leaving", "\"link\"", EFFECT_PURE, 0, PHASE_TOOL_ERROR, "left odd, which is no file",
	  false },
	{ "leaving", "\"fifo\"", EFFECT_PURE, 0, PHASE_TOOL_ERROR, "left odd, which is no file",
	  false },
	{ "leaving", "\"many\"", EFFECT_PURE, 0, PHASE_TOOL_ERROR, "left more than 64 artifacts",
	  false },
	{ "no such tool", "{}", EFFECT_PURE, 0, PHASE_TOOL_ERROR, "exit 99", false },
};

HF_TEST(plain, each_ending_has_its_outcome, .init = set_up, .fini = tear_down)
{
	for (size_t i = 0; i < countof(plain_endings); i++) {
		const struct ending *ending = &plain_endings[i];
		struct run run;
		begin_plain(&run, ending->tool, ending->args, ending->effect);
		if (ending->time_ms)
			run.time_ms = ending->time_ms;
		finish(&run);
		cr_expect_eq(run.outcome, ending->outcome, "%s %s: outcome %d, %s", ending->tool,
			     ending->args, run.outcome, run.text.data);
		cr_expect(strstr(run.text.data, ending->text), "%s: %s", ending->tool,
			  run.text.data);
		cr_expect_eq(run.maybe_sent, ending->maybe_sent, "%s", ending->tool);
		if (i == 1)
			cr_expect_str_eq(run.result.data, "{}");
		end(&run);
	}
	/* No process is kept for another run. */
	while (host_pool_count(worker.hosts))
		ev_run(ev_default_loop(0), EVRUN_ONCE);
}

HF_TEST(plain, a_program_that_cannot_be_started_is_no_word_of_the_tool, .init = set_up,
	.fini = tear_down)
{
	static char missing[][8] = { "./none", "./cwd" };
	for (size_t i = 0; i < countof(missing); i++) {
		struct run run;
		begin_plain(&run, "exit", "0", EFFECT_PURE);
		char *words[] = { missing[i], nullptr };
		run.phase.command = words;
		finish(&run);
		cr_expect_eq(run.outcome, i == 0 ? PHASE_FAILED : PHASE_CRASHED, "%s",
			     run.text.data);
		end(&run);
	}
}

HF_TEST(plain, it_never_gets_the_process_of_another_run, .init = set_up, .fini = tear_down)
{
	struct run run;
	begin(&run, "twice", "{}", EFFECT_PURE);
	finish(&run);
	cr_assert_eq(host_pool_count(worker.hosts), 1, "one waits");
	end(&run);
	/* The same command in plain mode: it finds no frames there, and ends. */
	begin(&run, "twice", "{}", EFFECT_PURE);
	run.phase.plain = true;
	run.time_ms = 5'000;
	finish(&run);
	cr_expect_neq(run.outcome, PHASE_RETRY, "%s", run.text.data);
	end(&run);
}

HF_TEST(plain, it_finds_its_arguments_states_and_place, .init = set_up, .fini = tear_down)
{
	static const char want[] =
	    "{\"args\":{\"month\":1},\"state\":{\"collect\":{\"rows\":60}},"
	    "\"input\":{\"who\":{\"age\":36}},\"TASK\":\"tsk_test\","
	    "\"TOOL\":\"sample\",\"PHASE\":\"render\",\"ATTEMPT\":\"3\",\"EFFECT_ID\":\"e-1\","
	    "\"KEY\":\"key0\",\"RIG\":\"rig\",\"timely\":1,\"fresh\":1,\"open\":3,\"secret\":0,"
	    "\"path\":1}";
	for (int i = 0; i < 2; i++) {
		struct run run;
		begin_plain(&run, "environment", "{\"month\":1}", EFFECT_PURE);
		finish(&run);
		cr_assert_eq(run.outcome, PHASE_DONE, "%s", run.text.data);
		cr_expect_str_eq(run.result.data, want);
		end(&run);
	}
}

HF_TEST(plain, steps_are_served_one_by_one_whoever_asks, .init = set_up, .fini = tear_down)
{
	struct run run;
	begin_plain(&run, "steps", "{}", EFFECT_PURE);
	finish(&run);
	cr_assert_eq(run.outcome, PHASE_DONE, "%s", run.text.data);
	cr_expect_str_eq(run.result.data, "[\"nil\",\"ok\",\"one\",\"one\",\"one\",\"\",\"\",\"\","
					  "\"\",\"one\"]");
	end(&run);
	begin_plain(&run, "crowd", "{}", EFFECT_PURE);
	finish(&run);
	cr_expect_str_eq(run.result.data, "24");
	end(&run);
}

HF_TEST(plain, what_it_leaves_is_stored_by_name_if_it_ends_well, .init = set_up, .fini = tear_down)
{
	struct run run;
	begin_plain(&run, "leaving", "{}", EFFECT_PURE);
	finish(&run);
	cr_expect_str_eq(run.artifact.data,
			 "a.txttext/plain; charset=utf-8firstb.PDFapplication/pdfsecond");
	end(&run);
	begin_plain(&run, "leaving", "\"fail\"", EFFECT_PURE);
	finish(&run);
	cr_expect_eq(run.artifact.len, 0);
	end(&run);
	begin_plain(&run, "leaving", "{}", EFFECT_PURE);
	run.refuse = true;
	finish(&run);
	cr_expect_eq(run.outcome, PHASE_LOST);
	end(&run);
}

HF_TEST(plain, a_cancel_ends_pure_work_at_once_and_keyed_work_after_its_grace, .init = set_up,
	.fini = tear_down)
{
	for (int keyed = 0; keyed < 2; keyed++) {
		struct run run;
		begin_plain(&run, "hanging", "{}", keyed ? EFFECT_KEYED : EFFECT_PURE);
		run.state = phase_program.start(&run);
		while (!host_pool_count(worker.hosts))
			ev_run(ev_default_loop(0), EVRUN_ONCE);
		int64_t before = clock_boot_ms();
		phase_program.cancel(run.state, false);
		finish(&run);
		cr_expect_eq(run.outcome, keyed ? PHASE_UNKNOWN : PHASE_CANCELLED, "%s",
			     run.text.data);
		cr_expect_eq(clock_boot_ms() - before >= GRACE_MS, keyed);
		end(&run);
	}
}
