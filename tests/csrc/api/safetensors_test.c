/* The safetensors reader: right files, damaged headers, truncation at every length, and any
 * bytes at all.
 */
#define _GNU_SOURCE /* mkstemp under -std=c11 */
#include <stdlib.h>
#include <unistd.h>

#include "api/json.h"
#include "hal/hal.h"
#include "test.h"

static ingot_instance_t *instance;
static char path[] = "/tmp/ingot_safetensors_test_XXXXXX";

static void write_file(const char *header, uint64_t header_length, const void *data,
                       size_t data_length) {
  FILE *stream = fopen(path, "wb");
  if (!stream) abort();
  size_t count = fwrite(&header_length, 1, 8, stream);
  count += fwrite(header, 1, strlen(header), stream);
  if (data_length > 0) count += fwrite(data, 1, data_length, stream);
  if (count != 8 + strlen(header) + data_length || fclose(stream) != 0) abort();
}

static ingot_status_t open_header(const char *header) {
  const uint8_t data[32] = {0};
  ingot_safetensors_t *file = NULL;
  write_file(header, strlen(header), data, sizeof(data));
  ingot_status_t status = ingot_safetensors_open(instance, path, &file);
  if (!status) ingot_safetensors_close(file);
  return status;
}

static const char right_header[] =
    "{\"__metadata__\":{\"format\":\"pt\",\"n\":[1,-2.5e3,null,true,{\"\\u00e9\":\"\\n\"}]},"
    "\"layer.w\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]},"
    " \"\\u00e9\\ud83d\\ude00\" : { \"shape\" : [ ] , \"data_offsets\":[16,18],\"dtype\":\"BF16\"},"
    "\"odd\":{\"dtype\":\"F99\",\"shape\":[3],\"data_offsets\":[18,21]},"
    "\"empty\":{\"dtype\":\"I8\",\"shape\":[0,5],\"data_offsets\":[21,21]}}  ";

TEST(tensors_are_found_in_place) {
  const float data[6] = {1, 2, 3, 4, 0, 0};
  ingot_safetensors_t *file = NULL;
  ingot_parameter_span_t span;
  write_file(right_header, strlen(right_header), data, sizeof(data));
  REQUIRE_OK(ingot_safetensors_open(instance, path, &file));
  ingot_parameters_t parameters = ingot_safetensors_parameters(file);
  REQUIRE_OK(parameters.find(parameters.user, "", "layer.w", &span));
  EXPECT_EQUAL(span.dtype, INGOT_DTYPE_F32);
  EXPECT_EQUAL(span.rank, 2);
  EXPECT_EQUAL(span.dims[1], 2);
  EXPECT(memcmp(span.data, data, 16) == 0);
  REQUIRE_OK(parameters.find(parameters.user, "any", "\xC3\xA9\xF0\x9F\x98\x80", &span));
  EXPECT_EQUAL(span.dtype, INGOT_DTYPE_BF16);
  EXPECT_EQUAL(span.rank, 0);
  REQUIRE_OK(parameters.find(parameters.user, "", "empty", &span));
  EXPECT_EQUAL(span.length, 0);
  EXPECT_STATUS(parameters.find(parameters.user, "", "nope", &span), NOT_FOUND,
                "there is no tensor 'nope'");
  EXPECT_STATUS(parameters.find(parameters.user, "", "odd", &span), UNSUPPORTED, "'F99'");
  ingot_safetensors_close(file);
}

