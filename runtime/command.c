/* command.c - how commands end badly: one form for all, what happened, whether anything was done,
 * and what to do next. */
#include "runtime/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base.h"
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
	char *advice = hf_format("; see `holdfast help %s`", command);
	say(command, text, advice);
	free(advice);
	return EXIT_USAGE;
}

int command_failed(const char *command, const char *text)
{
	say(command, text, "");
	return EXIT_FAILED;
}

int command_unreachable(const char *command, const struct hf_err *err)
{
	char *text = hf_format("the database cannot be reached: %s", err->text);
	say(command, text, "; nothing was done");
	free(text);
	return EXIT_DATABASE;
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
