/* plain.c - the surroundings of a process in plain mode. Below its place:
 *
 *   work/        its working directory        state.json   the states so far
 *   artifacts/   what it leaves               step         the socket
 *
 * Frames come one at a time from whichever connection has one, and each connection has at most one
 * frame taken and not answered, so that two steps at once are simply two connections. Their path
 * may be longer than a socket's address: both sides go through a descriptor of the folder. */
#include "worker/plain.h"

#include <dirent.h>
#include <errno.h>
#include <ev.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "runtime/base.h"
#include "runtime/file.h"
#include "runtime/utf8.h"
#include "worker/stream.h"
#include "worker/texts.h"

constexpr size_t READ_BYTES = 64 << 10;
constexpr int BACKLOG = 64;
constexpr size_t NAME_LEN_MAX = 200; /* of an artifact */

struct connection {
	struct plain *plain;
	struct stream stream; /* closed: free */
};

struct plain {
	struct ev_loop *loop;
	void (*on_change)(void *ctx);
	void *ctx;
	char *place, *folder, *artifacts;
	char **vars;
	int input, output_end, output, listener; /* -1: closed */
	ev_io output_readable, acceptable;
	struct buf written;
	bool over;
	struct connection connections[PLAIN_CONNECTIONS_MAX];
	int last; /* the connection whose frame was read last; -1: none */
	/* artifacts: listed when first asked for */
	char **names;
	size_t names_count, names_at;
	struct buf content;
};

HF_DEFINE_CLEANUP(folder, DIR *, closedir)

/* --- connections ------------------------------------------------------------------------------ */

static void connection_close(struct connection *connection)
{
	struct plain *plain = connection->plain;
	if (connection->stream.fd < 0)
		return;
	stream_deinit(&connection->stream);
	if (plain->last >= 0 && connection == &plain->connections[plain->last])
		plain->last = -1;
	if (plain->listener >= 0)
		ev_io_start(plain->loop, &plain->acceptable);
}

static void send_some(struct connection *connection)
{
	struct stream *stream = &connection->stream;
	if (!stream_send(stream))
		connection_close(connection);
	else if (!stream->out.len && !stream->ended)
		ev_io_start(stream->loop, &stream->readable);
}

static void on_writable(struct ev_loop *, ev_io *io, int)
{
	struct connection *connection = container_of(io, struct connection, stream.writable);
	struct plain *plain = connection->plain;
	send_some(connection);
	plain->on_change(plain->ctx);
}

static void on_readable(struct ev_loop *loop, ev_io *io, int)
{
	struct connection *connection = container_of(io, struct connection, stream.readable);
	struct plain *plain = connection->plain;
	/* More than one frame ahead is not waited for in the memory of this process. */
	if (stream_unread(&connection->stream).len > PLAIN_FRAME_BYTES_MAX)
		ev_io_stop(loop, io);
	else if (stream_read(&connection->stream) || connection->stream.ended)
		plain->on_change(plain->ctx);
}

static void on_acceptable(struct ev_loop *loop, ev_io *io, int)
{
	struct plain *plain = container_of(io, struct plain, acceptable);
	int free_one = 0;
	while (free_one < PLAIN_CONNECTIONS_MAX && plain->connections[free_one].stream.fd >= 0)
		free_one++;
	if (free_one == PLAIN_CONNECTIONS_MAX) {
		ev_io_stop(loop, io);
		return;
	}
	int fd = accept4(plain->listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0)
		return;
	struct stream *stream = &plain->connections[free_one].stream;
	stream_open(stream, loop, fd, on_readable, on_writable);
	ev_io_start(loop, &stream->readable);
}

/* The first frame of a connection whose last answer has left. */
static bool take_frame(struct connection *connection, struct frame *frame)
{
	struct stream *stream = &connection->stream;
	if (stream->fd < 0 || stream->out.len)
		return false;
	size_t used;
	struct hf_err err;
	enum frame_next next = stream_next(stream, frame, &used, &err);
	if (next == FRAME_WHOLE && used <= PLAIN_FRAME_BYTES_MAX) {
		ev_io_stop(stream->loop, &stream->readable);
		return true;
	}
	if (next != FRAME_PART || used > PLAIN_FRAME_BYTES_MAX || stream->ended)
		connection_close(connection);
	return false;
}

