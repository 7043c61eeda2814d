/* program_tools.c - the tools that test_program.c runs: this test binary itself, started under
 * another name. What each does is its name. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "runtime/base.h"
#include "runtime/buf.h"
#include "runtime/clock.h"
#include "worker/host.h"
#include "worker/sdk/c/tool.h"

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

/* Has an answer by itself, after a while. */
static int be_slow_to_refuse(struct tool_run *run)
{
	tool_progress(run, 0.1, "waiting");
	usleep(200'000);
	return tool_error(run, "refused");
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
	{ "slow_to_refuse", be_slow_to_refuse },
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
