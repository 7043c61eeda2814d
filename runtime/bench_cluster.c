/* bench_cluster.c - see bench_cluster.h. Postgres refuses root: as root it runs as user postgres,
 * who may read through a home folder of mode 0700 but writes only what is its own. It listens on a
 * socket alone, in a folder that only its owner may enter. Called by bench_run.c. */
#include "runtime/bench_cluster.h"

#include <errno.h>
#include <glob.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base.h"
#include "runtime/clock.h"
#include "runtime/file.h"
#include "runtime/pgrun.h"

constexpr size_t SOCKET_PATH_LEN_MAX = 107;
constexpr int64_t START_MS_MAX = 60'000;
constexpr int64_t STOP_MS_MAX = 30'000;
constexpr useconds_t LOOK_US = 20'000;

/* One word more for each; `-c` stands before every setting. */
static const char *const settings[] = {
	"fsync=on",
	"synchronous_commit=on",
	"full_page_writes=on",
	"shared_buffers=512MB",
	"max_wal_size=4GB",
	"checkpoint_timeout=15min",
	"max_connections=300",
	"listen_addresses=",
};

static const char *const as_postgres[] = {
	"setpriv",
	"--reuid=postgres",
	"--regid=postgres",
	"--clear-groups",
	"--inh-caps=+dac_read_search",
	"--ambient-caps=+dac_read_search",
	"--pdeathsig=QUIT",
	"--",
};

struct words {
	const char *list[CHILD_WORDS_MAX];
	size_t count;
};

static void words_add(struct words *words, const char *word)
{
	hf_assert(words->count + 1 < CHILD_WORDS_MAX);
	words->list[words->count++] = word;
	words->list[words->count] = nullptr;
}

static void words_begin(struct words *words, const char *program)
{
	for (size_t i = 0; i < countof(as_postgres) && geteuid() == 0; i++)
		words_add(words, as_postgres[i]);
	words_add(words, program);
}

/* The newest server's folder of programs. */
static enum hf_code find_programs(char **out, struct hf_err *err)
{
	glob_t found = {};
	const char *newest = nullptr;
	long newest_version = 0;
	if (glob("/usr/lib/postgresql/*/bin/postgres", 0, nullptr, &found) == 0) {
		for (size_t i = 0; i < found.gl_pathc; i++) {
			long version =
			    strtol(found.gl_pathv[i] + strlen("/usr/lib/postgresql/"), nullptr, 10);
			if (version > newest_version) {
				newest_version = version;
				newest = found.gl_pathv[i];
			}
		}
	}
	if (newest)
		*out = hf_strndup(newest, strlen(newest) - strlen("/postgres"));
	globfree(&found);
	return newest ? HF_OK
		      : hf_fail(err, HF_MISSING,
				"no Postgres server below /usr/lib/postgresql; install "
				"postgresql-15");
}

/* A folder that is the server's alone. */
static enum hf_code own_folder(const char *path, struct hf_err *err)
{
	hf_try(file_make_folder(path, 0700, err));
	if (geteuid() != 0)
		return HF_OK;
	const struct passwd *user = getpwnam("postgres");
	if (!user)
		return hf_fail(err, HF_MISSING, "no user postgres to run the server as");
	if (chown(path, user->pw_uid, user->pw_gid) != 0)
		return hf_fail(err, HF_SYSTEM, "%s: %s", path, strerror(errno));
	return HF_OK;
}

/* Beside the data, or in /tmp where that path is too long for a socket. */
static enum hf_code make_socket_folder(struct cluster *cluster, struct hf_err *err)
{
	cluster->socket = hf_format("%s/socket", cluster->dir);
	if (strlen(cluster->socket) + strlen("/.s.PGSQL.5432") > SOCKET_PATH_LEN_MAX) {
		strcpy(cluster->socket, "/tmp/holdfast-bench-XXXXXX");
		if (!mkdtemp(cluster->socket))
			return hf_fail(err, HF_SYSTEM, "%s: %s", cluster->socket, strerror(errno));
	}
	return own_folder(cluster->socket, err);
}

static bool is_made(const struct cluster *cluster)
{
	/* Written by initdb in its last moments. */
	char *path = hf_format("%s/global/pg_control", cluster->data);
	bool made = access(path, F_OK) == 0;
	free(path);
	return made;
}

