/* serve.h - the API process from its start to its end. */
#pragma once

struct config;

/* Serves until SIGTERM, SIGINT or SIGHUP, then drains. Returns an exit code (runtime/command.h). */
int serve_run(const struct config *config);
