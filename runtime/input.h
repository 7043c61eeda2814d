/* input.h - what a caller can be asked, and what counts as an answer (MCP 2026-07-28 A13). Used
 * where a tool declares its questions, where the API asks before it accepts, and where a task
 * waits. */
#pragma once

#include "runtime/err.h"
#include "runtime/slice.h"

/* A sum of these is what a client declares it can be asked (A6.4), stored as `task.asks`. */
enum { INPUT_FORM = 1, INPUT_URL = 2, INPUT_SAMPLING = 4, INPUT_ROOTS = 8 };

constexpr size_t INPUT_KEY_LEN_MAX = 64;
constexpr size_t INPUT_ANSWER_BYTES_MAX = 256 << 10; /* of one answer to a task */
constexpr size_t INPUT_KEYS_MAX = 256;               /* of one task, over its life */
constexpr int INPUT_ASKED_MAX = 8; /* times that one question is asked, under a key each */

/* 1 to 64 of [A-Za-z0-9_.-]. */
bool input_key_ok(struct slice key);
/* Such a key with room for a number, and none that looks like KEY.2, which is kept for a question
 * that is asked again. */
bool input_key_free(struct slice key);

/* `capabilities`: a scanned ClientCapabilities object, or empty; `elicitation: {}` means forms. */
int input_declared(struct slice capabilities);
/* ClientCapabilities-shaped JSON of one INPUT_… bit, for `requiredCapabilities`. */
const char *input_capability(int kind);

/* One request object {"method", "params"} (scanned; strings may be templates): `kind` is the bit of
 * INPUT_… that it needs. HF_INVALID: "/params/…: reason". */
enum hf_code input_request_check(struct slice request, int *kind, struct hf_err *err);

/* An answer (scanned) to a request that input_request_check passed, rendered: of the shape of its
 * kind, and an accepted form's content fits the schema that was sent. HF_INVALID with pointer and
 * reason. */
enum hf_code input_answer_check(struct slice request, struct slice answer, struct hf_err *err);
