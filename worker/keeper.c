/* keeper.c - one process a tool process, so it may block. Killed children leave their own children
 * to this process, one generation at a time; when waitpid says that there is no child left, there
 * is no descendant left. */
#include "worker/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base.h"
#include "runtime/clock.h"

constexpr int EXIT_NOT_SET_UP = 126;
constexpr int64_t LOOK_MS_MAX = 60'000; /* between two looks at the lease */
constexpr int KILL_PAUSE_MS = 2;        /* between two rounds of killing, unless a child ends */
constexpr size_t CHILDREN_BYTES = 32 << 10;

static_assert(KEEPER_STOP_SIGNAL == SIGTERM);

enum end { END_NONE, END_TOOL, END_STOP, END_LEASE };

struct kept {
	const struct keeper *keeper;
	pid_t tool;
	int signals;
	bool reaped; /* the tool process; its number may be another's by now */
	int status;  /* of it */
};

static void drain(int signals, int wait_ms)
{
	struct signalfd_siginfo info;
	struct pollfd poller = { .fd = signals, .events = POLLIN };
	if (poll(&poller, 1, wait_ms) > 0)
		(void)!read(signals, &info, sizeof info);
}

/* A tool that has ended is left a zombie, so that its number stays that of its group. */
static bool tool_ended(const struct kept *kept)
{
	siginfo_t info = {};
	return waitid(P_PID, (id_t)kept->tool, &info, WEXITED | WNOHANG | WNOWAIT) < 0 ||
	       info.si_pid == kept->tool;
}

static enum end wait_for_end(const struct kept *kept)
{
	struct signalfd_siginfo info;
	struct pollfd poller = { .fd = kept->signals, .events = POLLIN };
	for (;;) {
		if (tool_ended(kept))
			return END_TOOL;
		int64_t left_ms = atomic_load(kept->keeper->until_ms) - clock_boot_ms();
		if (left_ms <= 0)
			return END_LEASE;
		int wait_ms = (int)(left_ms < LOOK_MS_MAX ? left_ms : LOOK_MS_MAX);
		if (poll(&poller, 1, wait_ms) > 0 &&
		    read(kept->signals, &info, sizeof info) == sizeof info &&
		    info.ssi_signo == (uint32_t)KEEPER_STOP_SIGNAL)
			return END_STOP;
	}
}

/* The kernel's list of children is an option that all distributions set; without it only the tool's
 * own group is killed, and what left it is waited for. */
static void kill_children(const struct kept *kept)
{
	static char text[CHILDREN_BYTES + 1];
	static char name[64];
	if (!kept->reaped) {
		kill(-kept->tool, SIGKILL);
		kill(kept->tool, SIGKILL); /* before it has a group of its own */
	}
	snprintf(name, sizeof name, "/proc/self/task/%d/children", (int)getpid());
	int fd = open(name, O_RDONLY | O_CLOEXEC);
	ssize_t len = fd < 0 ? 0 : read(fd, text, CHILDREN_BYTES);
	if (fd >= 0)
		close(fd);
	text[len > 0 ? len : 0] = '\0';
	char *end;
	for (char *at = text; *at; at = end) {
		long pid = strtol(at, &end, 10);
		/* One that was cut at the end of the buffer comes with the next round. */
		if (end == at || *end != ' ')
			break;
		kill((pid_t)pid, SIGKILL);
		end += *end == ' ';
	}
}

/* False: there is no child any more. */
static bool reap(struct kept *kept)
{
	for (;;) {
		int status;
		pid_t pid = waitpid(-1, &status, WNOHANG);
		if (pid == kept->tool && !kept->reaped) {
			kept->reaped = true;
			kept->status = status;
		}
		if (pid < 0 && errno == ECHILD)
			return false;
		if (pid == 0)
			return true;
	}
}

/* What no one else can say, since the worker is stopped or dead. */
static void say(enum end end, const struct kept *kept, int64_t took_ms)
{
	static char line[256];
	if (end != END_LEASE && getppid() == kept->keeper->worker)
		return;
	int len =
	    snprintf(line, sizeof line,
		     "{\"level\":\"warn\",\"role\":\"keeper\",\"msg\":\"%s: tool process killed, "
		     "reaped\",\"pid\":%d,\"worker\":%d,\"after_ms\":%lld}\n",
		     end == END_LEASE ? "the lease is over" : "the worker died", (int)kept->tool,
		     (int)kept->keeper->worker, (long long)took_ms);
	(void)!write(STDERR_FILENO, line, (size_t)len);
}

/* As the tool did. */
[[noreturn]] static void end_as(int status)
{
	if (!WIFSIGNALED(status))
		_exit(WEXITSTATUS(status));
	struct sigaction standard = { .sa_handler = SIG_DFL };
	struct rlimit none = {};
	sigset_t only;
	sigemptyset(&only);
	sigaddset(&only, WTERMSIG(status));
	setrlimit(RLIMIT_CORE, &none);
	sigaction(WTERMSIG(status), &standard, nullptr);
	kill(getpid(), WTERMSIG(status));
	sigprocmask(SIG_UNBLOCK, &only, nullptr);
	_exit(128 + WTERMSIG(status));
}

void keeper_main(const struct keeper *keeper)
{
	struct kept kept = { .keeper = keeper };
	sigset_t heard;
	sigemptyset(&heard);
	sigaddset(&heard, KEEPER_STOP_SIGNAL);
	sigaddset(&heard, SIGCHLD);
	setsid();
	prctl(PR_SET_NAME, "holdfast-keeper");
	pid_t self = getpid();
	/* Above what is closed below, where the worker has no stdin. */
	kept.signals = fcntl(signalfd(-1, &heard, SFD_CLOEXEC | SFD_NONBLOCK), F_DUPFD_CLOEXEC,
			     STDERR_FILENO + 1);
	if (kept.signals < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0 ||
	    prctl(PR_SET_PDEATHSIG, KEEPER_STOP_SIGNAL) < 0)
		keeper->fail(keeper->ctx, "keeper", errno);
	/* The worker may have died before the line above. */
	if (getppid() != keeper->worker)
		_exit(EXIT_NOT_SET_UP);
	/* Nothing begins after the lease: the worker was stopped between its look and here. */
	if (atomic_load(keeper->until_ms) <= clock_boot_ms())
		end_as(SIGKILL);
	kept.tool = fork();
	if (kept.tool == 0)
		keeper->run(keeper->ctx, self);
	if (kept.tool < 0)
		keeper->fail(keeper->ctx, "fork", errno);
	/* The ends of the tool's pipes are the tool's alone. */
	if (kept.signals > STDERR_FILENO + 1)
		close_range(STDERR_FILENO + 1, (unsigned)kept.signals - 1, 0);
	close_range((unsigned)kept.signals + 1, ~0U, 0);
	close(STDIN_FILENO);
	close(STDOUT_FILENO);
	enum end end = wait_for_end(&kept);
	int64_t began_ms = clock_boot_ms();
	do {
		kill_children(&kept);
		drain(kept.signals, KILL_PAUSE_MS);
	} while (reap(&kept));
	say(end, &kept, clock_boot_ms() - began_ms);
	end_as(kept.status);
}
