/* A reader of safetensors files: 8 bytes of header length, a JSON object that gives dtype,
 * shape and data range of each tensor, then the data. The file is read as a whole, so that
 * nobody can cut it under a running init; tensors are used in place. Everything in the header is
 * checked when the file is opened.
 *
 * Several files are opened by their index: a JSON object whose "weight_map" has the file of each
 * tensor, which lies beside it. Tensors that the index does not name are left out.
 */
#include "platform/platform.h"

#if !defined(INGOT_NO_FILES)
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "api/json.h"
#include "base/arithmetic.h"
#include "base/dtype.h"
#include "module/file.h"
#include "hal/hal.h"

#define MAX_HEADER ((uint64_t)100 << 20) /* the format's own limit */
#define MAX_KEY 4096

typedef struct tensor_t {
  char *key; /* owned */
  char dtype_text[16];
  uint32_t shard;
  bool is_placed;
  ingot_parameter_span_t span; /* dtype 0 for one that there is no code for */
  int64_t dims[INGOT_MAX_RANK];
} tensor_t;

typedef struct shard_t {
  char *name; /* owned; of a file without an index NULL */
  ingot_file_t file;
} shard_t;

struct ingot_safetensors_t {
  ingot_instance_t *instance;
  uint32_t shard_count;
  shard_t *shards;
  bool has_index;
  uint32_t count;
  uint32_t capacity;
  tensor_t *tensors; /* sorted by key once opened */
};

static ingot_status_t file_refuse(const ingot_safetensors_t *file, const char *what,
                                  const char *key) {
  return ingot_status_create(&file->instance->allocator, INGOT_STATUS_DATA_LOSS, "tensor '%s': %s",
                             key, what);
}

static ingot_dtype_t dtype_of_text(const char *text) {
  static const struct {
    char text[8];
    uint8_t dtype;
  } known[] = {
      {"BOOL", INGOT_DTYPE_I1}, {"U8", INGOT_DTYPE_U8},          {"I8", INGOT_DTYPE_I8},
      {"U16", INGOT_DTYPE_U16}, {"I16", INGOT_DTYPE_I16},        {"U32", INGOT_DTYPE_U32},
      {"I32", INGOT_DTYPE_I32}, {"U64", INGOT_DTYPE_U64},        {"I64", INGOT_DTYPE_I64},
      {"F16", INGOT_DTYPE_F16}, {"BF16", INGOT_DTYPE_BF16},      {"F32", INGOT_DTYPE_F32},
      {"F64", INGOT_DTYPE_F64}, {"F8_E5M2", INGOT_DTYPE_F8E5M2}, {"F8_E4M3", INGOT_DTYPE_F8E4M3FN},
      {"C64", INGOT_DTYPE_C64},
  };
  for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); ++i) {
    if (strcmp(known[i].text, text) == 0) return known[i].dtype;
  }
  return 0;
}

/* -- header ------------------------------------------------------------------------------------ */

static ingot_status_t read_shape(ingot_json_t *json, tensor_t *tensor) {
  bool more = true;
  INGOT_TRY(ingot_json_expect(json, '['));
  for (uint32_t rank = 0;; ++rank) {
    INGOT_TRY(ingot_json_next(json, ']', rank == 0, &more));
    tensor->span.rank = rank;
    if (!more) return NULL;
    if (rank == INGOT_MAX_RANK) {
      return ingot_status_create(json->allocator, INGOT_STATUS_UNSUPPORTED,
                                 "tensor '%s' has a rank above %d", tensor->key, INGOT_MAX_RANK);
    }
    INGOT_TRY(ingot_json_size(json, &tensor->dims[rank]));
  }
}

static ingot_status_t read_offsets(ingot_json_t *json, int64_t offsets[2]) {
  INGOT_TRY(ingot_json_expect(json, '['));
  INGOT_TRY(ingot_json_size(json, &offsets[0]));
  INGOT_TRY(ingot_json_expect(json, ','));
  INGOT_TRY(ingot_json_size(json, &offsets[1]));
  return ingot_json_expect(json, ']');
}

