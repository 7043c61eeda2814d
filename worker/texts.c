#include "worker/texts.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base.h"

size_t texts_count(char *const *texts)
{
	size_t count = 0;
	while (texts && texts[count])
		count++;
	return count;
}

char **texts_free(char **texts)
{
	for (size_t i = 0; texts && texts[i]; i++)
		free(texts[i]);
	free(texts);
	return nullptr;
}

char **texts_copy(char *const *texts)
{
	char **copy = hf_alloc((texts_count(texts) + 1) * sizeof *copy);
	for (size_t i = 0; texts && texts[i]; i++)
		copy[i] = hf_strdup(texts[i]);
	return copy;
}

bool texts_same(char *const *a, char *const *b)
{
	size_t count = texts_count(a);
	if (count != texts_count(b))
		return false;
	for (size_t i = 0; i < count; i++) {
		if (strcmp(a[i], b[i]) != 0)
			return false;
	}
	return true;
}
