/* phase.c - the program of the chaos tools, against the frame protocol alone (worker/sdk/FRAMES.md)
 * and small, as it is started again after each kill. What it does goes by its phase's name: pure*
 * and slow* rest, key* posts once under its derived key, once* without any, again* asks for a retry
 * in its first attempt, fail* reports an error of the tool. Each start of a phase and each end is a
 * line of the run log, with the key, the worker and the time. Built by shapes.py with the system's
 * compiler. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { WORKER = 3, FRAME_BYTES_MAX = 1 << 20, TEXT_BYTES_MAX = 300, ANSWER_S_MAX = 5 };

struct run {
	uint64_t number, attempt, ms, slow_ms, n;
	char type[TEXT_BYTES_MAX], task[TEXT_BYTES_MAX], effect_id[TEXT_BYTES_MAX];
	char phase[TEXT_BYTES_MAX], key[TEXT_BYTES_MAX];
};

/* --- msgpack: as much of it as a run frame has ------------------------------------------------ */

static const unsigned char *at;

static uint64_t big_endian(int bytes)
{
	uint64_t n = 0;
	while (bytes-- > 0)
		n = n << 8 | *at++;
	return n;
}

/* What the next item is; of a text, a map or an array the number of its bytes or items. */
static char item(uint64_t *n)
{
	unsigned byte = *at++;
	*n = byte;
	if (byte < 0x80 || byte >= 0xE0)
		return 'i';
	if (byte < 0x90)
		return *n = byte & 15, 'm';
	if (byte < 0xA0)
		return *n = byte & 15, 'a';
	if (byte < 0xC0)
		return *n = byte & 31, 's';
	if (byte < 0xC4)
		return 'i';
	if (byte < 0xC7)
		return *n = big_endian(1 << (byte - 0xC4)), 's';
	if (byte == 0xCA || byte == 0xCB)
		return *n = big_endian(byte == 0xCA ? 4 : 8), 'i';
	if (byte >= 0xCC && byte <= 0xD3)
		return *n = big_endian(1 << (byte & 3)), 'i';
	if (byte >= 0xD9 && byte <= 0xDB)
		return *n = big_endian(1 << (byte - 0xD9)), 's';
	if (byte >= 0xDC && byte <= 0xDF)
		return *n = big_endian(byte & 1 ? 4 : 2), byte < 0xDE ? 'a' : 'm';
	exit(9); /* an extension: not in our arguments */
}

static void skip(void)
{
	uint64_t n;
	char kind = item(&n);
	if (kind == 's')
		at += n;
	for (uint64_t i = kind == 'm' ? 2 * n : kind == 'a' ? n : 0; i > 0; i--)
		skip();
}

static void text(char out[static TEXT_BYTES_MAX])
{
	uint64_t n;
	if (item(&n) != 's' || n >= TEXT_BYTES_MAX)
		exit(9);
	memcpy(out, at, n);
	out[n] = '\0';
	at += n;
}

static void read_members(struct run *run)
{
	uint64_t count;
	if (item(&count) != 'm')
		exit(9);
	for (; count > 0; count--) {
		char name[TEXT_BYTES_MAX];
		text(name);
		if (strcmp(name, "t") == 0)
			text(run->type);
		else if (strcmp(name, "task") == 0)
			text(run->task);
		else if (strcmp(name, "effect_id") == 0 && !run->effect_id[0])
			text(run->effect_id);
		else if (strcmp(name, "phase") == 0)
			text(run->phase);
		else if (strcmp(name, "key") == 0)
			text(run->key);
		else if (strcmp(name, "run") == 0)
			item(&run->number);
		else if (strcmp(name, "attempt") == 0)
			item(&run->attempt);
		else if (strcmp(name, "ms") == 0)
			item(&run->ms);
		else if (strcmp(name, "n") == 0)
			item(&run->n);
		else if (strcmp(name, "slow_ms") == 0)
			item(&run->slow_ms);
		else if (strcmp(name, "args") == 0)
			read_members(run);
		else
			skip();
	}
}

/* --- frames ----------------------------------------------------------------------------------- */

static void read_exactly(void *out, size_t len)
{
	for (size_t done = 0; done < len;) {
		ssize_t got = read(WORKER, (char *)out + done, len - done);
		if (got <= 0)
			exit(0);
		done += (size_t)got;
	}
}

static void send_frame(const void *body, size_t len)
{
	unsigned char frame[1024];
	frame[0] = frame[1] = 0;
	frame[2] = (unsigned char)(len >> 8);
	frame[3] = (unsigned char)len;
	memcpy(frame + 4, body, len);
	if (write(WORKER, frame, len + 4) != (ssize_t)len + 4)
		exit(0);
}

static size_t put(char *out, const char *text)
{
	size_t len = strlen(text);
	out[0] = (char)0xD9;
	out[1] = (char)len;
	memcpy(out + 2, text, len);
	return len + 2;
}

static size_t put_number(char *out, uint64_t n)
{
	out[0] = (char)0xCF;
	for (int i = 0; i < 8; i++)
		out[1 + i] = (char)(n >> (56 - 8 * i));
	return 9;
}

/* What each frame of ours begins with; in `members` its type and its run count. */
static size_t put_head(char *out, char members, const char *type, const struct run *run)
{
	size_t len = 1;
	out[0] = (char)(0x80 | members);
	len += put(out + len, "t");
	len += put(out + len, type);
	len += put(out + len, "run");
	return len + put_number(out + len, run->number);
}

