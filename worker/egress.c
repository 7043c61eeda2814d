/* Hosts are compared as text after curl's parser has put them into one form (127.1 and 0x7f000001
 * are 127.0.0.1). Addresses are compared as 16 bytes, IPv4 as ::ffff:a.b.c.d, which is also what
 * an IPv6 socket to it connects to. */
#include "worker/egress.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "runtime/base.h"
#include "runtime/buf.h"
#include "runtime/json.h"

constexpr size_t ADDRESS_BYTES = 16;
constexpr int V4_PREFIX = 96; /* of ::ffff:0:0 */
constexpr size_t ENTRY_LEN_MAX = EGRESS_HOST_LEN_MAX + 8;

struct address {
	uint8_t bytes[16];
};

struct range {
	struct address first;
	int prefix; /* of 128 bits */
};

enum rule { RULE_EXACT, RULE_SUFFIX, RULE_ANY };

struct host_rule {
	enum rule rule;
	struct egress_target target; /* port 0: any; SUFFIX: host is ".suffix" */
};

/* What IANA's special-purpose registries hold and the rest of IPv6 outside 2000::/3. */
static const char *const special[] = {
	"0.0.0.0/8",        /* this network */
	"10.0.0.0/8",       /* private */
	"100.64.0.0/10",    /* carrier-grade NAT */
	"127.0.0.0/8",      /* loopback */
	"168.63.129.16/32", /* Azure's channel to the host, though a public address */
	"169.254.0.0/16",   /* link-local, cloud metadata */
	"172.16.0.0/12",    /* private */
	"192.0.0.0/24",     /* protocol assignments */
	"192.0.2.0/24",     /* documentation */
	"192.88.99.0/24",   /* 6to4 relays */
	"192.168.0.0/16",   /* private */
	"198.18.0.0/15",    /* benchmarks */
	"198.51.100.0/24",  /* documentation */
	"203.0.113.0/24",   /* documentation */
	"224.0.0.0/4",      /* multicast */
	"240.0.0.0/4",      /* reserved, broadcast */
	"::/3",             /* unspecified, loopback, IPv4-compatible, NAT64, discard */
	"2001::/23",        /* protocol assignments: Teredo, ORCHID, benchmarks */
	"2001:db8::/32",    /* documentation */
	"2002::/16",        /* 6to4 */
	"3fff::/20",        /* documentation */
	"4000::/2",         /* not assigned */
	"8000::/1",         /* not assigned, unique local, link-local, site-local, multicast */
};

struct egress {
	struct host_rule hosts[EGRESS_HOSTS_MAX];
	size_t hosts_count;
	struct range ranges[EGRESS_RANGES_MAX];
	size_t ranges_count;
	struct range special[countof(special)];
};

/* --- addresses ----------------------------------------------------------------------------------
 */

static bool is_v4(const struct address *address)
{
	static const uint8_t mapped[] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF };
	return memcmp(address->bytes, mapped, sizeof mapped) == 0;
}

static bool address_parse(const char *text, struct address *out)
{
	*out = (struct address){ .bytes = { [10] = 0xFF, [11] = 0xFF } };
	return inet_pton(AF_INET, text, out->bytes + 12) == 1 ||
	       inet_pton(AF_INET6, text, out->bytes) == 1;
}

static bool address_of(const struct sockaddr *from, struct address *out)
{
	*out = (struct address){ .bytes = { [10] = 0xFF, [11] = 0xFF } };
	if (from->sa_family == AF_INET)
		memcpy(out->bytes + 12, &((const struct sockaddr_in *)(const void *)from)->sin_addr,
		       4);
	else if (from->sa_family == AF_INET6)
		memcpy(out->bytes, &((const struct sockaddr_in6 *)(const void *)from)->sin6_addr,
		       ADDRESS_BYTES);
	return from->sa_family == AF_INET || from->sa_family == AF_INET6;
}

static bool bit(const struct address *address, int i)
{
	return address->bytes[i / 8] >> (7 - i % 8) & 1;
}

/* ::/0 is a range of IPv6: it holds no IPv4 address, although ::ffff:0:0/96 lies within. */
static bool range_holds(const struct range *range, const struct address *address)
{
	bool v4 = range->prefix >= V4_PREFIX && is_v4(&range->first);
	if (v4 != is_v4(address))
		return false;
	for (int i = 0; i < range->prefix; i++)
		if (bit(&range->first, i) != bit(address, i))
			return false;
	return true;
}

static bool ranges_hold(const struct range *ranges, size_t count, const struct address *address)
{
	for (size_t i = 0; i < count; i++)
		if (range_holds(&ranges[i], address))
			return true;
	return false;
}

