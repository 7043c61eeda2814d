/* services.c - what the product's code asks for besides: versions of tools, which all stand here;
 * logs and metrics, which tell the harness what was decided; no monitor. */
#include "runtime/lineage.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/base.h"
#include "runtime/buf.h"
#include "runtime/config.h"
#include "runtime/log.h"
#include "runtime/metrics.h"
#include "runtime/monitor.h"
#include "test/sim/sim.h"
#include "worker/versions.h"

/* --- versions --------------------------------------------------------------------------------- */

struct versions {
	struct version versions[TOOLS_MAX];
	int32_t queues[TOOLS_MAX];
};

struct versions *versions_open(struct ev_loop *, struct store *, const char *, void (*)(void *ctx),
			       void *)
{
	struct versions *versions = hf_alloc(sizeof *versions);
	for (int i = 0; i < tools_count; i++) {
		static char here[] = ".";
		versions->versions[i] =
		    (struct version){ .id = tools[i]->id, .tool = tools[i], .folder = here };
		versions->queues[i] = tools[i]->id;
	}
	return versions;
}

struct versions *versions_close(struct versions *versions)
{
	free(versions);
	return nullptr;
}

void versions_stop(struct versions *)
{
}

void versions_hint(struct versions *)
{
}

void versions_served(struct versions *, int32_t)
{
}

/* No store here is ever restored. */
bool lineage_waits(void)
{
	return false;
}

const int32_t *versions_queues(struct versions *versions, size_t *count)
{
	*count = (size_t)tools_count;
	return versions->queues;
}

const struct version *versions_find(const struct versions *versions, int32_t id)
{
	return &versions->versions[id - 1];
}

/* --- log -------------------------------------------------------------------------------------- */

const char *log_int(int64_t value)
{
	static char ring[32][24];
	static unsigned next;
	if (story_of == -2)
		return "";
	char *text = ring[next++ % countof(ring)];
	snprintf(text, sizeof ring[0], "%lld", (long long)value);
	return text;
}

/* The task's ID, or what has none. */
static bool is_of_story(const char *value)
{
	char id[TASK_ID_TEXT_LEN + 1];
	return value && story_of >= 0 && effects[story_of].accepted &&
	       strcmp(value, task_id_format(&effects[story_of].task, id)) == 0;
}

void log_write(enum log_level, const char *msg, ...)
{
	if (story_of == -2)
		return;
	va_list fields;
	bool is_part = story_of == -1;
	hf_cleanup(buf) struct buf line = {};
	va_start(fields, msg);
	for (const char *name; (name = va_arg(fields, const char *));) {
		const char *value = va_arg(fields, const char *);
		buf_add_format(&line, " %s=%s", name, value ? value : "-");
		is_part = is_part || is_of_story(value);
	}
	va_end(fields);
	if (is_part)
		fprintf(stderr, "%12.3f %s %d says: %s%s\n", (double)now_us / 1000,
			running_process->kind == PROCESS_API ? "api" : "worker",
			running_process->number, msg, line.len ? line.data : "");
}

/* --- metrics ---------------------------------------------------------------------------------- */

void metric_add(enum metric metric, const char *value, int64_t more)
{
	count_word(metric, value, more);
}

void metric_set(enum metric, const char *, int64_t)
{
}

void metric_bound(const char *, int64_t, int64_t)
{
}

/* --- settings --------------------------------------------------------------------------------- */

/* Never asked for: the settings name each DSN. */
enum hf_code config_role_dsn(const char *, const char *, char **, struct hf_err *err)
{
	return hf_fail(err, HF_INVALID, "no DSN is made here");
}

/* --- monitor ---------------------------------------------------------------------------------- */

enum hf_code monitor_open(struct ev_loop *, const char *, char, const struct monitor_hooks *,
			  struct monitor **out, struct hf_err *)
{
	*out = nullptr;
	return HF_OK;
}

struct monitor *monitor_close(struct monitor *)
{
	return nullptr;
}
