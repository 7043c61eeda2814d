/* cmd_migrate.c - `holdfast migrate`: brings the store to this binary's schema. */
#include <stdio.h>

#include "runtime/base.h"
#include "runtime/command.h"
#include "runtime/config.h"
#include "runtime/migrations.h"
#include "runtime/pgrun.h"

int cmd_migrate(int argc, char **argv)
{
	hf_cleanup(config) struct config config;
	hf_cleanup(conn) PGconn *conn = nullptr;
	struct hf_err err = {};
	int applied = 0;
	int code = command_load_logging("migrate", 'g', argc, argv, &config);
	if (code == EXIT_DONE)
		code = command_connect("migrate", config.dsn, false, &conn);
	if (code != EXIT_DONE)
		return code;
	if (migrate(conn, &applied, &err) != HF_OK) {
		fprintf(stderr, "holdfast migrate: %s (SQLSTATE %s); nothing was changed\n",
			err.text, err.sqlstate);
		return EXIT_FAILED;
	}
	if (applied == MIGRATE_NEWER)
		puts("the schema is newer than this program, and was left as it is");
	else
		printf("the schema is current; %d migration%s applied\n", applied,
		       applied == 1 ? " was" : "s were");
	return EXIT_DONE;
}