static bool prefix_parse(const char *text, int *out)
{
	*out = 0;
	for (const char *at = text; *at; at++) {
		if (!isdigit((unsigned char)*at) || at - text == 3)
			return false;
		*out = *out * 10 + (*at - '0');
	}
	return *text != '\0';
}

static enum hf_code range_parse(const char *text, struct range *out, struct hf_err *err)
{
	char address[ENTRY_LEN_MAX + 1];
	snprintf(address, sizeof address, "%s", text);
	char *slash = strchr(address, '/');
	if (slash)
		*slash = '\0';
	if (!address_parse(address, &out->first))
		return hf_fail(err, HF_INVALID, "an address, or a range as 10.0.0.0/8, is wanted");
	bool v4 = strchr(address, '.') && !strchr(address, ':');
	int bits = v4 ? 32 : 128;
	out->prefix = bits;
	if (slash && (!prefix_parse(slash + 1, &out->prefix) || out->prefix > bits))
		return hf_fail(err, HF_INVALID, "a prefix of 0 to %d bits is wanted", bits);
	out->prefix += v4 ? V4_PREFIX : 0;
	for (int i = out->prefix; i < 128; i++)
		if (bit(&out->first, i))
			return hf_fail(err, HF_INVALID, "bits are set past the prefix");
	return HF_OK;
}

static bool is_loopback(const struct address *address)
{
	static const struct address v6 = { .bytes = { [15] = 1 } };
	return memcmp(address, &v6, sizeof v6) == 0 ||
	       (is_v4(address) && address->bytes[12] == 127);
}

/* --- hosts ------------------------------------------------------------------------------------ */

static const struct host_rule *find_exact(const struct egress *egress,
					  const struct egress_target *target, bool with_port)
{
	for (size_t i = 0; i < egress->hosts_count; i++) {
		const struct host_rule *rule = &egress->hosts[i];
		bool port =
		    rule->target.port == target->port || (rule->target.port == 0 && !with_port);
		if (rule->rule == RULE_EXACT && port &&
		    strcmp(rule->target.host, target->host) == 0)
			return rule;
	}
	return nullptr;
}

static bool ends_with(const char *text, const char *end)
{
	size_t text_len = strlen(text), end_len = strlen(end);
	return text_len > end_len && strcmp(text + text_len - end_len, end) == 0;
}

bool egress_host_allowed(const struct egress *egress, const struct egress_target *target)
{
	for (size_t i = 0; i < egress->hosts_count; i++) {
		const struct host_rule *rule = &egress->hosts[i];
		bool port = rule->target.port == 0 || rule->target.port == target->port;
		bool below =
		    rule->rule == RULE_SUFFIX && ends_with(target->host, rule->target.host);
		if (port && (rule->rule == RULE_ANY || below))
			return true;
	}
	return find_exact(egress, target, false);
}

bool egress_address_allowed(const struct egress *egress, const struct egress_target *target,
			    const struct sockaddr *address)
{
	struct address to, literal;
	if (!address_of(address, &to))
		return false;
	if (ranges_hold(egress->ranges, egress->ranges_count, &to) ||
	    !ranges_hold(egress->special, countof(egress->special), &to))
		return true;
	return address_parse(target->host, &literal) && is_loopback(&literal) &&
	       memcmp(&literal, &to, sizeof to) == 0 && find_exact(egress, target, true);
}

/* That memory lacks says nothing against a URL, and must not fail a task. */
static CURLUcode told(CURLUcode code)
{
	if (code == CURLUE_OUT_OF_MEMORY)
		hf_out_of_memory(0);
	return code;
}

static enum hf_code host_of(CURLU *url, struct egress_target *target, struct hf_err *err)
{
	char *host = nullptr;
	if (told(curl_url_get(url, CURLUPART_HOST, &host, 0)) != CURLUE_OK)
		return hf_fail(err, HF_INVALID, "it has no host");
	char *from = host;
	size_t len = strlen(host);
	if (len > 1 && *from == '[' && from[len - 1] == ']') {
		from++;
		len -= 2;
	}
	bool dotted = len > 1 && from[len - 1] == '.';
	len -= dotted;
	enum hf_code code = HF_OK;
	if (len == 0 || len > EGRESS_HOST_LEN_MAX)
		code = hf_fail(err, HF_INVALID, "its host is empty or over %zu bytes",
			       EGRESS_HOST_LEN_MAX);
	for (size_t i = 0; code == HF_OK && i < len; i++) {
		target->host[i] = (char)tolower((unsigned char)from[i]);
		if (!isascii((unsigned char)from[i]))
			code = hf_fail(err, HF_INVALID, "its host is not ASCII");
	}
	if (code == HF_OK)
		target->host[len] = '\0';
	curl_free(host);
	struct address literal;
	if (code == HF_OK && dotted && address_parse(target->host, &literal))
		code = hf_fail(err, HF_INVALID, "its host is an address with a dot behind");
	/* One form for each IPv6 address. */
	struct in6_addr v6;
	if (code == HF_OK && inet_pton(AF_INET6, target->host, &v6) == 1)
		inet_ntop(AF_INET6, &v6, target->host, sizeof target->host);
	return code;
}

