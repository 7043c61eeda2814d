/* listen.c - see listen.h. */
#include "runtime/listen.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base.h"

/* "host:port" or "[v6]:port" cut into two strings. */
static enum hf_code split_address(const char *address, char host[static 256], char port[static 8],
				  struct hf_err *err)
{
	const char *colon = strrchr(address, ':');
	const char *start = address, *end = colon;
	if (colon && address[0] == '[') {
		start = address + 1;
		end = colon[-1] == ']' ? colon - 1 : nullptr;
	} else if (colon && memchr(address, ':', (size_t)(colon - address))) {
		end = nullptr; /* IPv6 without brackets */
	}
	if (!end || end <= start || (size_t)(end - start) >= 256)
		return hf_fail(err, HF_INVALID, "'%s' is not host:port or [v6]:port", address);
	size_t digits = strspn(colon + 1, "0123456789");
	if (digits == 0 || digits > 5 || colon[1 + digits] != '\0' || atoi(colon + 1) > UINT16_MAX)
		return hf_fail(err, HF_INVALID, "'%s' has no port of 0 to 65535", address);
	memcpy(host, start, (size_t)(end - start));
	host[end - start] = '\0';
	memcpy(port, colon + 1, digits + 1);
	return HF_OK;
}

static enum hf_code open_at(const struct addrinfo *at, const char *address, bool shared, int *out,
			    struct hf_err *err)
{
	const int on = 1;
	int fd = socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return hf_fail(err, HF_SYSTEM, "socket for %s: %s", address, strerror(errno));
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
	    (shared && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) != 0) ||
	    bind(fd, at->ai_addr, at->ai_addrlen) != 0 || listen(fd, LISTEN_BACKLOG) != 0) {
		int error = errno;
		close(fd);
		return hf_fail(err, HF_SYSTEM, "listen on %s: %s", address, strerror(error));
	}
	*out = fd;
	return HF_OK;
}

enum hf_code listen_at(const char *address, bool shared, int *fd, struct hf_err *err)
{
	char host[256], port[8];
	hf_try(split_address(address, host, port, err));
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM,
					.ai_flags = AI_PASSIVE | AI_NUMERICSERV };
	struct addrinfo *found;
	int error = getaddrinfo(host, port, &hints, &found);
	if (error != 0)
		return hf_fail(err, HF_INVALID, "address %s: %s", address, gai_strerror(error));
	enum hf_code code = open_at(found, address, shared, fd, err);
	freeaddrinfo(found);
	return code;
}

static struct sockaddr_storage name_of(int fd, socklen_t *len)
{
	struct sockaddr_storage at = {};
	*len = sizeof at;
	hf_assert(getsockname(fd, (struct sockaddr *)&at, len) == 0);
	return at;
}

void listen_name(int fd, char text[static LISTEN_ADDRESS_BYTES_MAX])
{
	char host[48], port[8];
	socklen_t len;
	struct sockaddr_storage at = name_of(fd, &len);
	hf_assert(getnameinfo((struct sockaddr *)&at, len, host, sizeof host, port, sizeof port,
			      NI_NUMERICHOST | NI_NUMERICSERV) == 0);
	int written = snprintf(text, LISTEN_ADDRESS_BYTES_MAX,
			       at.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
	hf_assert(written > 0 && (size_t)written < LISTEN_ADDRESS_BYTES_MAX);
}

bool listen_is_loopback(int fd)
{
	socklen_t len;
	struct sockaddr_storage at = name_of(fd, &len);
	if (at.ss_family == AF_INET6) {
		struct sockaddr_in6 six;
		memcpy(&six, &at, sizeof six);
		return IN6_IS_ADDR_LOOPBACK(&six.sin6_addr);
	}
	struct sockaddr_in four;
	memcpy(&four, &at, sizeof four);
	return ntohl(four.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}
