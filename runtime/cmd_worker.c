/* cmd_worker.c - `holdfast worker`: settings in, exit code out. */
#include <stdio.h>

#include "runtime/command.h"
#include "runtime/config.h"
#include "runtime/log.h"
#include "worker/worker.h"

int cmd_worker(int argc, char **argv)
{
	struct config config = {};
	struct hf_err err = {};
	if (config_load(&config, 'w', argc, argv, nullptr, nullptr, nullptr, &err) != HF_OK) {
		fprintf(stderr, "holdfast worker: %s\n", err.text);
		return EXIT_USAGE;
	}

	int exit_code = EXIT_USAGE;
	enum log_level level = LOG_INFO;
	if (config.arguments_count > 0)
		fprintf(stderr, "holdfast worker: unexpected argument: %s\n", config.arguments[0]);
	else if (config.lease_ms < 2 * config.beat_ms)
		fprintf(stderr, "holdfast worker: lease_ms must be at least twice beat_ms\n");
	else if (!log_level_parse(config.log_level, &level))
		fprintf(stderr, "holdfast worker: unknown log level: %s\n", config.log_level);
	else {
		log_init(level, "worker");
		exit_code = worker_main(&config);
	}
	config_deinit(&config);
	return exit_code;
}
