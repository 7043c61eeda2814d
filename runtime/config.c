/* config.c - settings from the table in config.def: defaults, the environment, flags, in this
 * order, the later wins. Values are checked as they are read, so that a struct config holds only
 * what the table allows. Text is borrowed from the environment and argv. */
#include "runtime/config.h"

#include <errno.h>
#include <inttypes.h>
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base.h"
#include "runtime/buf.h"
#include "runtime/log.h"
#include "runtime/slice.h"

constexpr size_t FLAG_DISTANCE_MAX = 2;  /* letters: what is farther was not meant */
constexpr size_t FLAG_START_LEN_MIN = 3; /* letters of a flag that are taken for its beginning */

static const char env_prefix[] = "HOLDFAST_";

/* A default of text is `text`, of a number or flag `number`. */
#define DEFAULT_TEXT(value) .text = (value)
#define DEFAULT_INT(value)  .number = (value)
#define DEFAULT_FLAG(value) .number = (value)

const struct setting config_settings[] = {
#define SETTING(setting, kind, value, least, most, takers, about) \
	{ .name = #setting,                                       \
	  .type = SETTING_##kind,                                 \
	  .offset = offsetof(struct config, setting),             \
	  DEFAULT_##kind(value),                                  \
	  .min = (least),                                         \
	  .max = (most),                                          \
	  .roles = (takers),                                      \
	  .help = (about) },
#include "runtime/config.def"
#undef SETTING
};
const size_t config_settings_count = countof(config_settings);

static const struct config defaults = {
#define SETTING(name, type, value, ...) .name = (value),
#include "runtime/config.def"
#undef SETTING
};

extern char **environ;

const char *setting_flag(const struct setting *setting, char text[static SETTING_NAME_LEN_MAX])
{
	hf_assert(strlen(setting->name) < SETTING_NAME_LEN_MAX);
	strcpy(text, setting->name);
	for (char *at = text; *at; at++)
		if (*at == '_')
			*at = '-';
	return text;
}

const char *setting_variable(const struct setting *setting, char text[static SETTING_NAME_LEN_MAX])
{
	hf_assert(strlen(setting->name) < SETTING_NAME_LEN_MAX);
	strcpy(text, setting->name);
	for (char *at = text; *at; at++)
		if (*at >= 'a' && *at <= 'z')
			*at = (char)(*at - 'a' + 'A');
	return text;
}

static const struct setting *find(const char *name, size_t len,
				  const char *(*spell)(const struct setting *,
						       char text[static SETTING_NAME_LEN_MAX]))
{
	char text[SETTING_NAME_LEN_MAX];
	for (size_t i = 0; i < countof(config_settings); i++) {
		const char *spelt = spell(&config_settings[i], text);
		if (strlen(spelt) == len && memcmp(spelt, name, len) == 0)
			return &config_settings[i];
	}
	return nullptr;
}

static enum hf_code set_int(const struct setting *setting, int64_t *slot, const char *value,
			    const char *source, struct hf_err *err)
{
	char *end = nullptr;
	errno = 0;
	long long number = strtoll(value, &end, 10);
	bool plain = (value[0] >= '0' && value[0] <= '9') || value[0] == '-';
	if (!plain || *end || errno)
		return hf_fail(err, HF_INVALID, "%s: `%s` is not a whole number", source, value);
	if (number < setting->min || number > setting->max)
		return hf_fail(err, HF_INVALID, "%s: %lld is not within %" PRId64 " and %" PRId64,
			       source, number, setting->min, setting->max);
	*slot = number;
	return HF_OK;
}

static enum hf_code set_flag(bool *slot, const char *value, const char *source, struct hf_err *err)
{
	static const char *const words[][2] = { { "0", "1" },
						{ "false", "true" },
						{ "no", "yes" } };
	for (size_t i = 0; i < countof(words); i++) {
		for (int on = 0; on < 2; on++) {
			if (strcmp(value, words[i][on]) == 0) {
				*slot = on;
				return HF_OK;
			}
		}
	}
	return hf_fail(err, HF_INVALID, "%s: `%s` is neither true nor false", source, value);
}

/* `source` names the flag or variable in an error. */
static enum hf_code set(struct config *config, const struct setting *setting, const char *value,
			const char *source, struct hf_err *err)
{
	void *slot = (char *)config + setting->offset;
	switch (setting->type) {
	case SETTING_INT:
		return set_int(setting, slot, value, source, err);
	case SETTING_FLAG:
		return set_flag(slot, value, source, err);
	case SETTING_TEXT:
		break;
	}
	enum log_level level;
	if (setting->offset == offsetof(struct config, log_level) &&
	    !log_level_parse(value, &level))
		return hf_fail(err, HF_INVALID, "%s: `%s` is not debug, info, warn or error",
			       source, value);
	*(const char **)slot = value;
	return HF_OK;
}

