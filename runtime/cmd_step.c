/* cmd_step.c - `holdfast step`: a durable step of a program in plain mode; `holdfast ask`: a
 * question to its caller. It speaks frames to its worker over the socket that HOLDFAST_SOCKET
 * names, a connection for each question, so that any number of steps may run at once and none holds
 * a place while its command runs.
 *
 *   recall NAME ──found──▶ print it        not found ──▶ run COMMAND ──exit 0──▶ checkpoint NAME,
 *                                                          │                     recall, print
 *                                                          └─ else: its exit status, nothing stored
 *
 * What is printed is what is stored: of two steps of one name at once, both print the first's. */
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base.h"
#include "runtime/buf.h"
#include "runtime/command.h"
#include "runtime/content.h"
#include "runtime/json.h"
#include "runtime/utf8.h"
#include "runtime/value.h"
#include "worker/frame.h"

constexpr size_t STEP_OUTPUT_BYTES_MAX = 256 << 10;
constexpr size_t STEP_NAME_LEN_MAX = 200;
constexpr size_t READ_BYTES = 64 << 10;
constexpr int EXIT_AGAIN = 75; /* EX_TEMPFAIL: the phase is tried again */
constexpr int EXIT_NOT_TO_RUN = 126, EXIT_NOT_FOUND = 127, EXIT_SIGNALS = 128; /* as shells do */

static const char *command_name = "step";
static const char socket_variable[] = "HOLDFAST_SOCKET";
static const char member_text[] = "stdout", member_base64[] = "stdout_base64";

static int report(const struct hf_err *err)
{
	fprintf(stderr, "holdfast %s: %s\n", command_name, err->text);
	return err->code == HF_CONFLICT ? EXIT_USAGE
	       : err->code == HF_NET    ? EXIT_AGAIN
					: EXIT_FAILED;
}

/* --- the worker ------------------------------------------------------------------------------- */

/* HF_CONFLICT: this runs in no task. */
static enum hf_code connect_worker(int *out, struct hf_err *err)
{
	const char *path = getenv(socket_variable);
	const char *slash = path ? strrchr(path, '/') : nullptr;
	if (!slash)
		return hf_fail(err, HF_CONFLICT,
			       "works only within a program phase in plain mode (%s is not set)",
			       socket_variable);
	/* The path may be longer than a socket's address, its folder's descriptor never is. */
	hf_cleanup(text) char *folder = hf_strndup(path, (size_t)(slash - path));
	int fd = open(*folder ? folder : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%.32s", fd,
		 slash + 1);
	bool there = fd >= 0 && connection >= 0 &&
		     connect(connection, (struct sockaddr *)&address, sizeof address) == 0;
	int why = errno;
	if (fd >= 0)
		close(fd);
	if (there) {
		*out = connection;
		return HF_OK;
	}
	if (connection >= 0)
		close(connection);
	return hf_fail(err, HF_NET, "no worker is at %s: %s", path, strerror(why));
}

static enum hf_code send_all(int connection, const struct buf *frame, struct hf_err *err)
{
	for (size_t at = 0; at < frame->len;) {
		ssize_t sent = send(connection, frame->data + at, frame->len - at, MSG_NOSIGNAL);
		if (sent < 0 && errno == EINTR)
			continue;
		if (sent <= 0)
			return hf_fail(err, HF_NET, "the worker has left");
		at += (size_t)sent;
	}
	return HF_OK;
}

/* `frame` borrows from `in`. */
static enum hf_code receive(int connection, struct buf *in, struct frame *frame, struct hf_err *err)
{
	while (true) {
		size_t used;
		enum frame_next next = frame_next(buf_slice(in), frame, &used, err);
		if (next == FRAME_WHOLE)
			return HF_OK;
		if (next == FRAME_BAD)
			return HF_CORRUPT;
		void *room = buf_reserve(in, READ_BYTES);
		hf_assert(room);
		ssize_t got = recv(connection, room, READ_BYTES, 0);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return hf_fail(err, HF_NET,
				       "the worker does not answer: the task was stopped, or it "
				       "refused this");
		buf_grew(in, (size_t)got);
	}
}

/* Sends `out`, finished; with `in`, waits for the answer. */
static enum hf_code ask(struct buf *out, struct buf *in, struct frame *frame, struct hf_err *err)
{
	int connection;
	hf_try(connect_worker(&connection, err));
	enum hf_code code = send_all(connection, out, err);
	if (code == HF_OK && in)
		code = receive(connection, in, frame, err);
	close(connection);
	return code;
}

static void member(struct buf *out, const char *name, const char *text)
{
	frame_text(out, slice_of(name));
	frame_text(out, slice_of(text));
}

/* The "value" of an answer, as JSON. False without an error: there is none. */
static enum hf_code answer_value(const struct frame *frame, struct buf *json, bool *found,
				 struct hf_err *err)
{
	struct slice value;
	if (!slice_is(frame->type, "value") || !frame_get_bool(frame, "found", found) ||
	    !frame_get(frame, "value", &value))
		return hf_fail(err, HF_CORRUPT, "the worker's answer is no value");
	return *found ? value_to_json(value, json, err) : HF_OK;
}

