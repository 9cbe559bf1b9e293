/* The cache of built OpenCL programs: what it gives back, and what it does not.
 */
#include <dirent.h>
#include <sys/stat.h>

#include "executables.h"

/* Loads the parts on a device that caches in `folder`; whether they came from there. */
static bool load_cached(const char *folder, const test_opencl_parts_t *parts,
                        bool *out_is_quarantined) {
  char uri[128];
  ingot_device_t *cached = NULL;
  ingot_hal_executable_t *executable = NULL;
  test_object_t object = test_opencl_object(parts);
  (void)snprintf(uri, sizeof(uri), "opencl://0?cache=%s", folder);
  last_info[0] = 0;
  EXPECT_OK(ingot_hal_device_create(instance, uri, NULL, &cached));
  if (cached) EXPECT_OK(load_on(cached, object.data, object.length, true, &executable));
  /* Loading the host's variant logs too, but only where something is tested. */
  bool is_from_cache = strstr(last_info, "from the cache") != NULL;
  if (executable && out_is_quarantined) {
    *out_is_quarantined = executable->entries[KERNEL_ADD].host_reason[0] != 0;
  }
  ingot_hal_executable_destroy(executable);
  ingot_hal_device_release(cached);
  test_object_free(&object);
  return is_from_cache;
}

/* The only file of a folder. */
static bool find_file(const char *folder, char *path, size_t capacity) {
  DIR *files = opendir(folder);
  int count = 0;
  for (struct dirent *file; files && (file = readdir(files)) != NULL;) {
    if (file->d_name[0] == '.') continue;
    (void)snprintf(path, capacity, "%s/%.100s", folder, file->d_name);
    count++;
  }
  if (files) (void)closedir(files);
  return count == 1;
}

/* Changes one byte, or cuts the file there if `cut`. */
static void damage(const char *path, long offset, bool cut) {
  FILE *file = fopen(path, "r+b");
  REQUIRE(file != NULL);
  if (cut) {
    EXPECT(ftruncate(fileno(file), offset) == 0);
  } else {
    EXPECT(fseek(file, offset, SEEK_SET) == 0);
    int byte = fgetc(file);
    EXPECT(fseek(file, offset, SEEK_SET) == 0);
    EXPECT(fputc(byte ^ 0x55, file) != EOF);
  }
  (void)fclose(file);
}

TEST(programs_come_from_the_cache_unless_it_is_damaged) {
  char folder[] = "/tmp/ingot-opencl-XXXXXX", path[256];
  struct stat facts;
  test_opencl_parts_t parts = test_opencl_kernel_parts();
  REQUIRE(test_make_folder(folder));
  EXPECT(!load_cached(folder, &parts, NULL));
  EXPECT(load_cached(folder, &parts, NULL));
  REQUIRE(find_file(folder, path, sizeof(path)));
  EXPECT(stat(path, &facts) == 0 && (facts.st_mode & 077) == 0);
  const long offsets[] = {0, 9, 13, 20, 50, 70, facts.st_size / 2, facts.st_size - 1};
  for (size_t o = 0; o < sizeof(offsets) / sizeof(offsets[0]); o++) {
    damage(path, offsets[o], o % 2);
    EXPECT(!load_cached(folder, &parts, NULL)); /* built again, and written again */
    EXPECT(load_cached(folder, &parts, NULL));
  }
  EXPECT(find_file(folder, path, sizeof(path)));
  test_remove_folder(folder);
}

TEST(verdicts_are_cached_with_the_program) {
  char folder[] = "/tmp/ingot-opencl-XXXXXX";
  char *source = changed_source("b0[o0 + i] + b1[o1 + i]", "b0[o0 + i] * b1[o1 + i]");
  REQUIRE(source != NULL && test_make_folder(folder));
  ingot_opencl_test_binding_t bindings[3];
  ingot_opencl_test_t test;
  test_opencl_parts_t parts = parts_with_test(source, bindings, &test);
  bool is_quarantined = false;
  EXPECT(!load_cached(folder, &parts, &is_quarantined));
  EXPECT(is_quarantined);
  is_quarantined = false;
  (void)load_cached(folder, &parts, &is_quarantined);
  EXPECT(is_quarantined);
  test_remove_folder(folder);
  free(source);
}

TEST(folder_that_cannot_be_used_means_no_cache) {
  char folder[] = "/tmp/ingot-opencl-XXXXXX", path[256];
  test_opencl_parts_t parts = test_opencl_kernel_parts();
  EXPECT(!load_cached("/dev/null/folder", &parts, NULL));
  EXPECT(!load_cached("/dev/null/folder", &parts, NULL));
  REQUIRE(test_make_folder(folder));
  EXPECT(chmod(folder, 0777) == 0); /* others could put kernels there */
  EXPECT(!load_cached(folder, &parts, NULL));
  EXPECT(!load_cached(folder, &parts, NULL));
  EXPECT(!find_file(folder, path, sizeof(path)));
  test_remove_folder(folder);
}

int main(void) {
  if (!open_all()) return TEST_SKIPPED();
  RUN_TESTS();
  close_all();
  return TEST_RESULT();
}
