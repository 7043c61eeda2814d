/* egress.h - to whom a worker may talk. Two walls: the host of a URL must be on the operator's
 * list, and each address that is about to be connected to, whatever name it came from, must be
 * public or in a range that the operator named. downstream.c asks at both. */
#pragma once

#include <curl/curl.h>
#include <stdint.h>

#include "runtime/err.h"
#include "runtime/slice.h"

struct egress;
struct sockaddr;

constexpr size_t EGRESS_HOST_LEN_MAX = 253;
constexpr size_t EGRESS_HOSTS_MAX = 256;
constexpr size_t EGRESS_RANGES_MAX = 64;

/* `hosts`: comma-separated host, host:port, *.suffix, *.suffix:port, or * for any; without a port
 * any port. A suffix covers names below it, not itself, and never an address. nullptr: the hosts
 * and ports of the URLs among the values of `conf`, a JSON object. `addresses`: comma-separated
 * ranges as 10.0.0.0/8, ::1/128 or 10.1.2.3 that are allowed though they are not public; nullptr:
 * none. HF_INVALID, HF_LIMIT: the settings say something else. */
enum hf_code egress_open(const char *hosts, const char *addresses, struct slice conf,
			 struct egress **out, struct hf_err *err);
/* Takes nullptr. */
void egress_free(struct egress *egress);

/* Where a URL leads. */
struct egress_target {
	char host[EGRESS_HOST_LEN_MAX + 1]; /* lower case; addresses in one form, without [] */
	int port;
};

/* Reads a URL by the parser that will connect, so that what is checked is what is done. Only http
 * and https, no user information, host in ASCII. `url` (freed with curl_url_cleanup) only where
 * HF_OK. */
enum hf_code egress_url(const char *text, CURLU **url, struct egress_target *target,
			struct hf_err *err);

bool egress_host_allowed(const struct egress *egress, const struct egress_target *target);

/* The address is public, or in a named range, or the very loopback address that `target` and its
 * entry on the list (with a port) both spell out. An IPv4 address within IPv6 is judged as itself;
 * those behind translators and tunnels (NAT64, 6to4, Teredo) are never public. */
bool egress_address_allowed(const struct egress *egress, const struct egress_target *target,
			    const struct sockaddr *address);