bool plain_read(struct plain *plain, struct frame *frame)
{
	int last = plain->last;
	if (last >= 0) {
		struct stream *stream = &plain->connections[last].stream;
		if (!stream->out.len && !stream->ended)
			ev_io_start(stream->loop, &stream->readable);
		plain->last = -1;
	}
	for (int i = 1; i <= PLAIN_CONNECTIONS_MAX; i++) {
		int at = (last + i) % PLAIN_CONNECTIONS_MAX;
		if (!take_frame(&plain->connections[at], frame))
			continue;
		plain->last = at;
		return true;
	}
	return false;
}

void plain_send(struct plain *plain, const struct buf *frame)
{
	/* It may have gone while its answer was made. */
	if (plain->last < 0)
		return;
	struct connection *connection = &plain->connections[plain->last];
	buf_add(&connection->stream.out, frame->data, frame->len);
	send_some(connection);
	/* Not before the next plain_read: its frame is still in use. */
	if (connection->stream.fd >= 0)
		ev_io_stop(plain->loop, &connection->stream.readable);
}

void plain_refuse(struct plain *plain)
{
	if (plain->last >= 0)
		connection_close(&plain->connections[plain->last]);
}

/* --- stdout ----------------------------------------------------------------------------------- */

/* Reads once; false when there is nothing more for now. */
static bool output_read(struct plain *plain)
{
	if (plain->over)
		return false;
	void *room = buf_reserve(&plain->written, READ_BYTES);
	hf_assert(room);
	ssize_t got = read(plain->output, room, READ_BYTES);
	if (got <= 0) {
		if (got == 0)
			ev_io_stop(plain->loop, &plain->output_readable);
		return false;
	}
	buf_grew(&plain->written, (size_t)got);
	plain->over = plain->written.len > PLAIN_OUTPUT_BYTES_MAX;
	if (plain->over)
		ev_io_stop(plain->loop, &plain->output_readable);
	return !plain->over;
}

static void on_output(struct ev_loop *, ev_io *io, int)
{
	struct plain *plain = container_of(io, struct plain, output_readable);
	output_read(plain);
	if (plain->over)
		plain->on_change(plain->ctx);
}

bool plain_is_over(const struct plain *plain)
{
	return plain->over;
}

struct slice plain_output(struct plain *plain)
{
	while (output_read(plain))
		continue;
	return buf_slice(&plain->written);
}

/* --- artifacts -------------------------------------------------------------------------------- */

