/* command.c - how commands begin, and how they end badly: one form for all, what happened, whether
 * anything was done, and what to do next. */
#include "runtime/command.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base.h"
#include "runtime/config.h"
#include "runtime/log.h"
#include "runtime/pgrun.h"
#include "runtime/slice.h"
#include "runtime/terminal.h"

/* The first line of the text, which may hold what others wrote. */
static void say(const char *command, const char *text, const char *advice)
{
	fprintf(stderr, "holdfast %s: ", command);
	print_clean(stderr, (struct slice){ text, strcspn(text, "\n") });
	fputs(advice, stderr);
	putc('\n', stderr);
}

int command_usage(const char *command, const char *text)
{
	hf_cleanup(text) char *advice = hf_format("; see `holdfast help %s`", command);
	say(command, text, advice);
	return EXIT_USAGE;
}

int command_load(const char *command, char role, int argc, char **argv, const struct own_flag *own,
		 struct config *config)
{
	struct hf_err err = {};
	*config = (struct config){};
	return config_load(config, role, argc, argv, own, &err) == HF_OK
		   ? EXIT_DONE
		   : command_usage(command, err.text);
}

int command_load_logging(const char *command, char role, int argc, char **argv,
			 struct config *config)
{
	int code = command_load(command, role, argc, argv, nullptr, config);
	if (code != EXIT_DONE)
		return code;
	if (config->arguments_count > 0)
		return command_usage(command, COMMAND_FLAGS_ALONE);
	enum log_level level = LOG_INFO;
	hf_assert(log_level_parse(config->log_level, &level));
	log_init(level, command);
	return EXIT_DONE;
}

int command_connect(const char *command, const char *dsn, bool reads, PGconn **conn)
{
	if (!dsn || !*dsn)
		return command_usage(command, "no database named: set HOLDFAST_DSN or --dsn");
	struct hf_err err = {};
	hf_cleanup(text) char *name = hf_format("holdfast %s", command);
	if ((reads ? pg_connect_reading : pg_connect)(dsn, name, conn, &err) == HF_OK)
		return EXIT_DONE;
	hf_cleanup(text) char *text = hf_format("the database cannot be reached: %s", err.text);
	say(command, text, "; nothing was done");
	return EXIT_DATABASE;
}

int command_failed(const char *command, const char *text)
{
	say(command, text, "");
	return EXIT_FAILED;
}

int command_refused(const char *command, const struct hf_err *err, bool acts)
{
	/* Schema, table, column or function that is not there. */
	static const char *const old_schema[] = { "3F000", "42P01", "42703", "42883" };
	for (size_t i = 0; i < countof(old_schema); i++) {
		if (strcmp(err->sqlstate, old_schema[i]) != 0)
			continue;
		say(command, err->text,
		    "; this database is older than this program: run `holdfast migrate`");
		return EXIT_MIGRATION;
	}
	/* 08: of the connection; 57P: the server ends it. */
	bool lost = !err->sqlstate[0] || strncmp(err->sqlstate, "08", 2) == 0 ||
		    strncmp(err->sqlstate, "57P", 3) == 0;
	if (err->code != HF_DB || !lost)
		return command_failed(command, err->text);
	say(command, err->text,
	    acts ? "; the connection was lost, so it may have been done: the same again is safe"
		 : "; the connection was lost");
	return EXIT_DATABASE;
}
