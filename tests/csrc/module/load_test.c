/* Loading of modules: what is right loads and can be asked, everything else is refused with
 * the right status, whatever the bytes are.
 */
#define _GNU_SOURCE /* mkstemp, truncate under -std=c11 */
#include "module/builder.h"
#include "module/module.h"
#include "test.h"

#include <unistd.h>

static ingot_instance_t *create_instance(void) {
  ingot_instance_t *instance = NULL;
  if (ingot_instance_create(NULL, &instance)) abort();
  return instance;
}

/* Loads and drops `length` bytes in a block of exactly that size. */
static ingot_status_t load(ingot_instance_t *instance, const uint8_t *data, size_t length,
                           uint32_t flags) {
  ingot_module_t *module = NULL;
  uint8_t *copy = malloc(length ? length : 1);
  if (!copy) abort();
  if (length > 0) memcpy(copy, data, length);
  ingot_status_t status =
      ingot_module_load_memory(instance, copy, length, flags, NULL, NULL, &module);
  if (!status) ingot_module_release(module);
  free(copy);
  return status;
}

TEST(a_module_answers_questions) {
  ingot_instance_t *instance = create_instance();
  builder_bytes_t file = builder_full_module();
  ingot_module_t *module = NULL;
  REQUIRE_OK(ingot_module_load_memory(instance, file.data, file.length, 1, NULL, NULL, &module));
  EXPECT_EQUAL(ingot_module_info(module).function_count, 2);
  ingot_function_info_t function;
  EXPECT_OK(ingot_module_function(module, 1, &function));
  EXPECT_TEXT(function.name, "main");
  EXPECT_TEXT(function.target, "cpu");
  EXPECT(function.exported);
  EXPECT_EQUAL(function.argument_count, 1);
  EXPECT_EQUAL(function.result_count, 2);
  ingot_value_info_t value;
  EXPECT_OK(ingot_module_value(module, 1, 1, &value));
  EXPECT_TEXT(value.name, "y");
  EXPECT_EQUAL(value.dtype, INGOT_DTYPE_F32);
  EXPECT_EQUAL(value.rank, 1);
  ingot_dim_info_t dim;
  EXPECT_OK(ingot_module_dim(module, value.first_dim, &dim));
  EXPECT_EQUAL(dim.size, -1);
  EXPECT_TEXT(dim.text, "n");
  EXPECT_EQUAL(ingot_module_info(module).variable_count, 2);
  EXPECT_OK(ingot_module_variable(module, 0, &value));
  EXPECT_TEXT(value.name, "history");
  EXPECT_EQUAL(value.rank, 1);
  EXPECT_STATUS(ingot_module_variable(module, 2, &value), OUT_OF_RANGE, "variable 2 of 2");
  ingot_parameter_info_t parameter;
  EXPECT_EQUAL(ingot_module_info(module).parameter_count, 1);
  EXPECT_OK(ingot_module_parameter(module, 0, &parameter));
  EXPECT_TEXT(parameter.key, "bias");
  EXPECT_EQUAL(ingot_module_info(module).metadata_length, 7);
  EXPECT(memcmp(ingot_module_info(module).metadata, "{\"a\":1}", 7) == 0);
  EXPECT_STATUS(ingot_module_function(module, 2, &function), OUT_OF_RANGE, "function 2 of 2");
  EXPECT_STATUS(ingot_module_value(module, 1, 3, &value), OUT_OF_RANGE, "value 3 of 3");
  ingot_module_release(module);
  free(file.data);
  ingot_instance_release(instance);
}

static void count_release(void *user, void *data) {
  (void)data;
  ++*(int *)user;
}

TEST(memory_is_released_once_by_the_last_owner) {
  ingot_instance_t *instance = create_instance();
  builder_bytes_t file = builder_add_one_module();
  ingot_module_t *module = NULL;
  int released = 0;
  REQUIRE_OK(ingot_module_load_memory(instance, file.data, file.length, 0, count_release, &released,
                                      &module));
  ingot_module_retain(module);
  ingot_instance_release(instance);
  ingot_module_release(module);
  EXPECT_EQUAL(released, 0);
  ingot_module_release(module);
  EXPECT_EQUAL(released, 1);
  free(file.data);
}

TEST(every_truncation_is_refused) {
  ingot_instance_t *instance = create_instance();
  builder_bytes_t file = builder_full_module();
  for (size_t length = 0; length < file.length; ++length) {
    EXPECT_STATUS(load(instance, file.data, length, 0), DATA_LOSS, "module");
  }
  free(file.data);
  ingot_instance_release(instance);
}

