/* cmd_updown.c - `holdfast up` and `holdfast down`: become the script of the same name. It lies
 * beside a checkout's zig-out or in the installation's share folder; the scripts read their own
 * flags. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base.h"
#include "runtime/command.h"

/* Cuts the last component off; false where there is none. */
static bool parent(char *path)
{
	char *slash = strrchr(path, '/');
	if (!slash || slash == path)
		return false;
	*slash = '\0';
	return true;
}

/* <prefix> of <prefix>/bin/holdfast; heap, or nullptr. */
static char *find_prefix(void)
{
	char path[PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", path, sizeof path - 1);
	if (len <= 0)
		return nullptr;
	path[len] = '\0';
	for (int up = 0; up < 2; up++)
		if (!parent(path))
			return nullptr;
	return hf_strdup(path);
}

static int run_script(const char *name, int argc, char **argv)
{
	char *prefix = find_prefix();
	if (!prefix) {
		fprintf(stderr, "holdfast %s: cannot tell where this program lies\n", name);
		return EXIT_FAILED;
	}
	char *places[] = {
		hf_format("%s/../deploy/%s", prefix, name),
		hf_format("%s/share/holdfast/deploy/%s", prefix, name),
	};
	char **words = hf_alloc(((size_t)argc + 2) * sizeof *words);
	for (int i = 0; i < argc; i++)
		words[i + 1] = argv[i];
	for (size_t i = 0; i < countof(places); i++) {
		if (access(places[i], X_OK) != 0)
			continue;
		words[0] = places[i];
		execv(places[i], words);
		fprintf(stderr, "holdfast %s: %s: %s\n", name, places[i], strerror(errno));
	}
	fprintf(stderr, "holdfast %s: no script at %s or %s\n", name, places[0], places[1]);
	for (size_t i = 0; i < countof(places); i++)
		free(places[i]);
	free(words);
	free(prefix);
	return EXIT_FAILED;
}

int cmd_up(int argc, char **argv)
{
	return run_script("up", argc, argv);
}

int cmd_down(int argc, char **argv)
{
	return run_script("down", argc, argv);
}