static enum hf_code url_check(CURLU *url, struct egress_target *target, struct hf_err *err)
{
	char *text = nullptr;
	if (told(curl_url_get(url, CURLUPART_SCHEME, &text, 0)) != CURLUE_OK)
		return hf_fail(err, HF_INVALID, "it has no scheme");
	bool http = strcasecmp(text, "http") == 0 || strcasecmp(text, "https") == 0;
	curl_free(text);
	if (!http)
		return hf_fail(err, HF_INVALID, "its scheme is neither http nor https");
	if (told(curl_url_get(url, CURLUPART_ZONEID, &text, 0)) == CURLUE_OK) {
		curl_free(text);
		return hf_fail(err, HF_INVALID, "it has a zone ID");
	}
	if (told(curl_url_get(url, CURLUPART_PORT, &text, CURLU_DEFAULT_PORT)) != CURLUE_OK)
		return hf_fail(err, HF_INVALID, "it has no port");
	target->port = (int)strtol(text, nullptr, 10);
	curl_free(text);
	return host_of(url, target, err);
}

enum hf_code egress_url(const char *text, CURLU **out, struct egress_target *target,
			struct hf_err *err)
{
	CURLU *url = curl_url();
	if (!url)
		hf_out_of_memory(0);
	CURLUcode said = told(curl_url_set(url, CURLUPART_URL, text, CURLU_DISALLOW_USER));
	enum hf_code code = said == CURLUE_OK
				? url_check(url, target, err)
				: hf_fail(err, HF_INVALID, "%s", curl_url_strerror(said));
	if (code == HF_OK)
		*out = url;
	else
		curl_url_cleanup(url);
	return code == HF_OK ? code : hf_wrap(err, "bad URL");
}

/* --- settings -----------------------------------------------------------------------------------
 */

static enum hf_code host_add(struct egress *egress, const struct host_rule *rule,
			     struct hf_err *err)
{
	if (egress->hosts_count == EGRESS_HOSTS_MAX)
		return hf_fail(err, HF_LIMIT, "more than %zu hosts", EGRESS_HOSTS_MAX);
	egress->hosts[egress->hosts_count++] = *rule;
	return HF_OK;
}

/* "127.0.0.1:80" or "[::1]:80", by the parser of URLs. */
static enum hf_code exact_parse(const char *text, struct egress_target *out, struct hf_err *err)
{
	char url_text[ENTRY_LEN_MAX + 16];
	char *port = nullptr;
	CURLU *url = nullptr;
	if (!*text || strpbrk(text, "/?#@%*\\ \t") || text[strlen(text) - 1] == ':')
		return hf_fail(err, HF_INVALID, "host, host:port or *.suffix is wanted");
	snprintf(url_text, sizeof url_text, "http://%s/", text);
	hf_try(egress_url(url_text, &url, out, err));
	if (told(curl_url_get(url, CURLUPART_PORT, &port, 0)) != CURLUE_OK)
		out->port = 0;
	curl_free(port);
	curl_url_cleanup(url);
	return HF_OK;
}

static enum hf_code any_parse(const char *text, struct egress_target *out, struct hf_err *err)
{
	struct egress_target with_port = {};
	char host[ENTRY_LEN_MAX + 2];
	if (!*text)
		return HF_OK;
	snprintf(host, sizeof host, "x%s", text);
	hf_try(exact_parse(host, &with_port, err));
	out->port = with_port.port;
	return *text == ':' ? HF_OK : hf_fail(err, HF_INVALID, "* or *:port is wanted");
}

