#include "runtime/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base.h"

enum hf_code hf_fail_at(struct hf_err *err, enum hf_code code, const char *file, int line,
			const char *format, ...)
{
	hf_assert(code != HF_OK);
	if (!err)
		return code;
	err->code = code;
	err->file = file;
	err->line = line;
	err->sqlstate[0] = '\0';
	va_list args;
	va_start(args, format);
	vsnprintf(err->text, sizeof err->text, format, args);
	va_end(args);
	return code;
}

enum hf_code hf_wrap(struct hf_err *err, const char *what)
{
	hf_assert(err);
	hf_assert(err->code != HF_OK);
	char inner[sizeof err->text];
	memcpy(inner, err->text, sizeof inner);
	int len = snprintf(err->text, sizeof err->text, "%s: ", what);
	if (len >= 0 && (size_t)len < sizeof err->text)
		snprintf(err->text + len, sizeof err->text - (size_t)len, "%s", inner);
	return err->code;
}

const char *hf_code_name(enum hf_code code)
{
	static const char *const names[] = {
		"ok",        "invalid", "denied", "missing", "conflict", "limit",  "busy",
		"cancelled", "timeout", "db",     "net",     "corrupt",  "system",
	};
	hf_assert((size_t)code < countof(names));
	return names[code];
}
