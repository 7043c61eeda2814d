/* cmd_version.c - `holdfast version`. HF_VERSION comes from build.zig. */
#include <stdio.h>

#include "runtime/command.h"

int cmd_version(int argc, char **)
{
	if (argc > 0) {
		fputs("holdfast version: takes no arguments\n", stderr);
		return EXIT_USAGE;
	}
	puts("holdfast " HF_VERSION);
	return EXIT_DONE;
}
