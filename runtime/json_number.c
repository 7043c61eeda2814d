/* json_number.c - numbers by their exact decimal value, from the spelling: digits and a decimal
 * exponent, never a double, and no exponent is ever written out as zeros beyond 21 places. An
 * exponent may itself have a thousand digits; then it is kept and compared as text. Called by the
 * canonical form, the schema, msgpack and whoever reads an integer. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base.h"
#include "runtime/json.h"
#include "runtime/json_inner.h"

/* A point of up to this many digits is a number, a longer one is text: one form for each value. */
constexpr size_t POINT_DIGITS_MAX = 18;
constexpr int64_t POINT_END = 1'000'000'000'000'000'000;
/* Within these places of the point a number is written without an exponent, as ECMAScript does,
 * and so RFC 8785. */
constexpr int64_t PLAIN_POINT_MAX = 21, PLAIN_POINT_MIN = -5;

static bool is_digit(char byte)
{
	return byte >= '0' && byte <= '9';
}

/* text := text + by, for a decimal text whose value is far over that of `by`. */
static size_t text_add(char *text, size_t len, int64_t by)
{
	for (size_t i = len; i-- > 0 && by != 0;) {
		int64_t sum = (text[i] - '0') + by;
		int64_t digit = ((sum % 10) + 10) % 10;
		text[i] = (char)('0' + digit);
		by = (sum - digit) / 10;
	}
	hf_assert(by >= 0 && by < 10);
	if (by > 0) {
		memmove(text + 1, text, len);
		text[0] = (char)('0' + by);
		return len + 1;
	}
	size_t zeros = 0;
	while (zeros + 1 < len && text[zeros] == '0')
		zeros++;
	memmove(text, text + zeros, len - zeros);
	return len - zeros;
}

static int64_t digits_value(struct slice digits)
{
	hf_assert(digits.len <= POINT_DIGITS_MAX);
	int64_t value = 0;
	for (size_t i = 0; i < digits.len; i++)
		value = value * 10 + (digits.data[i] - '0');
	return value;
}

/* Adds the exponent that stands in `text`, after the e. */
static void add_exponent(struct decimal *decimal, struct slice text)
{
	size_t at = 0;
	bool negative = text.data[0] == '-';
	if (negative || text.data[0] == '+')
		at++;
	while (at < text.len && text.data[at] == '0')
		at++;
	text = (struct slice){ text.data + at, text.len - at };
	if (text.len <= POINT_DIGITS_MAX) {
		int64_t exponent = digits_value(text);
		decimal->point += negative ? -exponent : exponent;
		if (decimal->point > -POINT_END && decimal->point < POINT_END)
			return;
		int64_t magnitude = negative ? -decimal->point : decimal->point;
		decimal->far_len =
		    (size_t)snprintf(decimal->far, sizeof decimal->far, "%" PRId64, magnitude);
	} else {
		hf_assert(text.len < sizeof decimal->far);
		memcpy(decimal->far, text.data, text.len);
		decimal->far_len =
		    text_add(decimal->far, text.len, negative ? -decimal->point : decimal->point);
	}
	decimal->far_negative = negative;
	decimal->point = 0;
	if (decimal->far_len <= POINT_DIGITS_MAX) {
		int64_t point = digits_value((struct slice){ decimal->far, decimal->far_len });
		decimal->point = negative ? -point : point;
		decimal->far_len = 0;
	}
}

void decimal_parse(struct decimal *decimal, struct slice number)
{
	hf_assert(number.len > 0);
	hf_assert(number.len <= JSON_NUMBER_LEN_MAX);
	decimal->negative = number.data[0] == '-';
	decimal->far_negative = false;
	decimal->count = 0;
	decimal->far_len = 0;
	decimal->point = 0;
	bool fraction = false;
	size_t at = decimal->negative ? 1 : 0;
	for (; at < number.len && (is_digit(number.data[at]) || number.data[at] == '.'); at++) {
		if (number.data[at] == '.') {
			fraction = true;
		} else if (decimal->count == 0 && number.data[at] == '0') {
			decimal->point -= fraction; /* 0.001: the point moves left */
		} else {
			decimal->digits[decimal->count++] = number.data[at];
			decimal->point += !fraction;
		}
	}
	while (decimal->count > 0 && decimal->digits[decimal->count - 1] == '0')
		decimal->count--;
	if (decimal->count == 0) {
		decimal->negative = false;
		decimal->point = 0;
	} else if (at + 1 < number.len) {
		add_exponent(decimal, (struct slice){ number.data + at + 1, number.len - at - 1 });
	}
}

static int compare_points(const struct decimal *a, const struct decimal *b)
{
	if (a->far_len == 0 && b->far_len == 0)
		return (a->point > b->point) - (a->point < b->point);
	int a_side = a->far_len == 0 ? 0 : a->far_negative ? -1 : 1;
	int b_side = b->far_len == 0 ? 0 : b->far_negative ? -1 : 1;
	if (a_side != b_side)
		return a_side < b_side ? -1 : 1;
	if (a->far_len != b->far_len)
		return a->far_len > b->far_len ? a_side : -a_side;
	int order = memcmp(a->far, b->far, a->far_len);
	return a_side > 0 ? order : -order;
}

