/* tool_folder.c - reads a tool's folder, bounded, without following links, so that what is stored
 * is what lay there. Called by cmd_tools.c. */
#include "runtime/tool_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base.h"
#include "runtime/json.h"
#include "runtime/tool_parse.h"

HF_DEFINE_CLEANUP(dir, DIR *, closedir)

static void hf_cleanup_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

/* --- Reading ---------------------------------------------------------------------------------- */

static enum hf_code content_read(int fd, const char *path, size_t size, char *room,
				 struct hf_err *err)
{
	size_t len = 0;
	while (len < size) {
		ssize_t got = read(fd, room + len, size - len);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return hf_fail(err, HF_SYSTEM, "%s: %s", path, strerror(errno));
		if (got == 0)
			return hf_fail(err, HF_BUSY, "%s: changed while it was read", path);
		len += (size_t)got;
	}
	return HF_OK;
}

static enum hf_code file_add(struct tool_folder *folder, int fd, const struct stat *status,
			     const char *path, struct hf_err *err)
{
	if (folder->count == TOOL_FOLDER_FILES_MAX)
		return hf_fail(err, HF_LIMIT, "%s: a tool has at most %zu files", path,
			       TOOL_FOLDER_FILES_MAX);
	size_t size = (size_t)status->st_size;
	if (size > TOOL_FILE_BYTES_MAX - folder->bytes)
		return hf_fail(err, HF_LIMIT, "%s: the files of a tool have at most %zu bytes",
			       path, TOOL_FILE_BYTES_MAX);
	hf_cleanup(text) char *room = hf_alloc(size + 1);
	hf_try(content_read(fd, path, size, room, err));
	folder->files[folder->count++] = (struct tool_file){
		.path = hf_strdup(path),
		.executable = status->st_mode & 0111,
		.content = { room, size },
	};
	folder->bytes += size;
	room = nullptr;
	return HF_OK;
}

static enum hf_code dir_read(struct tool_folder *folder, int fd, const char *prefix, int depth,
			     struct hf_err *err);

/* Names are for a terminal too, so what is odd in one is not printed. */
static enum hf_code bad_name(char *path, struct hf_err *err)
{
	for (char *at = path; *at; at++)
		if (*at < ' ' || *at >= 0x7f)
			*at = '?';
	return hf_fail(err, HF_INVALID,
		       "%.150s: file names of a tool are of A-Z a-z 0-9 _ . - + @ and space", path);
}

static enum hf_code entry_read(struct tool_folder *folder, int parent, const char *prefix,
			       const char *name, int depth, struct hf_err *err)
{
	hf_cleanup(text) char *path = hf_format("%s%s", prefix, name);
	if (!path_is_safe(path))
		return bad_name(path, err);
	/* O_NONBLOCK: a fifo must not hold us; it is refused below. */
	hf_cleanup(fd) int fd =
	    openat(parent, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 && errno == ELOOP)
		return hf_fail(err, HF_INVALID, "%s: is a symbolic link", path);
	struct stat status;
	if (fd < 0 || fstat(fd, &status) < 0)
		return hf_fail(err, HF_SYSTEM, "%s: %s", path, strerror(errno));
	if (S_ISREG(status.st_mode))
		return file_add(folder, fd, &status, path, err);
	if (!S_ISDIR(status.st_mode))
		return hf_fail(err, HF_INVALID, "%s: is no file", path);
	hf_cleanup(text) char *inner = hf_format("%s/", path);
	int taken = fd;
	fd = -1; /* dir_read's own */
	return dir_read(folder, taken, inner, depth + 1, err);
}

/* Takes `fd` over. */
static enum hf_code dir_read(struct tool_folder *folder, int fd, const char *prefix, int depth,
			     struct hf_err *err)
{
	hf_cleanup(dir) DIR *dir = fdopendir(fd);
	if (!dir) {
		close(fd);
		return hf_fail(err, HF_SYSTEM, "%s: %s", prefix, strerror(errno));
	}
	if (depth > TOOL_FOLDER_DEPTH_MAX)
		return hf_fail(err, HF_LIMIT, "%s: folders nest at most %d deep", prefix,
			       TOOL_FOLDER_DEPTH_MAX);
	while (true) {
		errno = 0;
		const struct dirent *entry = readdir(dir);
		if (!entry && errno)
			return hf_fail(err, HF_SYSTEM, "%s: %s", prefix, strerror(errno));
		if (!entry)
			return HF_OK;
		if (entry->d_name[0] == '.')
			continue;
		hf_try(entry_read(folder, dirfd(dir), prefix, entry->d_name, depth, err));
	}
}

