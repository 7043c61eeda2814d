/* mcp_client.c - libcurl, one request at a time. Each request stands alone: version, capabilities
 * and identity are in it, so any API process answers it. The JSON-RPC ID is new at each send; what
 * makes a repeat harmless is the effect ID in the caller's params. */
#include "runtime/mcp_client.h"

#include <curl/curl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base.h"
#include "runtime/content.h"
#include "runtime/json.h"

constexpr long CONNECT_TIMEOUT_MS = 5'000;
constexpr long REQUEST_TIMEOUT_MS = 60'000;
constexpr size_t ANSWER_BYTES_MAX = 64 << 20;
constexpr int64_t RETRY_AFTER_MS_MAX = 30'000;

#define PROTOCOL_VERSION "2026-07-28"

struct mcp_client {
	CURL *curl;
	char *url;
	char *authorization; /* whole header line; nullable */
	const volatile sig_atomic_t *stop;
	int64_t last_id;
	char curl_text[CURL_ERROR_SIZE];
};

static size_t on_body(char *bytes, size_t size, size_t count, void *ctx)
{
	struct buf *body = ctx;
	buf_add(body, bytes, size * count);
	return body->overflow ? 0 : size * count;
}

static int on_progress(void *ctx, curl_off_t, curl_off_t, curl_off_t, curl_off_t)
{
	const struct mcp_client *client = ctx;
	return *client->stop != 0;
}

static bool is_loopback(const char *host)
{
	return strcmp(host, "localhost") == 0 || strcmp(host, "[::1]") == 0 ||
	       strncmp(host, "127.", 4) == 0;
}

/* The whole URL, and whether it is of this machine. */
static enum hf_code read_url(const char *url, char **whole, bool *local, struct hf_err *err)
{
	CURLU *parts = curl_url();
	hf_assert(parts);
	char *scheme = nullptr, *host = nullptr, *path = nullptr, *made = nullptr;
	bool good = curl_url_set(parts, CURLUPART_URL, url, 0) == CURLUE_OK &&
		    curl_url_get(parts, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
		    curl_url_get(parts, CURLUPART_HOST, &host, 0) == CURLUE_OK &&
		    curl_url_get(parts, CURLUPART_PATH, &path, 0) == CURLUE_OK &&
		    (strcmp(scheme, "http") == 0 || strcmp(scheme, "https") == 0);
	if (good && strcmp(path, "/") == 0)
		good = curl_url_set(parts, CURLUPART_PATH, "/mcp", 0) == CURLUE_OK;
	if (good)
		good = curl_url_get(parts, CURLUPART_URL, &made, 0) == CURLUE_OK;
	if (good) {
		*whole = hf_strdup(made);
		*local = is_loopback(host);
	}
	curl_free(scheme);
	curl_free(host);
	curl_free(path);
	curl_free(made);
	curl_url_cleanup(parts);
	if (!good)
		return hf_fail(err, HF_INVALID, "`%s` is no http or https address", url);
	return HF_OK;
}

static bool is_header_value(const char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < 0x20 || *text == 0x7f)
			return false;
	return true;
}

static void set_options(struct mcp_client *client, bool local)
{
	CURL *curl = client->curl;
	curl_easy_setopt(curl, CURLOPT_URL, client->url);
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_TIMEOUT_MS);
	curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, REQUEST_TIMEOUT_MS);
	curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, client->curl_text);
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
	curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
	curl_easy_setopt(curl, CURLOPT_XFERINFODATA, client);
	/* A proxy of the environment is for the world outside, and must not get the token. */
	if (local)
		curl_easy_setopt(curl, CURLOPT_PROXY, "");
}

enum hf_code mcp_client_open(const char *url, const char *token, const volatile sig_atomic_t *stop,
			     struct mcp_client **out, struct hf_err *err)
{
	hf_assert(url);
	hf_assert(stop);
	hf_assert(out);
	if (token && !is_header_value(token))
		return hf_fail(err, HF_INVALID, "the token has control characters in it");
	if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
		return hf_fail(err, HF_SYSTEM, "libcurl does not start");
	char *whole = nullptr;
	bool local = false;
	hf_try(read_url(url, &whole, &local, err));
	struct mcp_client *client = hf_alloc(sizeof *client);
	client->curl = curl_easy_init();
	hf_assert(client->curl);
	client->url = whole;
	client->stop = stop;
	if (token)
		client->authorization = hf_format("Authorization: Bearer %s", token);
	set_options(client, local);
	*out = client;
	return HF_OK;
}

struct mcp_client *mcp_client_close(struct mcp_client *client)
{
	if (!client)
		return nullptr;
	curl_easy_cleanup(client->curl);
	free(client->url);
	free(client->authorization);
	free(client);
	return nullptr;
}

void mcp_answer_deinit(struct mcp_answer *answer)
{
	buf_deinit(&answer->body);
	*answer = (struct mcp_answer){};
}

/* A header field may not carry every text as it is: such a one travels as a sentinel. */
static bool needs_sentinel(const char *text)
{
	size_t len = strlen(text);
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)text[i] < 0x20 || (unsigned char)text[i] >= 0x7f)
			return true;
	if (len == 0)
		return false;
	if (text[0] == ' ' || text[len - 1] == ' ')
		return true;
	return strncmp(text, "=?base64?", 9) == 0 && len >= 11 && strcmp(text + len - 2, "?=") == 0;
}

static char *name_header(const char *name)
{
	if (!needs_sentinel(name))
		return hf_format("Mcp-Name: %s", name);
	hf_cleanup(buf) struct buf code = {};
	base64_add(slice_of(name), &code);
	return hf_format("Mcp-Name: =?base64?%s?=", code.data);
}

