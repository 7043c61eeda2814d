/* bench_server.c - see bench_server.h. Settings are the defaults but for the worker's slots, and a
 * lease that a worker which is held back on purpose (bench_drain.c) does not outlive. Called by
 * bench_run.c. */
#include "runtime/bench_server.h"

#include <errno.h>
#include <netinet/in.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base.h"
#include "runtime/bench_load.h"
#include "runtime/clock.h"
#include "runtime/file.h"
#include "runtime/id.h"
#include "runtime/listen.h"
#include "runtime/migrations.h"
#include "runtime/pgrun.h"
#include "runtime/random.h"
#include "runtime/tool_apply.h"
#include "runtime/tool_folder.h"

constexpr int64_t READY_MS_MAX = 20'000;
constexpr int64_t STOP_MS_MAX = 15'000;
constexpr useconds_t LOOK_US = 10'000;
static constexpr char DATABASE[] = "holdfast";

#define TOOL_HEAD(name)                                                            \
	"{\"name\":\"" name                                                        \
	"\",\"description\":\"Of `holdfast bench`: phases with empty bodies.\","   \
	"\"effect_id\":\"required\",\"inputSchema\":{\"type\":\"object\","         \
	"\"required\":[\"month\",\"format\",\"n\",\"effect_id\"],\"properties\":{" \
	"\"month\":{\"type\":\"string\"},\"format\":{\"type\":\"string\"},"        \
	"\"n\":{\"type\":\"integer\"},\"effect_id\":{\"type\":\"string\"}}},\"phases\":["
#define TOOL_PHASE(name) "{\"name\":\"" name "\",\"kind\":\"wait\",\"ms\":0}"
#define TOOL_TAIL                          \
	"],\"result\":{\"text\":\"done\"," \
	"\"structured\":{\"ok\":true,\"rows\":1234}}}\n"

static const struct {
	const char *name, *doc;
} tools[] = {
	{ SERVER_TOOL_PHASES, TOOL_HEAD("bench_report") TOOL_PHASE("first") "," TOOL_PHASE(
				  "second") "," TOOL_PHASE("third") TOOL_TAIL },
	{ SERVER_TOOL_STEP, TOOL_HEAD("bench_step") TOOL_PHASE("only") TOOL_TAIL },
};

static enum hf_code write_file(const char *dir, const char *name, const char *text,
			       struct hf_err *err)
{
	char *path = hf_format("%s/%s", dir, name);
	mode_t mask = umask(077);
	FILE *file = fopen(path, "we");
	umask(mask);
	bool good = file && fputs(text, file) >= 0;
	if (file && fclose(file) != 0)
		good = false;
	enum hf_code code = good ? HF_OK : hf_fail(err, HF_SYSTEM, "%s: %s", path, strerror(errno));
	free(path);
	return code;
}

static enum hf_code write_secrets(struct server *server, struct hf_err *err)
{
	unsigned char random[32], digest[EVP_MAX_MD_SIZE];
	char key[2 * sizeof random + 1], hash[2 * EVP_MAX_MD_SIZE + 1];
	unsigned digest_len = 0;
	random_bytes(random, 16);
	hex_format(random, 16, server->token);
	int hashed = EVP_Digest(server->token, strlen(server->token), digest, &digest_len,
				EVP_sha256(), nullptr);
	hf_assert(hashed == 1);
	char *tokens = hf_format("%s bench bench\n", hex_format(digest, digest_len, hash));
	random_bytes(random, sizeof random);
	char *keys = hf_format("1 %s\n", hex_format(random, sizeof random, key));
	enum hf_code code = write_file(server->dir, "tokens", tokens, err);
	if (code == HF_OK)
		code = write_file(server->dir, "keys", keys, err);
	free(tokens);
	free(keys);
	return code;
}

static enum hf_code apply(struct server *server, const char *dir, struct hf_err *err)
{
	hf_cleanup(tool_folder) struct tool_folder *folder = nullptr;
	hf_cleanup(tool) struct tool *tool = nullptr;
	hf_cleanup(pack) struct pack *pack = nullptr;
	enum applied applied;
	int32_t id;
	hf_try(tool_folder_read(dir, &folder, err));
	hf_try(tool_folder_tool(folder, &tool, err));
	hf_try(pack_new(folder, tool->name, &pack, err));
	return tool_apply(server->db, folder, tool, pack, &applied, &id, err);
}

static enum hf_code make_tools(struct server *server, struct hf_err *err)
{
	for (size_t i = 0; i < countof(tools); i++) {
		char *dir = hf_format("%s/%s", server->dir, tools[i].name);
		enum hf_code code = file_make_folder(dir, 0755, err);
		if (code == HF_OK)
			code = write_file(dir, "tool.json", tools[i].doc, err);
		if (code == HF_OK)
			code = apply(server, dir, err);
		free(dir);
		hf_try(code);
	}
	return HF_OK;
}

