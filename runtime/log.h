/* log.h - one JSON line an event on stderr. Fields are key/value pairs after the message:
 *   log_info("claimed", "task_id", id, "attempt", LOG_INT(3), nullptr);
 * A value is text (nullable: written as null) unless LOG_INT wraps a number. Invalid UTF-8 and
 * control characters in values are escaped, lines are cut at LOG_LINE_BYTES_MAX. Never put a
 * token, a secret or a caller's arguments into a line. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* With its line feed. Not over PIPE_BUF, so that lines of several processes never mix in a pipe. */
constexpr size_t LOG_LINE_BYTES_MAX = 4096;

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

/* "debug", "info", "warn", "error"; false for any other text, `level` is untouched then. */
[[nodiscard]] bool log_level_parse(const char *text, enum log_level *level);

/* Lines below `level` are dropped. `role` ("api", "worker", …) stands in every line. */
void log_init(enum log_level level, const char *role);

/* The text form of a number for a field; lives in a ring of 32, until 32 more were made. */
const char *log_int(int64_t value);
#define LOG_INT(value) log_int((int64_t)(value))

void log_write(enum log_level level, const char *msg, ...) __attribute__((sentinel));
#define log_debug(...) log_write(LOG_DEBUG, __VA_ARGS__)
#define log_info(...)  log_write(LOG_INFO, __VA_ARGS__)
#define log_warn(...)  log_write(LOG_WARN, __VA_ARGS__)
#define log_error(...) log_write(LOG_ERROR, __VA_ARGS__)