TEST(every_flipped_byte_outside_constants_is_refused) {
  ingot_instance_t *instance = create_instance();
  builder_bytes_t file = builder_full_module();
  const float constants[4] = {1, 2, 3, 4};
  size_t at = 0;
  while (memcmp(file.data + at, constants, sizeof(constants)) != 0) ++at;
  for (size_t i = 0; i < file.length; ++i) {
    file.data[i] ^= 0x41;
    ingot_status_t status = load(instance, file.data, file.length, 0);
    bool constant = i >= at && i < at + sizeof(constants);
    if ((status == NULL) != constant) FAIL("byte %zu", i);
    ingot_status_free(status);
    if (constant) {
      EXPECT_STATUS(load(instance, file.data, file.length, INGOT_MODULE_VERIFY_CONSTANTS),
                    DATA_LOSS, "crc");
    }
    file.data[i] ^= 0x41;
  }
  free(file.data);
  ingot_instance_release(instance);
}

TEST(another_major_version_is_refused_with_both_numbers) {
  ingot_instance_t *instance = create_instance();
  builder_bytes_t file = builder_add_one_module();
  ((ingot_layout_header_t *)(void *)file.data)->version_major = 7;
  ((ingot_layout_header_t *)(void *)file.data)->version_minor = 3;
  builder_seal(file.data, file.length);
  EXPECT_STATUS(load(instance, file.data, file.length, 0), INCOMPATIBLE,
                "version 7.3, this runtime reads versions 1 to 3");
  free(file.data);
  ingot_instance_release(instance);
}

TEST(sections_of_a_later_minor_version_are_skipped) {
  ingot_instance_t *instance = create_instance();
  builder_bytes_t file = builder_full_module();
  ingot_layout_header_t *header = (ingot_layout_header_t *)(void *)file.data;
  ingot_layout_section_t *sections = (ingot_layout_section_t *)(void *)(header + 1);
  header->version_minor = 9;
  uint32_t metadata = 0;
  while (sections[metadata].kind != INGOT_SECTION_METADATA) ++metadata;
  sections[metadata].kind = 1000;
  builder_seal(file.data, file.length);
  EXPECT_OK(load(instance, file.data, file.length, 0));
  free(file.data);
  ingot_instance_release(instance);
}

static void append(builder_bytes_t *bytes, const void *data, size_t length) {
  bytes->data = realloc(bytes->data, bytes->length + length);
  if (!bytes->data) abort();
  memcpy(bytes->data + bytes->length, data, length);
  bytes->length += length;
}

/* A section of compressed tables that are these: one row of LZ4 without a match. */
static builder_bytes_t literals(const builder_bytes_t *tables) {
  builder_bytes_t packed = {NULL, 0};
  const uint64_t length = tables->length;
  append(&packed, &length, sizeof(length));
  append(&packed, "\xf0", 1);
  size_t more = tables->length - 15;
  for (; more >= 255; more -= 255) append(&packed, "\xff", 1);
  append(&packed, &(uint8_t){(uint8_t)more}, 1);
  append(&packed, tables->data, tables->length);
  return packed;
}

typedef struct tables_t {
  uint64_t count;
  ingot_layout_section_t rows[];
} tables_t;

typedef struct change_t {
  enum {
    NOTHING,
    COUNT,
    KIND,
    KIND_OF_METADATA,
    CRC,
    OFFSET,
    LENGTH
  } field; /* of the first row, if of one */
  uint64_t value;
  const char *message; /* NULL: it loads */
} change_t;

static void change_tables(tables_t *tables, change_t change) {
  ingot_layout_section_t *row = tables->rows;
  switch (change.field) {
    case NOTHING: break;
    case COUNT: tables->count = change.value; break;
    case KIND_OF_METADATA:
      while (row->kind != INGOT_SECTION_METADATA) ++row;
      row->kind = (uint32_t)change.value;
      break;
    case KIND: row->kind = (uint32_t)change.value; break;
    case CRC: row->crc = (uint32_t)change.value; break;
    case OFFSET: row->offset = change.value; break;
    case LENGTH: row->length = change.value; break;
  }
}

/* The full module with its constants and objects, and all else in compressed tables, which are
 * changed. */
