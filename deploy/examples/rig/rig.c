/* rig.c - the program of the test tools rig_report and rig_other: P1 and P3 are pure, P2 makes one
 * POST to the demo downstream's ledger under its derived key. At the start of each phase it reads
 * the file that HOLDFAST_RIG names, so that a test can slow it down or break it while it runs:
 *
 *   {"sleep_ms": {"P1": 0}, "fault": {"P2": "abort"}, "result_file": null, "downstream_url": null}
 *
 * fault: "abort" (a signal), "exit" (code 3), "hang"; with "-after" behind it, it fires when the
 * phase's work is done and only its result is missing. result_file: its bytes are the result's
 * text; of a file named .json the value is in the result, too. Everything is optional. */
#include <cJSON.h>
#include <curl/curl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#if __has_include(<holdfast/tool.h>)
#include <holdfast/tool.h>
#else
#include "worker/sdk/c/tool.h"
#endif

constexpr size_t FILE_BYTES_MAX = 8 << 20;
constexpr size_t ANSWER_BYTES_MAX = 4 << 10;
constexpr int64_t SLEEP_SLICE_MS = 10; /* between two looks whether it was cancelled */
constexpr int64_t CONNECT_MS = 5'000;
constexpr int EXIT_FAULT = 3;

/* The whole file, terminated, to be freed; nullptr where it cannot be read. */
static char *read_file(const char *path, size_t *len)
{
	FILE *file = path ? fopen(path, "rb") : nullptr;
	if (!file)
		return nullptr;
	char *bytes = malloc(FILE_BYTES_MAX + 1);
	*len = bytes ? fread(bytes, 1, FILE_BYTES_MAX, file) : 0;
	if (bytes)
		bytes[*len] = '\0';
	fclose(file);
	return bytes;
}

static cJSON *read_rig(void)
{
	size_t len;
	char *text = read_file(getenv("HOLDFAST_RIG"), &len);
	cJSON *rig = text ? cJSON_ParseWithLength(text, len) : nullptr;
	free(text);
	return rig ? rig : cJSON_CreateObject();
}

/* --- sleeping and failing --------------------------------------------------------------------- */

static void sleep_ms(struct tool_run *run, int64_t ms)
{
	for (; ms > 0 && !tool_cancelled(run); ms -= SLEEP_SLICE_MS) {
		int64_t slice = ms < SLEEP_SLICE_MS ? ms : SLEEP_SLICE_MS;
		nanosleep(&(struct timespec){ .tv_nsec = slice * 1'000'000 }, nullptr);
	}
}

static void fail_as_told(const struct tool_run *run, const cJSON *rig, bool after)
{
	const cJSON *faults = cJSON_GetObjectItemCaseSensitive(rig, "fault");
	const char *fault =
	    cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(faults, tool_phase_name(run)));
	const char *suffix = fault ? strstr(fault, "-after") : nullptr;
	if (!fault || after != (suffix != nullptr))
		return;
	fprintf(stderr, "rig: told to %s in %s\n", fault, tool_phase_name(run));
	if (strncmp(fault, "abort", 5) == 0)
		abort();
	if (strncmp(fault, "exit", 4) == 0)
		exit(EXIT_FAULT);
	while (strncmp(fault, "hang", 4) == 0)
		pause();
}

/* --- P2: the POST ----------------------------------------------------------------------------- */

struct text {
	char bytes[ANSWER_BYTES_MAX];
	size_t len;
};

static size_t on_answer(char *bytes, size_t, size_t len, void *ctx)
{
	struct text *answer = ctx;
	size_t room = sizeof answer->bytes - 1 - answer->len;
	memcpy(answer->bytes + answer->len, bytes, len < room ? len : room);
	answer->len += len < room ? len : room;
	return len;
}

/* A number as it came, as a raw JSON member: digits must survive. */
static void add_number(cJSON *body, const msgpack_object *n)
{
	char text[32];
	if (!n)
		return;
	if (n->type == MSGPACK_OBJECT_POSITIVE_INTEGER)
		snprintf(text, sizeof text, "%" PRIu64, n->via.u64);
	else if (n->type == MSGPACK_OBJECT_NEGATIVE_INTEGER)
		snprintf(text, sizeof text, "%" PRId64, n->via.i64);
	else
		return;
	cJSON_AddRawToObject(body, "n", text);
}