/* --- Version ---------------------------------------------------------------------------------- */

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct tool_file *)a)->path, ((const struct tool_file *)b)->path);
}

static void hash_sized(EVP_MD_CTX *hash, struct slice bytes)
{
	unsigned char len[8];
	for (size_t i = 0; i < sizeof len; i++)
		len[i] = (unsigned char)(bytes.len >> (56 - 8 * i));
	bool hashed = EVP_DigestUpdate(hash, len, sizeof len) &&
		      EVP_DigestUpdate(hash, bytes.data, bytes.len);
	hf_assert(hashed);
}

static void folder_hash(struct tool_folder *folder)
{
	EVP_MD_CTX *hash = EVP_MD_CTX_new();
	hf_assert(hash);
	bool hashed = EVP_DigestInit_ex(hash, EVP_sha256(), nullptr);
	hf_assert(hashed);
	for (size_t i = 0; i < folder->count; i++) {
		unsigned char mode = folder->files[i].executable;
		hash_sized(hash, slice_of(folder->files[i].path));
		hashed = EVP_DigestUpdate(hash, &mode, 1);
		hf_assert(hashed);
		hash_sized(hash, folder->files[i].content);
	}
	unsigned char digest[32];
	hashed = EVP_DigestFinal_ex(hash, digest, nullptr);
	hf_assert(hashed);
	EVP_MD_CTX_free(hash);
	for (size_t i = 0; i < sizeof digest; i++)
		snprintf(folder->version + 2 * i, 3, "%02x", digest[i]);
}

/* --- The folder ------------------------------------------------------------------------------- */

enum hf_code tool_folder_read(const char *path, struct tool_folder **out, struct hf_err *err)
{
	hf_assert(path);
	hf_assert(out);
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return hf_fail(err, HF_MISSING, "%s: %s", path, strerror(errno));
	hf_cleanup(tool_folder) struct tool_folder *folder = hf_alloc(sizeof *folder);
	folder->files = hf_alloc(TOOL_FOLDER_FILES_MAX * sizeof *folder->files);
	hf_try(dir_read(folder, fd, "", 0, err));
	qsort(folder->files, folder->count, sizeof *folder->files, by_path);
	folder_hash(folder);
	*out = folder;
	folder = nullptr;
	return HF_OK;
}

struct tool_folder *tool_folder_free(struct tool_folder *folder)
{
	if (!folder)
		return nullptr;
	for (size_t i = 0; i < folder->count; i++) {
		free(folder->files[i].path);
		free((void *)(uintptr_t)folder->files[i].content.data);
	}
	free(folder->files);
	free(folder);
	return nullptr;
}

const struct tool_file *tool_folder_find(const struct tool_folder *folder, const char *path)
{
	for (size_t i = 0; i < folder->count; i++)
		if (strcmp(folder->files[i].path, path) == 0)
			return &folder->files[i];
	return nullptr;
}

static enum hf_code on_read(void *ctx, const char *path, struct slice *content, bool *executable,
			    struct hf_err *err)
{
	const struct tool_file *file = tool_folder_find(ctx, path);
	if (!file)
		return hf_fail(err, HF_MISSING, "%s: is not there", path);
	*content = file->content;
	if (executable)
		*executable = file->executable;
	return HF_OK;
}

struct tool_files tool_folder_files(struct tool_folder *folder)
{
	return (struct tool_files){ .read = on_read, .ctx = folder };
}

/* --- Programs --------------------------------------------------------------------------------- */

/* Why the system would not start it; nullptr: nothing is seen that speaks against it. */
static const char *program_fault(struct slice content)
{
	if (content.len >= 4 && memcmp(content.data, "\177ELF", 4) == 0)
		return nullptr;
	if (content.len < 2 || memcmp(content.data, "#!", 2) != 0)
		return "is neither ELF nor begins with #!";
	const char *end = memchr(content.data, '\n', content.len);
	size_t len = end ? (size_t)(end - content.data) : content.len;
	if (content.data[len - 1] == '\r')
		return "has a #! line that ends in CR LF: it must end in LF alone";
	for (size_t i = 2; i < len; i++)
		if (content.data[i] != ' ' && content.data[i] != '\t')
			return nullptr;
	return "has a #! line that names no program";
}

