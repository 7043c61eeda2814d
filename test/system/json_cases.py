"""The 35 texts of the JSON suite that a parser may take or refuse, as we do, and why; and texts of
our own: the package is made of decoded texts, so that bytes which are no UTF-8 came into it as
U+FFFD. They are here as the bytes that they were. test_json_suite.py sends them all."""

NUMBER = "kept as text, never a double, so no size is too much"
SURROGATE = "an escape that is no character has no form in UTF-8"
REPLACED = "U+FFFD by now, a character like any other"
WIDE = "only UTF-8 is read; this holds NULs, which no text may"
TAKEN, REFUSED = "taken", "refused"

# name (without i_ and .json) -> (what we do, why)
FREE = {
    **{f"number_{name}": (TAKEN, NUMBER) for name in (
        "double_huge_neg_exp", "huge_exp", "neg_int_huge_exp", "pos_double_huge_exp",
        "real_neg_overflow", "real_pos_overflow", "real_underflow", "too_big_neg_int",
        "too_big_pos_int", "very_big_negative_int")},
    "object_key_lone_2nd_surrogate": (REFUSED, SURROGATE),
    **{f"string_{name}": (REFUSED, SURROGATE) for name in (
        "1st_surrogate_but_2nd_missing", "1st_valid_surrogate_2nd_invalid",
        "incomplete_surrogate_and_escape_valid", "incomplete_surrogate_pair",
        "incomplete_surrogates_escape_valid", "invalid_lonely_surrogate", "invalid_surrogate",
        "inverted_surrogates_U+1D11E", "lone_second_surrogate")},
    **{f"string_{name}": (TAKEN, REPLACED) for name in (
        "UTF-8_invalid_sequence", "UTF8_surrogate_U+D800", "invalid_utf-8", "iso_latin_1",
        "lone_utf8_continuation_byte", "not_in_unicode_range", "overlong_sequence_2_bytes",
        "overlong_sequence_6_bytes", "overlong_sequence_6_bytes_null", "truncated-utf-8")},
    **{f"string_{name}": (REFUSED, WIDE) for name in (
        "UTF-16LE_with_BOM", "utf16BE_no_BOM", "utf16LE_no_BOM")},
    "structure_500_nested_arrays": (REFUSED, "64 levels are read"),
    "structure_UTF-8_BOM_empty_object": (REFUSED, "may be refused (RFC 8259 8.1)"),
}

# Well-formed, and refused by name a step later: code, and the code as arguments.
BY_NAME = {
    "object_duplicated_key": -32600,
    "object_duplicated_key_and_value": -32600,
    "object_escaped_null_in_key": -32602,
    "string_null_escape": -32602,
}

# What is no UTF-8, as bytes: all refused.
BYTES = {
    "lone continuation byte": b'["\x81"]',
    "Latin-1": b'["\xe9"]',
    "invalid byte": b'["\xff"]',
    "invalid sequence": b'["\xe6\x97\xa5\xd1\x88\xfa"]',
    "a surrogate": b'["\xed\xa0\x80"]',
    "beyond Unicode": b'["\xf4\xbf\xbf\xbf"]',
    "overlong, 2 bytes": b'["\xc0\xaf"]',
    "overlong, 6 bytes": b'["\xfc\x83\xbf\xbf\xbf\xbf"]',
    "overlong NUL, 6 bytes": b'["\xfc\x80\x80\x80\x80\x80"]',
    "overlong NUL, 2 bytes": b'["\xc0\x80"]',
    "cut short": b'["\xe0\xff"]',
    "cut short at the end of a string": b'["a\xe2\x82"]',
    "UTF-16 LE with a mark": b'\xff\xfe[\0"\0\xe9\0"\0]\0',
    "UTF-16 BE": b'\0[\0"\0\xe9\0"\0]',
    "UTF-16 LE": b'[\0"\0\xe9\0"\0]\0',
    "UTF-32 LE": "[1]".encode("utf-32-le"),
    "half a byte order mark": b"\xef\xbb{}",
    "behind a letter": b"[a\xe5]",
    "alone in an array": b"[\xff]",
    "alone": b"\xe5",
    "behind a digit": b"[0\xe5]",
    "behind an exponent": b"[1e1\xe5]",
    "behind e": b"[1e\xe5]",
    "behind a backslash": b'["\\\xe5"]',
    "behind a backslash and u": b'["\\u\xe5"]',
    "in a name": b'{"\xb9":"0"}',
    "0xfe in a name": b'{"a\xfe":"0"}',
}
