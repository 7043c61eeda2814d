/* test_egress.c - whom a worker may talk to: lists of hosts, ranges of addresses, and the spellings
 * by which a URL tries to mean another place than it seems to. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "runtime/base.h"
#include "test/test.h"
#include "worker/egress.h"

static struct egress *open_egress(const char *hosts, const char *addresses, const char *conf)
{
	struct hf_err err = {};
	struct egress *egress = nullptr;
	cr_assert_eq(egress_open(hosts, addresses, slice_of(conf), &egress, &err), HF_OK, "%s",
		     err.text);
	return egress;
}

static bool target_of(const char *text, struct egress_target *target)
{
	CURLU *url;
	struct hf_err err = {};
	if (egress_url(text, &url, target, &err) != HF_OK)
		return false;
	curl_url_cleanup(url);
	return true;
}

static bool host_allowed(const struct egress *egress, const char *url)
{
	struct egress_target target;
	return target_of(url, &target) && egress_host_allowed(egress, &target);
}

static bool address_allowed(const struct egress *egress, const char *url, const char *address)
{
	struct egress_target target;
	struct sockaddr_in v4 = { .sin_family = AF_INET };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6 };
	cr_assert(target_of(url, &target), "%s", url);
	if (inet_pton(AF_INET, address, &v4.sin_addr) == 1)
		return egress_address_allowed(egress, &target, (const struct sockaddr *)&v4);
	cr_assert_eq(inet_pton(AF_INET6, address, &v6.sin6_addr), 1, "%s", address);
	return egress_address_allowed(egress, &target, (const struct sockaddr *)&v6);
}

/* Under these settings; without an address it is asked about the host alone. */
struct question {
	const char *hosts, *ranges, *url, *address;
};

static void check(struct question asked, bool allowed)
{
	struct egress *egress = open_egress(asked.hosts, asked.ranges, "{}");
	cr_assert_eq(asked.address ? address_allowed(egress, asked.url, asked.address)
				   : host_allowed(egress, asked.url),
		     allowed, "%s at %s under %s; %s", asked.url, asked.address, asked.hosts,
		     asked.ranges);
	egress_free(egress);
}

HF_TEST(egress, only_public_addresses_pass_unnamed)
{
	static const struct {
		const char *address;
		bool allowed;
	} cases[] = {
		{ "8.8.8.8", true },
		{ "1.0.0.1", true },
		{ "172.15.255.255", true },
		{ "172.32.0.0", true },
		{ "100.63.255.255", true },
		{ "100.128.0.0", true },
		{ "223.255.255.255", true },
		{ "2606:4700:4700::1111", true },
		{ "2a00::1", true },
		{ "::ffff:8.8.8.8", true },
		{ "0.0.0.0", false },
		{ "0.255.255.255", false },
		{ "10.0.0.0", false },
		{ "10.255.255.255", false },
		{ "100.64.0.0", false },
		{ "100.127.255.255", false },
		{ "127.0.0.1", false },
		{ "127.255.255.255", false },
		{ "168.63.129.16", false },
		{ "169.254.169.254", false },
		{ "172.16.0.0", false },
		{ "172.31.255.255", false },
		{ "192.0.0.192", false },
		{ "192.0.2.1", false },
		{ "192.88.99.1", false },
		{ "192.168.0.1", false },
		{ "198.18.0.1", false },
		{ "198.19.255.255", false },
		{ "198.51.100.1", false },
		{ "203.0.113.1", false },
		{ "224.0.0.1", false },
		{ "239.255.255.255", false },
		{ "240.0.0.1", false },
		{ "255.255.255.255", false },
		{ "::", false },
		{ "::1", false },
		{ "::127.0.0.1", false },
		{ "::ffff:127.0.0.1", false },
		{ "::ffff:10.0.0.1", false },
		{ "::ffff:169.254.169.254", false },
		{ "64:ff9b::7f00:1", false },
		{ "64:ff9b::808:808", false },
		{ "64:ff9b:1::1", false },
		{ "100::1", false },
		{ "2001::1", false },
		{ "2001:1ff::1", false },
		{ "2001:200::1", true },
		{ "2001:db8::1", false },
		{ "2002:7f00:1::1", false },
		{ "3fff::1", false },
		{ "5f00::1", false },
		{ "fc00::1", false },
		{ "fd00:ec2::254", false },
		{ "fe80::1", false },
		{ "fec0::1", false },
		{ "ff02::1", false },
	};
	struct egress *egress = open_egress("*", nullptr, "{}");
	for (size_t i = 0; i < countof(cases); i++)
		cr_assert_eq(address_allowed(egress, "http://a.example/", cases[i].address),
			     cases[i].allowed, "%s", cases[i].address);
	struct sockaddr local = { .sa_family = AF_UNIX };
	cr_assert(!egress_address_allowed(egress, &(struct egress_target){ "a", 80 }, &local));
	egress_free(egress);
}

