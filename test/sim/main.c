/* main.c - the inner harness: the product's own decision code (worker/ and api/, the same files as
 * in the binary) in simulated worlds.
 *
 *   sim --seed N --tasks M [--jobs J]     many worlds; counts as JSON; 0 where nothing broke
 *   sim --seed N --world W [--story E]    one of them; what happened to effect E (-1: to all)
 *
 * A world is a process of its own, made of nothing but its seed and its number: it is the same each
 * time, and so is the digest of all that happened. Where one breaks a promise it is run once more,
 * to tell the story of the effect.
 *
 *   dice scheduler fibre fake_ev     chance, time, libev
 *   process front                    workers (worker_main itself) and APIs, and how they die
 *   fake_store acts_* sql_sim        runtime/store.h and sqlphase.h over model.h
 *   downstream_sim program_sim       what is behind the tools; ledger: its book
 *   tools_sim clients operator       who wants what
 *   check tally required.def         what must be true, and what must be hit
 *
 * To widen it: a tool is a line in tools_sim.c, an answer of a downstream a row in
 * downstream_sim.c, a fault a case in world.c, a promise a line in check.c; then what it must hit
 * goes to required.def. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base.h"
#include "test/sim/sim.h"

constexpr int JOBS_MAX = 16;

struct options {
	uint64_t seed;
	long tasks, world_tasks, jobs, world, story;
	bool has_story;
};

/* What the processes of worlds write and this one reads. */
struct shared {
	struct tally tallies[JOBS_MAX];
	uint64_t digests[];
};

static void read_options(struct options *options, int argc, char **argv)
{
	*options = (struct options){
		.seed = 1, .tasks = 10'000, .world_tasks = 500, .jobs = 1, .world = -1
	};
	for (int i = 1; i + 1 < argc; i += 2) {
		long value = atol(argv[i + 1]);
		if (strcmp(argv[i], "--seed") == 0)
			options->seed = (uint64_t)value;
		else if (strcmp(argv[i], "--tasks") == 0)
			options->tasks = value;
		else if (strcmp(argv[i], "--world-tasks") == 0)
			options->world_tasks = value;
		else if (strcmp(argv[i], "--jobs") == 0)
			options->jobs = value;
		else if (strcmp(argv[i], "--world") == 0)
			options->world = value;
		else if (strcmp(argv[i], "--story") == 0) {
			options->story = value;
			options->has_story = true;
		} else {
			fprintf(stderr, "unknown: %s\n", argv[i]);
			exit(2);
		}
	}
	if (options->jobs < 1 || options->jobs > JOBS_MAX || options->world_tasks < 1) {
		fprintf(stderr, "1 to %d jobs, and worlds of 1 task at least\n", JOBS_MAX);
		exit(2);
	}
}

static void make_keys(void)
{
	char path[64];
	int fd = memfd_create("keys", 0);
	hf_assert(fd >= 0);
	dprintf(fd, "1 %064d\n", 7);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	process_set_up(path);
}

static void run_one(const struct options *options, int number, struct tally *into, uint64_t *digest)
{
	tally = into;
	world_run(options->seed, number, (int)options->world_tasks);
	*digest = history;
	fflush(nullptr);
	_exit(0);
}

static pid_t begin(const struct options *options, int number, struct shared *shared, long job)
{
	fflush(nullptr);
	pid_t child = fork();
	hf_assert(child >= 0);
	if (child == 0)
		run_one(options, number, &shared->tallies[job], &shared->digests[number]);
	return child;
}

static void tell_how(const struct options *options, int number, struct shared *shared, long job)
{
	int effect = shared->tallies[job].broken_effect;
	fprintf(stderr,
		"\nworld %d of seed %llu broke. Again: zig build sim-bin -Doptimize=safe && "
		"zig-out/test/sim --seed %llu --world-tasks %ld "
		"--world %d --story %d\n",
		number, (unsigned long long)options->seed, (unsigned long long)options->seed,
		options->world_tasks, number, effect);
	if (effect < 0)
		return;
	story_of = effect;
	int status;
	waitpid(begin(options, number, shared, job), &status, 0);
}

/* False: one broke. */
static bool run_all(const struct options *options, int worlds, struct shared *shared)
{
	pid_t children[JOBS_MAX] = {};
	int numbers[JOBS_MAX] = {}, next = 0, left = 0;
	while (next < worlds || left > 0) {
		for (long job = 0; job < options->jobs && next < worlds; job++) {
			if (children[job])
				continue;
			numbers[job] = next;
			children[job] = begin(options, next++, shared, job);
			left++;
		}
		int status;
		pid_t ended = wait(&status);
		for (long job = 0; job < options->jobs; job++) {
			if (children[job] != ended)
				continue;
			children[job] = 0;
			left--;
			if (status != 0) {
				tell_how(options, numbers[job], shared, job);
				return false;
			}
		}
	}
	return true;
}

static void sum_up(struct tally *sum, const struct tally *one)
{
	for (enum table table = 0; table < TABLES; table++)
		for (int row = 0; row < ROWS; row++)
			for (int column = 0; column < COLUMNS; column++)
				sum->cells[table][row][column] += one->cells[table][row][column];
	sum->tasks += one->tasks;
	sum->events += one->events;
#define MOST(what) sum->what = one->what > sum->what ? one->what : sum->what
	MOST(most_attempts);
	MOST(most_crashes);
	MOST(most_sends);
}

int main(int argc, char **argv)
{
	struct options options;
	struct timespec began, ended;
	read_options(&options, argc, argv);
	make_keys();
	tools_make();
	int worlds = (int)((options.tasks + options.world_tasks - 1) / options.world_tasks);
	if (options.world >= 0)
		worlds = (int)options.world + 1;
	size_t size = sizeof(struct shared) + (size_t)worlds * sizeof(uint64_t);
	struct shared *shared =
	    mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	hf_assert(shared != MAP_FAILED);
	for (int i = 0; i < JOBS_MAX; i++)
		shared->tallies[i].broken_effect = -1;
	if (options.has_story)
		story_of = (int)options.story;
	if (options.world >= 0) {
		int status;
		waitpid(begin(&options, (int)options.world, shared, 0), &status, 0);
		printf("{\"digest\": \"%016llx\"}\n",
		       (unsigned long long)shared->digests[options.world]);
		return status != 0;
	}
	clock_gettime(CLOCK_MONOTONIC, &began);
	if (!run_all(&options, worlds, shared))
		return 1;
	clock_gettime(CLOCK_MONOTONIC, &ended);
	static struct tally sum;
	for (int i = 0; i < JOBS_MAX; i++)
		sum_up(&sum, &shared->tallies[i]);
	uint64_t digest = 0;
	for (int i = 0; i < worlds; i++)
		digest = (digest ^ shared->digests[i]) * 0x100000001b3U;
	double seconds =
	    (double)(ended.tv_sec - began.tv_sec) + (double)(ended.tv_nsec - began.tv_nsec) / 1e9;
	return tally_print(&sum, options.seed, digest, seconds) ? 0 : 1;
}
