/* test_frame.c - the frame reader against every cut, and against peers that lie. */
#include "worker/frame.h"

#include "runtime/base.h"
#include "test/test.h"

static struct slice frame_of(struct buf *buf)
{
	size_t start = frame_begin(buf);
	frame_map(buf, 7);
	frame_text(buf, slice_of("t"));
	frame_text(buf, slice_of("sample"));
	frame_text(buf, slice_of("int"));
	frame_int(buf, -70'000);
	frame_text(buf, slice_of("double"));
	frame_double(buf, 0.25);
	frame_text(buf, slice_of("yes"));
	frame_bool(buf, true);
	frame_text(buf, slice_of("bin"));
	frame_raw(buf, (struct slice){ "\xc4\x02\0\xff", 4 });
	frame_text(buf, slice_of("a name of more than thirty-one bytes in all"));
	frame_nil(buf);
	frame_text(buf, slice_of("small"));
	frame_int(buf, 7);
	cr_assert(frame_end(buf, start));
	return buf_slice(buf);
}

HF_TEST(frame, what_is_written_is_read)
{
	hf_cleanup(buf) struct buf buf = {};
	struct slice bytes = frame_of(&buf), slice;
	struct frame frame;
	struct hf_err err;
	size_t used;
	int64_t number;
	double real;
	bool yes = false;
	cr_assert_eq(frame_next(bytes, &frame, &used, &err), FRAME_WHOLE);
	cr_assert_eq(used, bytes.len);
	cr_assert(slice_is(frame.type, "sample"));
	cr_assert(frame_get_int(&frame, "int", &number) && number == -70'000);
	cr_assert(frame_get_int(&frame, "small", &number) && number == 7);
	cr_assert(frame_get_double(&frame, "double", &real) && real == 0.25);
	cr_assert(frame_get_double(&frame, "small", &real) && real == 7.);
	cr_assert(frame_get_bool(&frame, "yes", &yes) && yes);
	cr_assert(frame_get_bin(&frame, "bin", &slice) && slice.len == 2 && slice.data[0] == 0);
	cr_assert(frame_get(&frame, "a name of more than thirty-one bytes in all", &slice));
	cr_assert_not(frame_get_text(&frame, "int", &slice), "a number is no text");
	cr_assert_not(frame_get_text(&frame, "bin", &slice), "bytes are no text");
	cr_assert_not(frame_get_int(&frame, "double", &number));
	cr_assert_not(frame_get(&frame, "absent", &slice));
}

HF_TEST(frame, two_frames_split_at_every_byte_are_two_frames)
{
	hf_cleanup(buf) struct buf buf = {};
	size_t one = frame_of(&buf).len;
	frame_of(&buf);
	cr_assert_eq(buf.len, 2 * one);
	for (size_t cut = 0; cut <= buf.len; cut++) {
		struct slice bytes = { buf.data, cut };
		struct frame frame;
		struct hf_err err;
		size_t used;
		enum frame_next want = cut < one ? FRAME_PART : FRAME_WHOLE;
		cr_assert_eq(frame_next(bytes, &frame, &used, &err), want, "cut at %zu", cut);
		cr_assert_leq(used, one);
		if (want == FRAME_PART)
			continue;
		struct slice rest = { buf.data + used, cut - used };
		want = cut < 2 * one ? FRAME_PART : FRAME_WHOLE;
		cr_assert_eq(frame_next(rest, &frame, &used, &err), want, "cut at %zu", cut);
	}
}

struct bad {
	const char *claim;
	const char *body;
	size_t len;
};
#define BODY(text) (text), sizeof(text) - 1

static const struct bad bads[] = {
	{ "no map", BODY("\x93\x01\x02\x03") },
	{ "an int", BODY("\x01") },
	{ "no type", BODY("\x81\xa1n\x01") },
	{ "an empty map", BODY("\x80") },
	{ "a type that is no text", BODY("\x81\xa1t\x01") },
	{ "a type that is bin", BODY("\x81\xa1t\xc4\x01x") },
	{ "a key that is no text", BODY("\x82\xa1t\xa1x\x01\x02") },
	{ "a key that is bin", BODY("\x82\xa1t\xa1x\xc4\x01k\x02") },
	{ "two equal keys", BODY("\x82\xa1t\xa1x\xa1t\xa1y") },
	{ "equal keys in two spellings", BODY("\x82\xa1t\xa1x\xd9\x01t\xa1y") },
	{ "a byte behind", BODY("\x81\xa1t\xa1x\x01") },
	{ "a member too few", BODY("\x82\xa1t\xa1x") },
	{ "a value too few", BODY("\x82\xa1t\xa1x\xa1v") },
	{ "the byte that msgpack never uses", BODY("\x82\xa1t\xa1x\xa1v\xc1") },
	{ "text past the end", BODY("\x82\xa1t\xa1x\xa1v\xdb\xff\xff\xff\xff") },
	{ "bin past the end", BODY("\x82\xa1t\xa1x\xa1v\xc6\x7f\xff\xff\xff") },
	{ "ext past the end", BODY("\x82\xa1t\xa1x\xa1v\xc9\xff\xff\xff\xff\x01") },
	{ "fixext cut", BODY("\x82\xa1t\xa1x\xa1v\xd8\x01\x02") },
	{ "a number cut", BODY("\x82\xa1t\xa1x\xa1v\xcf\x01") },
	{ "an array of four thousand million", BODY("\x82\xa1t\xa1x\xa1v\xdd\xff\xff\xff\xff") },
	{ "a map of four thousand million", BODY("\x82\xa1t\xa1x\xa1v\xdf\xff\xff\xff\xff") },
	{ "a frame of four thousand million members", BODY("\xdf\xff\xff\xff\xff\xa1t\xa1x") },
	{ "a type that is not UTF-8", BODY("\x81\xa1t\xa1\xff") },
	{ "a type with NUL", BODY("\x81\xa1t\xa1\x00") },
	{ "a type with a surrogate", BODY("\x81\xa1t\xa3\xed\xa0\x80") },
	{ "a type in overlong UTF-8", BODY("\x81\xa1t\xa2\xc0\xaf") },
};

static enum frame_next read_body(const char *body, size_t len, struct hf_err *err)
{
	hf_cleanup(buf) struct buf buf = {};
	size_t start = frame_begin(&buf), used;
	frame_raw(&buf, (struct slice){ body, len });
	cr_assert(frame_end(&buf, start));
	struct frame frame;
	return frame_next(buf_slice(&buf), &frame, &used, err);
}

HF_TEST(frame, garbage_is_refused_with_a_reason)
{
	for (size_t i = 0; i < countof(bads); i++) {
		struct hf_err err = {};
		cr_expect_eq(read_body(bads[i].body, bads[i].len, &err), FRAME_BAD, "%s",
			     bads[i].claim);
		cr_expect_eq(err.code, HF_CORRUPT, "%s", bads[i].claim);
		cr_expect(err.text[0], "%s", bads[i].claim);
	}
}

HF_TEST(frame, a_length_over_the_bound_is_refused_before_a_byte_of_it_came)
{
	static const struct {
		const char *head;
		enum frame_next want;
	} heads[] = {
		{ "\x00\x00\x00\x00", FRAME_BAD },  { "\x01\x00\x00\x01", FRAME_BAD },
		{ "\xff\xff\xff\xff", FRAME_BAD },  { "GET ", FRAME_BAD },
		{ "\x01\x00\x00\x00", FRAME_PART }, { "\x00\x00\x00\x01", FRAME_PART },
	};
	for (size_t i = 0; i < countof(heads); i++) {
		struct frame frame;
		struct hf_err err;
		size_t used;
		cr_expect_eq(frame_next((struct slice){ heads[i].head, 4 }, &frame, &used, &err),
			     heads[i].want, "head %zu", i);
	}
}

/* {t: "x", v: [[[…]]]} with `depth` arrays. */
static enum frame_next read_nested(size_t depth)
{
	hf_cleanup(buf) struct buf body = {};
	buf_add(&body, "\x82\xa1t\xa1x\xa1v", 7);
	for (size_t i = 0; i < depth; i++)
		buf_add_byte(&body, (char)(i + 1 < depth ? 0x91 : 0x90));
	struct hf_err err;
	return read_body(body.data, body.len, &err);
}

HF_TEST(frame, depth_is_a_bound_and_no_recursion)
{
	cr_assert_eq(read_nested(1), FRAME_WHOLE);
	cr_assert_eq(read_nested(FRAME_DEPTH_MAX), FRAME_WHOLE);
	cr_assert_eq(read_nested(FRAME_DEPTH_MAX + 1), FRAME_BAD);
	cr_assert_eq(read_nested(8 << 20), FRAME_BAD);
}

HF_TEST(frame, every_first_byte_is_read_without_passing_the_end)
{
	/* What follows is zeros: whatever is claimed, it is refused or fits. ASan watches the end.
	 */
	for (unsigned first = 0; first < 256; first++) {
		for (size_t len = 1; len < 24; len++) {
			char *bytes = hf_alloc(len);
			bytes[0] = (char)first;
			size_t used = frame_value_len((struct slice){ bytes, len });
			cr_assert_leq(used, len, "first byte %02x, %zu bytes", first, len);
			free(bytes);
		}
	}
}

HF_TEST(frame, what_cannot_be_sent_leaves_no_trace)
{
	hf_cleanup(buf) struct buf buf = { .max = 64 };
	buf_add_text(&buf, "before");
	size_t start = frame_begin(&buf);
	frame_map(&buf, 1);
	frame_text(&buf, slice_of("t"));
	char big[100] = {};
	frame_text(&buf, (struct slice){ big, sizeof big });
	cr_assert_not(frame_end(&buf, start));
	cr_assert(slice_is(buf_slice(&buf), "before"));

	hf_cleanup(buf) struct buf huge = {};
	start = frame_begin(&huge);
	char *bytes = hf_alloc(FRAME_BYTES_MAX);
	frame_text(&huge, (struct slice){ bytes, FRAME_BYTES_MAX });
	cr_assert_not(frame_end(&huge, start), "five bytes too many");
	free(bytes);
	cr_assert_eq(huge.len, 0);
}

HF_TEST(frame, members_past_the_bound_are_refused)
{
	for (size_t count = FRAME_FIELDS_MAX - 1; count <= FRAME_FIELDS_MAX; count++) {
		hf_cleanup(buf) struct buf body = {};
		frame_map(&body, (uint32_t)count + 1);
		frame_text(&body, slice_of("t"));
		frame_text(&body, slice_of("x"));
		for (size_t i = 0; i < count; i++) {
			frame_text(&body, (struct slice){ (char[]){ (char)('A' + i) }, 1 });
			frame_int(&body, 1);
		}
		struct hf_err err;
		cr_assert_eq(read_body(body.data, body.len, &err),
			     count < FRAME_FIELDS_MAX ? FRAME_WHOLE : FRAME_BAD);
	}
}
