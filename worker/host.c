/* host.c - the life of one tool process.
 *
 *   starting ──"ready"──▶ ready ⇄ (idle │ used) ──▶ ending ──all of it reaped──▶ gone
 *
 * Ending begins with host_kill or with the process's own exit once its user lets go; the child of
 * this process is the tool's keeper, whose end is awaited in host_pool.c. Callbacks call the user
 * last, because the user may give the host back there. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base.h"
#include "runtime/clock.h"
#include "runtime/log.h"
#include "runtime/metrics.h"
#include "worker/host_private.h"
#include "worker/keeper.h"
#include "worker/rundir.h"
#include "worker/spawn.h"
#include "worker/texts.h"

static void tell_user(struct host *host)
{
	if (host->on_change)
		host->on_change(host->ctx);
}

/* --- environment --------------------------------------------------------------------- */

/* Only what is named here: a tool never inherits this process's environment. */
static char **make_environment(const struct host *host)
{
	const char *home = host->plain ? plain_folder(host->plain) : host->place;
	char **vars = host->plain ? plain_vars(host->plain) : nullptr;
	size_t room = 8 + texts_count(host->env_names) + texts_count(vars);
	char **env = hf_alloc(room * sizeof *env);
	size_t count = 0;
	env[count++] = host->plain ? spawn_path_with_self() : hf_format("PATH=%s", SPAWN_PATH);
	env[count++] = hf_format("HOME=%s", home);
	env[count++] = hf_format("TMPDIR=%s", home);
	for (size_t i = 0; vars && vars[i]; i++)
		env[count++] = vars[i];
	free(vars);
	env[count++] = hf_strdup("LANG=C.UTF-8");
	env[count++] = hf_format("HOLDFAST_TOOL_DIR=%s", host->folder);
	env[count++] = hf_format("%s=%s", rundir_variable, rundir_path(host->pool->rundir));
	for (size_t i = 0; host->env_names[i]; i++) {
		const char *value = getenv(host->env_names[i]);
		if (value)
			env[count++] = hf_format("%s=%s", host->env_names[i], value);
	}
	hf_assert(count < room);
	return env;
}

/* --- the end of a host ------------------------------------------------------------------------ */

static void close_pipes(struct host *host)
{
	stream_close(&host->stream);
	tail_stop(&host->log);
	host->plain = plain_free(host->plain);
}

void host_free(struct host *host)
{
	struct host **slot = &host->pool->hosts;
	while (*slot != host)
		slot = &(*slot)->next;
	*slot = host->next;
	ev_timer_stop(host->pool->loop, &host->idle_timer);
	ev_child_stop(host->pool->loop, &host->child);
	close_pipes(host);
	free(host->tool);
	free(host->version);
	free(host->folder);
	free(host->program);
	free(host->place);
	texts_free(host->argv);
	texts_free(host->env_names);
	stream_deinit(&host->stream);
	tail_deinit(&host->log);
	free(host);
}

void host_kill(struct host *host)
{
	if (host->gone)
		return;
	if (!host->ending) {
		host->ending = true;
		host->ending_ms = host->warned_ms = clock_boot_ms();
		ev_timer_stop(host->pool->loop, &host->idle_timer);
		if (!host->exited)
			kill(host->pid, KEEPER_STOP_SIGNAL);
	}
	if (!host->exited)
		kill(host->pid, SIGCONT); /* perhaps its tool had stopped it */
	host_pool_sweep(host->pool);
}

void host_went(struct host *host)
{
	host->gone = true;
	host->took_ms = clock_boot_ms() - host->ending_ms;
	hf_assert(host->pool->count > 0);
	host->pool->count--;
	close_pipes(host);
	rundir_remove(host->place);
	if (host->on_change)
		host->on_change(host->ctx);
	else
		host_free(host);
}

static void on_child(struct ev_loop *loop, ev_child *child, int)
{
	struct host *host = container_of(child, struct host, child);
	ev_child_stop(loop, child);
	host->exited = true;
	host->status = child->rstatus;
	if (!host->on_change)
		host_kill(host);
	tell_user(host);
}

void host_log(struct host *host, struct buf *text)
{
	tail_text(&host->log, text);
}

/* --- frames ----------------------------------------------------------------------------------- */

/* A lost pipe: what is there to be read says the rest. */
static void send_some(struct host *host)
{
	if (host->ready && host->stream.fd >= 0)
		stream_send(&host->stream);
}

static void on_writable(struct ev_loop *, ev_io *io, int)
{
	struct host *host = container_of(io, struct host, stream.writable);
	send_some(host);
	if (!host_sending(host))
		tell_user(host);
}

void host_send(struct host *host, const struct buf *frame)
{
	hf_assert(host->on_change);
	hf_assert(frame->len > FRAME_HEAD_BYTES);
	if (host->plain) {
		plain_send(host->plain, frame);
		return;
	}
	buf_add(&host->stream.out, frame->data, frame->len);
	send_some(host);
}

