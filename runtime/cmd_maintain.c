/* cmd_maintain.c - `holdfast maintain`: reclaim, deadlines, retention, partitions. */
#include <stdlib.h>

#include "runtime/base.h"
#include "runtime/command.h"
#include "runtime/config.h"
#include "runtime/log.h"
#include "runtime/maintain.h"

int cmd_maintain(int argc, char **argv)
{
	struct config config;
	struct hf_err err = {};
	if (config_load(&config, 'm', argc, argv, nullptr, nullptr, nullptr, &err) != HF_OK)
		return command_usage("maintain", err.text);
	char *dsn = nullptr;
	enum hf_code code = HF_OK;
	enum log_level level = LOG_INFO;
	if (config.arguments_count > 0)
		code = hf_fail(&err, HF_INVALID, "it takes flags alone");
	else if (!config.maintain_dsn)
		code = config_role_dsn(config.dsn, "holdfast_maintain", &dsn, &err);
	if (code != HF_OK) {
		config_deinit(&config);
		return command_usage("maintain", err.text);
	}
	hf_assert(log_level_parse(config.log_level, &level));
	log_init(level, "maintain");
	code = maintain_run(&config, config.maintain_dsn ? config.maintain_dsn : dsn, &err);
	if (code != HF_OK)
		log_error("not started", "error", err.text, nullptr);
	free(dsn);
	config_deinit(&config);
	return code == HF_OK ? EXIT_DONE : code == HF_INVALID ? EXIT_USAGE : EXIT_FAILED;
}