enum hf_code server_listen(int *fd, int *port, struct hf_err *err)
{
	char name[LISTEN_ADDRESS_BYTES_MAX];
	hf_try(listen_at("127.0.0.1:0", false, fd, err));
	listen_name(*fd, name);
	*port = atoi(strrchr(name, ':') + 1);
	return HF_OK;
}

enum hf_code server_open(struct server *server, const struct cluster *cluster, struct hf_err *err)
{
	int migrations = 0;
	*server = (struct server){ .dir = cluster->dir, .dsn = cluster_dsn(cluster, DATABASE) };
	child_stop_left(server->dir, "api", SIGKILL, STOP_MS_MAX);
	child_stop_left(server->dir, "worker", SIGKILL, STOP_MS_MAX);
	hf_try(cluster_new_database(cluster, DATABASE, err));
	hf_try(pg_connect(server->dsn, "holdfast bench", &server->db, err));
	hf_try(migrate(server->db, &migrations, err));
	hf_try(pg_run(server->db, "CREATE EXTENSION IF NOT EXISTS pg_walinspect", 0, nullptr,
		      nullptr, err));
	/* Counts the calls of functions, for bench_wal.c. */
	hf_try(pg_run(server->db, "ALTER DATABASE holdfast SET track_functions = 'pl'", 0, nullptr,
		      nullptr, err));
	hf_try(write_secrets(server, err));
	return make_tools(server, err);
}

void server_close(struct server *server)
{
	server_stop_worker(server);
	child_stop(&server->api, SIGTERM, STOP_MS_MAX);
	PQfinish(server->db);
	free(server->dsn);
	*server = (struct server){};
}

/* This program again, in another role. */
static enum hf_code start(struct server *server, struct child *child, const char *name, int cpu,
			  const char *const *flags, struct hf_err *err)
{
	const char *words[CHILD_WORDS_MAX] = { "/proc/self/exe", name };
	size_t count = 2;
	for (; *flags; flags++) {
		hf_assert(count + 1 < CHILD_WORDS_MAX);
		words[count++] = *flags;
	}
	char *dsn = hf_format("HOLDFAST_DSN=%s", server->dsn);
	const char *const variables[] = { dsn, nullptr };
	enum hf_code code =
	    child_start(child, server->dir,
			&(struct child_spec){
			    .name = name, .words = words, .variables = variables, .cpu = cpu },
			err);
	free(dsn);
	return code;
}

static enum hf_code await_api(struct server *server, struct hf_err *err)
{
	static const char request[] = "GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
	hf_cleanup(buf) struct buf body = {};
	int64_t end = clock_boot_ms() + READY_MS_MAX;
	while (child_lives(&server->api) && clock_boot_ms() < end) {
		int status = 0;
		if (load_once(server->port, slice_of(request), &status, &body, nullptr) == HF_OK &&
		    status == 200)
			return HF_OK;
		usleep(LOOK_US);
	}
	return hf_fail(err, HF_SYSTEM, "the API does not serve; see %s/log/api.log", server->dir);
}

enum hf_code server_start_api(struct server *server, int cpu, struct hf_err *err)
{
	int fd;
	hf_try(server_listen(&fd, &server->port, err));
	close(fd); /* a rival for its port would have to be quick and lucky */
	char *listen = hf_format("--listen=127.0.0.1:%d", server->port);
	char *keys = hf_format("--keys-file=%s/keys", server->dir);
	char *tokens = hf_format("--tokens-file=%s/tokens", server->dir);
	const char *const flags[] = { listen, keys, tokens, nullptr };
	enum hf_code code = start(server, &server->api, "api", cpu, flags, err);
	free(listen);
	free(keys);
	free(tokens);
	hf_try(code);
	return await_api(server, err);
}

enum hf_code server_start_worker(struct server *server, struct hf_err *err)
{
	char *state_dir = hf_format("%s/worker", server->dir);
	char *state = hf_format("--state-dir=%s", state_dir);
	char *keys = hf_format("--keys-file=%s/keys", server->dir);
	char *slots = hf_format("--slots=%d", SERVER_SLOTS);
	const char *const flags[] = { state, keys, slots, "--lease-ms=600000", nullptr };
	enum hf_code code = file_make_folder(state_dir, 0755, err);
	if (code == HF_OK)
		code = start(server, &server->worker, "worker", CHILD_ANY_CPU, flags, err);
	free(state_dir);
	free(state);
	free(keys);
	free(slots);
	return code;
}

void server_stop_worker(struct server *server)
{
	child_stop(&server->worker, SIGTERM, STOP_MS_MAX);
}

struct request_target server_target(const struct server *server)
{
	return (struct request_target){ server->port, server->token };
}