bool host_sending(const struct host *host)
{
	return host->ready && host->stream.out.len > 0;
}

static void find_garbage(struct host *host)
{
	host->garbage = true;
	ev_io_stop(host->pool->loop, &host->stream.readable);
}

/* The first frame of a process. */
static void take_ready(struct host *host)
{
	struct frame frame;
	size_t used;
	enum frame_next next = stream_next(&host->stream, &frame, &used, &host->fault);
	if (next == FRAME_PART)
		return;
	int64_t protocol = 0;
	if (next == FRAME_BAD) {
		find_garbage(host);
		return;
	}
	if (!slice_is(frame.type, "ready") || !frame_get_int(&frame, "protocol", &protocol) ||
	    protocol != HOST_PROTOCOL) {
		(void)hf_fail(&host->fault, HF_CORRUPT,
			      "its first frame is not \"ready\" with protocol %lld",
			      (long long)HOST_PROTOCOL);
		find_garbage(host);
		return;
	}
	host->ready = true;
	send_some(host);
}

static void on_readable(struct ev_loop *loop, ev_io *io, int)
{
	struct host *host = container_of(io, struct host, stream.readable);
	/* A user that takes no frames now is not to be waited for in the memory of this process. */
	if (host->on_change && host->ready &&
	    stream_unread(&host->stream).len > FRAME_BYTES_MAX + FRAME_HEAD_BYTES) {
		ev_io_stop(loop, io);
		return;
	}
	stream_read(&host->stream);
	if (!host->ready && !host->garbage)
		take_ready(host);
	bool speaks = host->ready && stream_unread(&host->stream).len > 0;
	if (!host->on_change && (host->garbage || host->stream.ended || speaks))
		host_kill(host);
	tell_user(host);
}

/* Its end of the socket was closed by exec; or a byte came first. */
static void learn_start(struct host *host)
{
	char byte;
	if (host->exited && !host->stream.ended) {
		host->stream.ended = true;
		host->ready = recv(host->stream.fd, &byte, 1, MSG_DONTWAIT) == 0;
	}
}

enum host_read host_read(struct host *host, struct frame *frame, struct hf_err *err)
{
	hf_assert(host->on_change);
	if (host->plain) {
		learn_start(host);
		return plain_read(host->plain, frame) ? HOST_FRAME : HOST_WAIT;
	}
	while (!host->garbage && host->ready) {
		size_t used;
		enum frame_next next = stream_next(&host->stream, frame, &used, &host->fault);
		if (next == FRAME_WHOLE) {
			/* The next one waits in the kernel until it is asked for. */
			ev_io_stop(host->pool->loop, &host->stream.readable);
			return HOST_FRAME;
		}
		if (next == FRAME_BAD)
			find_garbage(host);
		else if (!host->exited || !stream_read(&host->stream))
			break;
	}
	if (host->garbage) {
		*err = host->fault;
		return HOST_GARBAGE;
	}
	if (host->stream.ended)
		return HOST_CLOSED;
	if (host->stream.fd >= 0)
		ev_io_start(host->pool->loop, &host->stream.readable);
	return HOST_WAIT;
}

int host_run(const struct host *host)
{
	return host->tasks;
}

struct plain *host_plain(const struct host *host)
{
	return host->plain;
}

bool host_ready(const struct host *host)
{
	return host->ready;
}

bool host_exited(const struct host *host, int *status)
{
	if (host->exited)
		*status = host->status;
	return host->exited;
}

bool host_gone(const struct host *host)
{
	return host->gone;
}

int64_t host_took_ms(const struct host *host)
{
	return host->took_ms;
}

const char *host_exit_text(struct host *host)
{
	int status = host->status;
	if (!host->exited)
		snprintf(host->exit_text, sizeof host->exit_text, "running");
	else if (WIFSIGNALED(status))
		snprintf(host->exit_text, sizeof host->exit_text, "signal %d (%s)",
			 WTERMSIG(status), strsignal(WTERMSIG(status)));
	else
		snprintf(host->exit_text, sizeof host->exit_text, "exit %d", WEXITSTATUS(status));
	return host->exit_text;
}

/* --- its start -------------------------------------------------------------------------------- */

static void on_idle_timer(struct ev_loop *, ev_timer *timer, int)
{
	host_kill(container_of(timer, struct host, idle_timer));
}

static void start_watchers(struct host *host)
{
	struct ev_loop *loop = host->pool->loop;
	ev_timer_init(&host->idle_timer, on_idle_timer, (double)HOST_IDLE_MS / 1000., 0.);
	ev_child_init(&host->child, on_child, host->pid, 0);
	if (host->plain)
		plain_start(host->plain);
	else
		ev_io_start(loop, &host->stream.readable);
	ev_child_start(loop, &host->child);
}