static builder_bytes_t compressed_module(change_t change) {
  builder_bytes_t file = builder_full_module();
  const ingot_layout_header_t *header = (const void *)file.data;
  const ingot_layout_section_t *sections = (const void *)(header + 1);
  builder_t outer = {.global_count = header->global_count};
  builder_bytes_t tables = {NULL, 0};
  uint64_t count = 0;
  append(&tables, &count, sizeof(count));
  append(&tables, sections, header->section_count * sizeof(*sections));
  for (uint32_t i = 0; i < header->section_count; ++i) {
    const uint8_t *data = file.data + sections[i].offset;
    const uint32_t kind = sections[i].kind;
    if (kind == INGOT_SECTION_CONSTANTS || kind == INGOT_SECTION_OBJECTS) {
      append(&outer.sections[kind], data, (size_t)sections[i].length);
      continue;
    }
    append(&tables, (uint8_t[8]){0}, (0 - tables.length) % 8);
    ((tables_t *)(void *)tables.data)->rows[count++] =
        (ingot_layout_section_t){kind, 0, tables.length, sections[i].length};
    append(&tables, data, (size_t)sections[i].length);
  }
  tables_t *built = (void *)tables.data;
  built->count = count;
  const size_t head = sizeof(count) + count * sizeof(*sections); /* rows that are left: padding */
  const size_t gap = (size_t)built->rows[0].offset - head;
  memmove(tables.data + head, tables.data + head + gap, tables.length - head - gap);
  tables.length -= gap;
  for (uint64_t i = 0; i < count; ++i) built->rows[i].offset -= gap;
  change_tables(built, change);
  outer.sections[INGOT_SECTION_COMPRESSED_TABLES] = literals(&tables);
  free(tables.data);
  free(file.data);
  return builder_finish(&outer);
}

TEST(compressed_tables_are_checked_like_a_file) {
  static const change_t changes[] = {
      {NOTHING, 0, NULL},
      {KIND_OF_METADATA, 1000, NULL},
      {COUNT, 257, "its tables are 257, there is room for"},
      {CRC, 1, "cannot be in its tables"},
      {KIND, INGOT_SECTION_CONSTANTS, "cannot be in its tables"},
      {KIND, INGOT_SECTION_COMPRESSED_TABLES, "cannot be in its tables"},
      {KIND, INGOT_SECTION_METADATA, "two sections of kind"},
      {OFFSET, 0, "leaves the tables"},
      {OFFSET, 1, "leaves the tables"},
      {OFFSET, UINT64_MAX - 7, "leaves the tables"},
      {LENGTH, UINT64_MAX, "leaves the tables"},
      {LENGTH, 1, "of its tables belong to no section"},
  };
  ingot_instance_t *instance = create_instance();
  for (size_t i = 0; i < sizeof(changes) / sizeof(*changes); ++i) {
    builder_bytes_t file = compressed_module(changes[i]);
    ingot_status_t status = load(instance, file.data, file.length, 0);
    if (changes[i].message) EXPECT_STATUS(status, DATA_LOSS, changes[i].message);
    else EXPECT_OK(status);
    free(file.data);
  }
  ingot_instance_release(instance);
}

TEST(compressed_tables_that_are_no_block_are_refused) {
  ingot_instance_t *instance = create_instance();
  builder_bytes_t file = compressed_module((change_t){NOTHING, 0, NULL});
  ingot_layout_header_t *header = (void *)file.data;
  ingot_layout_section_t *section = (void *)(header + 1);
  while (section->kind != INGOT_SECTION_COMPRESSED_TABLES) ++section;
  uint64_t *length = (void *)(file.data + section->offset);
  const uint64_t lengths[] = {0, 7, *length - 1, *length + 1, UINT64_MAX};
  for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); ++i) {
    *length = lengths[i];
    builder_seal(file.data, file.length);
    EXPECT_STATUS(load(instance, file.data, file.length, 0), DATA_LOSS, "no block of LZ4");
  }
  free(file.data);
  ingot_instance_release(instance);
}

TEST(files_that_cannot_be_read_say_why) {
  ingot_instance_t *instance = create_instance();
  ingot_module_t *module = NULL;
  EXPECT_STATUS(ingot_module_load_file(instance, "no/such/file.ingot", 0, &module), NOT_FOUND,
                "no/such/file.ingot");
  EXPECT_STATUS(ingot_module_load_file(instance, ".", 0, &module), INVALID_ARGUMENT, "'.'");
  char long_path[5001];
  memset(long_path, 'a', sizeof(long_path) - 1);
  long_path[sizeof(long_path) - 1] = 0;
  EXPECT_STATUS(ingot_module_load_file(instance, long_path, 0, &module), INVALID_ARGUMENT,
                "aa...'");
  EXPECT_STATUS(ingot_module_load_memory(instance, NULL, 0, 8, NULL, NULL, &module),
                INVALID_ARGUMENT, "flags");
  ingot_instance_release(instance);
}

TEST(files_are_mapped_and_load) {
  ingot_instance_t *instance = create_instance();
  builder_bytes_t file = builder_add_one_module();
  char path[] = "/tmp/ingot_load_test_XXXXXX";
  ingot_module_t *module = NULL;
  int descriptor = mkstemp(path);
  FILE *stream = fdopen(descriptor, "wb");
  REQUIRE(stream);
  EXPECT_EQUAL(fwrite(file.data, 1, file.length, stream), file.length);
  EXPECT_EQUAL(fclose(stream), 0);
  EXPECT_OK(ingot_module_load_file(instance, path, 0, &module));
  ingot_module_release(module);
  EXPECT_EQUAL(truncate(path, 0), 0);
  EXPECT_STATUS(ingot_module_load_file(instance, path, 0, &module), DATA_LOSS, "it has 0 bytes");
  EXPECT_EQUAL(remove(path), 0);
  free(file.data);
  ingot_instance_release(instance);
}

