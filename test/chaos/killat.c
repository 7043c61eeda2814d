/* killat.c - kills its own process at the nth call of the world outside: preloaded into a worker or
 * an API process by points.py, which arms it through a page that both have mapped. A point is the
 * moment before such a call, so point n + 1 is the moment after call n. No right of a debugger is
 * needed. Built with the system's compiler. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "trap.h"

static void point(const char *name)
{
	uint32_t at;
	if (!trap_counts(&at))
		return;
	strncpy(page->where, name, sizeof page->where - 1);
	__atomic_store_n(&page->died, at, __ATOMIC_SEQ_CST);
	kill(self, SIGKILL);
	for (;;)
		pause();
}

/* A call of that type, as the C library has it, behind a point. */
#define WRAP(type, name, parameters, arguments)         \
	type name parameters                            \
	{                                               \
		static type(*next) parameters;          \
		if (!next)                              \
			next = dlsym(RTLD_NEXT, #name); \
		point(#name);                           \
		return next arguments;                  \
	}

WRAP(ssize_t, send, (int fd, const void *data, size_t len, int flags), (fd, data, len, flags))
WRAP(ssize_t, sendto,
     (int fd, const void *data, size_t len, int flags, const struct sockaddr *to, socklen_t size),
     (fd, data, len, flags, to, size))
WRAP(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags))
WRAP(ssize_t, recv, (int fd, void *data, size_t len, int flags), (fd, data, len, flags))
WRAP(ssize_t, recvfrom,
     (int fd, void *data, size_t len, int flags, struct sockaddr *from, socklen_t *size),
     (fd, data, len, flags, from, size))
WRAP(ssize_t, recvmsg, (int fd, struct msghdr *message, int flags), (fd, message, flags))
WRAP(ssize_t, read, (int fd, void *data, size_t len), (fd, data, len))
WRAP(ssize_t, write, (int fd, const void *data, size_t len), (fd, data, len))
WRAP(ssize_t, writev, (int fd, const struct iovec *parts, int count), (fd, parts, count))
WRAP(int, connect, (int fd, const struct sockaddr *to, socklen_t size), (fd, to, size))
WRAP(int, accept4, (int fd, struct sockaddr *from, socklen_t *size, int flags),
     (fd, from, size, flags))
WRAP(int, poll, (struct pollfd * fds, nfds_t count, int timeout_ms), (fds, count, timeout_ms))
WRAP(int, epoll_wait, (int fd, struct epoll_event *events, int most, int timeout_ms),
     (fd, events, most, timeout_ms))
WRAP(int, fsync, (int fd), (fd))
WRAP(int, fdatasync, (int fd), (fd))
