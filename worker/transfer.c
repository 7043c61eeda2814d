/* transfer.c - callbacks of curl note what happened; transfer_answer says what it means. */
#include "worker/transfer.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>

#include "runtime/base.h"
#include "worker/curl_loop.h"
#include "worker/retry.h"
#include "worker/text.h"

#define option_set(...) curl_must_have(curl_easy_setopt(__VA_ARGS__) != CURLE_OUT_OF_MEMORY)

void transfer_say(struct transfer *transfer, const char *text)
{
	hf_cleanup(buf) struct buf clean = {};
	text_clean(slice_of(text), TRANSFER_REASON_LEN_MAX, &clean);
	snprintf(transfer->reason, sizeof transfer->reason, "%s", clean.data ? clean.data : "");
}

/* --- what curl calls back for ------------------------------------------------------------------
 */

/* The address is the one that will be connected to, whatever names and numbers led to it. Tool
 * processes must not inherit the connection. */
static curl_socket_t on_open(void *ctx, curlsocktype, struct curl_sockaddr *address)
{
	struct transfer *transfer = ctx;
	const struct sockaddr *to = &address->addr;
	if (!egress_address_allowed(transfer->egress, &transfer->target, to)) {
		const void *bytes = &((const struct sockaddr_in *)(const void *)to)->sin_addr;
		if (to->sa_family == AF_INET6)
			bytes = &((const struct sockaddr_in6 *)(const void *)to)->sin6_addr;
		if (!inet_ntop(to->sa_family, bytes, transfer->denied, sizeof transfer->denied))
			strcpy(transfer->denied, "?");
		return CURL_SOCKET_BAD;
	}
	transfer->tried = true;
	return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

static int on_connected(void *ctx, char *, char *, int, int)
{
	struct transfer *transfer = ctx;
	transfer->withheld = !transfer->may_send(transfer->ctx);
	if (transfer->withheld)
		return CURL_PREREQFUNC_ABORT;
	transfer->sent = true;
	return CURL_PREREQFUNC_OK;
}

static bool has_name(struct slice line, const char *name, struct slice *value)
{
	size_t len = strlen(name);
	if (line.len <= len || line.data[len] != ':' || strncasecmp(line.data, name, len) != 0)
		return false;
	*value = (struct slice){ line.data + len + 1, line.len - len - 1 };
	return true;
}

static bool is_coding(struct slice value, const char *none)
{
	value = text_trim(value);
	return value.len > 0 &&
	       (value.len != strlen(none) || strncasecmp(value.data, none, value.len) != 0);
}

/* Each answer begins anew: an interim one (100) may stand before the real one. */
static void begin_answer(struct transfer *transfer, struct slice line)
{
	transfer->retry_after_ms = -1;
	transfer->coded = false;
	line = text_trim(line);
	const char *space = memchr(line.data, ' ', line.len);
	hf_cleanup(buf) struct buf text = {};
	if (space)
		buf_add(&text, space + 1, (size_t)(line.data + line.len - space - 1));
	transfer_say(transfer, text.data ? text.data : "");
	transfer->answering = transfer->reason[0] != '1';
}

static size_t on_header(char *data, size_t, size_t len, void *ctx)
{
	struct transfer *transfer = ctx;
	struct slice line = { data, len }, value;
	transfer->header_bytes += len;
	if (transfer->header_bytes > DOWNSTREAM_HEADER_BYTES_MAX) {
		transfer->too_large = true;
		return 0;
	}
	if (len > 5 && memcmp(data, "HTTP/", 5) == 0) {
		begin_answer(transfer, line);
	} else if (has_name(line, "retry-after", &value)) {
		if (!retry_after_parse(value, time(nullptr), &transfer->retry_after_ms))
			transfer->retry_after_ms = -1;
	} else if (has_name(line, "content-encoding", &value)) {
		transfer->coded = transfer->coded || is_coding(value, "identity");
	} else if (has_name(line, "transfer-encoding", &value)) {
		/* curl undoes these unasked. */
		transfer->coded = transfer->coded || is_coding(value, "chunked");
	}
	return len;
}

/* What comes here has no transfer coding any more, so the bound counts what is kept. */
static size_t on_body(char *data, size_t, size_t len, void *ctx)
{
	struct transfer *transfer = ctx;
	if (!transfer->coded)
		buf_add(&transfer->body, data, len);
	transfer->too_large = transfer->body.overflow;
	return transfer->coded || transfer->too_large ? 0 : len;
}

/* --- what curl is told ------------------------------------------------------------------------ */

static void set_method(CURL *easy, const struct downstream_request *request)
{
	bool carries = request->has_body || strcmp(request->method, "POST") == 0 ||
		       strcmp(request->method, "PUT") == 0 || strcmp(request->method, "PATCH") == 0;
	if (carries) {
		option_set(easy, CURLOPT_POST, 1L);
		option_set(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body.len);
		option_set(easy, CURLOPT_POSTFIELDS, request->body.len ? request->body.data : "");
	} else if (strcmp(request->method, "HEAD") == 0) {
		option_set(easy, CURLOPT_NOBODY, 1L);
	}
	option_set(easy, CURLOPT_CUSTOMREQUEST, request->method);
}

static bool header_given(const char *const *headers, const char *name)
{
	struct slice value;
	for (; *headers; headers++)
		if (has_name(slice_of(*headers), name, &value))
			return true;
	return false;
}

static void header_add(struct transfer *transfer, const char *line)
{
	struct curl_slist *longer = curl_slist_append(transfer->headers, line);
	curl_must_have(longer);
	transfer->headers = longer;
}

static void set_headers(struct transfer *transfer, const char *const *headers)
{
	/* An empty value keeps curl from adding the header by itself: "Expect" would allow a second
	 * try, the type would be that of a form. */
	header_add(transfer, "Expect:");
	if (!header_given(headers, "content-type"))
		header_add(transfer, "Content-Type:");
	if (!header_given(headers, "accept-encoding"))
		header_add(transfer, "Accept-Encoding: identity");
	if (!header_given(headers, "user-agent"))
		header_add(transfer, "User-Agent: holdfast");
	for (; *headers; headers++)
		header_add(transfer, *headers);
	option_set(transfer->easy, CURLOPT_HTTPHEADER, transfer->headers);
}

static void set_options(struct transfer *transfer)
{
	CURL *easy = transfer->easy;
	option_set(easy, CURLOPT_CURLU, transfer->url);
	option_set(easy, CURLOPT_PROTOCOLS_STR, "http,https");
	option_set(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	option_set(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
	option_set(easy, CURLOPT_SSL_VERIFYPEER, 1L);
	option_set(easy, CURLOPT_SSL_VERIFYHOST, 2L);
	option_set(easy, CURLOPT_PROXY, "");
	option_set(easy, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
	option_set(easy, CURLOPT_NOSIGNAL, 1L);
	/* Else a call that ends while its name is looked up waits for the resolver's thread. */
	option_set(easy, CURLOPT_QUICK_EXIT, 1L);
	/* On a reused connection that turns out to be closed curl sends again without asking, which
	 * is a second send of an un-keyed request. */
	option_set(easy, CURLOPT_FRESH_CONNECT, 1L);
	option_set(easy, CURLOPT_FORBID_REUSE, 1L);
	option_set(easy, CURLOPT_FOLLOWLOCATION, 0L);
	option_set(easy, CURLOPT_ERRORBUFFER, transfer->error);
	option_set(easy, CURLOPT_OPENSOCKETFUNCTION, on_open);
	option_set(easy, CURLOPT_OPENSOCKETDATA, transfer);
	option_set(easy, CURLOPT_PREREQFUNCTION, on_connected);
	option_set(easy, CURLOPT_PREREQDATA, transfer);
	option_set(easy, CURLOPT_HEADERFUNCTION, on_header);
	option_set(easy, CURLOPT_HEADERDATA, transfer);
	option_set(easy, CURLOPT_WRITEFUNCTION, on_body);
	option_set(easy, CURLOPT_WRITEDATA, transfer);
}

void transfer_prepare(struct transfer *transfer, const struct downstream_request *request,
		      void *owner)
{
	transfer->easy = curl_easy_init();
	curl_must_have(transfer->easy);
	transfer->body.max = DOWNSTREAM_ANSWER_BYTES_MAX;
	transfer->sent_len = request->body.len;
	transfer->may_send = request->may_send;
	set_options(transfer);
	option_set(transfer->easy, CURLOPT_PRIVATE, owner);
	set_method(transfer->easy, request);
	set_headers(transfer, request->headers);
}

void transfer_set_times(struct transfer *transfer, int64_t timeout_ms)
{
	int64_t connect_ms =
	    timeout_ms < DOWNSTREAM_CONNECT_MS_MAX ? timeout_ms : DOWNSTREAM_CONNECT_MS_MAX;
	option_set(transfer->easy, CURLOPT_TIMEOUT_MS, (long)timeout_ms);
	option_set(transfer->easy, CURLOPT_CONNECTTIMEOUT_MS, (long)connect_ms);
}

void transfer_deinit(struct transfer *transfer)
{
	curl_easy_cleanup(transfer->easy);
	curl_url_cleanup(transfer->url);
	curl_slist_free_all(transfer->headers);
	buf_deinit(&transfer->body);
}

/* --- what came of it -------------------------------------------------------------------------- */

int64_t transfer_passed(const struct transfer *transfer, bool *watched)
{
	curl_off_t up = 0, down = 0;
	curl_easy_getinfo(transfer->easy, CURLINFO_SIZE_UPLOAD_T, &up);
	curl_easy_getinfo(transfer->easy, CURLINFO_SIZE_DOWNLOAD_T, &down);
	*watched = transfer->sent && (transfer->answering || (size_t)up < transfer->sent_len);
	return (int64_t)up + (int64_t)down + (int64_t)transfer->header_bytes;
}

static enum downstream_fate fate_of(const struct transfer *transfer, CURLcode code, long status)
{
	if (code == CURLE_OK)
		return DOWNSTREAM_ANSWERED;
	if (transfer->withheld)
		return DOWNSTREAM_WITHHELD;
	if (code == CURLE_URL_MALFORMAT || code == CURLE_UNSUPPORTED_PROTOCOL)
		return DOWNSTREAM_BAD_URL;
	if (transfer->denied[0] && !transfer->tried)
		return DOWNSTREAM_DENIED;
	if (!transfer->sent)
		return DOWNSTREAM_NOT_SENT;
	bool unreadable = status && !transfer->slow && (transfer->too_large || transfer->coded);
	return unreadable && code == CURLE_WRITE_ERROR ? DOWNSTREAM_UNREADABLE
						       : DOWNSTREAM_NO_ANSWER;
}

static void explain(struct transfer *transfer, enum downstream_fate fate, CURLcode code)
{
	char text[TRANSFER_REASON_LEN_MAX];
	if (fate == DOWNSTREAM_WITHHELD) {
		transfer_say(transfer, "held back right before it was sent");
	} else if (fate == DOWNSTREAM_DENIED) {
		snprintf(text, sizeof text,
			 "address not allowed: %s is not public and not in allow_addresses",
			 transfer->denied);
		transfer_say(transfer, text);
	} else if (fate == DOWNSTREAM_UNREADABLE) {
		transfer_say(transfer, transfer->too_large
					   ? "the answer is too large"
					   : "the answer is coded (compressed), though no "
					     "coding was asked for");
	} else if (fate == DOWNSTREAM_NO_ANSWER && transfer->slow) {
		transfer_say(transfer, "too slow: the bytes came or went by drips");
	} else if (fate != DOWNSTREAM_ANSWERED) {
		transfer_say(transfer,
			     transfer->error[0] ? transfer->error : curl_easy_strerror(code));
	}
}

struct downstream_answer transfer_answer(struct transfer *transfer, CURLcode code)
{
	long status = 0;
	curl_easy_getinfo(transfer->easy, CURLINFO_RESPONSE_CODE, &status);
	enum downstream_fate fate = fate_of(transfer, code, status);
	explain(transfer, fate, code);
	return (struct downstream_answer){ .fate = fate,
					   .status = (int)status,
					   .reason = transfer->reason,
					   .body = buf_slice(&transfer->body),
					   .retry_after_ms = transfer->retry_after_ms };
}
