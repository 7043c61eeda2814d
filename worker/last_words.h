/* last_words.h - what a tool process leaves for whoever has to find out why it failed: the end of
 * its log, and in plain mode the beginning of its stdout, where the result was due. Called by
 * phase_program.c. */
#pragma once

#include "runtime/buf.h"

struct host;

/* Appends sentences, each with ". " in front, clean and bounded. */
void last_words_add(struct host *host, struct buf *text);