/* --- stored output ---------------------------------------------------------------------------- */

static bool is_text(struct slice bytes)
{
	return frame_utf8_len(bytes) == bytes.len;
}

static void encode_output(struct slice output, struct buf *out)
{
	frame_map(out, 1);
	if (is_text(output)) {
		frame_text(out, slice_of(member_text));
		frame_text(out, output);
		return;
	}
	hf_cleanup(buf) struct buf base64 = {};
	base64_add(output, &base64);
	member(out, member_base64, base64.data);
}

static enum hf_code decode_output(struct slice json, struct buf *output, struct hf_err *err)
{
	struct slice value;
	if (json_member(json, member_text, &value)) {
		json_string_decode(value, output);
		return HF_OK;
	}
	if (!json_member(json, member_base64, &value))
		return hf_fail(err, HF_CORRUPT, "this checkpoint is not the output of a step");
	hf_cleanup(buf) struct buf base64 = {};
	json_string_decode(value, &base64);
	unsigned char *room = buf_reserve(output, base64.len + 1);
	int len = base64.len
		      ? EVP_DecodeBlock(room, (const unsigned char *)base64.data, (int)base64.len)
		      : 0;
	if (len < 0)
		return hf_fail(err, HF_CORRUPT, "this checkpoint is no base64");
	/* What fills the last group up counts as zeros there. */
	for (size_t at = base64.len; at > 0 && base64.data[at - 1] == '='; at--)
		len--;
	buf_grew(output, (size_t)len);
	return HF_OK;
}

static enum hf_code recall(const char *name, struct buf *output, bool *found, struct hf_err *err)
{
	hf_cleanup(buf) struct buf out = {}, in = {}, json = {};
	struct frame frame;
	size_t start = frame_begin(&out);
	frame_map(&out, 2);
	member(&out, "t", "recall");
	member(&out, "name", name);
	hf_assert(frame_end(&out, start));
	hf_try(ask(&out, &in, &frame, err));
	hf_try(answer_value(&frame, &json, found, err));
	return *found ? decode_output(buf_slice(&json), output, err) : HF_OK;
}

static enum hf_code store(const char *name, struct slice output, struct hf_err *err)
{
	hf_cleanup(buf) struct buf out = {}, in = {};
	struct frame frame;
	size_t start = frame_begin(&out);
	frame_map(&out, 3);
	member(&out, "t", "checkpoint");
	member(&out, "name", name);
	frame_text(&out, slice_of("value"));
	encode_output(output, &out);
	hf_assert(frame_end(&out, start));
	hf_try(ask(&out, &in, &frame, err));
	return slice_is(frame.type, "ok")
		   ? HF_OK
		   : hf_fail(err, HF_CORRUPT, "the worker's answer is not ok");
}

/* --- the command ------------------------------------------------------------------------------ */

static int spawn_failed(const char *program, int why)
{
	fprintf(stderr, "holdfast step: %s: %s\n", program, strerror(why));
	return why == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_TO_RUN;
}

/* Reads until its end or until it is too much; false then. */
static bool read_output(int fd, struct buf *output)
{
	while (output->len <= STEP_OUTPUT_BYTES_MAX) {
		void *room = buf_reserve(output, READ_BYTES);
		hf_assert(room);
		ssize_t got = read(fd, room, READ_BYTES);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return true;
		buf_grew(output, (size_t)got);
	}
	return false;
}