/* The range must lie in the data and have the length that dtype and shape ask for. */
static ingot_status_t place_tensor(const ingot_safetensors_t *file, tensor_t *tensor,
                                   const int64_t offsets[2], const uint8_t *data,
                                   size_t data_length) {
  int64_t length = 0;
  if (offsets[1] < offsets[0] || (uint64_t)offsets[1] > data_length) {
    return file_refuse(file, "its data range leaves the file", tensor->key);
  }
  tensor->is_placed = true;
  tensor->span.data = data + offsets[0];
  tensor->span.length = (size_t)(offsets[1] - offsets[0]);
  tensor->span.dtype = dtype_of_text(tensor->dtype_text);
  if (tensor->span.dtype == 0) return NULL; /* found out when it is asked for */
  if (!ingot_dtype_tensor_length(tensor->span.dtype, tensor->span.rank, tensor->dims, &length) ||
      (uint64_t)length != tensor->span.length) {
    return file_refuse(file, "its data range does not have the length of its shape", tensor->key);
  }
  return NULL;
}

/* The value of one key of the header. */
static ingot_status_t read_tensor(const ingot_safetensors_t *file, ingot_json_t *json,
                                  tensor_t *tensor, const uint8_t *data, size_t data_length) {
  bool more = true;
  uint32_t seen = 0;
  int64_t offsets[2] = {0, 0};
  INGOT_TRY(ingot_json_expect(json, '{'));
  for (bool first = true;; first = false) {
    char field[16];
    INGOT_TRY(ingot_json_member(json, first, field, sizeof(field), &more));
    if (!more) break;
    uint32_t bit = 0;
    if (strcmp(field, "dtype") == 0) {
      bit = 1;
      INGOT_TRY(ingot_json_string(json, tensor->dtype_text, sizeof(tensor->dtype_text)));
    } else if (strcmp(field, "shape") == 0) {
      bit = 2;
      INGOT_TRY(read_shape(json, tensor));
    } else if (strcmp(field, "data_offsets") == 0) {
      bit = 4;
      INGOT_TRY(read_offsets(json, offsets));
    }
    if (bit == 0 || (seen & bit)) {
      return file_refuse(file, "it has a field that is unknown or comes twice", tensor->key);
    }
    seen |= bit;
  }
  if (seen != 7) return file_refuse(file, "dtype, shape or data_offsets is missing", tensor->key);
  return place_tensor(file, tensor, offsets, data, data_length);
}

static ingot_status_t add_tensor(ingot_safetensors_t *file, const char *key,
                                 tensor_t **out_tensor) {
  const ingot_allocator_t *allocator = &file->instance->allocator;
  if (file->count == file->capacity) {
    uint32_t capacity = file->capacity ? 2 * file->capacity : 64;
    void *tensors = file->tensors;
    INGOT_TRY(ingot_reallocate_array(allocator, capacity, sizeof(tensor_t), &tensors));
    file->tensors = tensors;
    file->capacity = capacity;
  }
  tensor_t *tensor = &file->tensors[file->count];
  memset(tensor, 0, sizeof(*tensor));
  INGOT_TRY(ingot_allocate_string(allocator, key, &tensor->key));
  ++file->count;
  *out_tensor = tensor;
  return NULL;
}

static int compare_tensors(const void *a, const void *b) {
  return strcmp(((const tensor_t *)a)->key, ((const tensor_t *)b)->key);
}

static tensor_t *find_tensor(const ingot_safetensors_t *file, const char *key) {
  uint32_t low = 0;
  uint32_t high = file->count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    int order = strcmp(file->tensors[middle].key, key);
    if (order == 0) return &file->tensors[middle];
    if (order < 0) low = middle + 1;
    else high = middle;
  }
  return NULL;
}

/* The tensor of this key in `shard`, a new one without an index; NULL if an index has it not. */
static ingot_status_t take_tensor(ingot_safetensors_t *file, const char *key, uint32_t shard,
                                  tensor_t **out_tensor) {
  if (!file->has_index) return add_tensor(file, key, out_tensor);
  tensor_t *tensor = find_tensor(file, key);
  if (tensor && tensor->shard != shard) tensor = NULL;
  *out_tensor = tensor;
  if (tensor && tensor->is_placed) return file_refuse(file, "it comes twice", key);
  return NULL;
}

static ingot_status_t read_header(ingot_safetensors_t *file, ingot_json_t *json, uint32_t shard,
                                  const uint8_t *data, size_t data_length) {
  char key[MAX_KEY];
  bool more = true;
  INGOT_TRY(ingot_json_expect(json, '{'));
  for (bool first = true;; first = false) {
    tensor_t *tensor = NULL;
    INGOT_TRY(ingot_json_member(json, first, key, sizeof(key), &more));
    if (!more) return ingot_json_end(json);
    if (strcmp(key, "__metadata__") != 0) INGOT_TRY(take_tensor(file, key, shard, &tensor));
    if (tensor) INGOT_TRY(read_tensor(file, json, tensor, data, data_length));
    else INGOT_TRY(ingot_json_skip(json));
  }
}

