/* main.c - the program: finds the command and returns exit codes. One row of commands.def a
 * command; what a command does is in cmd_NAME.c, what is printed about it in help.c. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base.h"
#include "runtime/command.h"

const struct command commands[] = {
#define COMMAND(name, role, synopsis, summary, text) \
	{ #name, role, synopsis, summary, text, cmd_##name },
#include "runtime/commands.def"
#undef COMMAND
};
const size_t commands_count = countof(commands);

static const struct command *find_command(const char *name)
{
	for (size_t i = 0; i < countof(commands); i++)
		if (strcmp(commands[i].name, name) == 0)
			return &commands[i];
	return nullptr;
}

static int unknown_command(const char *name)
{
	fprintf(stderr, "holdfast: no command `%s`; see `holdfast help`\n", name);
	return EXIT_USAGE;
}

static int help(int argc, char **argv)
{
	const char *topic = argc > 0 ? argv[0] : "help";
	const struct command *command = find_command(topic);
	if (argc > 1) {
		fputs("holdfast help: one topic at a time; see `holdfast help`\n", stderr);
		return EXIT_USAGE;
	}
	if (command)
		help_page(command);
	else if (strcmp(topic, "--man") == 0)
		help_man();
	else if (strcmp(topic, "help") == 0 || strcmp(topic, "--help") == 0)
		help_overview(false);
	else if (!help_table(topic))
		return unknown_command(topic);
	return EXIT_DONE;
}

/* Every command has its page under --help, so that none has to think of it. */
static bool wants_help(int argc, char **argv)
{
	for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
			return true;
	return false;
}

static int dispatch(int argc, char **argv)
{
	if (argc < 2) {
		help_overview(true);
		return EXIT_USAGE;
	}
	const char *name = argv[1];
	if (strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
		return help(argc - 2, argv + 2);
	const struct command *command =
	    find_command(strcmp(name, "--version") == 0 ? "version" : name);
	if (!command)
		return unknown_command(name);
	if (wants_help(argc - 2, argv + 2)) {
		help_page(command);
		return EXIT_DONE;
	}
	return command->run(argc - 2, argv + 2);
}

/* A socket that got the number of a closed stderr would be written to by every log line. */
static void open_standard_files(void)
{
	int fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO)
		fd = open("/dev/null", O_RDWR);
	if (fd > STDERR_FILENO)
		close(fd);
}

int main(int argc, char **argv)
{
	open_standard_files();
	int code = dispatch(argc, argv);
	if (fflush(stdout) != 0 || ferror(stdout)) {
		fprintf(stderr, "holdfast: cannot write the output: %s\n", strerror(errno));
		return code == EXIT_DONE ? EXIT_FAILED : code;
	}
	return code;
}
