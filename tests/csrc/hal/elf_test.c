/* The ELF loader: what it takes, what it refuses, and any bytes at all.
 */
#define _GNU_SOURCE /* prctl, syscall numbers */
#include "hal/cpu/elf.h"

#include <elf.h>
#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__linux__)
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#endif

#include "hal/cpu/library.h"
#include "ingot/kernel_abi.h"
#include "object.h"
#include "test.h"

static ingot_allocator_t allocator;
static test_object_t kernels;

static ingot_status_t load(const void *data, size_t length) {
  ingot_elf_image_t image = {.length = 0};
  void *function = NULL;
  ingot_status_t status =
      ingot_elf_load(&allocator, data, length, INGOT_KERNEL_QUERY_NAME, &image, &function);
  if (!status) EXPECT(ingot_elf_contains(&image, function, 1, PF_X));
  if (!status) ingot_elf_unload(&image);
  return status;
}

/* Loads C text built with `flags`; expects the failure. */
static void expect_refused(const char *text, const char *flags, ingot_status_code_t code,
                           const char *message) {
  test_object_t object = test_object_build_text(text, flags);
  REQUIRE(object.data);
  ingot_status_t status = load(object.data, object.length);
  if (ingot_status_code(status) != code || !strstr(ingot_status_message(status), message)) {
    FAIL("got %d \"%s\", expected \"%s\"", (int)ingot_status_code(status),
         ingot_status_message(status), message);
  }
  ingot_status_free(status);
  test_object_free(&object);
}

#define QUERY "__attribute__((visibility(\"default\"))) void *ingot_executable_query(unsigned v)"

TEST(kernels_load_and_answer) {
  ingot_elf_image_t image;
  void *function = NULL;
  REQUIRE_OK(ingot_elf_load(&allocator, kernels.data, kernels.length, INGOT_KERNEL_QUERY_NAME,
                            &image, &function));
  ingot_kernel_query_t query = (ingot_kernel_query_t)(uintptr_t)function;
  const ingot_kernel_library_t *library = query(INGOT_KERNEL_ABI_VERSION);
  EXPECT(library && library->entry_count == 6);
  EXPECT(query(INGOT_KERNEL_ABI_VERSION + 1) == NULL);
  EXPECT(ingot_elf_contains(&image, library->entries, 6 * sizeof(ingot_kernel_entry_t), 0));
  ingot_elf_unload(&image);
}

TEST(either_hash_table_finds_the_function) {
  const char *text = QUERY " { return v ? 0 : (void *)1; }";
  const char *const styles[] = {"-Wl,--hash-style=sysv", "-Wl,--hash-style=gnu"};
  for (int i = 0; i < 2; i++) {
    test_object_t object = test_object_build_text(text, styles[i]);
    REQUIRE(object.data);
    EXPECT_OK(load(object.data, object.length));
    test_object_free(&object);
  }
}

TEST(misaligned_object_loads) {
  uint8_t *copy = malloc(kernels.length + 1);
  REQUIRE(copy);
  memcpy(copy + 1, kernels.data, kernels.length);
  EXPECT_OK(load(copy + 1, kernels.length));
  free(copy);
}

TEST(what_kernels_must_not_have_is_refused) {
  expect_refused("void abort(void);" QUERY "{ if (v) abort(); return 0; }", "",
                 INGOT_STATUS_UNSUPPORTED, "imports 'abort'");
  expect_refused("extern int errno_like;" QUERY "{ return &errno_like; }", "",
                 INGOT_STATUS_UNSUPPORTED, "imports 'errno_like'");
  expect_refused("static _Thread_local int n;" QUERY "{ n += (int)v; return &n; }", "",
                 INGOT_STATUS_UNSUPPORTED, "thread-local");
  expect_refused(
      "static volatile int n;"
      "__attribute__((constructor)) static void f(void) { n = 1; }" QUERY "{ return (void *)&n; }",
      "", INGOT_STATUS_UNSUPPORTED, "constructor");
  expect_refused(QUERY "{ return 0; }", "-Wl,--no-as-needed -lc", INGOT_STATUS_UNSUPPORTED,
                 "needs another library");
  expect_refused("int other(void) { return 1; }", "", INGOT_STATUS_NOT_FOUND,
                 "does not export the function 'ingot_executable_query'");
}

TEST(foreign_machine_is_incompatible) {
  uint8_t *copy = malloc(kernels.length);
  REQUIRE(copy);
  memcpy(copy, kernels.data, kernels.length);
  copy[offsetof(Elf64_Ehdr, e_machine)] ^= 0x80;
  EXPECT_STATUS(load(copy, kernels.length), INCOMPATIBLE, "compile for this machine");
  free(copy);
}

TEST(bytes_that_are_no_object_are_data_loss) {
  EXPECT_STATUS(load("", 0), DATA_LOSS, "0 bytes");
  EXPECT_STATUS(load("\177ELF", 4), DATA_LOSS, "shorter than an ELF header");
  uint8_t zeros[256] = {0};
  EXPECT_STATUS(load(zeros, sizeof(zeros)), DATA_LOSS, "magic");
}

