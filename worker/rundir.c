/* rundir.c - the lock tells the living from the dead: a directory of STATE_DIR/run whose lock can
 * be had belongs to nobody. Its processes are known by a variable of their environment, since
 * process numbers are reused. */
#include "worker/rundir.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base.h"
#include "runtime/id.h"
#include "runtime/log.h"

const char rundir_variable[] = "HOLDFAST_RUN_DIR";

constexpr size_t ENVIRON_BYTES_MAX = 1 << 20; /* of a process, looked through */

struct rundir {
	char *path;
	int lock;
};

HF_DEFINE_CLEANUP(folder, DIR *, closedir)

static bool is_dot(const char *name)
{
	return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* Removes what is in the folder `fd` (taken over); `budget` counts down. */
static bool clear_fd(int fd, int depth, int *budget)
{
	hf_cleanup(folder) DIR *folder = fdopendir(fd);
	if (!folder) {
		close(fd);
		return false;
	}
	bool empty = true;
	for (struct dirent *entry; (entry = readdir(folder));) {
		if (is_dot(entry->d_name))
			continue;
		if (--*budget < 0 || depth == 0)
			return false;
		if (unlinkat(fd, entry->d_name, 0) == 0)
			continue;
		int inner =
		    openat(fd, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		/* A tool may have taken the rights of its own folder away. */
		if (inner < 0 && fchmodat(fd, entry->d_name, 0700, 0) == 0)
			inner = openat(fd, entry->d_name,
				       O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (inner < 0 || !clear_fd(inner, depth - 1, budget) ||
		    unlinkat(fd, entry->d_name, AT_REMOVEDIR) < 0)
			empty = false;
	}
	return empty;
}

bool rundir_clear(const char *path)
{
	int budget = RUNDIR_ENTRIES_MAX;
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd >= 0 && clear_fd(fd, RUNDIR_DEPTH_MAX, &budget);
}

void rundir_remove(const char *path)
{
	if (!rundir_clear(path) || rmdir(path) < 0)
		log_warn(
		    "a tool's working directory is not wholly removed; a worker that starts tries "
		    "again",
		    "path", path, nullptr);
}

/* Whether the environment of process `pid` says that it belongs to the directory `path`. */
static bool process_belongs(const char *pid, const char *path)
{
	char name[64];
	snprintf(name, sizeof name, "/proc/%.16s/environ", pid);
	int fd = open(name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	hf_cleanup(text) char *wanted = hf_format("%s=%s", rundir_variable, path);
	hf_cleanup(text) char *bytes = hf_alloc(ENVIRON_BYTES_MAX + 1);
	size_t len = 0;
	for (ssize_t got;
	     len < ENVIRON_BYTES_MAX && (got = read(fd, bytes + len, ENVIRON_BYTES_MAX - len)) > 0;)
		len += (size_t)got;
	close(fd);
	for (size_t at = 0; at < len; at += strlen(bytes + at) + 1) {
		if (strcmp(bytes + at, wanted) == 0)
			return true;
	}
	return false;
}

static void kill_processes_of(const char *path)
{
	hf_cleanup(folder) DIR *proc = opendir("/proc");
	for (struct dirent *entry; proc && (entry = readdir(proc));) {
		if (!isdigit((unsigned char)entry->d_name[0]) ||
		    !process_belongs(entry->d_name, path))
			continue;
		log_warn("a tool process of a worker that died is killed", "pid", entry->d_name,
			 nullptr);
		kill((pid_t)strtol(entry->d_name, nullptr, 10), SIGKILL);
	}
}

/* The lock file of a directory, locked; -1 where another process holds it. */
static int lock_of(const char *path, int flags)
{
	hf_cleanup(text) char *name = hf_format("%s/lock", path);
	int fd = open(name, O_RDWR | O_CLOEXEC | flags, 0600);
	if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0) {
		close(fd);
		fd = -1;
	}
	return fd;
}

static void remove_dead(const char *parent)
{
	hf_cleanup(folder) DIR *folder = opendir(parent);
	for (struct dirent *entry; folder && (entry = readdir(folder));) {
		if (strncmp(entry->d_name, "worker-", 7) != 0)
			continue;
		hf_cleanup(text) char *path = hf_format("%s/%s", parent, entry->d_name);
		/* One without a lock file is the rest of an unfinished removal. */
		int lock = lock_of(path, 0);
		if (lock < 0 && errno != ENOENT)
			continue;
		kill_processes_of(path);
		rundir_remove(path);
		if (lock >= 0)
			close(lock);
	}
}

static enum hf_code make_folder(const char *path, struct hf_err *err)
{
	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return hf_fail(err, HF_SYSTEM, "%s: %s", path, strerror(errno));
	return HF_OK;
}

enum hf_code rundir_open(const char *state_dir, struct rundir **out, struct hf_err *err)
{
	hf_cleanup(text) char *parent = hf_format("%s/run", state_dir);
	hf_try(make_folder(parent, err));
	remove_dead(parent);

	/* Made under another name and renamed once locked, so that it never looks dead. */
	struct uuid random = uuid_new();
	char name[33];
	hex_format(random.bytes, sizeof random.bytes, name);
	hf_cleanup(text) char *early = hf_format("%s/new-%s", parent, name);
	hf_cleanup(text) char *path = hf_format("%s/worker-%d-%.8s", parent, (int)getpid(), name);
	hf_try(make_folder(early, err));
	int lock = lock_of(early, O_CREAT);
	if (lock < 0 || rename(early, path) < 0) {
		int why = errno;
		if (lock >= 0)
			close(lock);
		return hf_fail(err, HF_SYSTEM, "%s: %s", path, strerror(why));
	}
	struct rundir *rundir = hf_alloc(sizeof *rundir);
	*rundir = (struct rundir){ .path = path, .lock = lock };
	*out = rundir;
	path = nullptr;
	return HF_OK;
}

void rundir_close(struct rundir *rundir)
{
	if (!rundir)
		return;
	rundir_remove(rundir->path);
	close(rundir->lock);
	free(rundir->path);
	free(rundir);
}

const char *rundir_path(const struct rundir *rundir)
{
	return rundir->path;
}

enum hf_code rundir_add(const struct rundir *rundir, int number, char **path, struct hf_err *err)
{
	hf_cleanup(text) char *made = hf_format("%s/%d", rundir->path, number);
	if (mkdir(made, 0700) < 0)
		return hf_fail(err, HF_SYSTEM, "%s: %s", made, strerror(errno));
	*path = made;
	made = nullptr;
	return HF_OK;
}