TEST(damaged_headers_are_refused) {
  static const char *const headers[] = {
      "",
      "[]",
      "{",
      "{}x",
      "{\"a\":1}",
      "{\"a\":{}}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,9]}}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[32,40]}}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[2.0],\"data_offsets\":[0,8]}}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[02],\"data_offsets\":[0,8]}}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[99999999999999999999],\"data_offsets\":[0,8]}}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]}}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"x\":1}}",
      "{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
      ("{\"a\":{\"dtype\":\"I8\",\"shape\":[],\"data_offsets\":[0,1]},"
       "\"a\":{\"dtype\":\"I8\",\"shape\":[],\"data_offsets\":[0,1]}}"),
      "{\"\\ud800\":{\"dtype\":\"I8\",\"shape\":[],\"data_offsets\":[0,1]}}",
      "{\"\\u0000\":{\"dtype\":\"I8\",\"shape\":[],\"data_offsets\":[0,1]}}",
      "{\"\\q\":{\"dtype\":\"I8\",\"shape\":[],\"data_offsets\":[0,1]}}",
      "{\"__metadata__\":tru}",
      "{\"__metadata__\":[1,]}",
      "{\"__metadata__\":-}",
      "{\"__metadata__\":01}",
  };
  for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); ++i) {
    ingot_status_t status = open_header(headers[i]);
    if (ingot_status_code(status) != INGOT_STATUS_DATA_LOSS) {
      FAIL("%s: %s", headers[i], ingot_status_message(status));
    }
    ingot_status_free(status);
  }
  EXPECT_OK(open_header("{}"));
}

TEST(every_truncation_is_refused) {
  const float data[6] = {1, 2, 3, 4, 0, 0};
  size_t length = 8 + strlen(right_header) + 21;
  write_file(right_header, strlen(right_header), data, sizeof(data));
  while (length-- > 0) {
    ingot_safetensors_t *file = NULL;
    EXPECT_EQUAL(truncate(path, (off_t)length), 0);
    EXPECT_STATUS(ingot_safetensors_open(instance, path, &file), DATA_LOSS, "safetensors");
  }
}

TEST(deep_nesting_and_any_bytes_end_in_a_status) {
  const ingot_allocator_t *allocator = &instance->allocator;
  char deep[1000];
  memset(deep, '[', sizeof(deep));
  ingot_json_t json = {allocator, (const uint8_t *)deep, sizeof(deep), 0};
  EXPECT_STATUS(ingot_json_skip(&json), DATA_LOSS, "less nesting");
  static const char alphabet[] = "{}[],:\"\\u0d8e1-.tnf ";
  uint32_t random = 12345;
  for (int round = 0; round < 20000; ++round) {
    char text[24];
    for (size_t i = 0; i < sizeof(text); ++i) {
      random = random * 1664525u + 1013904223u;
      text[i] = alphabet[(random >> 16) % (sizeof(alphabet) - 1)];
    }
    json = (ingot_json_t){allocator, (const uint8_t *)text, sizeof(text), 0};
    ingot_status_free(ingot_json_skip(&json));
    EXPECT(json.position <= sizeof(text));
  }
}

/* -- an index ---------------------------------------------------------------------------------- */

static char folder[] = "/tmp/ingot_index_test_XXXXXX";

static void name_file(char out[64], const char *name) {
  (void)snprintf(out, 64, "%s/%s", folder, name);
}

static void write_shard(const char *name, const char *header, float value) {
  char own[64];
  name_file(own, name);
  write_file(header, strlen(header), &value, sizeof(value));
  if (rename(path, own) != 0) abort();
}

/* Opens an index of this text beside a.safetensors, which has "a" and "x", and b.safetensors. */
static ingot_status_t open_index(ingot_instance_t *on, const char *text,
                                 ingot_safetensors_t **out_file) {
  char name[64];
  write_shard("a.safetensors",
              "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
              "\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
              1);
  write_shard("b.safetensors",
              "{\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
              "\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
              2);
  name_file(name, "model.safetensors.index.json");
  FILE *stream = fopen(name, "wb");
  if (!stream || fputs(text, stream) < 0 || fclose(stream) != 0) abort();
  return ingot_safetensors_open(on, name, out_file);
}

