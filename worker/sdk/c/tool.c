/* tool.c - the frame protocol from the tool's side: blocking, one frame at a time, on descriptor 3.
 * Knows nothing of the rest of Holdfast, so that a tool needs only this and msgpack. The worker is
 * trusted; if it breaks off, the process ends. */
#include "tool.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "read.h"

constexpr int FRAMES_FD = 3;
constexpr size_t FRAME_HEAD_BYTES = 4;
constexpr size_t FRAME_BYTES_MAX = 16 << 20;
constexpr int EXIT_USAGE = 64;       /* EX_USAGE */
constexpr int EXIT_WORKER_GONE = 74; /* EX_IOERR */
constexpr int EXIT_PROTOCOL = 76;    /* EX_PROTOCOL */
constexpr size_t TEXT_LEN_MAX = 4'096;

struct tool_run {
	msgpack_unpacked frame;  /* the run; args and states point into it */
	msgpack_unpacked answer; /* the newest one */
	msgpack_zone *kept;      /* what callers got until the run ends */
	msgpack_sbuffer value;   /* being packed by the tool */
	msgpack_packer packer;
	msgpack_sbuffer out;
	const char *task, *tool, *phase, *effect_id, *traceparent; /* kept */
	int64_t number;                                            /* 0: no run yet */
	int64_t end_ms;                                            /* on the boot clock */
	bool cancelled, answered;
};

[[noreturn]] static void end_process(int status, const char *why)
{
	fprintf(stderr, "holdfast: %s\n", why);
	fflush(nullptr);
	_exit(status);
}

static int64_t now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_BOOTTIME, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1'000'000;
}

/* --- frames ----------------------------------------------------------------------------------- */

/* False: the worker closed its end before the first byte. */
static bool read_all(char *bytes, size_t len)
{
	for (size_t at = 0; at < len;) {
		ssize_t got = read(FRAMES_FD, bytes + at, len - at);
		if (got > 0)
			at += (size_t)got;
		else if (got == 0 && at == 0)
			return false;
		else if (got == 0 || errno != EINTR)
			end_process(EXIT_WORKER_GONE, "the worker is gone");
	}
	return true;
}

static void write_all(const char *bytes, size_t len)
{
	for (size_t at = 0; at < len;) {
		ssize_t sent = write(FRAMES_FD, bytes + at, len - at);
		if (sent > 0)
			at += (size_t)sent;
		else if (errno != EINTR)
			end_process(EXIT_WORKER_GONE, "the worker is gone");
	}
}

/* One frame's bytes, to be freed; nullptr at the end of all. */
static char *read_frame(size_t *len)
{
	unsigned char head[FRAME_HEAD_BYTES];
	if (!read_all((char *)head, sizeof head))
		return nullptr;
	*len = (size_t)head[0] << 24 | (size_t)head[1] << 16 | (size_t)head[2] << 8 | head[3];
	if (*len == 0 || *len > FRAME_BYTES_MAX)
		end_process(EXIT_PROTOCOL, "a frame of a bad length");
	char *bytes = malloc(*len);
	if (!bytes)
		tool_out_of_memory();
	if (!read_all(bytes, *len))
		end_process(EXIT_WORKER_GONE, "a frame broke off");
	return bytes;
}

static void pack_member(msgpack_packer *pack, const char *name, const char *text)
{
	tool_pack_text(pack, name);
	tool_pack_text(pack, text);
}

/* Starts a frame with room for its head; `members` without "t" and "run". */
static msgpack_packer frame_start(struct tool_run *run, const char *type, size_t members)
{
	msgpack_packer pack;
	msgpack_sbuffer_clear(&run->out);
	msgpack_sbuffer_write(&run->out, "\0\0\0\0", FRAME_HEAD_BYTES);
	msgpack_packer_init(&pack, &run->out, msgpack_sbuffer_write);
	msgpack_pack_map(&pack, members + (run->number ? 2 : 1));
	pack_member(&pack, "t", type);
	if (run->number) {
		tool_pack_text(&pack, "run");
		msgpack_pack_int64(&pack, run->number);
	}
	return pack;
}

static void frame_send(struct tool_run *run)
{
	size_t len = run->out.size - FRAME_HEAD_BYTES;
	if (len > FRAME_BYTES_MAX)
		end_process(EXIT_USAGE, "a value or artifact over 16 MiB cannot be sent");
	for (unsigned i = 0; i < FRAME_HEAD_BYTES; i++)
		run->out.data[i] = (char)(unsigned char)(len >> (8 * (3 - i)));
	write_all(run->out.data, run->out.size);
}

