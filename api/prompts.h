/* prompts.h - the messages of a prompt, from what its caller gave. */
#pragma once

#include "api/packs.h"
#include "runtime/buf.h"
#include "runtime/err.h"

constexpr size_t PROMPT_ARGUMENTS_BYTES_MAX = 64 << 10; /* as JSON, together */
constexpr size_t PROMPT_BYTES_MAX = 8 << 20;            /* of the messages of one answer */

/* Appends the GetPromptResult. `arguments`: the caller's object, or empty. `inputs`: what was
 * answered to questions of the prompt, {"KEY": …}, root /input of its templates; or empty.
 * HF_INVALID: an argument is missing or no string; HF_LIMIT: they or the messages are too large;
 * HF_MISSING: a template names what is not there. */
enum hf_code prompt_result(const struct prompt *prompt, struct slice arguments, struct slice inputs,
			   struct buf *out, struct hf_err *err);
