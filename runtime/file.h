/* file.h - small files, written by blocking calls: for commands, and where a worker unpacks a tool
 * or hands a program its input. */
#pragma once

#include "runtime/err.h"
#include "runtime/slice.h"

/* All of it, past interruptions and short writes; HF_SYSTEM with errno set. */
enum hf_code file_write(int fd, struct slice content);