/* Only of what is to be applied: a version that a worker has already is served as it is. */
static enum hf_code program_check(const struct tool_folder *folder, const struct phase_spec *phase,
				  const char *where, struct hf_err *err)
{
	if (phase->type != PHASE_PROGRAM)
		return HF_OK;
	const char *program = phase->command[0];
	bool own = strncmp(program, "./", 2) == 0;
	const struct tool_file *file = tool_folder_find(folder, own ? program + 2 : program);
	if (!own && file)
		return hf_fail(err, HF_INVALID,
			       "tool.json#%s/command/0: \"%s\" is looked for in PATH alone: "
			       "write \"./%s\" for the file of this folder",
			       where, program, program);
	const char *fault = own && file ? program_fault(file->content) : nullptr;
	return fault ? hf_fail(err, HF_INVALID, "tool.json#%s/command/0: %s %s", where, program,
			       fault)
		     : HF_OK;
}

static enum hf_code programs_check(const struct tool_folder *folder, const struct tool *tool,
				   struct hf_err *err)
{
	for (size_t i = 0; i < tool->phases_count; i++) {
		char where[sizeof "/phases//undo" + 20];
		snprintf(where, sizeof where, "/phases/%zu", i);
		hf_try(program_check(folder, &tool->phases[i], where, err));
		snprintf(where, sizeof where, "/phases/%zu/undo", i);
		if (tool->phases[i].undo)
			hf_try(program_check(folder, tool->phases[i].undo, where, err));
	}
	return HF_OK;
}

/* --- Slips ------------------------------------------------------------------------------------ */

/* {"$form": "/state/count"}: a reference but for its name. Others with a $ may be meant, as those
 * of a schema or of a query are. */
static bool is_slip(struct slice name, struct slice value)
{
	static const char *const roots[] = { "\"/args/", "\"/state/", "\"/input/", "\"/task/",
					     "\"/conf/" };
	if (name.data[1] != '$' || json_string_is(name, "$from"))
		return false;
	for (size_t i = 0; i < countof(roots); i++)
		if (value.len >= strlen(roots[i]) &&
		    memcmp(value.data, roots[i], strlen(roots[i])) == 0)
			return true;
	return false;
}

/* The depth is bounded: `json` was scanned. */
static enum hf_code slips_check(struct tool_parse *parse, struct slice json)
{
	struct slice name, value;
	enum json_type type = json_type_of(json);
	size_t mark = parse->path.len, at = 0;
	while (type == JSON_OBJECT && json_object_next(json, &at, &name, &value)) {
		if (json_string_is(name, "inputSchema") || json_string_is(name, "outputSchema"))
			continue;
		hf_cleanup(buf) struct buf text = {};
		json_string_decode(name, &text);
		path_down(parse, buf_slice(&text));
		if (is_slip(name, value))
			return tool_bad(parse,
					"would stay as it stands: {\"$from\": %.*s} is what "
					"puts a value in",
					(int)value.len, value.data);
		hf_try(slips_check(parse, value));
		path_up(parse, mark);
	}
	for (size_t i = 0; type == JSON_ARRAY && json_array_next(json, &at, &value); i++) {
		path_down_index(parse, i);
		hf_try(slips_check(parse, value));
		path_up(parse, mark);
	}
	return HF_OK;
}

/* --- The tool --------------------------------------------------------------------------------- */

enum hf_code tool_folder_tool(struct tool_folder *folder, struct tool **out, struct hf_err *err)
{
	const struct tool_file *doc = tool_folder_find(folder, "tool.json");
	if (!doc)
		return hf_fail(err, HF_INVALID, "tool.json: is not there");
	struct tool_files files = tool_folder_files(folder);
	hf_cleanup(tool) struct tool *tool = nullptr;
	hf_try(tool_new(doc->content, &files, &tool, err));
	hf_try(programs_check(folder, tool, err));
	/* Here and not in tool_new, which reads versions that are served already, too. */
	struct tool_parse parse = { .tool = tool, .err = err };
	enum hf_code code = slips_check(&parse, json_trim(slice_of(tool->doc)));
	buf_deinit(&parse.path);
	hf_try(code);
	memcpy(tool->version, folder->version, sizeof folder->version);
	*out = tool;
	tool = nullptr;
	return HF_OK;
}
