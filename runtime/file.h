/* file.h - folders and small files, made and written by blocking calls: for commands, and where a
 * worker unpacks a tool or hands a program its input. */
#pragma once

#include "runtime/err.h"
#include "runtime/slice.h"

/* A folder that may be there already; what is above it is there. */
enum hf_code file_make_folder(const char *path, unsigned mode, struct hf_err *err);
/* All of it, past interruptions and short writes; HF_SYSTEM with errno set. */
enum hf_code file_write(int fd, struct slice content);
