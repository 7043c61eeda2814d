/* rfc3339.h - a date with time and offset, as RFC 3339 spells it. */
#pragma once

#include <stdint.h>

#include "runtime/slice.h"

constexpr size_t RFC3339_TEXT_LEN = 24; /* of "2015-09-01T12:30:00.000Z" */

/* ms since 1970. A leap second is the second after it, further digits than ms are cut. False: it is
 * not one, or names a day that is in no calendar. */
bool rfc3339_parse(struct slice text, int64_t *ms);
/* In UTC, with ms; years 0 to 9999. */
void rfc3339_format(int64_t ms, char text[static RFC3339_TEXT_LEN + 1]);
