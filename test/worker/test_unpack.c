/* test_unpack.c - tool versions on the disk: whole, with their modes, and never outside. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base.h"
#include "test/test.h"
#include "worker/versions.h"

static char state_dir[] = "/tmp/hf-unpack-XXXXXX";

static void make_state_dir(void)
{
	cr_assert(mkdtemp(state_dir));
}

static void remove_state_dir(void)
{
	char *command = hf_format("rm -rf %s", state_dir);
	cr_assert_eq(system(command), 0);
	free(command);
}

static struct store_file file(const char *path, const char *content, bool executable)
{
	return (struct store_file){ slice_of(path), slice_of(content), executable };
}

static int entries(const char *path)
{
	int count = 0;
	DIR *dir = opendir(path);
	while (dir && readdir(dir))
		count++;
	if (dir)
		closedir(dir);
	return count - 2;
}

static mode_t mode_of(const char *folder, const char *name, off_t *size)
{
	struct stat stat = {};
	char *path = hf_format("%s/%s", folder, name);
	cr_assert_eq(lstat(path, &stat), 0, "%s", path);
	free(path);
	*size = stat.st_size;
	return stat.st_mode & 07777;
}

HF_TEST(unpack, files_arrive_whole_with_their_modes, .init = make_state_dir,
	.fini = remove_state_dir)
{
	struct store_file files[] = { file("tool.json", "{}", false), file("bin/a/run", "#!", true),
				      file("empty", "", false) };
	char *folder = nullptr, *again = nullptr;
	struct hf_err err = {};
	off_t size;
	umask(077);
	cr_assert_eq(versions_unpack(state_dir, "v1", files, 3, &folder, &err), HF_OK, "%s",
		     err.text);
	cr_assert_eq(mode_of(folder, "tool.json", &size), 0644);
	cr_assert_eq(size, 2);
	cr_assert_eq(mode_of(folder, "bin/a/run", &size), 0755);
	cr_assert_eq(mode_of(folder, "empty", &size), 0644);
	cr_assert_eq(size, 0);
	/* A second time nothing is written, and nothing of the making is left. */
	cr_assert_eq(versions_unpack(state_dir, "v1", nullptr, 0, &again, &err), HF_OK);
	cr_assert_str_eq(folder, again);
	char *tools = hf_format("%s/tools", state_dir);
	cr_assert_eq(entries(tools), 1);
	free(tools);
	free(folder);
	free(again);
}

HF_TEST(unpack, no_path_leaves_the_folder, .init = make_state_dir, .fini = remove_state_dir)
{
	static const char *const paths[] = { "../x", "/etc/x", "a/../x", "a//x",
					     "",     ".",      "a/",     "a/." };
	for (size_t i = 0; i < countof(paths); i++) {
		struct store_file one = file(paths[i], "x", false);
		char *folder = nullptr;
		struct hf_err err = {};
		cr_assert_eq(versions_unpack(state_dir, "v2", &one, 1, &folder, &err), HF_INVALID,
			     "%s", paths[i]);
	}
	struct store_file nul = { { "a\0b", 3 }, slice_of("x"), false };
	char *folder = nullptr;
	cr_assert_eq(versions_unpack(state_dir, "v2", &nul, 1, &folder, nullptr), HF_INVALID);
	cr_assert_eq(versions_unpack(state_dir, "../v2", nullptr, 0, &folder, nullptr), HF_INVALID);
}

HF_TEST(unpack, what_failed_leaves_nothing, .init = make_state_dir, .fini = remove_state_dir)
{
	/* The second file wants a folder where the first is a file. */
	struct store_file files[] = { file("a", "x", false), file("a/b", "y", false) };
	char *folder = nullptr;
	struct hf_err err = {};
	cr_assert_eq(versions_unpack(state_dir, "v3", files, 2, &folder, &err), HF_SYSTEM);
	char *tools = hf_format("%s/tools", state_dir);
	cr_assert_eq(entries(tools), 0);
	free(tools);
}
