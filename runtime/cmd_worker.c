/* cmd_worker.c - `holdfast worker`: settings in, exit code out. */
#include "runtime/base.h"
#include "runtime/command.h"
#include "runtime/config.h"
#include "worker/worker.h"

int cmd_worker(int argc, char **argv)
{
	hf_cleanup(config) struct config config;
	int code = command_load_logging("worker", 'w', argc, argv, &config);
	if (code != EXIT_DONE)
		return code;
	if (config.lease_ms < 2 * config.beat_ms)
		return command_usage("worker", "--lease-ms must be at least twice --beat-ms");
	return worker_main(&config);
}
