/* schema.h - JSON Schema as far as tools may use it today: type (one or an array), required,
 * properties, additionalProperties (boolean or schema), enum, const, pattern, minimum, maximum,
 * exclusiveMinimum, exclusiveMaximum, minLength, maxLength, allOf, anyOf, oneOf, not, if, then,
 * else, $defs, $anchor, $ref (within the schema), and the annotations title, description, default,
 * examples, $comment, $schema (2020-12), x-mcp-header. Any other keyword is refused by schema_new;
 * nothing is ever fetched. Knows nothing of MCP. Works on scanned JSON text: numbers are exact. */
#pragma once

#include "runtime/err.h"
#include "runtime/slice.h"

struct schema;

/* HF_INVALID: the text names the JSON pointer of the offending keyword and the reason. `text` must
 * have passed json_scan; it is copied. The root must be an object, not true or false. Patterns are
 * PCRE2, unanchored, with match and heap limits (schema_pattern.h). */
enum hf_code schema_new(struct slice text, struct schema **out, struct hf_err *err);
struct schema *schema_free(struct schema *schema); /* takes nullptr; returns nullptr */

/* HF_INVALID: the text names the pointer into `value` and what is wrong, for a model to act on
 * ("/month: does not match ^[0-9]{4}-[0-9]{2}$"; no pointer where it is the whole value).
 * HF_LIMIT: a pattern ran over its match limit, or $ref and the lists multiply the work without
 * bound. `value` must have passed json_scan. */
enum hf_code schema_check(const struct schema *schema, struct slice value, struct hf_err *err);
