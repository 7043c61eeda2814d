/* One look at the store's list at a time, and one version on its way at a time:
 *
 *   waiting* ──timer, hint──► listing* ──► (loading* ──► read) … ──► waiting
 *                                                     * suspended: timer or store resumes
 *
 * What was read once is kept to the end of the process: a run may hold it, and it is small. */
#include "worker/versions.h"

#include <ev.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base.h"
#include "runtime/clock.h"
#include "runtime/log.h"
#include "runtime/timer.h"

struct versions {
	struct ev_loop *loop;
	struct store *store;
	char *state_dir;
	void (*changed)(void *ctx);
	void *ctx;
	struct version **all; /* pointers, since runs keep them */
	size_t count;
	int32_t *queues;
	ev_timer timer;
	bool asking;             /* a look is on its way */
	struct version *loading; /* its files are on their way */
	bool hinted;             /* while a look was under way */
	bool stopped;
	int64_t looked_at; /* boot clock */
	uint64_t served;   /* tasks that claims have brought */
};

/* A store_file list as tool_new wants to read it. */
struct file_list {
	const struct store_file *files;
	size_t count;
};

static void look_in(struct versions *versions, int64_t ms)
{
	if (!versions->stopped)
		timer_set(versions->loop, &versions->timer, ms);
}

static struct version *find(const struct versions *versions, int32_t id)
{
	for (size_t i = 0; i < versions->count; i++)
		if (versions->all[i]->id == id)
			return versions->all[i];
	return nullptr;
}

static enum hf_code read_file(void *ctx, const char *path, struct slice *content, bool *executable,
			      struct hf_err *err)
{
	const struct file_list *list = ctx;
	for (size_t i = 0; i < list->count; i++) {
		if (!slice_is(list->files[i].path, path))
			continue;
		*content = list->files[i].content;
		if (executable)
			*executable = list->files[i].executable;
		return HF_OK;
	}
	return hf_fail(err, HF_MISSING, "there is no file %s", path);
}

static enum hf_code load(struct versions *versions, struct version *version,
			 const struct store_tool *tool, const struct file_list *list,
			 struct hf_err *err)
{
	char name[sizeof version->tool->version];
	if (tool->version.len >= sizeof name)
		return hf_fail(err, HF_INVALID, "its version is too long");
	memcpy(name, tool->version.data, tool->version.len);
	name[tool->version.len] = '\0';
	struct tool *read = nullptr;
	struct tool_files files = { .read = read_file, .ctx = (void *)(uintptr_t)list };
	char *folder = nullptr;
	hf_try(versions_unpack(versions->state_dir, name, list->files, list->count, &folder, err));
	enum hf_code code = tool_new(tool->doc, &files, &read, err);
	if (code != HF_OK) {
		free(folder);
		return code;
	}
	read->id = version->id;
	memcpy(read->version, name, sizeof name);
	version->folder = folder;
	version->tool = read;
	return HF_OK;
}

static void load_next(struct versions *versions);

static void on_files(void *ctx, enum hf_code code, const struct store_tool *tool,
		     const struct store_file *files, size_t count, const struct hf_err *err)
{
	struct versions *versions = ctx;
	struct version *version = versions->loading;
	struct hf_err own = {};
	versions->loading = nullptr;
	if (code == HF_CANCELLED)
		return;
	if (code == HF_OK) {
		struct file_list list = { files, count };
		code = load(versions, version, tool, &list, &own);
		err = &own;
	}
	if (code == HF_OK) {
		log_info("serving", "tool", version->tool->name, "version", version->tool->version,
			 nullptr);
		versions->changed(versions->ctx);
	} else {
		version->bad = code == HF_INVALID || code == HF_MISSING || code == HF_CORRUPT;
		log_error("this worker cannot serve a tool version", "tool", LOG_INT(version->id),
			  "error", err ? err->text : nullptr, nullptr);
	}
	load_next(versions);
}

static void load_next(struct versions *versions)
{
	for (size_t i = 0; i < versions->count && !versions->stopped; i++) {
		struct version *version = versions->all[i];
		if (!version->listed || version->tool || version->bad || version->tried)
			continue;
		version->tried = true;
		versions->loading = version;
		store_tool_files(versions->store, version->id, on_files, versions);
		return;
	}
	look_in(versions, versions->hinted ? VERSIONS_HINT_MS : VERSIONS_REFRESH_MS);
	versions->hinted = false;
}

