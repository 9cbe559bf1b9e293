/* Weights that are moved to large pages while others read and write them.
 */
#define _GNU_SOURCE /* MADV_NOHUGEPAGE */
#include "hal/cpu/mover.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "platform/platform.h"
#include "test.h"

#define LENGTH (20 * (size_t)INGOT_LARGE_PAGE)

static ingot_hal_cpu_device_t *device;

/* Words that tell where they are, on small pages where there are others. */
static uint64_t *small_pages(void) {
  uint64_t *words = aligned_alloc(INGOT_LARGE_PAGE, LENGTH);
  if (!words) return NULL;
#if defined(MADV_NOHUGEPAGE)
  (void)madvise(words, LENGTH, MADV_NOHUGEPAGE);
#endif
  for (size_t i = 0; i < LENGTH / 8; i++) words[i] = i;
  return words;
}

static size_t count_wrong(const uint64_t *words, uint64_t more) {
  size_t count = 0;
  for (size_t i = 0; i < LENGTH / 8; i++) count += words[i] != i + more;
  return count;
}

/* Kilobytes of large pages from `data` on; -1 where the system does not say. */
static long large_kilobytes(const void *data) {
  FILE *file = fopen("/proc/self/smaps", "r");
  char line[256];
  long found = -1;
  for (bool is_there = false; file && fgets(line, sizeof(line), file);) {
    unsigned long begin, end;
    if (sscanf(line, "%lx-%lx ", &begin, &end) == 2) {
      is_there = begin <= (uintptr_t)data && (uintptr_t)data < end;
    }
    if (is_there && sscanf(line, "AnonHugePages: %ld", &found) == 1) break;
  }
  if (file) (void)fclose(file);
  return found;
}

TEST(bytes_that_are_read_and_written_meanwhile_stay) {
  uint64_t *words = small_pages();
  REQUIRE(words != NULL);
  ingot_hal_cpu_mover_t *mover = ingot_hal_cpu_mover_start(device, words, LENGTH);
  EXPECT(!mover || large_kilobytes(words) != 0);
  for (size_t i = 0; i < LENGTH / 8; i++) words[i] += 7;
  EXPECT_EQUAL(count_wrong(words, 7), 0);
  ingot_hal_cpu_mover_stop(mover);
  EXPECT_EQUAL(count_wrong(words, 7), 0);
  free(words);
}

TEST(a_device_of_lent_threads_starts_none) {
  uint64_t *words = small_pages();
  REQUIRE(words != NULL);
  device->has_lent_threads = true;
  EXPECT(!ingot_hal_cpu_mover_start(device, words, LENGTH));
  device->has_lent_threads = false;
  free(words);
}

TEST(a_child_has_no_thread_to_wait_for) {
  uint64_t *words = small_pages();
  REQUIRE(words != NULL);
  ingot_hal_cpu_mover_t *mover = ingot_hal_cpu_mover_start(device, words, LENGTH);
  pid_t child = fork();
  if (child == 0) {
    alarm(300);
    ingot_hal_cpu_mover_stop(mover);
    _exit(count_wrong(words, 0) != 0);
  }
  int state = 0;
  EXPECT_EQUAL(waitpid(child, &state, 0), child);
  EXPECT(WIFEXITED(state) && WEXITSTATUS(state) == 0);
  ingot_hal_cpu_mover_stop(mover);
  free(words);
}

int main(void) {
  const ingot_hal_driver_t *const drivers[] = {&ingot_hal_cpu_driver};
  ingot_instance_t *instance = NULL;
  ingot_device_t *base = NULL;
  if (ingot_hal_instance_create(NULL, drivers, 1, &instance)) return 1;
  if (ingot_hal_device_create(instance, "cpu://?threads=1", NULL, &base)) return 1;
  device = (ingot_hal_cpu_device_t *)base;
  RUN_TESTS();
  ingot_hal_device_release(base);
  ingot_hal_instance_release(instance);
  return TEST_RESULT();
}