/* The same in every attempt: the same key with another body is refused downstream. */
static char *make_body(struct tool_run *run)
{
	cJSON *body = cJSON_CreateObject();
	cJSON_AddStringToObject(body, "effect_id", tool_effect_id(run));
	cJSON_AddStringToObject(body, "tool", tool_name(run));
	add_number(body, tool_find(tool_args(run), "n"));
	char *text = cJSON_PrintUnformatted(body);
	cJSON_Delete(body);
	return text;
}

/* One request, never repeated here: no kept connection, no redirect. 0: no answer came. */
static long post(struct tool_run *run, const char *url, const char *body, struct text *answer,
		 const char **problem)
{
	char header[128];
	long status = 0;
	snprintf(header, sizeof header, "Idempotency-Key: %s", tool_key(run, 0));
	struct curl_slist *headers = curl_slist_append(nullptr, header);
	headers = curl_slist_append(headers, "Content-Type: application/json");
	CURL *curl = curl_easy_init();
	curl_easy_setopt(curl, CURLOPT_URL, url);
	curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
	curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(curl, CURLOPT_FORBID_REUSE, 1L);
	curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
	curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)tool_time_left_ms(run) + 1);
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_answer);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, answer);
	CURLcode code = curl_easy_perform(curl);
	if (code == CURLE_OK)
		curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
	else
		*problem = curl_easy_strerror(code);
	curl_easy_cleanup(curl);
	curl_slist_free_all(headers);
	return status;
}

static int give_posted(struct tool_run *run, long status)
{
	msgpack_packer *pack = tool_pack(run);
	msgpack_pack_map(pack, 2);
	tool_pack_text(pack, "key");
	tool_pack_text(pack, tool_key(run, 0));
	tool_pack_text(pack, "status");
	msgpack_pack_long(pack, status);
	return tool_result(run);
}

static int run_post(struct tool_run *run, const cJSON *rig)
{
	const char *base =
	    cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(rig, "downstream_url"));
	if (!base)
		base = getenv("HOLDFAST_DOWNSTREAM_URL");
	if (!base)
		return tool_error(run, "neither downstream_url nor HOLDFAST_DOWNSTREAM_URL is set");
	if (tool_cancelled(run))
		return tool_error(run, "cancelled before it was sent");
	char url[1024];
	const char *problem = "";
	struct text answer = {};
	snprintf(url, sizeof url, "%s/ledger", base);
	char *body = make_body(run);
	long status = post(run, url, body, &answer, &problem);
	free(body);
	fail_as_told(run, rig, true);
	if (status >= 200 && status < 300)
		return give_posted(run, status);
	if (status == 0)
		return tool_retry(run, "no answer from the ledger: %s", problem);
	if (status == 409 || status == 425 || status == 429 || status >= 500)
		return tool_retry(run, "the ledger said %ld", status);
	return tool_error(run, "the ledger refused with %ld: %s", status, answer.bytes);
}

/* --- P3: the result --------------------------------------------------------------------------- */

/* Only as strict as test files need: what is no JSON (NaN) is packed as what it means. */
static const char *pack_json(msgpack_packer *pack, const char *at);

static const char *skip_space(const char *at)
{
	return at + strspn(at, " \t\r\n");
}

/* Escapes stay as they are spelt. */
static const char *pack_string(msgpack_packer *pack, const char *at)
{
	const char *end = at + 1;
	while (*end && *end != '"')
		end += *end == '\\' && end[1] ? 2 : 1;
	msgpack_pack_str_with_body(pack, at + 1, (size_t)(end - at - 1));
	return *end ? end + 1 : end;
}

