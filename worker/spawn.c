/* spawn.c - fork, the keeper's fork, and exec. Between them only async-signal-safe calls: this
 * process has threads (libcurl's resolver) whose locks may be held. The parent blocks all signals
 * around the fork, so that no handler of libev runs in the child. */
#include "worker/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base.h"
#include "worker/host.h"
#include "worker/keeper.h"
#include "worker/texts.h"

constexpr int FRAMES_FD = 3;
constexpr int PARKED_FD = 10; /* above all that is set up below */
constexpr int EXIT_NOT_SET_UP = 126;
constexpr int EXIT_NOT_STARTED = 127;

static int child_fault = -1; /* set in the child alone: where to tell that it did not start */

static void write_text(const char *text)
{
	(void)!write(STDERR_FILENO, text, strlen(text));
}

[[noreturn]] static void child_fail(int status, const char *what, int why)
{
	const char *name = strerrorname_np(why);
	write_text("holdfast: ");
	write_text(what);
	write_text(": ");
	write_text(name ? name : "error");
	if (why == ENOENT && access(what, F_OK) == 0)
		write_text(", for the interpreter that it names (#! line, or loader) is not on "
			   "this machine");
	write_text("\n");
	if (child_fault >= 0)
		(void)!write(child_fault, "", 1);
	_exit(status);
}

static void child_limit(int resource, int64_t max)
{
	struct rlimit old, limit = { (rlim_t)max, (rlim_t)max };
	/* A limit that is already tighter stays. */
	if (getrlimit((__rlimit_resource_t)resource, &old) == 0 && old.rlim_max < limit.rlim_max)
		limit.rlim_cur = limit.rlim_max = old.rlim_max;
	if (setrlimit((__rlimit_resource_t)resource, &limit) < 0)
		child_fail(EXIT_NOT_SET_UP, "setrlimit", errno);
}

static void child_limits(void)
{
	child_limit(RLIMIT_CORE, 0);
	child_limit(RLIMIT_NOFILE, HOST_FILES_MAX);
	child_limit(RLIMIT_CPU, HOST_CPU_S_MAX);
	child_limit(RLIMIT_FSIZE, HOST_FILE_BYTES_MAX);
	/* ASan reserves terabytes: in such a build the tools of the tests are built so, too. */
#if !__has_feature(address_sanitizer)
	child_limit(RLIMIT_DATA, HOST_MEMORY_BYTES_MAX);
	child_limit(RLIMIT_AS, HOST_ADDRESS_BYTES_MAX);
#endif
}

static void child_signals(void)
{
	struct sigaction standard = { .sa_handler = SIG_DFL };
	for (int number = 1; number < NSIG; number++)
		sigaction(number, &standard, nullptr); /* fails for KILL and STOP, rightly */
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, nullptr);
}

static void child_files(const struct spawn *spawn)
{
	/* First out of the way of 0 to 3, whatever their numbers are. */
	int log = fcntl(spawn->log, F_DUPFD_CLOEXEC, PARKED_FD);
	int frames = fcntl(spawn->frames, F_DUPFD_CLOEXEC, PARKED_FD);
	int input = spawn->plain ? spawn->input : open("/dev/null", O_RDONLY | O_CLOEXEC);
	int high_input = fcntl(input, F_DUPFD_CLOEXEC, PARKED_FD);
	int output = fcntl(spawn->plain ? spawn->output : log, F_DUPFD_CLOEXEC, PARKED_FD);
	if (dup2(log, STDERR_FILENO) < 0 || dup2(output, STDOUT_FILENO) < 0 ||
	    dup2(high_input, STDIN_FILENO) < 0 || dup2(frames, FRAMES_FD) < 0)
		child_fail(EXIT_NOT_SET_UP, "descriptors", errno);
	close_range(FRAMES_FD + 1, ~0U, 0);
	if (!spawn->plain)
		return;
	child_fault = FRAMES_FD;
	if (fcntl(FRAMES_FD, F_SETFD, FD_CLOEXEC) < 0)
		child_fail(EXIT_NOT_SET_UP, "descriptors", errno);
}

static void child_run(const void *ctx, pid_t keeper)
{
	const struct spawn *spawn = ctx;
	child_signals();
	setsid();
	child_files(spawn);
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		child_fail(EXIT_NOT_SET_UP, "prctl", errno);
	/* The keeper may have died before the line above. */
	if (getppid() != keeper)
		child_fail(EXIT_NOT_SET_UP, "its keeper is dead", ESRCH);
	child_limits();
	umask(0077);
	if (chdir(spawn->folder) < 0)
		child_fail(EXIT_NOT_SET_UP, "working directory", errno);
	execve(spawn->program, spawn->argv, spawn->envp);
	child_fail(EXIT_NOT_STARTED, spawn->program, errno);
}

static void keeper_fail(const void *ctx, const char *what, int why)
{
	child_files(ctx);
	child_fail(EXIT_NOT_SET_UP, what, why);
}

enum hf_code spawn_process(const struct spawn *spawn, pid_t *pid, struct hf_err *err)
{
	hf_assert(spawn->program[0] == '/');
	hf_assert(spawn->argv[0]);
	sigset_t all, before;
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before);
	struct keeper keeper = { spawn->until_ms, getpid(), child_run, keeper_fail, spawn };
	pid_t child = fork();
	int why = errno;
	if (child == 0)
		keeper_main(&keeper);
	sigprocmask(SIG_SETMASK, &before, nullptr);
	if (child < 0)
		return hf_fail(err, HF_SYSTEM, "fork: %s", strerror(why));
	*pid = child;
	return HF_OK;
}

char **spawn_resolve(const char *folder, char *const *command)
{
	char **argv = hf_alloc((texts_count(command) + 1) * sizeof *argv);
	for (size_t i = 0; command[i]; i++) {
		bool inside = strncmp(command[i], "./", 2) == 0;
		argv[i] =
		    inside ? hf_format("%s/%s", folder, command[i] + 2) : hf_strdup(command[i]);
	}
	return argv;
}

char *spawn_path_with_self(void)
{
	char self[4'096];
	ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
	if (len > 0)
		self[len] = '\0';
	char *slash = len > 0 ? strrchr(self, '/') : nullptr;
	/* A path cannot hold what separates its parts. */
	if (!slash || slash == self || memchr(self, ':', (size_t)(slash - self)))
		return hf_format("PATH=%s", SPAWN_PATH);
	return hf_format("PATH=%.*s:%s", (int)(slash - self), self, SPAWN_PATH);
}

static char *find_in_path(const char *name)
{
	for (const char *at = SPAWN_PATH; *at;) {
		size_t len = strcspn(at, ":");
		char *program = hf_format("%.*s/%s", (int)len, at, name);
		if (access(program, X_OK) == 0)
			return program;
		free(program);
		at += len + (at[len] == ':');
	}
	return nullptr;
}

enum hf_code spawn_find(const char *name, char **program, struct hf_err *err)
{
	if (!strchr(name, '/')) {
		*program = find_in_path(name);
		if (!*program)
			return hf_fail(err, HF_MISSING, "no program %s in %s", name, SPAWN_PATH);
		return HF_OK;
	}
	if (name[0] != '/' || access(name, X_OK) < 0)
		return hf_fail(err, HF_MISSING, "no program %s", name);
	*program = hf_strdup(name);
	return HF_OK;
}
