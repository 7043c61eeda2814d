/* err.h - failures as values: a code that a caller can act on, and the text of where and why.
 * Three shapes: a broken invariant is hf_assert; a failure is hf_code with struct hf_err; an
 * expected answer is an enum of its own by out-parameter. Layers below an entry point return
 * errors, and whoever stops one logs it once. */
#pragma once

/* What a caller can do about it, not where it happened. */
enum [[nodiscard]] hf_code : unsigned char {
	HF_OK,
	HF_INVALID,   /* the input is wrong: say so, never retry */
	HF_DENIED,    /* no right to it */
	HF_MISSING,   /* no such thing */
	HF_CONFLICT,  /* the state does not allow it */
	HF_LIMIT,     /* over a named bound */
	HF_BUSY,      /* later, nothing happened */
	HF_CANCELLED, /* stopped on purpose */
	HF_TIMEOUT,   /* gave up waiting; may have happened */
	HF_DB,        /* Postgres refused or is away */
	HF_NET,       /* a peer refused or is away */
	HF_CORRUPT,   /* stored bytes do not read back */
	HF_SYSTEM,    /* the operating system refused */
};

struct hf_err {
	enum hf_code code;
	int line;
	const char *file;
	char sqlstate[6]; /* empty unless Postgres answered with one */
	char text[745];   /* for a person; always terminated */
};

/* Fills `err` (nullable) and returns `code`, so that a failure is one return statement. */
#define hf_fail(err, code, ...) hf_fail_at((err), (code), __FILE__, __LINE__, __VA_ARGS__)
enum hf_code hf_fail_at(struct hf_err *err, enum hf_code code, const char *file, int line,
			const char *format, ...) __attribute__((format(printf, 5, 6)));
/* The analyser does not look into err.c, and would take a failure for a success. */
#ifdef __clang_analyzer__
#undef hf_fail
#define hf_fail(err, code, ...) \
	(hf_fail_at((err), (code), __FILE__, __LINE__, __VA_ARGS__), (code) ? (code) : HF_SYSTEM)
#endif

/* Puts "what: " in front of the text, once a layer, and returns the code as it is. */
enum hf_code hf_wrap(struct hf_err *err, const char *what);

/* Returns from the enclosing function when `call` failed; the only hidden control flow. */
#define hf_try(call)                               \
	do {                                       \
		enum hf_code hf_try_code = (call); \
		if (hf_try_code != HF_OK)          \
			return hf_try_code;        \
	} while (0)

/* "invalid", "denied", …: a static word for logs. */
const char *hf_code_name(enum hf_code code);