static void close_pair(int pair[static 2])
{
	for (int i = 0; i < 2; i++) {
		if (pair[i] >= 0)
			close(pair[i]);
		pair[i] = -1;
	}
}

static enum hf_code open_pipes(int frames[static 2], int log[static 2], struct hf_err *err)
{
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, frames) < 0)
		return hf_fail(err, HF_SYSTEM, "socketpair: %s", strerror(errno));
	if (pipe2(log, O_CLOEXEC) < 0)
		return hf_fail(err, HF_SYSTEM, "pipe: %s", strerror(errno));
	/* Our ends only: the tool's own are what it expects, blocking. */
	fcntl(frames[0], F_SETFL, O_NONBLOCK);
	fcntl(log[0], F_SETFL, O_NONBLOCK);
	return HF_OK;
}

static void on_plain_change(void *ctx)
{
	tell_user(ctx);
}

static enum hf_code spawn_host(struct host *host, int frames, int log, struct hf_err *err)
{
	struct spawn spawn = { .program = host->program,
			       .argv = host->argv,
			       .envp = make_environment(host),
			       .folder = host->place,
			       .frames = frames,
			       .log = log,
			       .until_ms = host->pool->until_ms };
	if (host->plain) {
		spawn.plain = true;
		spawn.folder = plain_folder(host->plain);
		spawn.input = plain_stdin(host->plain);
		spawn.output = plain_stdout(host->plain);
	}
	enum hf_code code = spawn_process(&spawn, &host->pid, err);
	texts_free(spawn.envp);
	return code;
}

static enum hf_code start_process(struct host *host, const struct plain_spec *plain,
				  struct hf_err *err)
{
	int frames[2] = { -1, -1 }, log[2] = { -1, -1 };
	struct host_pool *pool = host->pool;
	enum hf_code code = open_pipes(frames, log, err);
	if (code == HF_OK)
		code = rundir_add(pool->rundir, ++pool->number, &host->place, err);
	if (code == HF_OK && plain)
		code = plain_new(pool->loop, host->place, plain, on_plain_change, host,
				 &host->plain, err);
	if (code == HF_OK)
		code = spawn_host(host, frames[1], log[1], err);
	if (code == HF_OK) {
		stream_open(&host->stream, pool->loop, frames[0], on_readable, on_writable);
		tail_start(&host->log, pool->loop, log[0]);
		frames[0] = log[0] = -1;
	} else if (host->place) {
		rundir_remove(host->place);
	}
	close_pair(frames);
	close_pair(log);
	return code;
}

enum hf_code host_start(struct host_pool *pool, const struct host_spec *spec, struct host **out,
			struct hf_err *err)
{
	if (pool->count >= HOST_COUNT_MAX) {
		metric_add(METRIC_bound_refused_total, "hosts", 1);
		return hf_fail(err, HF_LIMIT, "%zu tool processes run already", pool->count);
	}
	char *folder = realpath(spec->folder, nullptr);
	if (!folder)
		return hf_fail(err, HF_MISSING, "%s: %s", spec->folder, strerror(errno));
	struct host *host = hf_alloc(sizeof *host);
	*host = (struct host){
		.pool = pool,
		.next = pool->hosts,
		.tool = hf_strdup(spec->tool),
		.version = hf_strdup(spec->version),
		.folder = folder,
		.argv = spawn_resolve(folder, spec->command),
		.env_names = texts_copy(spec->env),
		.stream = { .fd = -1 },
		.log = { .fd = -1 },
	};
	pool->hosts = host;
	enum hf_code code = spawn_find(host->argv[0], &host->program, err);
	if (code == HF_OK)
		code = start_process(host, spec->plain, err);
	if (code != HF_OK) {
		host_free(host);
		return code;
	}
	pool->count++;
	metric_add(METRIC_hosts_started_total, nullptr, 1);
	start_watchers(host);
	log_debug("tool process started", "tool", host->tool, "version", host->version, "pid",
		  LOG_INT(host->pid), nullptr);
	*out = host;
	return HF_OK;
}

/* --- idle ------------------------------------------------------------------------------------- */

bool host_is_quiet(const struct host *host)
{
	char byte;
	return !host->exited && !host->stream.ended && !host->garbage &&
	       stream_unread(&host->stream).len == 0 && host->stream.out.len == 0 &&
	       recv(host->stream.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

void host_wait_idle(struct host *host)
{
	ev_timer_set(&host->idle_timer, (double)HOST_IDLE_MS / 1000., 0.);
	ev_timer_start(host->pool->loop, &host->idle_timer);
	/* Whatever it says from here on is a fault. */
	ev_io_start(host->pool->loop, &host->stream.readable);
}