static bool is_text(const msgpack_object *object, const char *text)
{
	return object && object->type == MSGPACK_OBJECT_STR &&
	       object->via.str.size == strlen(text) &&
	       memcmp(object->via.str.ptr, text, object->via.str.size) == 0;
}

/* The next frame; its texts point into its bytes, which go with the zone. False: the end of all. */
static bool take_frame(msgpack_unpacked *into)
{
	size_t len;
	char *bytes = read_frame(&len);
	if (!bytes)
		return false;
	msgpack_unpacked_destroy(into);
	into->zone = msgpack_zone_new(MSGPACK_ZONE_CHUNK_SIZE);
	if (!into->zone || !msgpack_zone_push_finalizer(into->zone, free, bytes))
		tool_out_of_memory();
	if (!tool_read(bytes, len, into->zone, &into->data))
		end_process(EXIT_PROTOCOL, "a frame that does not read");
	return true;
}

static bool is_cancel(const msgpack_unpacked *frame)
{
	return is_text(tool_find(&frame->data, "t"), "cancel");
}

/* The next frame that is no "cancel". */
static bool next_frame(struct tool_run *run, msgpack_unpacked *into)
{
	while (take_frame(into)) {
		if (!is_cancel(into))
			return true;
		run->cancelled = true;
	}
	return false;
}

/* Waits for the answer `type` to what was just sent. */
static const msgpack_object *ask(struct tool_run *run, const char *type)
{
	frame_send(run);
	msgpack_unpacked_destroy(&run->answer);
	msgpack_unpacked_init(&run->answer);
	if (!next_frame(run, &run->answer))
		end_process(EXIT_WORKER_GONE, "the worker is gone");
	if (!is_text(tool_find(&run->answer.data, "t"), type))
		end_process(EXIT_PROTOCOL, "an answer of another type");
	return &run->answer.data;
}

/* --- reading values --------------------------------------------------------------------------- */

const msgpack_object *tool_find(const msgpack_object *map, const char *name)
{
	if (!map || map->type != MSGPACK_OBJECT_MAP)
		return nullptr;
	for (uint32_t i = 0; i < map->via.map.size; i++) {
		if (is_text(&map->via.map.ptr[i].key, name))
			return &map->via.map.ptr[i].val;
	}
	return nullptr;
}

const char *tool_text(struct tool_run *run, const msgpack_object *map, const char *name,
		      const char *fallback)
{
	const msgpack_object *found = tool_find(map, name);
	if (!found || found->type != MSGPACK_OBJECT_STR)
		return fallback;
	uint32_t len = found->via.str.size;
	char *copy = msgpack_zone_malloc_no_align(run->kept, len + 1);
	if (!copy)
		tool_out_of_memory();
	memcpy(copy, found->via.str.ptr, len);
	copy[len] = '\0';
	return copy;
}

int64_t tool_int(const msgpack_object *map, const char *name, int64_t fallback)
{
	const msgpack_object *found = tool_find(map, name);
	if (found && found->type == MSGPACK_OBJECT_NEGATIVE_INTEGER)
		return found->via.i64;
	if (found && found->type == MSGPACK_OBJECT_POSITIVE_INTEGER && found->via.u64 <= INT64_MAX)
		return (int64_t)found->via.u64;
	return fallback;
}

/* Extension 1 is a number that no double holds exactly, as its spelling. */
static double spelt_number(const msgpack_object_ext *ext, double fallback)
{
	char text[64];
	if (ext->type != 1 || ext->size == 0 || ext->size >= sizeof text)
		return fallback;
	memcpy(text, ext->ptr, ext->size);
	text[ext->size] = '\0';
	return strtod(text, nullptr);
}

double tool_number(const msgpack_object *map, const char *name, double fallback)
{
	const msgpack_object *found = tool_find(map, name);
	if (!found)
		return fallback;
	switch (found->type) {
	case MSGPACK_OBJECT_POSITIVE_INTEGER:
		return (double)found->via.u64;
	case MSGPACK_OBJECT_NEGATIVE_INTEGER:
		return (double)found->via.i64;
	case MSGPACK_OBJECT_FLOAT32:
	case MSGPACK_OBJECT_FLOAT64:
		return found->via.f64;
	case MSGPACK_OBJECT_EXT:
		return spelt_number(&found->via.ext, fallback);
	default:
		return fallback;
	}
}

const msgpack_object *tool_args(const struct tool_run *run)
{
	return tool_find(&run->frame.data, "args");
}

const msgpack_object *tool_input(const struct tool_run *run)
{
	return tool_find(&run->frame.data, "input");
}