static int compare_magnitudes(const struct decimal *a, const struct decimal *b)
{
	if (a->count == 0 || b->count == 0)
		return (a->count > 0) - (b->count > 0);
	int points = compare_points(a, b);
	if (points)
		return points;
	size_t shared = a->count < b->count ? a->count : b->count;
	int digits = memcmp(a->digits, b->digits, shared);
	return digits ? digits : (a->count > b->count) - (a->count < b->count);
}

static int decimal_compare(const struct decimal *a, const struct decimal *b)
{
	if (a->negative != b->negative)
		return a->negative ? -1 : 1;
	int order = compare_magnitudes(a, b);
	return a->negative ? -order : order;
}

bool decimal_whole(const struct decimal *decimal)
{
	if (decimal->count == 0)
		return true;
	if (decimal->far_len)
		return !decimal->far_negative;
	return decimal->point >= (int64_t)decimal->count;
}

bool decimal_magnitude(const struct decimal *decimal, uint64_t *out)
{
	if (!decimal_whole(decimal) || decimal->far_len || decimal->point > 20)
		return false;
	uint64_t value = 0;
	for (int64_t i = 0; i < decimal->point; i++) {
		unsigned digit =
		    i < (int64_t)decimal->count ? (unsigned)(decimal->digits[i] - '0') : 0;
		if (value > (UINT64_MAX - digit) / 10)
			return false;
		value = value * 10 + digit;
	}
	*out = value;
	return true;
}

bool json_integer(struct slice number, int64_t *out)
{
	hf_assert(out);
	number = json_trim(number);
	if (json_type_of(number) != JSON_NUMBER)
		return false;
	struct decimal decimal;
	uint64_t magnitude;
	decimal_parse(&decimal, number);
	if (!decimal_magnitude(&decimal, &magnitude) ||
	    magnitude > (uint64_t)INT64_MAX + decimal.negative)
		return false;
	*out = decimal.negative ? (int64_t)(0 - magnitude) : (int64_t)magnitude;
	return true;
}

bool json_number_whole(struct slice number)
{
	struct decimal decimal;
	decimal_parse(&decimal, json_trim(number));
	return decimal_whole(&decimal);
}

int json_number_compare(struct slice a, struct slice b)
{
	struct decimal left, right;
	decimal_parse(&left, json_trim(a));
	decimal_parse(&right, json_trim(b));
	return decimal_compare(&left, &right);
}

/* Writes "e+N" or "e-N" for the exponent of a number that has one digit before its point. */
static void add_exponent_text(struct decimal *decimal, struct buf *out)
{
	if (decimal->far_len == 0) {
		buf_add_format(out, "e%+" PRId64, decimal->point - 1);
		return;
	}
	size_t len = text_add(decimal->far, decimal->far_len, decimal->far_negative ? 1 : -1);
	buf_add_text(out, decimal->far_negative ? "e-" : "e+");
	buf_add(out, decimal->far, len);
}

static void add_zeros(struct buf *out, int64_t count)
{
	hf_assert(count >= 0 && count <= PLAIN_POINT_MAX);
	buf_add(out, "000000000000000000000", (size_t)count);
}

static void add_decimal(struct decimal *decimal, struct buf *out)
{
	int64_t count = (int64_t)decimal->count, point = decimal->point;
	if (decimal->negative)
		buf_add_byte(out, '-');
	if (decimal->far_len || point > PLAIN_POINT_MAX || point < PLAIN_POINT_MIN) {
		buf_add(out, decimal->digits, 1);
		if (count > 1)
			buf_add_byte(out, '.');
		buf_add(out, decimal->digits + 1, decimal->count - 1);
		add_exponent_text(decimal, out);
	} else if (point >= count) {
		buf_add(out, decimal->digits, decimal->count);
		add_zeros(out, point - count);
	} else if (point > 0) {
		buf_add(out, decimal->digits, (size_t)point);
		buf_add_byte(out, '.');
		buf_add(out, decimal->digits + point, (size_t)(count - point));
	} else {
		buf_add_text(out, "0.");
		add_zeros(out, -point);
		buf_add(out, decimal->digits, decimal->count);
	}
}

/* A short integer without any sign of a fraction is canonical as it stands. */
static bool plain_integer(struct slice number)
{
	size_t start = number.data[0] == '-' ? 1 : 0;
	if (number.len - start > PLAIN_POINT_MAX || (start && number.data[1] == '0'))
		return false;
	for (size_t i = start; i < number.len; i++) {
		if (!is_digit(number.data[i]))
			return false;
	}
	return true;
}

void json_number_canonical(struct slice number, struct buf *out)
{
	number = json_trim(number);
	hf_assert(number.len > 0);
	if (plain_integer(number)) {
		buf_add_slice(out, number);
		return;
	}
	struct decimal decimal;
	decimal_parse(&decimal, number);
	if (decimal.count == 0)
		buf_add_byte(out, '0');
	else
		add_decimal(&decimal, out);
}