static enum hf_code host_parse(struct egress *egress, const char *text, struct hf_err *err)
{
	struct host_rule rule = {};
	if (text[0] != '*') {
		rule.rule = RULE_EXACT;
		hf_try(exact_parse(text, &rule.target, err));
	} else if (text[1] != '.') {
		rule.rule = RULE_ANY;
		hf_try(any_parse(text + 1, &rule.target, err));
	} else {
		struct egress_target suffix;
		struct address literal;
		rule.rule = RULE_SUFFIX;
		hf_try(exact_parse(text + 2, &suffix, err));
		if (address_parse(suffix.host, &literal) ||
		    strlen(suffix.host) == EGRESS_HOST_LEN_MAX)
			return hf_fail(err, HF_INVALID,
				       "a suffix is a name"); /* so no address ends in it */
		rule.target.port = suffix.port;
		rule.target.host[0] = '.';
		memcpy(rule.target.host + 1, suffix.host, strlen(suffix.host) + 1);
	}
	return host_add(egress, &rule, err);
}

static enum hf_code one_range(struct egress *egress, const char *text, struct hf_err *err)
{
	if (egress->ranges_count == EGRESS_RANGES_MAX)
		return hf_fail(err, HF_LIMIT, "more than %zu ranges", EGRESS_RANGES_MAX);
	hf_try(range_parse(text, &egress->ranges[egress->ranges_count], err));
	egress->ranges_count++;
	return HF_OK;
}

/* Each piece between commas, without the blanks around it; empty ones say nothing. */
static enum hf_code each_entry(struct egress *egress, const char *list,
			       enum hf_code (*take)(struct egress *, const char *, struct hf_err *),
			       struct hf_err *err)
{
	for (const char *at = list; *at;) {
		char entry[ENTRY_LEN_MAX + 1];
		at += strspn(at, ", \t");
		size_t len = strcspn(at, ",");
		const char *next = at + len;
		while (len > 0 && (at[len - 1] == ' ' || at[len - 1] == '\t'))
			len--;
		if (len > ENTRY_LEN_MAX)
			return hf_fail(err, HF_INVALID, "an entry is over %zu bytes",
				       ENTRY_LEN_MAX);
		memcpy(entry, at, len);
		entry[len] = '\0';
		if (len > 0 && take(egress, entry, err) != HF_OK)
			return hf_wrap(err, entry);
		at = next;
	}
	return HF_OK;
}

static enum hf_code add_conf(struct egress *egress, struct slice value, struct hf_err *err);

static enum hf_code add_conf_text(struct egress *egress, struct slice string, struct hf_err *err)
{
	struct host_rule rule = { .rule = RULE_EXACT };
	struct hf_err ignored = {};
	CURLU *url = nullptr;
	hf_cleanup(buf) struct buf text = {};
	json_string_decode(string, &text);
	bool like_url = text.data && (strncasecmp(text.data, "http://", 7) == 0 ||
				      strncasecmp(text.data, "https://", 8) == 0);
	/* Values are free: what reads as no URL names no host. */
	if (!like_url || egress_url(text.data, &url, &rule.target, &ignored) != HF_OK)
		return HF_OK;
	curl_url_cleanup(url);
	return find_exact(egress, &rule.target, true) ? HF_OK : host_add(egress, &rule, err);
}

/* The depth is bounded: `value` was scanned. */
static enum hf_code add_conf(struct egress *egress, struct slice value, struct hf_err *err)
{
	struct slice name, inner;
	enum json_type type = json_type_of(value);
	if (type == JSON_STRING)
		hf_try(add_conf_text(egress, value, err));
	if (type == JSON_OBJECT)
		for (size_t at = 0; json_object_next(value, &at, &name, &inner);)
			hf_try(add_conf(egress, inner, err));
	if (type == JSON_ARRAY)
		for (size_t at = 0; json_array_next(value, &at, &inner);)
			hf_try(add_conf(egress, inner, err));
	return HF_OK;
}

enum hf_code egress_open(const char *hosts, const char *addresses, struct slice conf,
			 struct egress **out, struct hf_err *err)
{
	struct egress *egress = hf_alloc(sizeof *egress);
	for (size_t i = 0; i < countof(special); i++)
		hf_assert(range_parse(special[i], &egress->special[i], nullptr) == HF_OK);
	enum hf_code code = HF_OK;
	if (hosts && each_entry(egress, hosts, host_parse, err) != HF_OK)
		code = hf_wrap(err, "allow_hosts");
	else if (!hosts && add_conf(egress, json_trim(conf), err) != HF_OK)
		code = hf_wrap(err, "the hosts of conf_file");
	if (code == HF_OK && addresses && each_entry(egress, addresses, one_range, err) != HF_OK)
		code = hf_wrap(err, "allow_addresses");
	if (code == HF_OK)
		*out = egress;
	else
		egress_free(egress);
	return code;
}

void egress_free(struct egress *egress)
{
	free(egress);
}