HF_TEST(egress, ranges_allow_what_they_name)
{
	static const struct {
		const char *ranges, *address;
		bool allowed;
	} cases[] = {
		{ "127.0.0.0/8", "127.9.9.9", true },
		{ "127.0.0.0/8", "::ffff:127.0.0.1", true },
		{ "127.0.0.0/8", "::1", false },
		{ "127.0.0.0/8", "64:ff9b::7f00:1", false },
		{ "127.0.0.0/8", "10.0.0.1", false },
		{ " 10.0.0.0/8 ,, ::1/128", "::1", true },
		{ "10.1.2.3", "10.1.2.3", true },
		{ "10.1.2.3", "10.1.2.4", false },
		{ "10.1.2.0/23", "10.1.3.255", true },
		{ "10.1.2.0/23", "10.1.4.0", false },
		{ "fd00::/8", "fd12::1", true },
		{ "fd00::/8", "fe80::1", false },
		{ "::/0", "::1", true },
		{ "::/0", "127.0.0.1", false },
		{ "0.0.0.0/0", "127.0.0.1", true },
		{ "0.0.0.0/0", "::1", false },
		{ "::ffff:127.0.0.0/104", "127.0.0.1", true },
		{ "", "127.0.0.1", false },
	};
	for (size_t i = 0; i < countof(cases); i++)
		check((struct question){ "*", cases[i].ranges, "http://a.example/",
					 cases[i].address },
		      cases[i].allowed);
}

HF_TEST(egress, a_loopback_address_that_is_spelt_out_is_allowed_for_itself)
{
	static const struct {
		const char *hosts, *url, *address;
		bool allowed;
	} cases[] = {
		{ "127.0.0.1:81", "http://127.0.0.1:81/", "127.0.0.1", true },
		{ "127.0.0.1:81", "http://127.1:81/", "127.0.0.1", true },
		{ "[::1]:81", "http://[::1]:81/", "::1", true },
		{ "[::1]:81", "http://[0:0::1]:81/", "::1", true },
		{ "127.0.0.1:81", "http://127.0.0.1:82/", "127.0.0.1", false },
		{ "127.0.0.1:81", "http://127.0.0.1:81/", "127.0.0.2", false },
		{ "127.0.0.1:81", "http://localhost:81/", "127.0.0.1", false },
		{ "127.0.0.1", "http://127.0.0.1:81/", "127.0.0.1", false },
		{ "localhost:81", "http://localhost:81/", "127.0.0.1", false },
		{ "10.0.0.1:81", "http://10.0.0.1:81/", "10.0.0.1", false },
		{ "*", "http://127.0.0.1:81/", "127.0.0.1", false },
	};
	for (size_t i = 0; i < countof(cases); i++)
		check((struct question){ cases[i].hosts, nullptr, cases[i].url, cases[i].address },
		      cases[i].allowed);
}

HF_TEST(egress, hosts_are_those_on_the_list)
{
	static const struct {
		const char *hosts, *url;
		bool allowed;
	} cases[] = {
		{ "a.example", "http://a.example/", true },
		{ "a.example", "https://A.Example:8443/x", true },
		{ "A.EXAMPLE.", "http://a.example./", true },
		{ "a.example", "http://b.a.example/", false },
		{ "a.example", "http://xa.example/", false },
		{ "a.example", "http://a.example.evil/", false },
		{ "a.example:443", "https://a.example/", true },
		{ "a.example:443", "http://a.example/", false },
		{ "a.example:80", "http://a.example/", true },
		{ "b.example , a.example", "http://a.example/", true },
		{ "*.a.example", "http://b.a.example/", true },
		{ "*.a.example", "http://c.b.a.example:99/", true },
		{ "*.a.example", "http://a.example/", false },
		{ "*.a.example", "http://ba.example/", false },
		{ "*.a.example:443", "http://b.a.example/", false },
		{ "*", "http://any.example:1/", true },
		{ "*:443", "https://any.example/", true },
		{ "*:443", "http://any.example/", false },
		{ "127.0.0.1", "http://0x7f.1/", true },
		{ "0x7f.1:80", "http://127.0.0.1/", true },
		{ "[::1]", "http://[0::0:1]/", true },
		{ "", "http://a.example/", false },
		/* What is no URL of ours is allowed nowhere. */
		{ "*", "http://u@a.example/", false },
		{ "*", "http://u:p@a.example/", false },
		{ "*", "ftp://a.example/", false },
		{ "*", "a.example/", false },
		{ "*", "http://[fe80::1%25eth0]/", false },
		{ "*", "http://\xc3\xa4.example/", false },
		{ "*", "http:///", false },
		{ "*", "", false },
	};
	for (size_t i = 0; i < countof(cases); i++)
		check((struct question){ cases[i].hosts, nullptr, cases[i].url, nullptr },
		      cases[i].allowed);
}