static const char *pack_word(msgpack_packer *pack, const char *at)
{
	size_t len = strcspn(at, " \t\r\n,]}");
	bool integer = len > 0 && strspn(at + (*at == '-'), "0123456789") + (*at == '-') == len;
	if (strncmp(at, "true", 4) == 0)
		msgpack_pack_true(pack);
	else if (strncmp(at, "false", 5) == 0)
		msgpack_pack_false(pack);
	else if (strncmp(at, "null", 4) == 0)
		msgpack_pack_nil(pack);
	else if (integer && *at == '-')
		msgpack_pack_int64(pack, strtoll(at, nullptr, 10));
	else if (integer)
		msgpack_pack_uint64(pack, strtoull(at, nullptr, 10));
	else
		msgpack_pack_double(pack, strncmp(at, "NaN", 3) == 0 ? NAN : strtod(at, nullptr));
	return at + len;
}

/* Members are counted by packing them apart: msgpack wants the number first. */
static const char *pack_members(msgpack_packer *pack, const char *at)
{
	char open = *at, close = open == '{' ? '}' : ']';
	msgpack_sbuffer inner;
	msgpack_packer members;
	size_t count = 0;
	msgpack_sbuffer_init(&inner);
	msgpack_packer_init(&members, &inner, msgpack_sbuffer_write);
	for (at = skip_space(at + 1); *at && *at != close; count++) {
		if (open == '{') {
			at = skip_space(pack_string(&members, at));
			at += *at == ':';
		}
		at = skip_space(pack_json(&members, skip_space(at)));
		at = skip_space(at + (*at == ','));
	}
	if (open == '{')
		msgpack_pack_map(pack, count);
	else
		msgpack_pack_array(pack, count);
	msgpack_sbuffer_write(pack->data, inner.data, inner.size);
	msgpack_sbuffer_destroy(&inner);
	return *at ? at + 1 : at;
}

static const char *pack_json(msgpack_packer *pack, const char *at)
{
	if (*at == '{' || *at == '[')
		return pack_members(pack, at);
	if (*at == '"')
		return pack_string(pack, at);
	return pack_word(pack, at);
}

static int run_result(struct tool_run *run, const cJSON *rig)
{
	const char *path =
	    cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(rig, "result_file"));
	size_t len = 0;
	char *bytes = read_file(path, &len);
	if (path && !bytes)
		return tool_error(run, "result_file %s cannot be read", path);
	const char *dot = path ? strrchr(path, '.') : nullptr;
	msgpack_packer *pack = tool_pack(run);
	msgpack_pack_map(pack, 2);
	tool_pack_text(pack, "text");
	if (bytes)
		msgpack_pack_str_with_body(pack, bytes, len);
	else
		tool_pack_text(pack, "done");
	tool_pack_text(pack, "value");
	if (dot && strcmp(dot, ".json") == 0)
		pack_json(pack, skip_space(bytes));
	else
		msgpack_pack_nil(pack);
	free(bytes);
	fail_as_told(run, rig, true);
	return tool_result(run);
}

/* --- the run ---------------------------------------------------------------------------------- */

static int run_pure(struct tool_run *run, const cJSON *rig)
{
	tool_pack_text(tool_pack(run), tool_effect_id(run));
	fail_as_told(run, rig, true);
	return tool_result(run);
}

static int run_rig(struct tool_run *run)
{
	cJSON *rig = read_rig();
	const cJSON *sleeps = cJSON_GetObjectItemCaseSensitive(rig, "sleep_ms");
	const cJSON *ms = cJSON_GetObjectItemCaseSensitive(sleeps, tool_phase_name(run));
	tool_progress(run, 0.1, "%s", tool_phase_name(run));
	if (cJSON_IsNumber(ms))
		sleep_ms(run, (int64_t)ms->valuedouble);
	fail_as_told(run, rig, false);
	int status;
	if (strcmp(tool_phase_name(run), "P2") == 0)
		status = run_post(run, rig);
	else if (strcmp(tool_phase_name(run), "P3") == 0)
		status = run_result(run, rig);
	else
		status = run_pure(run, rig);
	cJSON_Delete(rig);
	return status;
}

int main(void)
{
	curl_global_init(CURL_GLOBAL_DEFAULT);
	return tool_main(run_rig);
}