/* The copy is exactly as long as the object, so a sanitizer sees any byte too far. */
TEST(every_truncation_is_refused) {
  for (size_t length = 0; length < kernels.length; length += length < 2048 ? 7 : 509) {
    uint8_t *copy = malloc(length ? length : 1);
    REQUIRE(copy);
    memcpy(copy, kernels.data, length);
    ingot_status_t status = load(copy, length);
    /* Section headers at the end are not needed. */
    if (!status) EXPECT(length > 512);
    ingot_status_free(status);
    free(copy);
  }
}

static uint64_t random_state = 88172645463325252u;

static uint64_t next_random(void) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state;
}

/* Where the interesting bytes are: headers, then anything up to the end of the dynamic
 * tables. */
static void mutate(uint8_t *data, size_t length) {
  static const uint64_t values[] = {
      0, 1, 7, 0x7FFFFFFF, 0xFFFFFFFF, UINT64_MAX, UINT64_MAX - 7, UINT64_C(1) << 63, 0x1000, 24};
  int count = 1 + (int)(next_random() % 4);
  for (int i = 0; i < count; i++) {
    size_t range = next_random() % 2 ? 64 + 56 * 10 : length;
    size_t at = (next_random() % range) & ~(size_t)7;
    if (next_random() % 3 == 0) {
      data[next_random() % range] = (uint8_t)next_random();
    } else if (at + 8 <= length) {
      uint64_t value = values[next_random() % 10] + next_random() % 2 * (next_random() % 4096);
      memcpy(data + at, &value, next_random() % 2 ? 8 : 4);
    }
  }
}

TEST(mutations_never_crash_the_loader) {
  uint8_t *copy = malloc(kernels.length);
  REQUIRE(copy);
  int refused = 0;
  for (int round = 0; round < 3000; round++) {
    memcpy(copy, kernels.data, kernels.length);
    mutate(copy, kernels.length);
    ingot_status_t status = load(copy, kernels.length);
    refused += status != NULL;
    ingot_status_free(status);
  }
  EXPECT(refused > 500);
  free(copy);
}

/* -- systems that refuse executable memory ------------------------------------------------- */

#if defined(__linux__) && defined(__x86_64__)
/* From here on this process's system call `number` fails with EACCES if argument 2 has any
 * bit of `mask` (mask 0: always). */
static bool forbid(uint32_t number, uint32_t mask) {
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, mask ? 2 : 1),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, mask, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
  };
  if (!mask) { /* without the argument: refuse right after the number */
    filter[1] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 3, 2);
  }
  struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static void load_without_executable_memory(void) {
  ingot_hal_cpu_library_t library;
  if (!forbid(SYS_mprotect, PROT_EXEC)) return; /* no seccomp here: nothing to see */
  EXPECT_STATUS(load(kernels.data, kernels.length), PERMISSION_DENIED,
                "the system refuses executable memory");
  EXPECT_OK(ingot_hal_cpu_library_load(&allocator, kernels.data, kernels.length, 6, &library));
  if (library.kernels) {
    EXPECT(library.system.handle != NULL);
    EXPECT_EQUAL(library.kernels->entry_count, 6);
    ingot_hal_cpu_library_t other; /* not the first one again, though loaded the same way */
    EXPECT_OK(ingot_hal_cpu_library_load(&allocator, kernels.data, kernels.length, 6, &other));
    EXPECT(other.kernels != library.kernels);
    ingot_hal_cpu_library_unload(&other);
    ingot_hal_cpu_library_unload(&library);
  }
  if (!forbid(SYS_memfd_create, 0)) return;
  EXPECT_STATUS(ingot_hal_cpu_library_load(&allocator, kernels.data, kernels.length, 6, &library),
                PERMISSION_DENIED, "link them statically");
}

TEST(refused_memory_falls_back_to_the_system_and_then_explains) {
  (void)fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    load_without_executable_memory();
    (void)fflush(stdout);
    _exit(test_failures != 0);
  }
  int state = -1;
  EXPECT(waitpid(child, &state, 0) == child && WIFEXITED(state) && WEXITSTATUS(state) == 0);
}
#endif

TEST(wrong_kernel_count_is_data_loss) {
  ingot_hal_cpu_library_t library;
  EXPECT_STATUS(ingot_hal_cpu_library_load(&allocator, kernels.data, kernels.length, 5, &library),
                DATA_LOSS, "has 6 kernels, but the module says 5");
}

TEST(other_abi_version_is_incompatible) {
  ingot_hal_cpu_library_t library;
  test_object_t object = test_object_build_text(QUERY " { (void)v; return 0; }", "");
  REQUIRE(object.data);
  EXPECT_STATUS(ingot_hal_cpu_library_load(&allocator, object.data, object.length, 1, &library),
                INCOMPATIBLE, "kernel ABI version 3");
  test_object_free(&object);
}

int main(void) {
  allocator = ingot_allocator_system();
  kernels = test_object_build_kernels();
  if (!kernels.data) return 1;
  RUN_TESTS();
  test_object_free(&kernels);
  return TEST_RESULT();
}
