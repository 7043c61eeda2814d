/* main.c - the program: finds the command, prints the help pages, and returns exit codes. One row
 * of commands.def a command; what a command does is in cmd_NAME.c. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base.h"
#include "runtime/command.h"
#include "runtime/config.h"

struct command {
	const char *name;
	char role;
	const char *synopsis, *summary, *text;
	int (*run)(int argc, char **argv);
};

static const struct command commands[] = {
#define COMMAND(name, role, synopsis, summary, text) \
	{ #name, role, synopsis, summary, text, cmd_##name },
#include "runtime/commands.def"
#undef COMMAND
};

static const struct command *find_command(const char *name)
{
	for (size_t i = 0; i < countof(commands); i++)
		if (strcmp(commands[i].name, name) == 0)
			return &commands[i];
	return nullptr;
}

static void print_overview(FILE *out)
{
	fputs("holdfast - durable task handles for slow MCP tools: called twice, done once\n\n"
	      "usage: holdfast COMMAND [ARGUMENTS]\n"
	      "       holdfast help [COMMAND]\n\n"
	      "commands\n",
	      out);
	for (size_t i = 0; i < countof(commands); i++)
		fprintf(out, "  %-9s %s\n", commands[i].name, commands[i].summary);
	fprintf(out, "  %-9s %s\n", "help", "print this page, or that of a command");
	fputs(
	    "\nsettings\n"
	    "  Each command takes its settings from the environment (HOLDFAST_…) and from flags,\n"
	    "  which win; `holdfast COMMAND --help` lists them with their defaults. A setting "
	    "that\n"
	    "  does not exist is an error. `deploy/up` writes the variables of the stack that it\n"
	    "  started to .holdfast/env.\n"
	    "\nexit status\n"
	    "  0 done, 1 failed, 2 wrong use, 3 the database cannot be reached, 4 `holdfast\n"
	    "  migrate` is needed\n",
	    out);
}

static void print_page(const struct command *command)
{
	printf("holdfast %s - %s\n\nusage: holdfast %s%s%s\n\n%s", command->name, command->summary,
	       command->name, *command->synopsis ? " " : "", command->synopsis, command->text);
	if (command->role == ' ')
		return;
	fputs("\nsettings\n", stdout);
	config_print_help(command->role);
}

static int unknown_command(const char *name)
{
	fprintf(stderr, "holdfast: no command `%s`; `holdfast help` lists them\n", name);
	return EXIT_USAGE;
}

static int help(int argc, char **argv)
{
	if (argc == 0 || strcmp(argv[0], "--help") == 0) {
		print_overview(stdout);
		return EXIT_DONE;
	}
	if (argc > 1) {
		fputs("holdfast help: one command at a time\n", stderr);
		return EXIT_USAGE;
	}
	const struct command *command = find_command(argv[0]);
	if (command)
		print_page(command);
	else if (strcmp(argv[0], "help") == 0)
		print_overview(stdout);
	else
		return unknown_command(argv[0]);
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
		print_overview(stderr);
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
		print_page(command);
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