static ingot_status_t sort_tensors(ingot_safetensors_t *file) {
  if (file->count > 0) qsort(file->tensors, file->count, sizeof(tensor_t), compare_tensors);
  for (uint32_t i = 0; i < file->count; ++i) {
    file->tensors[i].span.dims = file->tensors[i].dims; /* they stay where they are now */
    if (i > 0 && compare_tensors(&file->tensors[i - 1], &file->tensors[i]) == 0) {
      return file_refuse(file, "it comes twice", file->tensors[i].key);
    }
  }
  return NULL;
}

static ingot_status_t read_shard(ingot_safetensors_t *file, uint32_t shard) {
  const ingot_allocator_t *allocator = &file->instance->allocator;
  const ingot_file_t *bytes = &file->shards[shard].file;
  uint64_t header_length = 0;
  size_t prefix = sizeof(header_length);
  if (bytes->length >= prefix) memcpy(&header_length, bytes->data, prefix);
  if (bytes->length < prefix || header_length > MAX_HEADER ||
      header_length > bytes->length - prefix) {
    return ingot_status_create(allocator, INGOT_STATUS_DATA_LOSS,
                               "the file has %zu bytes, which do not hold a header of %" PRIu64
                               ": it is cut or no safetensors file",
                               bytes->length, header_length);
  }
  ingot_json_t json = {allocator, bytes->data + prefix, (size_t)header_length, 0};
  size_t data_offset = prefix + (size_t)header_length;
  return read_header(file, &json, shard, bytes->data + data_offset, bytes->length - data_offset);
}

static ingot_status_t open_shard(ingot_safetensors_t *file, uint32_t shard, const char *path) {
  INGOT_TRY(ingot_file_open(&file->instance->allocator, path, NULL, &file->shards[shard].file));
  return ingot_status_prefix(read_shard(file, shard), "safetensors '%s'", path);
}

static ingot_status_t add_shard(ingot_safetensors_t *file, const char *name) {
  const ingot_allocator_t *allocator = &file->instance->allocator;
  void *shards = file->shards;
  INGOT_TRY(
      ingot_reallocate_array(allocator, (size_t)file->shard_count + 1, sizeof(shard_t), &shards));
  file->shards = shards;
  shard_t *shard = &file->shards[file->shard_count];
  memset(shard, 0, sizeof(*shard));
  if (name) INGOT_TRY(ingot_allocate_string(allocator, name, &shard->name));
  ++file->shard_count;
  return NULL;
}

/* -- index ------------------------------------------------------------------------------------- */

/* The tensors of a weight map, with their shards. */
static ingot_status_t read_map(ingot_safetensors_t *file, ingot_json_t *json) {
  char key[MAX_KEY];
  char name[MAX_KEY];
  bool more = true;
  INGOT_TRY(ingot_json_expect(json, '{'));
  for (bool first = true;; first = false) {
    tensor_t *tensor = NULL;
    uint32_t shard = 0;
    INGOT_TRY(ingot_json_member(json, first, key, sizeof(key), &more));
    if (!more) return NULL;
    INGOT_TRY(ingot_json_string(json, name, sizeof(name)));
    if (!name[0] || name[strcspn(name, "/\\:")]) {
      return file_refuse(file, "its file is not one beside the index", key);
    }
    while (shard < file->shard_count && strcmp(file->shards[shard].name, name) != 0) ++shard;
    if (shard == file->shard_count) INGOT_TRY(add_shard(file, name));
    INGOT_TRY(add_tensor(file, key, &tensor));
    tensor->shard = shard;
  }
}

static ingot_status_t read_index(ingot_safetensors_t *file, const ingot_file_t *index) {
  const ingot_allocator_t *allocator = &file->instance->allocator;
  ingot_json_t json = {allocator, index->data, index->length, 0};
  char field[MAX_KEY];
  bool more = true;
  INGOT_TRY(ingot_json_expect(&json, '{'));
  for (bool first = true;; first = false) {
    INGOT_TRY(ingot_json_member(&json, first, field, sizeof(field), &more));
    if (!more) break;
    if (strcmp(field, "weight_map") != 0) INGOT_TRY(ingot_json_skip(&json));
    else INGOT_TRY(read_map(file, &json));
  }
  INGOT_TRY(ingot_json_end(&json));
  if (file->count > 0) return sort_tensors(file);
  return ingot_status_create(allocator, INGOT_STATUS_DATA_LOSS,
                             "it has no map of tensors to files");
}

