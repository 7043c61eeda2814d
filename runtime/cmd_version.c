/* cmd_version.c - `holdfast version`. HF_VERSION comes from build.zig. */
#include <stdio.h>

#include "runtime/command.h"

int cmd_version(int argc, char **)
{
	if (argc > 0)
		return command_usage("version", "it takes no arguments");
	puts("holdfast " HF_VERSION);
	return EXIT_DONE;
}
