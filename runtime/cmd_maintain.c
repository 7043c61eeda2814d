/* cmd_maintain.c - `holdfast maintain`: reclaim, deadlines, retention, partitions. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/command.h"
#include "runtime/config.h"
#include "runtime/log.h"
#include "runtime/maintain.h"

static volatile int stop;

static void on_signal(int)
{
	stop = 1;
}

int cmd_maintain(int argc, char **argv)
{
	struct config config;
	struct hf_err err = {};
	if (config_load(&config, 'm', argc, argv, nullptr, nullptr, nullptr, &err) != HF_OK) {
		fprintf(stderr, "holdfast maintain: %s\n", err.text);
		return EXIT_USAGE;
	}
	char *dsn = nullptr;
	enum hf_code code = HF_OK;
	if (!config.maintain_dsn)
		code = config_role_dsn(config.dsn, "holdfast_maintain", &dsn, &err);
	if (code != HF_OK) {
		fprintf(stderr, "holdfast maintain: %s\n", err.text);
		config_deinit(&config);
		return EXIT_USAGE;
	}
	log_init(LOG_INFO, "maintain");
	struct sigaction action = { .sa_handler = on_signal };
	sigaction(SIGTERM, &action, nullptr);
	sigaction(SIGINT, &action, nullptr);
	signal(SIGPIPE, SIG_IGN);
	maintain_run(&config, config.maintain_dsn ? config.maintain_dsn : dsn, &stop);
	free(dsn);
	config_deinit(&config);
	return EXIT_DONE;
}
