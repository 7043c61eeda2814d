/* cmd_api.c - `holdfast api`: settings in, exit code out. */
#include "api/serve.h"
#include "runtime/base.h"
#include "runtime/command.h"
#include "runtime/config.h"

int cmd_api(int argc, char **argv)
{
	hf_cleanup(config) struct config config;
	int code = command_load_logging("api", 'a', argc, argv, &config);
	return code == EXIT_DONE ? serve_run(&config) : code;
}
