/* cmd_migrate.c - `holdfast migrate`: brings the store to this binary's schema. */
#include <stdio.h>

#include "runtime/base.h"
#include "runtime/command.h"
#include "runtime/config.h"
#include "runtime/migrations.h"
#include "runtime/pgrun.h"

int cmd_migrate(int argc, char **argv)
{
	struct config config;
	struct hf_err err = {};
	if (config_load(&config, 'g', argc, argv, nullptr, nullptr, nullptr, &err) != HF_OK)
		return command_usage("migrate", err.text);
	bool named = config.dsn && *config.dsn;
	if (!named || config.arguments_count > 0) {
		config_deinit(&config);
		return command_usage("migrate",
				     named ? "it takes flags alone" : COMMAND_NO_DATABASE);
	}
	PGconn *conn = nullptr;
	int applied = 0;
	int exit = EXIT_DONE;
	if (pg_connect(config.dsn, "holdfast migrate", &conn, &err) != HF_OK) {
		exit = command_unreachable("migrate", &err);
	} else if (migrate(conn, &applied, &err) != HF_OK) {
		fprintf(stderr, "holdfast migrate: %s (SQLSTATE %s); nothing was changed\n",
			err.text, err.sqlstate);
		exit = EXIT_FAILED;
	} else if (applied == MIGRATE_NEWER) {
		puts("the schema is newer than this program, and was left as it is");
	} else {
		printf("the schema is current; %d migration%s applied\n", applied,
		       applied == 1 ? " was" : "s were");
	}
	PQfinish(conn);
	config_deinit(&config);
	return exit;
}