/* What a worker gives a program in plain mode (worker/plain.c): facts, no settings, so that a
 * script may use other commands too. */
static bool is_task_fact(const char *name, size_t len)
{
	static const char *const facts[] = {
		"ARTIFACTS", "ATTEMPT", "DEADLINE",   "DEADLINE_MS", "EFFECT_ID", "KEY",
		"PHASE",     "SOCKET",  "STATE_FILE", "TASK",        "TOOL",      "TOOL_DIR",
	};
	for (size_t i = 0; i < countof(facts); i++)
		if (strlen(facts[i]) == len && memcmp(name, facts[i], len) == 0)
			return true;
	return false;
}

static enum hf_code read_environment(struct config *config, struct hf_err *err)
{
	for (char **entry = environ; entry && *entry; entry++) {
		const char *variable = *entry;
		const char *equals = strchr(variable, '=');
		if (!equals || strncmp(variable, env_prefix, sizeof env_prefix - 1) != 0)
			continue;
		const char *name = variable + sizeof env_prefix - 1;
		const struct setting *setting =
		    find(name, (size_t)(equals - name), setting_variable);
		int source_len = (int)(equals - variable);
		if (!setting && is_task_fact(name, (size_t)(equals - name)))
			continue;
		if (!setting)
			return hf_fail(err, HF_INVALID, "unknown setting %.*s in the environment",
				       source_len, variable);
		char source[sizeof env_prefix + SETTING_NAME_LEN_MAX];
		snprintf(source, sizeof source, "%.*s", source_len, variable);
		hf_try(set(config, setting, equals + 1, source, err));
	}
	return HF_OK;
}

static const struct own_flag *find_own(const struct own_flag *own, const char *name, size_t len)
{
	for (; own && own->name; own++)
		if (strlen(own->name) == len && memcmp(own->name, name, len) == 0)
			return own;
	return nullptr;
}

/* How many letters have to be put in, left out or changed to make `name` of `known`; 1 where it is
 * a word's beginning. */
static size_t distance(const char *name, size_t len, const char *known, size_t known_len)
{
	if (len >= FLAG_START_LEN_MIN && len < known_len && memcmp(name, known, len) == 0)
		return 1;
	hf_assert(known_len < SETTING_NAME_LEN_MAX);
	size_t row[SETTING_NAME_LEN_MAX];
	for (size_t k = 0; k <= known_len; k++)
		row[k] = k;
	for (size_t i = 0; i < len; i++) {
		size_t corner = row[0];
		row[0] = i + 1;
		for (size_t k = 0; k < known_len; k++) {
			size_t changed = corner + (name[i] != known[k]);
			size_t least = row[k] < row[k + 1] ? row[k] + 1 : row[k + 1] + 1;
			corner = row[k + 1];
			row[k + 1] = changed < least ? changed : least;
		}
	}
	return row[known_len];
}

/* The flag of this command that was most likely meant; empty: none is near. */
static struct slice nearest(char role, const struct own_flag *own, const char *name, size_t len)
{
	static char text[SETTING_NAME_LEN_MAX];
	struct slice best = {};
	size_t least = len < 2 * FLAG_DISTANCE_MAX ? len / 2 + 1 : FLAG_DISTANCE_MAX + 1;
	for (; own && own->name; own++) {
		size_t far = distance(name, len, own->name, strlen(own->name));
		if (far < least) {
			least = far;
			best = slice_of(own->name);
		}
	}
	for (size_t i = 0; i < countof(config_settings); i++) {
		char spelt[SETTING_NAME_LEN_MAX];
		setting_flag(&config_settings[i], spelt);
		size_t far = distance(name, len, spelt, strlen(spelt));
		if (strchr(config_settings[i].roles, role) && far < least) {
			least = far;
			strcpy(text, spelt);
			best = slice_of(text);
		}
	}
	return best;
}

static enum hf_code refuse_flag(char role, const struct own_flag *own, const char *flag, size_t len,
				struct hf_err *err)
{
	struct slice near = nearest(role, own, flag + 2, len);
	return hf_fail(err, HF_INVALID, "unknown flag --%.*s%s%.*s%s", (int)len, flag + 2,
		       near.len ? " (nearest: --" : "", (int)near.len, near.len ? near.data : "",
		       near.len ? ")" : "");
}

