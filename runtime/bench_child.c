/* bench_child.c - see bench_child.h. A child dies with its parent (PR_SET_PDEATHSIG) unless it
 * changes its user on the way, as Postgres does: then setpriv asks for the same anew. Called by
 * bench_cluster.c, bench_server.c and bench_front.c. */
#include "runtime/bench_child.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base.h"
#include "runtime/clock.h"

constexpr int64_t LOOK_MS = 5;
constexpr int64_t KILLED_WAIT_MS = 5'000;
constexpr int CANNOT_START = 127;
constexpr int START_TIME_FIELD = 22; /* of /proc/PID/stat */
constexpr int VARIABLES_MAX = 16;

/* In clock ticks since boot; 0 where there is no such process, or only its remains. */
static unsigned long long start_time_of(pid_t pid)
{
	char path[64], text[1024];
	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	ssize_t got = read(fd, text, sizeof text - 1);
	close(fd);
	if (got <= 0)
		return 0;
	text[got] = '\0';
	/* The name stands in brackets and may hold anything; the third field follows it. */
	char *at = strrchr(text, ')');
	if (!at || at[1] == '\0' || at[2] == 'Z')
		return 0;
	for (int field = 2; at && field < START_TIME_FIELD; field++)
		at = strchr(at + 1, ' ');
	return at ? strtoull(at + 1, nullptr, 10) : 0;
}

static enum hf_code write_pid_file(const struct child *child, struct hf_err *err)
{
	FILE *file = fopen(child->pid_file, "we");
	if (!file)
		return hf_fail(err, HF_SYSTEM, "%s: %s", child->pid_file, strerror(errno));
	fprintf(file, "%d %llu\n", (int)child->pid, start_time_of(child->pid));
	if (fclose(file) != 0)
		return hf_fail(err, HF_SYSTEM, "%s: %s", child->pid_file, strerror(errno));
	return HF_OK;
}

static const char *variable_or(const char *name, const char *otherwise)
{
	const char *value = getenv(name);
	return value && *value ? value : otherwise;
}

static void make_environment(const struct child_spec *spec, char **out)
{
	size_t count = 0;
	out[count++] = hf_format("PATH=%s", variable_or("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"));
	out[count++] = hf_format("HOME=%s", variable_or("HOME", "/"));
	out[count++] = hf_strdup("LANG=C.UTF-8");
	for (size_t i = 0; spec->variables && spec->variables[i]; i++) {
		hf_assert(count + 1 < VARIABLES_MAX);
		out[count++] = hf_strdup(spec->variables[i]);
	}
	out[count] = nullptr;
}

static void redirect(int log)
{
	int null = open("/dev/null", O_RDONLY);
	if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(log, STDOUT_FILENO) < 0 ||
	    dup2(log, STDERR_FILENO) < 0)
		_exit(CANNOT_START);
	close(null);
}

[[noreturn]] static void become(const struct child_spec *spec, int log, pid_t parent)
{
	setsid();
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(CANNOT_START);
	const int handled[] = { SIGINT, SIGTERM, SIGPIPE };
	for (size_t i = 0; i < countof(handled); i++)
		signal(handled[i], SIG_DFL);
	if (spec->cpu != CHILD_ANY_CPU) {
		cpu_set_t set;
		CPU_ZERO(&set);
		CPU_SET((size_t)spec->cpu, &set);
		sched_setaffinity(0, sizeof set, &set);
	}
	redirect(log);
	if (spec->run) {
		spec->run(spec->ctx);
		_exit(CANNOT_START);
	}
	char *environment[VARIABLES_MAX], *words[CHILD_WORDS_MAX];
	make_environment(spec, environment);
	size_t count = 0;
	for (; spec->words[count]; count++) {
		hf_assert(count + 1 < CHILD_WORDS_MAX);
		words[count] = hf_strdup(spec->words[count]);
	}
	hf_assert(count > 0);
	words[count] = nullptr;
	execvpe(words[0], words, environment);
	fprintf(stderr, "%s: %s\n", words[0], strerror(errno));
	_exit(CANNOT_START);
}

enum hf_code child_start(struct child *child, const char *dir, const struct child_spec *spec,
			 struct hf_err *err)
{
	hf_assert(child->pid == 0);
	hf_assert(spec->words || spec->run);
	char *log_file = hf_format("%s/log/%s.log", dir, spec->name);
	int log = open(log_file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	enum hf_code code = HF_OK;
	if (log < 0)
		code = hf_fail(err, HF_SYSTEM, "%s: %s", log_file, strerror(errno));
	free(log_file);
	hf_try(code);
	pid_t parent = getpid();
	pid_t pid = fork();
	if (pid == 0)
		become(spec, log, parent);
	close(log);
	if (pid < 0)
		return hf_fail(err, HF_SYSTEM, "fork: %s", strerror(errno));
	*child = (struct child){ .pid = pid,
				 .name = spec->name,
				 .pid_file = hf_format("%s/run/%s.pid", dir, spec->name) };
	return write_pid_file(child, err);
}

static void forget(struct child *child)
{
	unlink(child->pid_file);
	free(child->pid_file);
	*child = (struct child){};
}

bool child_lives(struct child *child)
{
	if (child->pid == 0)
		return false;
	int status;
	if (waitpid(child->pid, &status, WNOHANG) == 0)
		return true;
	forget(child);
	return false;
}

void child_stop(struct child *child, int with, int64_t wait_ms)
{
	int64_t end = clock_boot_ms() + wait_ms;
	if (child_lives(child)) {
		kill(child->pid, with);
		kill(child->pid, SIGCONT); /* it may be held back */
	}
	while (child_lives(child) && clock_boot_ms() < end)
		clock_rest_ms(LOOK_MS);
	if (child->pid == 0)
		return;
	/* With all that it started: it leads a session. */
	kill(-child->pid, SIGKILL);
	kill(child->pid, SIGKILL);
	while (waitpid(child->pid, nullptr, 0) < 0 && errno == EINTR)
		;
	forget(child);
}

enum hf_code child_run(const char *dir, const struct child_spec *spec, struct hf_err *err)
{
	struct child child = {};
	hf_try(child_start(&child, dir, spec, err));
	int status = 0;
	while (waitpid(child.pid, &status, 0) < 0 && errno == EINTR)
		;
	forget(&child);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return HF_OK;
	return hf_fail(err, HF_SYSTEM, "%s failed; see %s/log/%s.log", spec->name, dir, spec->name);
}

void child_stop_left(const char *dir, const char *name, int with, int64_t wait_ms)
{
	char *path = hf_format("%s/run/%s.pid", dir, name);
	FILE *file = fopen(path, "re");
	int pid = 0;
	unsigned long long started = 0;
	bool known = file && fscanf(file, "%d %llu", &pid, &started) == 2;
	if (file)
		fclose(file);
	bool lives = known && pid > 1 && started > 0 && start_time_of(pid) == started;
	if (lives) {
		kill(pid, with);
		kill(pid, SIGCONT);
	}
	int64_t end = clock_boot_ms() + wait_ms;
	while (lives && clock_boot_ms() < end) {
		clock_rest_ms(LOOK_MS);
		lives = start_time_of(pid) == started;
	}
	if (lives) {
		kill(-pid, SIGKILL);
		kill(pid, SIGKILL);
	}
	end = clock_boot_ms() + KILLED_WAIT_MS;
	while (lives && clock_boot_ms() < end) {
		clock_rest_ms(LOOK_MS);
		lives = start_time_of(pid) == started;
	}
	unlink(path);
	free(path);
}