/* They would be mapped, so that the file could still change what was checked. */
TEST(large_constants_that_overlap_what_is_checked_are_refused) {
  ingot_instance_t *instance = create_instance();
  builder_bytes_t file = builder_full_module();
  const size_t length = file.length + (2 << 20);
  char path[] = "/tmp/ingot_load_test_XXXXXX";
  int descriptor = mkstemp(path);
  uint8_t *data = calloc(length, 1);
  REQUIRE(data && descriptor >= 0);
  memcpy(data, file.data, file.length);
  ingot_layout_header_t *header = (ingot_layout_header_t *)(void *)data;
  ingot_layout_section_t *sections = (ingot_layout_section_t *)(void *)(header + 1);
  header->file_length = length;
  uint32_t constants = 0;
  while (sections[constants].kind != INGOT_SECTION_CONSTANTS) ++constants;
  for (uint32_t i = 0; i <= constants; ++i) {
    ingot_module_t *module = NULL;
    sections[constants].offset = i > 0 ? sections[i - 1].offset : 0;
    sections[constants].length = length - sections[constants].offset;
    builder_seal(data, length);
    EXPECT_EQUAL(pwrite(descriptor, data, length, 0), length);
    EXPECT_STATUS(ingot_module_load_file(instance, path, 0, &module), DATA_LOSS, "overlaps");
  }
  EXPECT_EQUAL(close(descriptor), 0);
  EXPECT_EQUAL(remove(path), 0);
  free(data);
  free(file.data);
  ingot_instance_release(instance);
}

static void choose_all(const uint8_t *head, size_t length, uint64_t *begin, uint64_t *end) {
  (void)head;
  (void)length;
  *begin = 0;
  *end = UINT64_C(1) << 40;
}

/* Far more bytes than there is memory: only those that are read may count. */
TEST(the_head_is_never_the_files_own_and_the_mapped_rest_takes_no_memory) {
  ingot_instance_t *instance = create_instance();
  char path[] = "/tmp/ingot_load_test_XXXXXX";
  uint8_t bytes[INGOT_FILE_HEAD];
  ingot_file_t file;
  int descriptor = mkstemp(path);
  REQUIRE(descriptor >= 0);
  memset(bytes, 1, sizeof(bytes));
  EXPECT_EQUAL(pwrite(descriptor, bytes, sizeof(bytes), 0), sizeof(bytes));
  EXPECT_EQUAL(ftruncate(descriptor, (off_t)1 << 40), 0);
  REQUIRE_OK(ingot_file_open(&instance->allocator, path, choose_all, &file));
  EXPECT_EQUAL(file.length, (size_t)1 << 40);
  EXPECT_EQUAL(file.data[file.length - 1], 0);
  memset(bytes, 2, sizeof(bytes));
  EXPECT_EQUAL(pwrite(descriptor, bytes, sizeof(bytes), 0), sizeof(bytes));
  for (size_t i = 0; i < sizeof(bytes); ++i) EXPECT_EQUAL(file.data[i], 1);
  ingot_file_close(&instance->allocator, &file);
  EXPECT_EQUAL(close(descriptor), 0);
  EXPECT_EQUAL(remove(path), 0);
  ingot_instance_release(instance);
}

TEST(sealed_mutations_never_crash_the_loader) {
  static const uint8_t values[8] = {0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF, 0x40};
  ingot_instance_t *instance = create_instance();
  builder_bytes_t file = builder_full_module();
  uint8_t *original = malloc(file.length);
  REQUIRE(original);
  memcpy(original, file.data, file.length);
  uint64_t random = 88172645463325252u;
  for (int round = 0; round < 30000; ++round) {
    int changes = 1 + (int)(test_random(&random) % 4);
    for (int i = 0; i < changes; ++i) {
      uint64_t draw = test_random(&random);
      file.data[draw % file.length] =
          draw & (1u << 20) ? values[draw >> 32 & 7] : (uint8_t)(draw >> 32);
    }
    builder_seal(file.data, file.length);
    ingot_status_free(load(instance, file.data, file.length, 0));
    memcpy(file.data, original, file.length);
  }
  free(original);
  free(file.data);
  ingot_instance_release(instance);
}

int main(void) {
  RUN_TESTS();
  return TEST_RESULT();
}
