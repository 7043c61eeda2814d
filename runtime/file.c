#include "runtime/file.h"

#include <errno.h>
#include <unistd.h>

enum hf_code file_write(int fd, struct slice content)
{
	while (content.len > 0) {
		ssize_t put = write(fd, content.data, content.len);
		if (put < 0 && errno == EINTR)
			continue;
		if (put <= 0)
			return HF_SYSTEM;
		content.data += put;
		content.len -= (size_t)put;
	}
	return HF_OK;
}
