/* Kernel objects for tests: $CC (else cc) in a temporary folder. */
#define _GNU_SOURCE /* mkdtemp */
#include "object.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FLAGS                                                                            \
  "-shared -O2 -ffreestanding -nostdlib -fPIC -fvisibility=hidden -fno-stack-protector " \
  "-U_FORTIFY_SOURCE -fno-math-errno -fno-trapping-math -fno-strict-aliasing "           \
  "-fno-tree-vectorize -Wl,-z,max-page-size=65536 -Wl,--build-id=none "                  \
  "-Wl,-z,noseparate-code -Wl,-z,norelro"

/* The path of a file of the repository, found from this one's. */
static void repository_path(const char *name, char *out_path, size_t capacity) {
  const char *self = __FILE__; /* .../tests/csrc/object.c */
  size_t root = strlen(self) - strlen("tests/csrc/object.c");
  (void)snprintf(out_path, capacity, "%.*s%s", (int)root, self, name);
}

test_object_t test_object_read(const char *path) {
  test_object_t object = {NULL, 0};
  FILE *file = fopen(path, "rb");
  if (!file) return object;
  const size_t capacity = 1 << 20;
  object.data = malloc(capacity);
  if (object.data) object.length = fread(object.data, 1, capacity, file);
  (void)fclose(file);
  return object;
}

/* Compiles `source` to a shared object and reads it. */
static test_object_t build(const char *source, const char *folder, const char *flags) {
  char include[512], output[256], command[2048];
  const char *compiler = getenv("CC");
  repository_path("csrc/include", include, sizeof(include));
  (void)snprintf(output, sizeof(output), "%s/kernels.so", folder);
  (void)snprintf(command, sizeof(command), "%s " FLAGS " %s -I'%s' '%s' -o '%s'",
                 compiler && compiler[0] ? compiler : "cc", flags, include, source, output);
  test_object_t object = {NULL, 0};
  if (system(command) == 0) object = test_object_read(output);
  (void)unlink(output);
  return object;
}

static test_object_t build_in_folder(const char *source, const char *text, const char *flags) {
  char folder[] = "/tmp/ingot-test-XXXXXX";
  char path[512];
  test_object_t object = {NULL, 0};
  if (!mkdtemp(folder)) return object;
  if (text) {
    (void)snprintf(path, sizeof(path), "%s/kernels.c", folder);
    FILE *file = fopen(path, "w");
    if (file) {
      (void)fputs(text, file);
      (void)fclose(file);
    }
    source = path;
  }
  object = build(source, folder, flags);
  if (text) (void)unlink(path);
  (void)rmdir(folder);
  return object;
}

test_object_t test_object_build_kernels(void) {
  char source[512];
  repository_path("tests/cts/kernels.c", source, sizeof(source));
  return build_in_folder(source, NULL, "");
}

test_object_t test_object_build_text(const char *text, const char *flags) {
  return build_in_folder("", text, flags);
}

void test_object_free(test_object_t *object) {
  free(object->data);
  object->data = NULL;
}