static enum hf_code initialise(const struct cluster *cluster, struct hf_err *err)
{
	if (is_made(cluster))
		return HF_OK;
	/* What a killed initdb left would stop the next. */
	const char *const remove[] = { "rm", "-rf", cluster->data, nullptr };
	hf_try(child_run(cluster->dir,
			 &(struct child_spec){
			     .name = "initdb", .words = remove, .cpu = CHILD_ANY_CPU },
			 err));
	hf_try(own_folder(cluster->data, err));
	char *program = hf_format("%s/initdb", cluster->programs);
	struct words words = {};
	words_begin(&words, program);
	static const char *const rest[] = { "-U",   "postgres",         "-A", "trust", "-E",
					    "UTF8", "--locale=C.UTF-8", "-D" };
	for (size_t i = 0; i < countof(rest); i++)
		words_add(&words, rest[i]);
	words_add(&words, cluster->data);
	enum hf_code code =
	    child_run(cluster->dir,
		      &(struct child_spec){
			  .name = "initdb", .words = words.list, .cpu = CHILD_ANY_CPU },
		      err);
	free(program);
	return code;
}

static enum hf_code launch(struct cluster *cluster, struct hf_err *err)
{
	char *program = hf_format("%s/postgres", cluster->programs);
	char *sockets = hf_format("unix_socket_directories=%s", cluster->socket);
	struct words words = {};
	words_begin(&words, program);
	for (size_t i = 0; i < countof(settings); i++) {
		words_add(&words, "-c");
		words_add(&words, settings[i]);
	}
	words_add(&words, "-c");
	words_add(&words, sockets);
	words_add(&words, "-D");
	words_add(&words, cluster->data);
	enum hf_code code =
	    child_start(&cluster->postgres, cluster->dir,
			&(struct child_spec){
			    .name = "postgres", .words = words.list, .cpu = CHILD_ANY_CPU },
			err);
	free(sockets);
	free(program);
	return code;
}

static enum hf_code await(struct cluster *cluster, struct hf_err *err)
{
	char *dsn = cluster_dsn(cluster, "postgres");
	int64_t end = clock_boot_ms() + START_MS_MAX;
	bool ready = false, lives = true;
	while (!ready && lives && clock_boot_ms() < end) {
		ready = PQping(dsn) == PQPING_OK;
		if (!ready)
			usleep(LOOK_US);
		lives = child_lives(&cluster->postgres);
	}
	free(dsn);
	return ready ? HF_OK
		     : hf_fail(err, HF_SYSTEM, "Postgres did not start; see %s/log/postgres.log",
			       cluster->dir);
}

enum hf_code cluster_start(struct cluster *cluster, const char *dir, struct hf_err *err)
{
	*cluster = (struct cluster){ .dir = dir, .data = hf_format("%s/pg", dir) };
	child_stop_left(dir, "postgres", SIGQUIT, STOP_MS_MAX);
	hf_try(find_programs(&cluster->programs, err));
	hf_try(make_socket_folder(cluster, err));
	hf_try(initialise(cluster, err));
	hf_try(launch(cluster, err));
	return await(cluster, err);
}

void cluster_stop(struct cluster *cluster)
{
	child_stop(&cluster->postgres, SIGINT, STOP_MS_MAX);
	if (cluster->socket)
		rmdir(cluster->socket);
	free(cluster->socket);
	free(cluster->data);
	free(cluster->programs);
	*cluster = (struct cluster){};
}

char *cluster_dsn(const struct cluster *cluster, const char *database)
{
	return hf_format("host='%s' dbname=%s user=postgres", cluster->socket, database);
}

static enum hf_code administrate(const struct cluster *cluster, const char *sql, struct hf_err *err)
{
	char *dsn = cluster_dsn(cluster, "postgres");
	PGconn *conn = nullptr;
	enum hf_code code = pg_connect(dsn, "holdfast bench", &conn, err);
	/* Dropping what may not be there is no news. */
	if (code == HF_OK)
		code = pg_run(conn, "SET client_min_messages = warning", 0, nullptr, nullptr, err);
	if (code == HF_OK)
		code = pg_run(conn, sql, 0, nullptr, nullptr, err);
	PQfinish(conn);
	free(dsn);
	return code;
}

enum hf_code cluster_drop_database(const struct cluster *cluster, const char *name,
				   struct hf_err *err)
{
	char *sql = hf_format("DROP DATABASE IF EXISTS %s WITH (FORCE)", name);
	enum hf_code code = administrate(cluster, sql, err);
	free(sql);
	return code;
}

enum hf_code cluster_new_database(const struct cluster *cluster, const char *name,
				  struct hf_err *err)
{
	hf_try(cluster_drop_database(cluster, name, err));
	char *sql = hf_format("CREATE DATABASE %s", name);
	enum hf_code code = administrate(cluster, sql, err);
	free(sql);
	hf_try(code);
	return administrate(cluster, "CHECKPOINT", err);
}