static enum hf_code take_own(const struct own_flag *own, const char *value, const char *source,
			     struct hf_err *err)
{
	if (own->on) {
		*own->on = true;
		return HF_OK;
	}
	if (own->text) {
		*own->text = value;
		return *value ? HF_OK : hf_fail(err, HF_INVALID, "%s is empty", source);
	}
	enum hf_code code = own->take(own->ctx, value, err);
	return code == HF_OK ? code : hf_wrap(err, source);
}

/* One flag at argv[*at]; moves *at onto the value where that stands apart. */
static enum hf_code read_flag(struct config *config, char role, const struct own_flag *own,
			      int argc, char **argv, int *at, struct hf_err *err)
{
	const char *flag = argv[*at];
	const char *name = flag + 2;
	size_t len = strcspn(name, "=");
	const char *value = name[len] == '=' ? name + len + 1 : nullptr;
	char source[2 + SETTING_NAME_LEN_MAX];
	snprintf(source, sizeof source, "--%.*s", (int)len, name);
	const struct own_flag *ours = find_own(own, name, len);
	const struct setting *setting = ours ? nullptr : find(name, len, setting_flag);
	if (!ours && !setting)
		return refuse_flag(role, own, flag, len, err);
	if (setting && !strchr(setting->roles, role))
		return hf_fail(err, HF_INVALID, "%s is no flag of this command", source);
	bool bare = ours ? ours->on != nullptr : setting->type == SETTING_FLAG;
	if (ours && bare && value)
		return hf_fail(err, HF_INVALID, "%s takes no value", source);
	if (!bare && !value) {
		if (*at + 1 >= argc)
			return hf_fail(err, HF_INVALID, "%s needs a value", source);
		value = argv[++*at];
	}
	return ours ? take_own(ours, value, source, err)
		    : set(config, setting, value ? value : "true", source, err);
}

static enum hf_code read_flags(struct config *config, char role, const struct own_flag *own,
			       int argc, char **argv, struct hf_err *err)
{
	bool ended = false;
	for (int i = 0; i < argc; i++) {
		const char *word = argv[i];
		if (ended || word[0] != '-' || word[1] == '\0') {
			config->arguments[config->arguments_count++] = word;
		} else if (strcmp(word, "--") == 0) {
			ended = true;
		} else if (word[1] != '-') {
			return hf_fail(err, HF_INVALID, "unknown flag %s; flags start with --",
				       word);
		} else {
			hf_try(read_flag(config, role, own, argc, argv, &i, err));
		}
	}
	return HF_OK;
}

enum hf_code config_load(struct config *config, char role, int argc, char **argv,
			 const struct own_flag *own, struct hf_err *err)
{
	hf_assert(config);
	hf_assert(argc >= 0);
	struct config made = defaults;
	made.arguments = hf_alloc(((size_t)argc + 1) * sizeof *made.arguments);
	enum hf_code code = read_environment(&made, err);
	if (code == HF_OK)
		code = read_flags(&made, role, own, argc, argv, err);
	if (code == HF_OK)
		*config = made;
	else
		config_deinit(&made);
	return code;
}

void config_deinit(struct config *config)
{
	hf_assert(config);
	free(config->arguments);
	*config = (struct config){};
}

/* libpq's form: '…' with \ before ' and \. */
static void add_option(struct buf *dsn, const char *keyword, const char *value)
{
	if (dsn->len)
		buf_add_byte(dsn, ' ');
	buf_add_format(dsn, "%s='", keyword);
	for (; *value; value++) {
		if (*value == '\'' || *value == '\\')
			buf_add_byte(dsn, '\\');
		buf_add_byte(dsn, *value);
	}
	buf_add_byte(dsn, '\'');
}

enum hf_code config_role_dsn(const char *dsn, const char *user, char **out, struct hf_err *err)
{
	hf_assert(user);
	hf_assert(out);
	if (!dsn || !*dsn)
		return hf_fail(err, HF_INVALID, "no database named: set HOLDFAST_DSN or --%s-dsn",
			       strncmp(user, "holdfast_", 9) == 0 ? user + 9 : user);
	/* libpq's reason may quote the string, and with it a password. */
	PQconninfoOption *options = PQconninfoParse(dsn, nullptr);
	if (!options)
		return hf_fail(err, HF_INVALID, "the DSN is no Postgres connection string");
	hf_cleanup(buf) struct buf made = {};
	for (const PQconninfoOption *option = options; option->keyword; option++) {
		bool replaced = strcmp(option->keyword, "user") == 0 ||
				strcmp(option->keyword, "password") == 0;
		if (option->val && !replaced)
			add_option(&made, option->keyword, option->val);
	}
	PQconninfoFree(options);
	add_option(&made, "user", user);
	*out = buf_take(&made);
	return HF_OK;
}