static void add(struct versions *versions, int32_t id)
{
	struct version *version = hf_alloc(sizeof *version);
	version->id = id;
	version->listed = true;
	versions->all = hf_realloc(versions->all, (versions->count + 1) * sizeof(struct version *));
	versions->queues = hf_realloc(versions->queues, (versions->count + 1) * sizeof(int32_t));
	versions->all[versions->count++] = version;
}

static void list(struct versions *versions, const int32_t *tools, size_t count)
{
	size_t before, after;
	versions_queues(versions, &before);
	for (size_t i = 0; i < versions->count; i++)
		versions->all[i]->listed = versions->all[i]->tried = false;
	for (size_t i = 0; i < count; i++) {
		struct version *version = find(versions, tools[i]);
		if (version)
			version->listed = true;
		else
			add(versions, tools[i]);
	}
	versions_queues(versions, &after);
	if (after > before)
		versions->changed(versions->ctx);
}

static void on_versions(void *ctx, enum hf_code code, const int32_t *tools, size_t count,
			const struct hf_err *err)
{
	struct versions *versions = ctx;
	versions->asking = false;
	if (code == HF_CANCELLED)
		return;
	if (code != HF_OK) {
		log_warn("the list of tools could not be read, the next look follows", "error",
			 err ? err->text : nullptr, nullptr);
		look_in(versions, VERSIONS_REFRESH_MS);
		return;
	}
	list(versions, tools, count);
	load_next(versions);
}

static void on_timer(struct ev_loop *, ev_timer *timer, int)
{
	struct versions *versions = container_of(timer, struct versions, timer);
	ev_timer_stop(versions->loop, timer);
	if (versions->asking || versions->loading || versions->stopped)
		return;
	versions->asking = true;
	versions->looked_at = clock_boot_ms();
	store_versions(versions->store, on_versions, versions);
}

struct versions *versions_open(struct ev_loop *loop, struct store *store, const char *state_dir,
			       void (*changed)(void *ctx), void *ctx)
{
	struct versions *versions = hf_alloc(sizeof *versions);
	versions->loop = loop;
	versions->store = store;
	versions->state_dir = hf_strdup(state_dir);
	versions->changed = changed;
	versions->ctx = ctx;
	ev_init(&versions->timer, on_timer);
	look_in(versions, 0);
	return versions;
}

struct versions *versions_close(struct versions *versions)
{
	if (!versions)
		return nullptr;
	ev_timer_stop(versions->loop, &versions->timer);
	for (size_t i = 0; i < versions->count; i++) {
		tool_free(versions->all[i]->tool);
		free(versions->all[i]->folder);
		free(versions->all[i]);
	}
	free(versions->all);
	free(versions->queues);
	free(versions->state_dir);
	free(versions);
	return nullptr;
}

void versions_stop(struct versions *versions)
{
	versions->stopped = true;
	ev_timer_stop(versions->loop, &versions->timer);
}

void versions_hint(struct versions *versions)
{
	int64_t age = clock_boot_ms() - versions->looked_at;
	if (versions->asking || versions->loading)
		versions->hinted = true;
	else
		look_in(versions, age >= VERSIONS_HINT_MS ? 0 : VERSIONS_HINT_MS - age);
}

static int by_served(const void *a, const void *b)
{
	const struct version *const *left = a, *const *right = b;
	if ((*left)->served != (*right)->served)
		return (*left)->served < (*right)->served ? -1 : 1;
	return (*left)->id < (*right)->id ? -1 : 1;
}

const int32_t *versions_queues(struct versions *versions, size_t *count)
{
	*count = 0;
	if (versions->count > 0)
		qsort(versions->all, versions->count, sizeof *versions->all, by_served);
	for (size_t i = 0; i < versions->count; i++)
		if (versions->all[i]->listed && versions->all[i]->tool)
			versions->queues[(*count)++] = versions->all[i]->id;
	return versions->queues;
}

void versions_served(struct versions *versions, int32_t id)
{
	struct version *version = find(versions, id);
	hf_assert(version);
	version->served = ++versions->served;
}

const struct version *versions_find(const struct versions *versions, int32_t id)
{
	const struct version *version = find(versions, id);
	return version && version->tool ? version : nullptr;
}