const msgpack_object *tool_state(const struct tool_run *run, const char *phase)
{
	return tool_find(tool_find(&run->frame.data, "state"), phase);
}

const char *tool_task_id(const struct tool_run *run)
{
	return run->task;
}

const char *tool_name(const struct tool_run *run)
{
	return run->tool;
}

const char *tool_phase_name(const struct tool_run *run)
{
	return run->phase;
}

const char *tool_effect_id(const struct tool_run *run)
{
	return run->effect_id;
}

const char *tool_traceparent(const struct tool_run *run)
{
	return run->traceparent;
}

int tool_attempt(const struct tool_run *run)
{
	return (int)tool_int(&run->frame.data, "attempt", 1);
}

int64_t tool_time_left_ms(const struct tool_run *run)
{
	int64_t left = run->end_ms - now_ms();
	return left > 0 ? left : 0;
}

/* --- saying things ---------------------------------------------------------------------------- */

msgpack_packer *tool_pack(struct tool_run *run)
{
	msgpack_sbuffer_clear(&run->value);
	msgpack_packer_init(&run->packer, &run->value, msgpack_sbuffer_write);
	return &run->packer;
}

void tool_pack_text(msgpack_packer *pack, const char *text)
{
	msgpack_pack_str_with_body(pack, text, strlen(text));
}

/* What was packed, or nil. */
static void append_packed(struct tool_run *run, msgpack_packer *pack, const char *name)
{
	tool_pack_text(pack, name);
	if (run->value.size)
		msgpack_sbuffer_write(&run->out, run->value.data, run->value.size);
	else
		msgpack_pack_nil(pack);
	msgpack_sbuffer_clear(&run->value);
}

void tool_checkpoint(struct tool_run *run, const char *name)
{
	msgpack_packer pack = frame_start(run, "checkpoint", 2);
	pack_member(&pack, "name", name);
	append_packed(run, &pack, "value");
	ask(run, "ok");
}

static void free_zone(void *zone)
{
	msgpack_zone_free(zone);
}

/* Moves the newest answer to the end of the run and looks for its value. */
static const msgpack_object *keep_value(struct tool_run *run, const msgpack_object *answer)
{
	const msgpack_object *found = tool_find(answer, "found");
	const msgpack_object *value = tool_find(answer, "value");
	if (!found || found->type != MSGPACK_OBJECT_BOOLEAN || !found->via.boolean || !value)
		return nullptr;
	msgpack_object *copy = msgpack_zone_malloc(run->kept, sizeof *copy);
	msgpack_zone *zone = msgpack_unpacked_release_zone(&run->answer);
	if (!copy || !msgpack_zone_push_finalizer(run->kept, free_zone, zone))
		tool_out_of_memory();
	*copy = *value;
	return copy;
}

const msgpack_object *tool_recall(struct tool_run *run, const char *name)
{
	msgpack_packer pack = frame_start(run, "recall", 1);
	pack_member(&pack, "name", name);
	return keep_value(run, ask(run, "value"));
}

const msgpack_object *tool_ask(struct tool_run *run, const char *key, int64_t timeout_ms)
{
	msgpack_packer pack = frame_start(run, "ask", timeout_ms > 0 ? 3 : 2);
	pack_member(&pack, "key", key);
	append_packed(run, &pack, "request");
	if (timeout_ms > 0) {
		tool_pack_text(&pack, "timeout_ms");
		msgpack_pack_int64(&pack, timeout_ms);
	}
	return keep_value(run, ask(run, "value"));
}

void tool_progress(struct tool_run *run, double fraction, const char *format, ...)
{
	char text[TEXT_LEN_MAX];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	msgpack_packer pack = frame_start(run, "progress", 2);
	tool_pack_text(&pack, "fraction");
	msgpack_pack_double(&pack, fraction);
	pack_member(&pack, "text", text);
	frame_send(run);
}

const char *tool_key(struct tool_run *run, uint32_t call)
{
	msgpack_packer pack = frame_start(run, "key", 1);
	tool_pack_text(&pack, "call");
	msgpack_pack_uint32(&pack, call);
	const msgpack_object *answer = ask(run, "value");
	const char *key = tool_text(run, answer, "value", nullptr);
	if (!key)
		end_process(EXIT_PROTOCOL, "no key in the answer");
	return key;
}

void tool_artifact(struct tool_run *run, const char *name, const char *media_type, const void *data,
		   size_t len)
{
	msgpack_packer pack = frame_start(run, "artifact", 3);
	pack_member(&pack, "name", name);
	pack_member(&pack, "media_type", media_type);
	tool_pack_text(&pack, "data");
	msgpack_pack_bin_with_body(&pack, data, len);
	ask(run, "ok");
}

