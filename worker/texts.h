/* texts.h - lists of texts that end with a nullptr, as commands and environments are: what exec
 * takes. A nullptr counts as an empty list. */
#pragma once

#include <stddef.h>

size_t texts_count(char *const *texts);
[[nodiscard]] char **texts_copy(char *const *texts);
bool texts_same(char *const *a, char *const *b);
char **texts_free(char **texts); /* takes and returns nullptr */