HF_TEST(egress, without_a_list_the_operators_urls_are_it)
{
	static const char conf[] =
	    " {\"store\": \"https://s.example/base\", \"n\": 1, \"x\": "
	    "{\"y\": [\"HTTP://m.example:8025\", \"http://\", \"http://u@v.example\"]}, "
	    "\"\\u0068ost\": \"k.example\", \"w\": \"\\u0068ttp://w.example\"} ";
	static const struct {
		const char *url;
		bool allowed;
	} cases[] = {
		{ "https://s.example/other", true }, { "http://s.example/", false },
		{ "http://m.example:8025/", true },  { "http://m.example/", false },
		{ "http://k.example/", false },      { "http://w.example/", true },
		{ "http://v.example/", false },      { "https://t.s.example/", false },
	};
	struct egress *egress = open_egress(nullptr, nullptr, conf);
	for (size_t i = 0; i < countof(cases); i++)
		cr_assert_eq(host_allowed(egress, cases[i].url), cases[i].allowed, "%s",
			     cases[i].url);
	egress_free(egress);
	egress = open_egress("other.example", nullptr, conf);
	cr_assert(!host_allowed(egress, "https://s.example/"), "a list counts alone");
	egress_free(egress);
}

HF_TEST(egress, settings_that_say_nothing_are_refused)
{
	static const struct {
		const char *hosts, *addresses;
	} cases[] = {
		{ "http://a.example", nullptr },
		{ "a.example/x", nullptr },
		{ "a b", nullptr },
		{ "u@a", nullptr },
		{ "a:99999", nullptr },
		{ "a:x", nullptr },
		{ "*a", nullptr },
		{ "*.*", nullptr },
		{ "*.", nullptr },
		{ "a.*.example", nullptr },
		{ "*.0.0.1", nullptr },
		{ "[::1", nullptr },
		{ "*:", nullptr },
		{ "a:", nullptr },
		{ "\xc3\xa4.example", nullptr },
		{ nullptr, "10.0.0.1/8" },
		{ nullptr, "10.0.0.0/33" },
		{ nullptr, "10.0.0.0/" },
		{ nullptr, "10.0.0.0/-1" },
		{ nullptr, "10.0.0.0/8x" },
		{ nullptr, "10.0.0/8" },
		{ nullptr, "::/129" },
		{ nullptr, "::1/127" },
		{ nullptr, "localhost" },
		{ nullptr, "10.0.0.0/0008" },
	};
	for (size_t i = 0; i < countof(cases); i++) {
		struct hf_err err = {};
		struct egress *egress = nullptr;
		enum hf_code code =
		    egress_open(cases[i].hosts, cases[i].addresses, slice_of("{}"), &egress, &err);
		cr_assert_eq(code, HF_INVALID, "case %zu: %s %s", i,
			     cases[i].hosts ? cases[i].hosts : cases[i].addresses, err.text);
		cr_assert(strstr(err.text, cases[i].hosts ? "allow_hosts" : "allow_addresses"));
	}
	char many[EGRESS_HOSTS_MAX * 4 + 8] = "", *at = many;
	for (size_t i = 0; i <= EGRESS_HOSTS_MAX; i++)
		at = stpcpy(at, "a,");
	struct hf_err err = {};
	struct egress *egress = nullptr;
	cr_assert_eq(egress_open(many, nullptr, slice_of("{}"), &egress, &err), HF_LIMIT);
	for (size_t i = 0; i < sizeof many - 1; i++)
		many[i] = 'a';
	cr_assert_eq(egress_open(many, nullptr, slice_of("{}"), &egress, &err), HF_INVALID);
}
