/* cmd_maintain.c - `holdfast maintain`: reclaim, deadlines, retention, partitions. */
#include "runtime/base.h"
#include "runtime/command.h"
#include "runtime/config.h"
#include "runtime/log.h"
#include "runtime/maintain.h"

int cmd_maintain(int argc, char **argv)
{
	hf_cleanup(config) struct config config;
	struct hf_err err = {};
	int exit = command_load_logging("maintain", 'm', argc, argv, &config);
	if (exit != EXIT_DONE)
		return exit;
	hf_cleanup(text) char *dsn = nullptr;
	if (!config.maintain_dsn &&
	    config_role_dsn(config.dsn, "holdfast_maintain", &dsn, &err) != HF_OK)
		return command_usage("maintain", err.text);
	enum hf_code code =
	    maintain_run(&config, config.maintain_dsn ? config.maintain_dsn : dsn, &err);
	if (code != HF_OK)
		log_error("not started", "error", err.text, nullptr);
	return code == HF_OK ? EXIT_DONE : code == HF_INVALID ? EXIT_USAGE : EXIT_FAILED;
}