static const char *media_type_of(const char *name)
{
	static const struct {
		const char *extension, *media_type;
	} known[] = {
		{ "pdf", "application/pdf" },
		{ "json", "application/json" },
		{ "xml", "application/xml" },
		{ "zip", "application/zip" },
		{ "gz", "application/gzip" },
		{ "csv", "text/csv; charset=utf-8" },
		{ "css", "text/css; charset=utf-8" },
		{ "html", "text/html; charset=utf-8" },
		{ "htm", "text/html; charset=utf-8" },
		{ "md", "text/markdown; charset=utf-8" },
		{ "txt", "text/plain; charset=utf-8" },
		{ "log", "text/plain; charset=utf-8" },
		{ "svg", "image/svg+xml" },
		{ "png", "image/png" },
		{ "jpg", "image/jpeg" },
		{ "jpeg", "image/jpeg" },
		{ "gif", "image/gif" },
		{ "webp", "image/webp" },
	};
	const char *dot = strrchr(name, '.');
	for (size_t i = 0; dot && i < countof(known); i++)
		if (strcasecmp(dot + 1, known[i].extension) == 0)
			return known[i].media_type;
	return "application/octet-stream";
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool name_is_clean(const char *name)
{
	size_t len = strlen(name);
	return utf8_is_plain(name, len) && len <= NAME_LEN_MAX;
}

static enum hf_code list_artifacts(struct plain *plain, struct hf_err *err)
{
	plain->names = hf_alloc((PLAIN_ARTIFACTS_MAX + 1) * sizeof *plain->names);
	hf_cleanup(folder) DIR *folder = opendir(plain->artifacts);
	for (struct dirent *entry; folder && (entry = readdir(folder));) {
		const char *name = entry->d_name;
		if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
			continue;
		if (!name_is_clean(name))
			return hf_fail(err, HF_INVALID,
				       "left a file whose name is over %zu bytes or not plain text",
				       NAME_LEN_MAX);
		if (plain->names_count == PLAIN_ARTIFACTS_MAX)
			return hf_fail(err, HF_LIMIT, "left more than %zu artifacts",
				       PLAIN_ARTIFACTS_MAX);
		plain->names[plain->names_count++] = hf_strdup(name);
	}
	qsort(plain->names, plain->names_count, sizeof *plain->names, by_name);
	return HF_OK;
}

/* Never waits: a pipe in the folder is opened without its other end, and is no file. */
static enum hf_code read_artifact(struct plain *plain, const char *name, struct hf_err *err)
{
	hf_cleanup(text) char *path = hf_format("%s/%s", plain->artifacts, name);
	int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat status;
	if (fd < 0 || fstat(fd, &status) < 0 || !S_ISREG(status.st_mode)) {
		if (fd >= 0)
			close(fd);
		return hf_fail(err, HF_INVALID, "left %.64s, which is no file to be read", name);
	}
	buf_clear(&plain->content);
	ssize_t got = 1;
	while (got > 0 && plain->content.len <= PLAIN_ARTIFACT_BYTES_MAX) {
		void *room = buf_reserve(&plain->content, READ_BYTES);
		hf_assert(room);
		got = read(fd, room, READ_BYTES);
		if (got > 0)
			buf_grew(&plain->content, (size_t)got);
	}
	close(fd);
	if (got < 0)
		return hf_fail(err, HF_SYSTEM, "left %.64s, which cannot be read", name);
	if (plain->content.len > PLAIN_ARTIFACT_BYTES_MAX)
		return hf_fail(err, HF_LIMIT, "left %.64s, which is over %zu bytes", name,
			       PLAIN_ARTIFACT_BYTES_MAX);
	return HF_OK;
}

enum hf_code plain_artifact_next(struct plain *plain, struct plain_artifact *artifact,
				 struct hf_err *err)
{
	*artifact = (struct plain_artifact){};
	if (!plain->names)
		hf_try(list_artifacts(plain, err));
	if (plain->names_at == plain->names_count)
		return HF_OK;
	const char *name = plain->names[plain->names_at++];
	hf_try(read_artifact(plain, name, err));
	*artifact = (struct plain_artifact){ .name = name,
					     .media_type = media_type_of(name),
					     .content = buf_slice(&plain->content) };
	return HF_OK;
}

/* --- the whole -------------------------------------------------------------------------------- */

static enum hf_code make_folders(struct plain *plain, struct hf_err *err)
{
	const char *const folders[] = { plain->folder, plain->artifacts };
	for (size_t i = 0; i < countof(folders); i++)
		if (mkdir(folders[i], 0700) < 0)
			return hf_fail(err, HF_SYSTEM, "%s: %s", folders[i], strerror(errno));
	return HF_OK;
}

static enum hf_code write_states(const struct plain *plain, struct slice states, struct hf_err *err)
{
	hf_cleanup(text) char *path = hf_format("%s/state.json", plain->place);
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return hf_fail(err, HF_SYSTEM, "%s: %s", path, strerror(errno));
	enum hf_code code = file_write(fd, states);
	if (close(fd) < 0)
		code = HF_SYSTEM;
	return code == HF_OK ? HF_OK : hf_fail(err, code, "%s: %s", path, strerror(errno));
}

/* A file without a name: a pipe would have to be fed. */
static enum hf_code make_input(struct plain *plain, struct slice input, struct hf_err *err)
{
	plain->input = memfd_create("arguments", MFD_CLOEXEC);
	if (plain->input < 0 || file_write(plain->input, input) != HF_OK ||
	    lseek(plain->input, 0, SEEK_SET) < 0)
		return hf_fail(err, HF_SYSTEM, "stdin: %s", strerror(errno));
	return HF_OK;
}

static enum hf_code make_output(struct plain *plain, struct hf_err *err)
{
	int ends[2];
	if (pipe2(ends, O_CLOEXEC) < 0)
		return hf_fail(err, HF_SYSTEM, "pipe: %s", strerror(errno));
	plain->output = ends[0];
	plain->output_end = ends[1];
	fcntl(plain->output, F_SETFL, O_NONBLOCK);
	return HF_OK;
}

static enum hf_code bind_in(int folder, int listener, struct hf_err *err)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/step", folder);
	if (bind(listener, (struct sockaddr *)&address, sizeof address) < 0 ||
	    fchmodat(folder, "step", 0600, 0) < 0 || listen(listener, BACKLOG) < 0)
		return hf_fail(err, HF_SYSTEM, "the socket for steps: %s", strerror(errno));
	return HF_OK;
}