static struct curl_slist *add_header(struct curl_slist *list, const char *line)
{
	struct curl_slist *longer = curl_slist_append(list, line);
	hf_assert(longer);
	return longer;
}

static struct curl_slist *make_headers(const struct mcp_client *client, const char *method,
				       const char *name)
{
	struct curl_slist *list = nullptr;
	char *method_line = hf_format("Mcp-Method: %s", method);
	char *name_line = name_header(name);
	list = add_header(list, "Content-Type: application/json");
	list = add_header(list, "Accept: application/json, text/event-stream");
	list = add_header(list, "MCP-Protocol-Version: " PROTOCOL_VERSION);
	list = add_header(list, "User-Agent: holdfast/" HF_VERSION);
	list = add_header(list, "Expect:");
	list = add_header(list, method_line);
	list = add_header(list, name_line);
	if (client->authorization)
		list = add_header(list, client->authorization);
	free(method_line);
	free(name_line);
	return list;
}

static void make_body(struct mcp_client *client, const char *method, struct slice params,
		      struct slice meta, struct buf *body)
{
	buf_add_format(body,
		       "{\"jsonrpc\":\"2.0\",\"id\":%" PRId64 ",\"method\":\"%s\",\"params\":{",
		       ++client->last_id, method);
	buf_add_slice(body, params);
	buf_add_text(body,
		     ",\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"" PROTOCOL_VERSION
		     "\",\"io.modelcontextprotocol/clientInfo\":{\"name\":\"holdfast-call\","
		     "\"version\":\"" HF_VERSION "\"},"
		     "\"io.modelcontextprotocol/clientCapabilities\":{\"extensions\":{"
		     "\"io.modelcontextprotocol/tasks\":{}}}");
	if (meta.len) {
		buf_add_byte(body, ',');
		buf_add_slice(body, meta);
	}
	buf_add_text(body, "}}}");
}

/* Takes the JSON-RPC answer apart; false where the body is none, or another request's. */
static bool read_answer(const struct mcp_client *client, struct mcp_answer *answer)
{
	struct slice id, member, body = json_trim(buf_slice(&answer->body));
	if (json_scan(body, nullptr) != HF_OK || json_type_of(body) != JSON_OBJECT)
		return false;
	int64_t number = 0;
	bool has_id = json_member(body, "id", &id) && json_type_of(id) != JSON_NULL;
	if (has_id && (json_type_of(id) != JSON_NUMBER || !json_integer(id, &number) ||
		       number != client->last_id))
		return false;
	if (json_member(body, "error", &member) && json_type_of(member) == JSON_OBJECT) {
		answer->error = member;
		return true;
	}
	if (!has_id || !json_member(body, "result", &member) || json_type_of(member) != JSON_OBJECT)
		return false;
	answer->result = member;
	return true;
}

static enum hf_code judge(struct mcp_client *client, struct mcp_answer *answer, struct hf_err *err)
{
	long status = 0;
	curl_off_t after_s = 0;
	curl_easy_getinfo(client->curl, CURLINFO_RESPONSE_CODE, &status);
	curl_easy_getinfo(client->curl, CURLINFO_RETRY_AFTER, &after_s);
	bool understood = read_answer(client, answer);
	if (status == 429 || status >= 500) {
		answer->retry_after_ms =
		    after_s < RETRY_AFTER_MS_MAX / 1000 ? after_s * 1000 : RETRY_AFTER_MS_MAX;
		return hf_fail(err, HF_BUSY, "%s answers HTTP %ld", client->url, status);
	}
	if (understood)
		return HF_OK;
	answer->maybe_taken = status != 401 && status != 403;
	if (!answer->maybe_taken)
		return hf_fail(err, HF_DENIED, "%s answers HTTP %ld: is the token right?",
			       client->url, status);
	return hf_fail(err, HF_INVALID, "%s answers HTTP %ld, but nothing that MCP knows",
		       client->url, status);
}

enum hf_code mcp_request(struct mcp_client *client, const char *method, const char *name,
			 struct slice params, struct slice meta, struct mcp_answer *answer,
			 struct hf_err *err)
{
	hf_assert(client);
	hf_assert(params.len > 0);
	mcp_answer_deinit(answer);
	answer->body.max = ANSWER_BYTES_MAX;
	hf_cleanup(buf) struct buf body = {};
	make_body(client, method, params, meta, &body);
	struct curl_slist *headers = make_headers(client, method, name);
	curl_easy_setopt(client->curl, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(client->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body.len);
	curl_easy_setopt(client->curl, CURLOPT_POSTFIELDS, body.data);
	curl_easy_setopt(client->curl, CURLOPT_WRITEDATA, &answer->body);
	client->curl_text[0] = '\0';
	CURLcode done = curl_easy_perform(client->curl);
	answer->maybe_taken = done != CURLE_COULDNT_CONNECT && done != CURLE_COULDNT_RESOLVE_HOST;
	curl_slist_free_all(headers);
	if (done == CURLE_OK)
		return judge(client, answer, err);
	const char *text = client->curl_text[0] ? client->curl_text : curl_easy_strerror(done);
	if (*client->stop)
		return hf_fail(err, HF_CANCELLED, "interrupted");
	if (answer->body.overflow)
		return hf_fail(err, HF_LIMIT, "an answer of over %zu bytes", ANSWER_BYTES_MAX);
	return hf_fail(err, HF_NET, "%s: %s", client->url, text);
}
