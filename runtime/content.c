/* content.c - see content.h. Called by the pack's reader and by resources/read. */
#include "runtime/content.h"

#include <limits.h>
#include <openssl/evp.h>
#include <strings.h>

#include "runtime/base.h"
#include "runtime/json.h"
#include "runtime/utf8.h"

static constexpr char ALPHABET[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_add(struct slice bytes, struct buf *out)
{
	hf_assert(bytes.len <= INT_MAX / 2);

	size_t len = 4 * ((bytes.len + 2) / 3);
	if (len == 0)
		return;
	unsigned char *room = buf_reserve(out, len + 1); /* it terminates what it writes */
	if (!room)
		return;
	EVP_EncodeBlock(room, (const unsigned char *)bytes.data, (int)bytes.len);
	buf_grew(out, len);
}

bool base64_is_valid(struct slice text)
{
	if (text.len % 4 != 0)
		return false;
	size_t padding = 0;
	while (padding < 2 && padding < text.len && text.data[text.len - 1 - padding] == '=')
		padding++;
	for (size_t i = 0; i < text.len - padding; i++)
		if (!memchr(ALPHABET, text.data[i], sizeof ALPHABET - 1))
			return false;
	return true;
}

static bool ends_nocase(struct slice text, const char *word)
{
	size_t len = strlen(word);
	return text.len > len && strncasecmp(text.data + text.len - len, word, len) == 0;
}

/* Without its parameters. */
static struct slice essence(struct slice media_type)
{
	size_t len = 0;
	while (len < media_type.len && media_type.data[len] != ';' && media_type.data[len] != ' ')
		len++;
	return (struct slice){ media_type.data, len };
}

/* One of text/…, JSON, XML and their kin, in any letter case, with parameters or without. */
static bool media_type_is_text(struct slice media_type)
{
	static const char *const words[] = { "application/json", "application/xml",
					     "application/yaml", "application/javascript" };
	struct slice type = essence(media_type);
	if (type.len > 5 && strncasecmp(type.data, "text/", 5) == 0)
		return true;
	for (size_t i = 0; i < countof(words); i++)
		if (slice_is_any_case(type, words[i]))
			return true;
	return ends_nocase(type, "+json") || ends_nocase(type, "+xml");
}

bool media_type_is_valid(struct slice media_type)
{
	for (size_t i = 0; i < media_type.len; i++)
		if (media_type.data[i] < ' ' || media_type.data[i] > '~')
			return false;
	struct slice type = essence(media_type);
	const char *slash = type.len ? memchr(type.data, '/', type.len) : nullptr;
	return slash && slash > type.data && slash + 1 < type.data + type.len;
}

void content_add(struct slice media_type, struct slice bytes, struct buf *out)
{
	if (media_type_is_text(media_type) && utf8_is_text(bytes)) {
		buf_add_text(out, "\"text\":");
		json_string_encode(bytes, out);
		return;
	}
	buf_add_text(out, "\"blob\":\"");
	base64_add(bytes, out);
	buf_add_byte(out, '"');
}