static const char right_index[] =
    "{\"metadata\":{\"total_size\":12},\"weight_map\":{\"b\":\"b.safetensors\","
    "\"x\":\"b.safetensors\",\"a\":\"a.safetensors\"}}";

TEST(an_index_joins_files) {
  static const struct {
    const char *key;
    float value;
  } expected[] = {{"a", 1}, {"b", 2}, {"x", 2}};
  ingot_safetensors_t *file = NULL;
  REQUIRE_OK(open_index(instance, right_index, &file));
  ingot_parameters_t parameters = ingot_safetensors_parameters(file);
  for (size_t i = 0; i < 3; ++i) {
    ingot_parameter_span_t span;
    REQUIRE_OK(parameters.find(parameters.user, "", expected[i].key, &span));
    EXPECT(memcmp(span.data, &expected[i].value, 4) == 0);
  }
  ingot_safetensors_close(file);
}

TEST(a_wrong_index_is_refused) {
  static const struct {
    const char *text;
    ingot_status_code_t code;
    const char *message;
  } wrong[] = {
      {"", INGOT_STATUS_DATA_LOSS, "index '"},
      {"{\"metadata\":{}}", INGOT_STATUS_DATA_LOSS, "no map"},
      {"{\"weight_map\":{\"c\":\"a.safetensors\"}}", INGOT_STATUS_DATA_LOSS,
       "tensor 'c' is not in 'a.safetensors', where the index has it"},
      {"{\"weight_map\":{\"b\":\"a.safetensors\"}}", INGOT_STATUS_DATA_LOSS,
       "tensor 'b' is not in"},
      {"{\"weight_map\":{\"a\":\"c.safetensors\"}}", INGOT_STATUS_NOT_FOUND, "/c.safetensors'"},
      {"{\"weight_map\":{\"a\":\"../a.safetensors\"}}", INGOT_STATUS_DATA_LOSS, "beside the index"},
      {"{\"weight_map\":{\"a\":\"\"}}", INGOT_STATUS_DATA_LOSS, "beside the index"},
      {"{\"weight_map\":{\"a\":1}}", INGOT_STATUS_DATA_LOSS, ""},
      {"{\"weight_map\":{\"a\":\"a.safetensors\",\"a\":\"b.safetensors\"}}", INGOT_STATUS_DATA_LOSS,
       "comes twice"},
  };
  for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); ++i) {
    ingot_safetensors_t *file = NULL;
    ingot_status_t status = open_index(instance, wrong[i].text, &file);
    EXPECT_EQUAL(ingot_status_code(status), wrong[i].code);
    if (!strstr(ingot_status_message(status), wrong[i].message)) {
      FAIL("'%s' gave '%s'", wrong[i].text, ingot_status_message(status));
    }
    ingot_status_free(status);
  }
}

static ingot_status_t open_right_index(const ingot_allocator_t *allocator) {
  const ingot_instance_options_t options = {.allocator = allocator};
  ingot_instance_t *failing = NULL;
  ingot_safetensors_t *file = NULL;
  ingot_status_t status = ingot_instance_create(&options, &failing);
  if (!status) status = open_index(failing, right_index, &file);
  if (!status) ingot_safetensors_close(file);
  ingot_instance_release(failing);
  return status;
}

TEST(every_allocation_of_an_index_may_fail) { test_fail_each_allocation(open_right_index, 8); }

int main(void) {
  if (!mkdtemp(folder)) return 1;
  int descriptor = mkstemp(path);
  if (descriptor < 0 || close(descriptor) != 0) return 1;
  if (ingot_instance_create(NULL, &instance)) return 1;
  RUN_TESTS();
  ingot_instance_release(instance);
  static const char *const names[] = {"a.safetensors", "b.safetensors",
                                      "model.safetensors.index.json", ""};
  for (size_t i = 0; i < 4; ++i) {
    char name[64];
    name_file(name, names[i]);
    (void)remove(name);
  }
  (void)remove(path);
  return TEST_RESULT();
}
