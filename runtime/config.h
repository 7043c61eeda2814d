/* config.h - the settings of a process: defaults, then the environment, then flags. One table,
 * config.def; unknown flags and unknown HOLDFAST_ variables are errors, and so is a value out of
 * its bounds. A TEXT setting `x_file` holds a path; secrets are only ever read from files. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/err.h"

#define CONFIG_TYPE_TEXT const char *
#define CONFIG_TYPE_INT  int64_t
#define CONFIG_TYPE_FLAG bool

struct config {
#define SETTING(name, type, ...) CONFIG_TYPE_##type name;
#include "runtime/config.def"
#undef SETTING
	const char **arguments; /* what is no flag, in order; nullptr-terminated */
	int arguments_count;
};

/* A row of config.def. */
struct setting {
	const char *name; /* as in struct config */
	enum setting_type { SETTING_TEXT, SETTING_INT, SETTING_FLAG } type;
	size_t offset;    /* in struct config */
	const char *text; /* the default of a TEXT; nullable */
	int64_t number;   /* that of the others */
	int64_t min, max;
	const char *roles, *help;
};
extern const struct setting config_settings[];
extern const size_t config_settings_count;

constexpr size_t SETTING_NAME_LEN_MAX = 40;
/* "listen_at" as "listen-at" and as "LISTEN_AT"; both return `text`. */
const char *setting_flag(const struct setting *setting, char text[static SETTING_NAME_LEN_MAX]);
const char *setting_variable(const struct setting *setting, char text[static SETTING_NAME_LEN_MAX]);

/* A flag that a command itself defines: its name without "--", and one of the other three. A table
 * of them ends with a row without a name. Values are borrowed from argv. */
struct own_flag {
	const char *name;
	bool *on;          /* it stands bare */
	const char **text; /* takes its value, which must not be empty */
	/* Reads its value; an error of it names no flag: that is put before it. */
	enum hf_code (*take)(void *ctx, const char *value, struct hf_err *err);
	void *ctx;
};

/* `role` is a letter of config.def's roles column: only those settings are taken as flags; the
 * environment may hold all. `argv` without program and command names; "--" ends the flags. Values
 * are `--name value` or `--name=value`; a FLAG may stand bare. `own` is nullable. */
enum hf_code config_load(struct config *config, char role, int argc, char **argv,
			 const struct own_flag *own, struct hf_err *err);
void config_deinit(struct config *config);

static inline void hf_cleanup_config(struct config *config)
{
	config_deinit(config);
}

/* `dsn` with `user` in place of its user and without its password; heap. HF_INVALID: no DSN. */
enum hf_code config_role_dsn(const char *dsn, const char *user, char **out, struct hf_err *err);
