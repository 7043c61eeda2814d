/* cmd_worker.c - `holdfast worker`: settings in, exit code out. */
#include "runtime/base.h"
#include "runtime/command.h"
#include "runtime/config.h"
#include "runtime/log.h"
#include "worker/worker.h"

int cmd_worker(int argc, char **argv)
{
	struct config config = {};
	struct hf_err err = {};
	if (config_load(&config, 'w', argc, argv, nullptr, nullptr, nullptr, &err) != HF_OK)
		return command_usage("worker", err.text);

	int exit_code;
	enum log_level level = LOG_INFO;
	if (config.arguments_count > 0) {
		exit_code = command_usage("worker", "it takes flags alone");
	} else if (config.lease_ms < 2 * config.beat_ms) {
		exit_code = command_usage("worker", "--lease-ms must be at least twice --beat-ms");
	} else {
		hf_assert(log_level_parse(config.log_level, &level));
		log_init(level, "worker");
		exit_code = worker_main(&config);
	}
	config_deinit(&config);
	return exit_code;
}