static void send_result(const struct run *run, const char *name, uint64_t n)
{
	char body[512];
	size_t len = put_head(body, 3, "result", run);
	len += put(body + len, "value");
	body[len++] = (char)0x81;
	len += put(body + len, name);
	len += put_number(body + len, n);
	send_frame(body, len);
}

static void send_error(const struct run *run, const char *text, bool retry)
{
	char body[512];
	size_t len = put_head(body, 4, "error", run);
	len += put(body + len, "text");
	len += put(body + len, text);
	len += put(body + len, "retry");
	body[len++] = retry ? (char)0xC3 : (char)0xC2;
	send_frame(body, len);
}

/* --- work ------------------------------------------------------------------------------------- */

/* The worker's, whose keeper is our parent. */
static int worker_pid(void)
{
	char name[64], stat[512] = "";
	int pid = 0;
	snprintf(name, sizeof name, "/proc/%d/stat", (int)getppid());
	int fd = open(name, O_RDONLY);
	ssize_t len = fd < 0 ? 0 : read(fd, stat, sizeof stat - 1);
	close(fd);
	stat[len > 0 ? len : 0] = '\0';
	const char *name_end = strrchr(stat, ')');
	if (name_end)
		sscanf(name_end, ") %*c %d", &pid);
	return pid;
}

static void note(const struct run *run, const char *what)
{
	char line[1024];
	struct timeval now;
	gettimeofday(&now, NULL);
	int len = snprintf(line, sizeof line,
			   "{\"task\":\"%s\",\"effect_id\":\"%s\",\"phase\":\"%s\",\"attempt\":%d,"
			   "\"key\":\"%s\",\"parent\":%d,\"at\":%lld.%06ld,\"what\":\"%s\"}\n",
			   run->task, run->effect_id, run->phase, (int)run->attempt, run->key,
			   worker_pid(), (long long)now.tv_sec, (long)now.tv_usec, what);
	int log = open(getenv("RIG_RUN_LOG"), O_WRONLY | O_APPEND);
	if (log < 0 || write(log, line, (size_t)len) != len)
		exit(8);
	close(log);
}

/* One request, under the derived key where the phase has one; its status, 0 without an answer. */
static int post(const struct run *run)
{
	char body[512], key[TEXT_BYTES_MAX + 32] = "", request[1536], answer[64] = "";
	const char *colon = strrchr(getenv("HOLDFAST_DOWNSTREAM_URL"), ':');
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_port = htons((uint16_t)atoi(colon + 1)),
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct timeval limit = { .tv_sec = ANSWER_S_MAX };
	int status = 0;
	int len = snprintf(body, sizeof body, "{\"task\": \"%s\", \"phase\": \"%s\"}", run->task,
			   run->phase);
#ifdef NAME_THE_EFFECT /* where a task may be accepted anew: the same request under the same key \
			*/
	len = snprintf(body, sizeof body, "{\"task\": \"%s/%d\", \"phase\": \"%s\"}",
		       run->effect_id, (int)run->n, run->phase);
#endif
	if (strncmp(run->phase, "once", 4) != 0)
		snprintf(key, sizeof key, "Idempotency-Key: %s\r\n", run->key);
	len = snprintf(request, sizeof request,
		       "POST /ledger HTTP/1.1\r\nHost: 127.0.0.1\r\n%s"
		       "Content-Type: application/json\r\nContent-Length: %d\r\n"
		       "Connection: close\r\n\r\n%s",
		       key, len, body);
	int peer = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(peer, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	if (connect(peer, (struct sockaddr *)&address, sizeof address) == 0 &&
	    write(peer, request, (size_t)len) == len && read(peer, answer, sizeof answer - 1) > 12)
		status = atoi(answer + 9);
	close(peer);
	return status;
}

static void rest(uint64_t ms)
{
	struct timespec pause = { .tv_sec = (time_t)(ms / 1000),
				  .tv_nsec = (long)(ms % 1000) * 1000000 };
	nanosleep(&pause, NULL);
}

static void work(const struct run *run)
{
	const char *name = run->phase;
	note(run, "start");
	rest(strncmp(name, "slow", 4) == 0 ? run->slow_ms : run->ms);
	bool posts = strncmp(name, "key", 3) == 0 || strncmp(name, "once", 4) == 0;
	int status = posts ? post(run) : 200;
	note(run, "end");
	if (strncmp(name, "once", 4) == 0 && (status == 0 || status >= 500))
		exit(7); /* it may have happened: neither a result nor an error is the truth */
	if (status == 0 || status == 409 || status >= 500)
		send_error(run, "the ledger did not answer well", true);
	else if (status >= 300)
		send_error(run, "the ledger refused", false);
	else if (strncmp(name, "again", 5) == 0 && run->attempt == 1)
		send_error(run, "not yet", true);
	else if (strncmp(name, "fail", 4) == 0)
		send_error(run, "as it was told", false);
	else
		send_result(run, name, (uint64_t)status);
}

int main(void)
{
	static unsigned char frame[FRAME_BYTES_MAX];
	static const char ready[] = "\x82\xa1t\xa5ready\xa8protocol\x01";
	send_frame(ready, sizeof ready - 1);
	for (;;) {
		struct run run = { 0 };
		uint32_t len;
		read_exactly(&len, sizeof len);
		len = ntohl(len);
		if (len > sizeof frame)
			return 9;
		read_exactly(frame, len);
		at = frame;
		read_members(&run);
		if (strcmp(run.type, "run") == 0)
			work(&run);
	}
}
