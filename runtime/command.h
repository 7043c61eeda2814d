/* command.h - the commands of the program; each parses its flags and calls one function. Exit
 * codes are the program's, listed here. */
#pragma once

enum exit_code {
	EXIT_DONE = 0,
	EXIT_FAILED = 1,
	EXIT_USAGE = 2,
	EXIT_DATABASE = 3,  /* unreachable */
	EXIT_MIGRATION = 4, /* `holdfast migrate` is needed */
	EXIT_ACT = 5,       /* `task why`: it does not go on before somebody acts */
};

/* argc and argv without program and command names. */
int cmd_api(int argc, char **argv);
int cmd_ask(int argc, char **argv);
int cmd_worker(int argc, char **argv);
int cmd_maintain(int argc, char **argv);
int cmd_migrate(int argc, char **argv);
int cmd_tools(int argc, char **argv);
int cmd_call(int argc, char **argv);
int cmd_task(int argc, char **argv);
int cmd_settle(int argc, char **argv);
int cmd_restored(int argc, char **argv);
int cmd_retry(int argc, char **argv);
int cmd_pause(int argc, char **argv);
int cmd_resume(int argc, char **argv);
int cmd_cancel(int argc, char **argv);
int cmd_step(int argc, char **argv);
int cmd_up(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_down(int argc, char **argv);
int cmd_version(int argc, char **argv);
