/* cmd_api.c - `holdfast api`: settings in, exit code out. */
#include "api/api.h"
#include "runtime/base.h"
#include "runtime/command.h"
#include "runtime/config.h"
#include "runtime/log.h"

int cmd_api(int argc, char **argv)
{
	struct config config = {};
	struct hf_err err = {};
	enum hf_code code = config_load(&config, 'a', argc, argv, nullptr, nullptr, nullptr, &err);
	if (code != HF_OK)
		return command_usage("api", err.text);

	int exit_code;
	enum log_level level = LOG_INFO;
	if (config.arguments_count > 0) {
		exit_code = command_usage("api", "it takes flags alone");
	} else {
		hf_assert(log_level_parse(config.log_level, &level));
		log_init(level, "api");
		exit_code = api_run(&config);
	}
	config_deinit(&config);
	return exit_code;
}
