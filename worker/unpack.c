/* Unpacking a tool version. The folder's name is the hash of its content, so a folder that stands
 * is whole and right: it came there by a rename after its files were on the disk. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base.h"
#include "runtime/file.h"
#include "runtime/random.h"
#include "worker/versions.h"

constexpr size_t PATH_LEN_MAX = 1'024;
constexpr int WALK_FILES_MAX = 16; /* file descriptors of nftw */

/* Relative, and every piece of it a plain name. */
static bool path_is_inside(struct slice path)
{
	if (path.len == 0 || path.len > PATH_LEN_MAX || memchr(path.data, '\0', path.len))
		return false;
	for (size_t at = 0; at <= path.len;) {
		const char *slash = memchr(path.data + at, '/', path.len - at);
		size_t len = slash ? (size_t)(slash - path.data) - at : path.len - at;
		struct slice name = { path.data + at, len };
		if (len == 0 || len > 255 || slice_is(name, ".") || slice_is(name, ".."))
			return false;
		at += len + 1;
	}
	return true;
}

static enum hf_code sync_folder(const char *path, struct hf_err *err)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	bool synced = fd >= 0 && fsync(fd) == 0;
	if (fd >= 0)
		close(fd);
	return synced ? HF_OK : hf_fail(err, HF_SYSTEM, "%s: %s", path, strerror(errno));
}

static enum hf_code make_folder(const char *path, struct hf_err *err)
{
	if (mkdir(path, 0755) == 0 || errno == EEXIST)
		return HF_OK;
	return hf_fail(err, HF_SYSTEM, "%s: %s", path, strerror(errno));
}

static enum hf_code write_durably(int fd, struct slice content)
{
	hf_try(file_write(fd, content));
	return fsync(fd) == 0 ? HF_OK : HF_SYSTEM;
}

static enum hf_code write_file(const char *root, const struct store_file *file, struct hf_err *err)
{
	hf_cleanup(text) char *path =
	    hf_format("%s/%.*s", root, (int)file->path.len, file->path.data);
	for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = '\0';
		hf_try(make_folder(path, err));
		*slash = '/';
	}
	mode_t mode = file->executable ? 0755 : 0644;
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
	if (fd < 0)
		return hf_fail(err, HF_SYSTEM, "%s: %s", path, strerror(errno));
	/* The umask must not take the x away that the tool needs. */
	enum hf_code code = fchmod(fd, mode) == 0 ? write_durably(fd, file->content) : HF_SYSTEM;
	if (close(fd) != 0)
		code = HF_SYSTEM;
	return code == HF_OK ? HF_OK : hf_fail(err, code, "%s: %s", path, strerror(errno));
}

static int on_entry(const char *path, const struct stat *, int, struct FTW *)
{
	return remove(path);
}

static enum hf_code write_tree(const char *root, const struct store_file *files, size_t count,
			       struct hf_err *err)
{
	hf_try(make_folder(root, err));
	for (size_t i = 0; i < count; i++)
		hf_try(write_file(root, &files[i], err));
	return sync_folder(root, err);
}

enum hf_code versions_unpack(const char *state_dir, const char *version,
			     const struct store_file *files, size_t count, char **folder,
			     struct hf_err *err)
{
	for (size_t i = 0; i < count; i++)
		if (!path_is_inside(files[i].path))
			return hf_fail(err, HF_INVALID, "the path of file %zu leaves the folder",
				       i + 1);
	if (!path_is_inside(slice_of(version)))
		return hf_fail(err, HF_INVALID, "the version is no name");
	hf_cleanup(text) char *tools = hf_format("%s/tools", state_dir);
	hf_cleanup(text) char *target = hf_format("%s/%s", tools, version);
	hf_try(make_folder(tools, err));
	if (access(target, F_OK) != 0) {
		uint64_t unique;
		random_bytes(&unique, sizeof unique);
		hf_cleanup(text) char *root =
		    hf_format("%s/.new-%016llx", tools, (unsigned long long)unique);
		enum hf_code code = write_tree(root, files, count, err);
		bool moved = code == HF_OK && rename(root, target) == 0;
		int error = errno;
		if (!moved)
			nftw(root, on_entry, WALK_FILES_MAX, FTW_DEPTH | FTW_PHYS);
		if (code != HF_OK)
			return code;
		/* Another worker of this machine may have been quicker, with the same files. */
		if (!moved && error != EEXIST && error != ENOTEMPTY)
			return hf_fail(err, HF_SYSTEM, "%s: %s", target, strerror(error));
		hf_try(sync_folder(tools, err));
	}
	*folder = target;
	target = nullptr;
	return HF_OK;
}
