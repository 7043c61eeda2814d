/* tool_effect.c - what phases of every kind have in tool.json: an effect class, attempts, their
 * time and the pauses between them. Called by the readers of the kinds, tool_phase.c and
 * tool_http.c. */
#include <inttypes.h>

#include "runtime/base.h"
#include "runtime/json.h"
#include "runtime/tool_parse.h"

constexpr int64_t ATTEMPTS = 5;
constexpr int64_t BACKOFF_FIRST_MS = 500;
constexpr int64_t BACKOFF_MAX_MS = 60'000;

static const struct {
	enum effect_class undeclared;
	unsigned allowed; /* a bit for each class */
	const char *told;
} phase_effects[PHASE_TYPES] = {
#define E(effect)                              1U << EFFECT_##effect
#define PHASE(id, name, effect, allowed, told) [PHASE_##id] = { EFFECT_##effect, allowed, told },
#include "runtime/phases.def"
#undef PHASE
#undef E
};

static enum hf_code effect_read(struct tool_parse *parse, struct slice value,
				struct phase_spec *phase)
{
	phase->effect_declared = value.len > 0;
	if (!value.len) {
		phase->effect = phase_effects[phase->type].undeclared;
		return HF_OK;
	}
	path_down_text(parse, "effect");
	int found = EFFECT_LOCAL;
	while (found <= EFFECT_UNSAFE &&
	       !json_string_is(value, effect_class_name((enum effect_class)found)))
		found++;
	if (found > EFFECT_UNSAFE)
		return tool_bad(parse, "no such effect class: declare %s",
				phase_effects[phase->type].told);
	phase->effect = (enum effect_class)found;
	if (!(phase_effects[phase->type].allowed & 1U << phase->effect))
		return tool_bad(parse, "a phase of kind %s is %s", phase_type_name(phase->type),
				phase_effects[phase->type].told);
	return HF_OK;
}

enum hf_code phase_common_read(struct tool_parse *parse, const struct slice *values,
			       int64_t timeout_ms, struct phase_spec *phase)
{
	size_t mark = parse->path.len;
	hf_try(effect_read(parse, values[PHASE_EFFECT], phase));
	path_up(parse, mark);
	phase->timeout_ms = member_integer(values[PHASE_TIMEOUT], timeout_ms);
	phase->attempts = (int)member_integer(values[PHASE_ATTEMPTS], ATTEMPTS);
	phase->backoff_first_ms = member_integer(values[PHASE_BACKOFF_FIRST], BACKOFF_FIRST_MS);
	phase->backoff_max_ms = member_integer(values[PHASE_BACKOFF_MAX], BACKOFF_MAX_MS);
	if (phase->backoff_first_ms <= phase->backoff_max_ms)
		return HF_OK;
	path_down_text(parse,
		       values[PHASE_BACKOFF_FIRST].len ? "backoff_first_ms" : "backoff_max_ms");
	return tool_bad(parse,
			"backoff_first_ms (%" PRId64 ") is over backoff_max_ms (%" PRId64 ")",
			phase->backoff_first_ms, phase->backoff_max_ms);
}

enum hf_code phase_class_check(struct tool_parse *parse, const struct phase_spec *phase,
			       enum effect_class effect, const char *name, struct slice value)
{
	if ((phase->effect == effect) == (value.len > 0))
		return HF_OK;
	path_down_text(parse, name);
	if (value.len)
		return tool_bad(parse, "belongs to effect %s, this phase is %s",
				effect_class_name(effect), effect_class_name(phase->effect));
	return tool_bad(parse, "is missing: effect %s needs it", effect_class_name(effect));
}