/* The shards, which lie in the folder of the index at `path`. */
static ingot_status_t open_shards(ingot_safetensors_t *file, const char *path) {
  const ingot_allocator_t *allocator = &file->instance->allocator;
  const char *slash = strrchr(path, '/');
  size_t folder_length = slash ? (size_t)(slash - path) + 1 : 0;
  void *shard_path = NULL;
  INGOT_TRY(ingot_allocate(allocator, folder_length + MAX_KEY, &shard_path));
  memcpy(shard_path, path, folder_length);
  ingot_status_t status = NULL;
  for (uint32_t i = 0; !status && i < file->shard_count; ++i) {
    const char *name = file->shards[i].name;
    memcpy((char *)shard_path + folder_length, name, strlen(name) + 1);
    status = open_shard(file, i, shard_path);
  }
  ingot_release_memory(allocator, shard_path);
  for (uint32_t i = 0; !status && i < file->count; ++i) {
    const tensor_t *tensor = &file->tensors[i];
    if (tensor->is_placed) continue;
    status = ingot_status_create(allocator, INGOT_STATUS_DATA_LOSS,
                                 "tensor '%s' is not in '%s', where the index has it", tensor->key,
                                 file->shards[tensor->shard].name);
  }
  return status;
}

static ingot_status_t open_index(ingot_safetensors_t *file, const char *path) {
  const ingot_allocator_t *allocator = &file->instance->allocator;
  ingot_file_t index;
  INGOT_TRY(ingot_file_open(allocator, path, NULL, &index));
  file->has_index = true;
  ingot_status_t status = read_index(file, &index);
  ingot_file_close(allocator, &index);
  if (!status) status = open_shards(file, path);
  return ingot_status_prefix(status, "index '%s'", path);
}

static ingot_status_t open_alone(ingot_safetensors_t *file, const char *path) {
  INGOT_TRY(add_shard(file, NULL));
  INGOT_TRY(open_shard(file, 0, path));
  return ingot_status_prefix(sort_tensors(file), "safetensors '%s'", path);
}

/* -- the API ----------------------------------------------------------------------------------- */

ingot_status_t ingot_safetensors_open(ingot_instance_t *instance, const char *path,
                                      ingot_safetensors_t **out_file) {
  void *memory = NULL;
  INGOT_TRY(ingot_allocate(&instance->allocator, sizeof(ingot_safetensors_t), &memory));
  ingot_safetensors_t *file = memory;
  ingot_hal_instance_retain(instance);
  file->instance = instance;
  size_t length = strlen(path);
  bool is_index = length > 5 && strcmp(path + length - 5, ".json") == 0;
  ingot_status_t status = is_index ? open_index(file, path) : open_alone(file, path);
  if (status) {
    ingot_safetensors_close(file);
    return status;
  }
  *out_file = file;
  return NULL;
}

void ingot_safetensors_close(ingot_safetensors_t *file) {
  if (!file) return;
  ingot_instance_t *instance = file->instance;
  for (uint32_t i = 0; i < file->count; ++i) {
    ingot_release_memory(&instance->allocator, file->tensors[i].key);
  }
  ingot_release_memory(&instance->allocator, file->tensors);
  for (uint32_t i = 0; i < file->shard_count; ++i) {
    ingot_release_memory(&instance->allocator, file->shards[i].name);
    if (file->shards[i].file.data) {
      ingot_file_close(&instance->allocator, &file->shards[i].file);
    }
  }
  ingot_release_memory(&instance->allocator, file->shards);
  ingot_release_memory(&instance->allocator, file);
  ingot_hal_instance_release(instance);
}

static ingot_status_t find_span(void *user, const char *scope, const char *key,
                                ingot_parameter_span_t *out_span) {
  const ingot_safetensors_t *file = user;
  const tensor_t *tensor = find_tensor(file, key);
  (void)scope; /* one file answers all */
  if (!tensor) {
    return ingot_status_create(&file->instance->allocator, INGOT_STATUS_NOT_FOUND,
                               "there is no tensor '%s'", key);
  }
  *out_span = tensor->span;
  if (tensor->span.dtype != 0) return NULL;
  return ingot_status_create(&file->instance->allocator, INGOT_STATUS_UNSUPPORTED,
                             "tensor '%s' has dtype '%s', which this runtime does not know", key,
                             tensor->dtype_text);
}

ingot_parameters_t ingot_safetensors_parameters(ingot_safetensors_t *file) {
  return (ingot_parameters_t){file, find_span};
}

#endif /* INGOT_NO_FILES */