static enum hf_code make_socket(struct plain *plain, struct hf_err *err)
{
	int folder = open(plain->place, O_PATH | O_DIRECTORY | O_CLOEXEC);
	plain->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	enum hf_code code = folder >= 0 && plain->listener >= 0 ? HF_OK : HF_SYSTEM;
	if (code == HF_OK)
		code = bind_in(folder, plain->listener, err);
	else
		(void)hf_fail(err, code, "the socket for steps: %s", strerror(errno));
	if (folder >= 0)
		close(folder);
	return code;
}

static enum hf_code plain_fill(struct plain *plain, const struct plain_spec *spec,
			       struct hf_err *err)
{
	hf_try(make_folders(plain, err));
	hf_try(write_states(plain, spec->states, err));
	hf_try(make_input(plain, spec->input, err));
	hf_try(make_output(plain, err));
	return make_socket(plain, err);
}

enum hf_code plain_new(struct ev_loop *loop, const char *place, const struct plain_spec *spec,
		       void (*on_change)(void *ctx), void *ctx, struct plain **out,
		       struct hf_err *err)
{
	hf_assert(on_change);
	struct plain *plain = hf_alloc(sizeof *plain);
	*plain = (struct plain){ .loop = loop,
				 .on_change = on_change,
				 .ctx = ctx,
				 .place = hf_strdup(place),
				 .folder = hf_format("%s/work", place),
				 .artifacts = hf_format("%s/artifacts", place),
				 .vars = texts_copy(spec->vars),
				 .input = -1,
				 .output_end = -1,
				 .output = -1,
				 .listener = -1,
				 .last = -1 };
	for (int i = 0; i < PLAIN_CONNECTIONS_MAX; i++)
		plain->connections[i] =
		    (struct connection){ .plain = plain, .stream = { .fd = -1 } };
	enum hf_code code = plain_fill(plain, spec, err);
	if (code != HF_OK) {
		plain_free(plain);
		return code;
	}
	ev_io_init(&plain->output_readable, on_output, plain->output, EV_READ);
	ev_io_init(&plain->acceptable, on_acceptable, plain->listener, EV_READ);
	*out = plain;
	return HF_OK;
}

static void close_child_ends(struct plain *plain)
{
	int *const ends[] = { &plain->input, &plain->output_end };
	for (size_t i = 0; i < countof(ends); i++) {
		if (*ends[i] >= 0)
			close(*ends[i]);
		*ends[i] = -1;
	}
}

struct plain *plain_free(struct plain *plain)
{
	if (!plain)
		return nullptr;
	int listener = plain->listener;
	plain->listener = -1; /* no connection that closes makes room for another */
	for (int i = 0; i < PLAIN_CONNECTIONS_MAX; i++)
		connection_close(&plain->connections[i]);
	ev_io_stop(plain->loop, &plain->output_readable);
	ev_io_stop(plain->loop, &plain->acceptable);
	close_child_ends(plain);
	if (listener >= 0)
		close(listener);
	if (plain->output >= 0)
		close(plain->output);
	buf_deinit(&plain->written);
	buf_deinit(&plain->content);
	texts_free(plain->names);
	texts_free(plain->vars);
	free(plain->place);
	free(plain->folder);
	free(plain->artifacts);
	free(plain);
	return nullptr;
}

int plain_stdin(const struct plain *plain)
{
	return plain->input;
}

int plain_stdout(const struct plain *plain)
{
	return plain->output_end;
}

const char *plain_folder(const struct plain *plain)
{
	return plain->folder;
}

char **plain_vars(const struct plain *plain)
{
	size_t count = texts_count(plain->vars);
	char **vars = hf_alloc((count + 4) * sizeof *vars);
	for (size_t i = 0; i < count; i++)
		vars[i] = hf_strdup(plain->vars[i]);
	vars[count++] = hf_format("HOLDFAST_STATE_FILE=%s/state.json", plain->place);
	vars[count++] = hf_format("HOLDFAST_ARTIFACTS=%s", plain->artifacts);
	vars[count++] = hf_format("HOLDFAST_SOCKET=%s/step", plain->place);
	return vars;
}

void plain_start(struct plain *plain)
{
	close_child_ends(plain);
	ev_io_start(plain->loop, &plain->output_readable);
	ev_io_start(plain->loop, &plain->acceptable);
}
