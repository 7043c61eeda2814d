#include "runtime/file.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum hf_code file_make_folder(const char *path, unsigned mode, struct hf_err *err)
{
	return mkdir(path, mode) == 0 || errno == EEXIST
		   ? HF_OK
		   : hf_fail(err, HF_SYSTEM, "cannot make the folder %s: %s", path,
			     strerror(errno));
}

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