bool tool_cancelled(struct tool_run *run)
{
	struct pollfd frames = { .fd = FRAMES_FD, .events = POLLIN };
	while (!run->cancelled && poll(&frames, 1, 0) > 0) {
		msgpack_unpacked frame;
		msgpack_unpacked_init(&frame);
		if (!take_frame(&frame))
			end_process(EXIT_WORKER_GONE, "the worker is gone");
		if (!is_cancel(&frame))
			end_process(EXIT_PROTOCOL, "a frame that was not asked for");
		run->cancelled = true;
		msgpack_unpacked_destroy(&frame);
	}
	return run->cancelled;
}

int tool_result(struct tool_run *run)
{
	msgpack_packer pack = frame_start(run, "result", 1);
	append_packed(run, &pack, "value");
	frame_send(run);
	run->answered = true;
	return 0;
}

[[gnu::format(printf, 3, 0)]] static int send_error(struct tool_run *run, bool retry,
						    const char *format, va_list args)
{
	char text[TEXT_LEN_MAX];
	vsnprintf(text, sizeof text, format, args);
	msgpack_packer pack = frame_start(run, "error", 2);
	pack_member(&pack, "text", text);
	tool_pack_text(&pack, "retry");
	retry ? msgpack_pack_true(&pack) : msgpack_pack_false(&pack);
	frame_send(run);
	run->answered = true;
	return 0;
}

int tool_error(struct tool_run *run, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	send_error(run, false, format, args);
	va_end(args);
	return 0;
}

int tool_retry(struct tool_run *run, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	send_error(run, true, format, args);
	va_end(args);
	return 0;
}

/* --- the loop --------------------------------------------------------------------------------- */

static void run_init(struct tool_run *run)
{
	*run = (struct tool_run){};
	msgpack_unpacked_init(&run->frame);
	msgpack_unpacked_init(&run->answer);
	msgpack_sbuffer_init(&run->value);
	msgpack_sbuffer_init(&run->out);
	run->kept = msgpack_zone_new(MSGPACK_ZONE_CHUNK_SIZE);
	if (!run->kept)
		tool_out_of_memory();
}

static void run_deinit(struct tool_run *run)
{
	msgpack_zone_free(run->kept);
	msgpack_unpacked_destroy(&run->frame);
	msgpack_unpacked_destroy(&run->answer);
	msgpack_sbuffer_destroy(&run->value);
	msgpack_sbuffer_destroy(&run->out);
}

static int serve(struct tool_run *run, int (*function)(struct tool_run *run))
{
	run->number = tool_int(&run->frame.data, "run", 0);
	if (!is_text(tool_find(&run->frame.data, "t"), "run"))
		end_process(EXIT_PROTOCOL, "a frame that is no run");
	run->cancelled = false; /* that was said of the run before */
	run->task = tool_text(run, &run->frame.data, "task", "");
	run->tool = tool_text(run, &run->frame.data, "tool", "");
	run->phase = tool_text(run, &run->frame.data, "phase", "");
	run->effect_id = tool_text(run, &run->frame.data, "effect_id", "");
	run->traceparent = tool_text(run, &run->frame.data, "traceparent", "");
	run->end_ms = now_ms() + tool_int(&run->frame.data, "deadline_ms", 0);
	int status = function(run);
	if (status == 0 && !run->answered) {
		fprintf(stderr, "holdfast: the run returned 0 without tool_result, tool_error or "
				"tool_retry\n");
		status = EXIT_FAILURE;
	}
	return status;
}

int tool_main(int (*function)(struct tool_run *run))
{
	struct pollfd frames = { .fd = FRAMES_FD };
	if (poll(&frames, 1, 0) < 0 || frames.revents & POLLNVAL) {
		fprintf(stderr, "This is a tool's program: a Holdfast worker starts it, in mode "
				"\"frames\" (the "
				"default), not \"plain\".\n");
		return EXIT_USAGE;
	}
	struct tool_run run;
	run_init(&run);
	msgpack_packer pack = frame_start(&run, "ready", 1);
	tool_pack_text(&pack, "protocol");
	msgpack_pack_int(&pack, 1);
	frame_send(&run);
	int status = 0;
	while (status == 0 && next_frame(&run, &run.frame)) {
		status = serve(&run, function);
		fflush(nullptr);
		run_deinit(&run);
		run_init(&run);
	}
	run_deinit(&run);
	return status;
}
