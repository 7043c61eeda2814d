/* http_text.c - see http_text.h. */
#include "api/http_text.h"

#include <string.h>
#include <strings.h>

#include "runtime/base.h"

bool text_is_digit(char c)
{
	return c >= '0' && c <= '9';
}

bool text_is_hex(char c)
{
	return text_is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static bool is_alnum(char c)
{
	return text_is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool text_is_token(struct slice text)
{
	for (size_t i = 0; i < text.len; i++) {
		char c = text.data[i];
		if (!is_alnum(c) && (c == '\0' || !strchr("!#$%&'*+-.^_`|~", c)))
			return false;
	}
	return text.len > 0;
}

bool text_equal_any_case(struct slice a, struct slice b)
{
	return a.len == b.len && (a.len == 0 || strncasecmp(a.data, b.data, a.len) == 0);
}

bool text_is_any_case(struct slice a, const char *text)
{
	return text_equal_any_case(a, slice_of(text));
}

bool text_begins_any_case(struct slice text, struct slice start)
{
	return text.len >= start.len &&
	       text_equal_any_case((struct slice){ text.data, start.len }, start);
}

bool text_is_visible(struct slice text)
{
	for (size_t i = 0; i < text.len; i++)
		if (text.data[i] < '!' || text.data[i] > '~')
			return false;
	return text.len > 0;
}

bool text_split(struct slice *rest, char byte, struct slice *out)
{
	const char *at = rest->len ? memchr(rest->data, byte, rest->len) : nullptr;
	if (!at)
		return false;
	*out = (struct slice){ rest->data, (size_t)(at - rest->data) };
	*rest = (struct slice){ at + 1, rest->len - out->len - 1 };
	return true;
}

bool text_is_uri(struct slice text, const char *also)
{
	for (size_t i = 0; i < text.len; i++) {
		char c = text.data[i];
		if (c == '%') {
			if (text.len - i < 3 || !text_is_hex(text.data[i + 1]) ||
			    !text_is_hex(text.data[i + 2]))
				return false;
		} else if (!is_alnum(c) &&
			   (c == '\0' || (!strchr("-._~!$&'()*+,;=", c) && !strchr(also, c)))) {
			return false;
		}
	}
	return true;
}

bool text_is_authority(struct slice text)
{
	struct slice host = text, inside;
	if (host.len && host.data[0] == '[') {
		if (!text_split(&host, ']', &inside) || inside.len < 3)
			return false;
		for (size_t i = 1; i < inside.len; i++)
			if (!text_is_hex(inside.data[i]) && !strchr(":.", inside.data[i]))
				return false;
		if (host.len == 0)
			return true;
		if (host.data[0] != ':')
			return false;
		host = (struct slice){ host.data + 1, host.len - 1 };
	} else {
		struct slice rest = text;
		if (!text_split(&rest, ':', &inside))
			return text.len > 0 && text_is_uri(text, "");
		if (inside.len == 0 || !text_is_uri(inside, ""))
			return false;
		host = rest;
	}
	for (size_t i = 0; i < host.len; i++)
		if (!text_is_digit(host.data[i]))
			return false;
	return host.len <= 5;
}

/* The length of the quoted string that `text` starts with, quotes included; 0 when it is none. */
static size_t quoted_len(struct slice text)
{
	if (text.len < 2 || text.data[0] != '"')
		return 0;
	for (size_t i = 1; i < text.len; i++) {
		if (text.data[i] == '"')
			return i + 1;
		if (text.data[i] == '\\')
			i++;
	}
	return 0;
}

static size_t token_len(struct slice text)
{
	size_t len = 0;
	while (len < text.len && text_is_token((struct slice){ text.data + len, 1 }))
		len++;
	return len;
}

static struct slice after(struct slice text, size_t len)
{
	return (struct slice){ text.data + len, text.len - len };
}

bool text_is_chunk_extensions(struct slice text)
{
	while (text.len > 0) {
		size_t len = text.data[0] == ';' ? token_len(after(text, 1)) : 0;
		if (len == 0)
			return false;
		text = after(text, 1 + len);
		if (text.len == 0 || text.data[0] != '=')
			continue;
		text = after(text, 1);
		len = token_len(text);
		if (len == 0)
			len = quoted_len(text);
		if (len == 0)
			return false;
		text = after(text, len);
	}
	return true;
}

bool text_is_forbidden_trailer(struct slice line)
{
	static const char *const names[] = {
		"transfer-encoding", "content-length", "host",       "connection",
		"content-encoding",  "expect",         "upgrade",    "authorization",
		"content-type",      "trailer",        "keep-alive", "te",
	};
	struct slice name, rest = line;
	if (!text_split(&rest, ':', &name))
		return true;
	for (size_t i = 0; i < countof(names); i++)
		if (text_is_any_case(name, names[i]))
			return true;
	return false;
}
