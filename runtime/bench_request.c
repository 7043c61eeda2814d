/* bench_request.c - see bench_request.h. Called by bench_caller.c, bench_front.c and the floors. */
#include "runtime/bench_request.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base.h"
#include "runtime/id.h"
#include "runtime/random.h"

static const char marks[] = "@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@";
static_assert(sizeof marks - 1 == REQUEST_EFFECT_LEN);
static_assert(sizeof marks - 1 == TASK_ID_TEXT_LEN);

static void add_body(struct buf *body, const char *method, const char *params)
{
	buf_add_format(body, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"%s\",\"params\":{%s%s",
		       method, params, *params ? "," : "");
	buf_add_text(body, "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\","
			   "\"io.modelcontextprotocol/clientInfo\":{\"name\":\"holdfast-bench\","
			   "\"version\":\"" HF_VERSION "\"},"
			   "\"io.modelcontextprotocol/clientCapabilities\":{\"extensions\":{"
			   "\"io.modelcontextprotocol/tasks\":{}}}}}}");
}

static void find_places(struct request *request)
{
	if (request->place_len == 0)
		return;
	const char *at = request->bytes.data, *end = at + request->bytes.len;
	while ((at = memmem(at, (size_t)(end - at), marks, request->place_len))) {
		hf_assert(request->places_count < REQUEST_PLACES_MAX);
		request->places[request->places_count++] = (size_t)(at - request->bytes.data);
		at += request->place_len;
	}
	hf_assert(request->places_count > 0);
}

void request_init(struct request *request, const struct request_target *target, const char *method,
		  const char *name, const char *params, size_t place_len)
{
	hf_assert(place_len < sizeof marks);
	*request = (struct request){ .place_len = place_len };
	hf_cleanup(buf) struct buf body = {};
	add_body(&body, method, params);
	struct buf *out = &request->bytes;
	buf_add_format(out,
		       "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n"
		       "Authorization: Bearer %s\r\nContent-Type: application/json\r\n"
		       "Accept: application/json, text/event-stream\r\n"
		       "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: %s\r\n",
		       target->port, target->token, method);
	if (name)
		buf_add_format(out, "Mcp-Name: %s\r\n", name);
	buf_add_format(out, "Content-Length: %zu\r\n\r\n", body.len);
	buf_add_slice(out, buf_slice(&body));
	find_places(request);
}

void request_init_call(struct request *request, const struct request_target *target,
		       const char *tool)
{
	char *params = hf_format("\"name\":\"%s\",\"arguments\":{\"month\":\"2026-07\","
				 "\"format\":\"pdf\",\"n\":17,\"effect_id\":\"%s\"}",
				 tool, marks);
	request_init(request, target, "tools/call", tool, params, REQUEST_EFFECT_LEN);
	free(params);
}

void request_init_get(struct request *request, const struct request_target *target)
{
	char *params = hf_format("\"taskId\":\"%s\"", marks);
	request_init(request, target, "tasks/get", marks, params, TASK_ID_TEXT_LEN);
	free(params);
}

void request_deinit(struct request *request)
{
	buf_deinit(&request->bytes);
	*request = (struct request){};
}

void request_fill(struct request *request, const char *text)
{
	for (size_t i = 0; i < request->places_count; i++)
		memcpy(request->bytes.data + request->places[i], text, request->place_len);
}

struct slice request_slice(const struct request *request)
{
	return buf_slice(&request->bytes);
}

void request_effect(char text[static REQUEST_EFFECT_LEN])
{
	static const char digits[] = "0123456789abcdef";
	static thread_local uint64_t seed, count;
	if (count++ == 0)
		random_bytes(&seed, sizeof seed);
	/* Spread like the random IDs of clients, so that index pages are met in no order. */
	uint64_t halves[2] = { seed, count * 0x9e37'79b9'7f4a'7c15 };
	halves[0] = (halves[0] ^ halves[1]) * 0xbf58'476d'1ce4'e5b9;
	memcpy(text, "eff-", 4);
	for (int i = 0; i < 32; i++)
		text[4 + i] = digits[(halves[i / 16] >> (i % 16 * 4)) & 15];
}
