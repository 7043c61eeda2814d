/* command.h - the commands of the program; each parses its flags and calls one function. Exit codes
 * are the program's, listed in exits.def. */
#pragma once

#include <stddef.h>

#include "runtime/err.h"

struct config;
struct own_flag;
struct pg_conn; /* a PGconn */

enum exit_code {
#define EXIT(name, code, ...) EXIT_##name = (code),
#include "runtime/exits.def"
#undef EXIT
};

/* One row of commands.def. */
struct command {
	const char *name;
	char role; /* of config.def; ' ' for none */
	const char *synopsis, *summary, *text;
	int (*run)(int argc, char **argv);
};

extern const struct command commands[];
extern const size_t commands_count;

/* What `holdfast COMMAND --help` prints. */
void help_page(const struct command *command);
/* The overview, to stdout or stderr. */
void help_overview(bool usage);
/* False: there is no table of that name (settings, metrics, codes). */
bool help_table(const char *name);
/* The man page, as roff. */
void help_man(void);

/* Settings and own flags (nullable) of a command, as config_load() has them. Whatever it returns,
 * `config` may be deinitialized. EXIT_DONE, or what was wrong has been said. */
int command_load(const char *command, char role, int argc, char **argv, const struct own_flag *own,
		 struct config *config);
/* The same for who takes flags alone and logs: the log is open then. */
int command_load_logging(const char *command, char role, int argc, char **argv,
			 struct config *config);
/* A connection for who writes, or only `reads`; the caller's to PQfinish. EXIT_DONE, or what was
 * wrong has been said. */
int command_connect(const char *command, const char *dsn, bool reads, struct pg_conn **conn);

#define COMMAND_FLAGS_ALONE "it takes flags alone"
#define COMMAND_WHO_AND_WHY "--by says who does it and --why on what grounds; both are kept"

/* Each says on stderr what went wrong, in one form, and returns the exit code. */
int command_usage(const char *command, const char *text);
int command_failed(const char *command, const char *text);
/* A statement was refused or its answer lost; `acts`: it may have changed something. */
int command_refused(const char *command, const struct hf_err *err, bool acts);

/* argc and argv without program and command names. */
int cmd_api(int argc, char **argv);
int cmd_ask(int argc, char **argv);
int cmd_worker(int argc, char **argv);
int cmd_maintain(int argc, char **argv);
int cmd_migrate(int argc, char **argv);
int cmd_tools(int argc, char **argv);
int cmd_call(int argc, char **argv);
int cmd_task(int argc, char **argv);
int cmd_settle(int argc, char **argv);
int cmd_restored(int argc, char **argv);
int cmd_retry(int argc, char **argv);
int cmd_pause(int argc, char **argv);
int cmd_resume(int argc, char **argv);
int cmd_cancel(int argc, char **argv);
int cmd_step(int argc, char **argv);
int cmd_up(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_down(int argc, char **argv);
int cmd_version(int argc, char **argv);
