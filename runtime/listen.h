/* listen.h - a socket that listens at an address given as text. */
#pragma once

#include <stddef.h>

#include "runtime/err.h"

constexpr int LISTEN_BACKLOG = 1'024;
constexpr size_t LISTEN_ADDRESS_BYTES_MAX = 64;

/* "host:port" or "[v6]:port"; port 0: any that is free. `shared`: other processes may listen there
 * too, and each gets a part of the connections. The socket is non-blocking. HF_INVALID: no such
 * address; HF_SYSTEM: it cannot be had. */
enum hf_code listen_at(const char *address, bool shared, int *fd, struct hf_err *err);
/* Where it listens, in numbers. */
void listen_name(int fd, char text[static LISTEN_ADDRESS_BYTES_MAX]);
/* Nobody but this machine can reach it. */
bool listen_is_loopback(int fd);
