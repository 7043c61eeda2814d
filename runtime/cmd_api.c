/* cmd_api.c - `holdfast api`: settings in, exit code out. */
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "runtime/command.h"
#include "runtime/config.h"
#include "runtime/log.h"

int cmd_api(int argc, char **argv)
{
	struct config config = {};
	struct hf_err err = {};
	enum hf_code code = config_load(&config, 'a', argc, argv, nullptr, nullptr, nullptr, &err);
	if (code != HF_OK) {
		fprintf(stderr, "holdfast api: %s\n", err.text);
		return EXIT_USAGE;
	}

	int exit_code = EXIT_USAGE;
	enum log_level level = LOG_INFO;
	if (config.arguments_count > 0)
		fprintf(stderr, "holdfast api: unexpected argument: %s\n", config.arguments[0]);
	else if (!log_level_parse(config.log_level, &level))
		fprintf(stderr, "holdfast api: unknown log level: %s\n", config.log_level);
	else {
		log_init(level, "api");
		exit_code = api_run(&config);
	}
	config_deinit(&config);
	return exit_code;
}