static int exit_of(pid_t child)
{
	int status;
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return EXIT_FAILED;
	return WIFSIGNALED(status) ? EXIT_SIGNALS + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Its exit status, with what it wrote to stdout. */
static int run_command(char **command, struct buf *output)
{
	int ends[2];
	if (pipe2(ends, O_CLOEXEC) < 0)
		return spawn_failed(command[0], errno);
	posix_spawn_file_actions_t actions;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
	pid_t child;
	int why = posix_spawnp(&child, command[0], &actions, nullptr, command, environ);
	posix_spawn_file_actions_destroy(&actions);
	close(ends[1]);
	bool whole = why != 0 || read_output(ends[0], output);
	close(ends[0]);
	if (why != 0)
		return spawn_failed(command[0], why);
	if (whole)
		return exit_of(child);
	kill(child, SIGKILL);
	exit_of(child);
	fprintf(stderr,
		"holdfast step: %s wrote over %zu bytes to stdout; what is large belongs into a "
		"file\n",
		command[0], STEP_OUTPUT_BYTES_MAX);
	return EXIT_FAILED;
}

static int print(const struct buf *output)
{
	if (output->len)
		fwrite(output->data, 1, output->len, stdout);
	return EXIT_DONE;
}

static int step(const char *name, char **command)
{
	struct hf_err err;
	bool found = false;
	hf_cleanup(buf) struct buf output = {}, stored = {};
	if (recall(name, &stored, &found, &err) != HF_OK)
		return report(&err);
	if (found)
		return print(&stored);
	int status = run_command(command, &output);
	if (status != 0)
		return status;
	if (store(name, buf_slice(&output), &err) != HF_OK ||
	    recall(name, &stored, &found, &err) != HF_OK)
		return report(&err);
	return print(&stored);
}

/* --- the other questions ---------------------------------------------------------------------- */

static int progress(const char *fraction_text, const char *text)
{
	char *end;
	double fraction = strtod(fraction_text, &end);
	if (end == fraction_text || *end || !(fraction >= 0 && fraction <= 1))
		return command_usage(command_name,
				     "--progress takes a fraction from 0 to 1, and a text");
	hf_cleanup(buf) struct buf out = {};
	struct hf_err err;
	size_t start = frame_begin(&out);
	frame_map(&out, 3);
	member(&out, "t", "progress");
	frame_text(&out, slice_of("fraction"));
	frame_double(&out, fraction);
	member(&out, "text", text);
	if (!frame_end(&out, start))
		return command_usage(command_name, "the text is too long");
	return ask(&out, nullptr, nullptr, &err) == HF_OK ? EXIT_DONE : report(&err);
}

static int key(const char *number)
{
	char *end;
	errno = 0;
	unsigned long long call = strtoull(number, &end, 10);
	if (*number < '0' || *number > '9' || *end || errno || call > UINT32_MAX)
		return command_usage(command_name, "--key takes the number of a request, from 0");
	hf_cleanup(buf) struct buf out = {}, in = {}, json = {}, text = {};
	struct frame frame;
	struct hf_err err;
	bool found = false;
	size_t start = frame_begin(&out);
	frame_map(&out, 2);
	member(&out, "t", "key");
	frame_text(&out, slice_of("call"));
	frame_int(&out, (int64_t)call);
	hf_assert(frame_end(&out, start));
	if (ask(&out, &in, &frame, &err) != HF_OK ||
	    answer_value(&frame, &json, &found, &err) != HF_OK)
		return report(&err);
	if (found && json_type_of(buf_slice(&json)) == JSON_STRING)
		json_string_decode(buf_slice(&json), &text);
	buf_add_byte(&text, '\n');
	return print(&text);
}

/* The first time the whole program is ended here, to be started anew when there is an answer. */
static int ask_caller(const char *key, const char *request, int64_t timeout_ms)
{
	hf_cleanup(buf) struct buf out = {}, in = {}, json = {};
	struct frame frame;
	struct hf_err err;
	bool found = false;
	size_t start = frame_begin(&out);
	frame_map(&out, timeout_ms > 0 ? 4 : 3);
	member(&out, "t", "ask");
	member(&out, "key", key);
	frame_text(&out, slice_of("request"));
	value_from_json(slice_of(request), &out);
	if (timeout_ms > 0) {
		frame_text(&out, slice_of("timeout_ms"));
		frame_int(&out, timeout_ms);
	}
	if (!frame_end(&out, start))
		return command_usage(command_name, "the request is too large");
	if (ask(&out, &in, &frame, &err) != HF_OK ||
	    answer_value(&frame, &json, &found, &err) != HF_OK)
		return report(&err);
	buf_add_text(&json, found ? "\n" : "null\n");
	return print(&json);
}

int cmd_ask(int argc, char **argv)
{
	struct hf_err err;
	int64_t timeout_ms = 0;
	command_name = "ask";
	if (argc != 2 && !(argc == 4 && strcmp(argv[2], "--timeout-ms") == 0))
		return command_usage(command_name, "give KEY and REQUEST");
	if (argc == 4 && (!json_integer(slice_of(argv[3]), &timeout_ms) || timeout_ms < 1))
		return command_usage(command_name, "--timeout-ms takes a number of ms");
	if (json_scan(slice_of(argv[1]), &err) != HF_OK) {
		(void)hf_wrap(&err, "the request is no JSON");
		return command_usage(command_name, err.text);
	}
	return ask_caller(argv[0], argv[1], timeout_ms);
}

/* As the worker takes names: plain text of some length. */
static bool name_is_good(const char *name)
{
	size_t len = strlen(name);
	return utf8_is_plain(name, len) && len > 0 && len <= STEP_NAME_LEN_MAX;
}

int cmd_step(int argc, char **argv)
{
	if (argc > 0 && strcmp(argv[0], "--progress") == 0 && argc <= 3)
		return progress(argc > 1 ? argv[1] : "", argc == 3 ? argv[2] : "");
	if (argc > 0 && strcmp(argv[0], "--key") == 0 && argc <= 2)
		return key(argc == 2 ? argv[1] : "");
	if (argc < 3 || strcmp(argv[1], "--") != 0)
		return command_usage(command_name, "give NAME -- COMMAND, --progress FRACTION "
						   "[TEXT] or --key NUMBER");
	if (!name_is_good(argv[0]))
		return command_usage(command_name, "a name is plain text of 1 to 200 bytes");
	return step(argv[0], argv + 2);
}
