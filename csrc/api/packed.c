/* Packed weights: what init made of parameters, in a file that programs map instead of making it
 * again.
 *
 * A header; the header and section table of the module that they belong to, which have the crcs of
 * its sections; a row for each global; and the bytes of each on a page of their own. A file is
 * written by the process that made the weights and read by others on the same kind of machine.
 */
#include "platform/platform.h"

#if !defined(INGOT_NO_FILES)
#include <inttypes.h>
#include <string.h>

#include "api/program.h"
#include "base/arithmetic.h"
#include "base/crc32.h"
#include "hal/account.h"

#define PACKED_MAGIC "INGOTPW\x1a"
#define PACKED_VERSION 1
#define PAGE 4096u

typedef struct packed_header_t {
  uint8_t magic[8];
  uint32_t version;
  uint32_t crc; /* of all bytes before `data_offset`, with this field 0 */
  uint64_t file_length;
  uint64_t data_offset;
  uint32_t table_length; /* bytes of the module that follow this header */
  uint32_t row_count;    /* rows follow these */
  uint32_t data_crc;     /* of the bytes of all rows in their order */
  uint32_t reserved[3];
} packed_header_t;

typedef struct packed_row_t {
  uint32_t global; /* of the module */
  uint32_t reserved;
  uint64_t offset; /* in the file */
  uint64_t length;
} packed_row_t;

_Static_assert(sizeof(packed_header_t) == 56 && sizeof(packed_row_t) == 24, "part of the format");

/* The header and section table of a module: what tells it from others. */
static uint32_t table_length(const ingot_module_t *module) {
  const ingot_layout_header_t *header = (const void *)module->data;
  return (uint32_t)(sizeof(*header) + header->section_count * sizeof(ingot_layout_section_t));
}

static uint64_t on_page(uint64_t offset) { return (offset + PAGE - 1) / PAGE * PAGE; }

/* -- reading ----------------------------------------------------------------------------------- */

/* A mapped file, kept by the buffers of its globals. */
typedef struct packed_file_t {
  ingot_reference_count_t references;
  const ingot_allocator_t *allocator;
  ingot_file_t file;
} packed_file_t;

static void release_file(void *user, void *data) {
  packed_file_t *file = user;
  (void)data;
  if (!ingot_reference_count_release(&file->references)) return;
  if (file->file.data) ingot_file_close(file->allocator, &file->file);
  ingot_release_memory(file->allocator, file);
}

static void choose_data(const uint8_t *head, size_t length, uint64_t *begin, uint64_t *end) {
  packed_header_t header;
  if (length < sizeof(header)) return;
  memcpy(&header, head, sizeof(header));
  if (memcmp(header.magic, PACKED_MAGIC, sizeof(header.magic)) != 0) return;
  *begin = header.data_offset;
  *end = header.file_length;
}

static uint32_t head_crc(const uint8_t *data, uint64_t length) {
  packed_header_t header;
  memcpy(&header, data, sizeof(header));
  header.crc = 0;
  uint32_t crc = ingot_crc32(0, &header, sizeof(header));
  return ingot_crc32(crc, data + sizeof(header), (size_t)length - sizeof(header));
}

/* NULL for a file whose header, rows and length are right. */
static const char *find_damage(const ingot_file_t *file, const packed_header_t *header) {
  if (header->version != PACKED_VERSION) return "are of another version of the runtime";
  if (header->file_length != file->length) return "are cut, or longer than they say";
  uint64_t rows = (uint64_t)header->row_count * sizeof(packed_row_t);
  if (header->data_offset > file->length ||
      sizeof(*header) + header->table_length + rows > header->data_offset ||
      head_crc(file->data, header->data_offset) != header->crc) {
    return "are damaged";
  }
  return NULL;
}

static ingot_status_t refuse(const ingot_program_t *program, ingot_status_code_t code,
                             const char *what) {
  return ingot_status_create(ingot_program_allocator(program), code,
                             "packed weights %s; pack them again", what);
}

static ingot_status_t set_row(const ingot_program_t *program, const ingot_vm_image_t *image,
                              packed_file_t *file, const packed_row_t *row,
                              ingot_vm_weights_t *weights) {
  ingot_buffer_t *buffer = NULL;
  bool fits = row->global < image->module->global_count && row->offset % PAGE == 0 &&
              ingot_range_fits_u64(row->offset, row->length, file->file.length);
  if (!fits) return refuse(program, INGOT_STATUS_DATA_LOSS, "are damaged");
  void *data = (void *)(uintptr_t)(file->file.data + row->offset);
  INGOT_TRY(ingot_hal_buffer_wrap(image->device, data, (int64_t)row->length, INGOT_HAL_ACCESS_READ,
                                  release_file, file, &buffer));
  ingot_reference_count_retain(&file->references);
  ingot_status_t status = ingot_hal_account_add(image->account, INGOT_MEMORY_WEIGHTS, buffer);
  if (status) {
    ingot_hal_buffer_release(buffer);
    return status;
  }
  ingot_vm_weights_set(weights, image->first_global + row->global, buffer);
  return NULL;
}

static ingot_status_t set_rows(const ingot_program_t *program, packed_file_t *file, bool verify,
                               ingot_vm_weights_t *weights) {
  const uint8_t *data = file->file.data;
  packed_header_t header = {.version = 0};
  if (file->file.length >= sizeof(header)) memcpy(&header, data, sizeof(header));
  if (memcmp(header.magic, PACKED_MAGIC, sizeof(header.magic)) != 0) {
    return refuse(program, INGOT_STATUS_INVALID_ARGUMENT,
                  "were expected, and this is another file");
  }
  const char *damage = find_damage(&file->file, &header);
  if (damage) return refuse(program, INGOT_STATUS_DATA_LOSS, damage);
  const ingot_vm_image_t *image = NULL;
  for (uint32_t i = 0; i < program->image_count; ++i) {
    const ingot_module_t *module = program->images[i].module;
    if (table_length(module) != header.table_length) continue;
    if (memcmp(module->data, data + sizeof(header), header.table_length) == 0) {
      image = &program->images[i];
    }
  }
  if (!image) {
    return refuse(program, INGOT_STATUS_INVALID_ARGUMENT,
                  "belong to another module, or to another build of it");
  }
  uint32_t crc = 0;
  for (uint32_t r = 0; r < header.row_count; ++r) {
    packed_row_t row;
    memcpy(&row, data + sizeof(header) + header.table_length + r * sizeof(row), sizeof(row));
    INGOT_TRY(set_row(program, image, file, &row, weights));
    if (verify) crc = ingot_crc32(crc, data + row.offset, (size_t)row.length);
  }
  if (!verify || crc == header.data_crc) return NULL;
  return refuse(program, INGOT_STATUS_DATA_LOSS, "are damaged");
}

ingot_status_t ingot_program_open_packed(const ingot_program_t *program, const char *path,
                                         bool verify, ingot_vm_weights_t *weights) {
  const ingot_allocator_t *allocator = ingot_program_allocator(program);
  void *memory = NULL;
  INGOT_TRY(ingot_allocate(allocator, sizeof(packed_file_t), &memory));
  packed_file_t *file = memory;
  ingot_reference_count_initialize(&file->references);
  file->allocator = allocator;
  ingot_status_t status = ingot_file_open(allocator, path, choose_data, &file->file);
  if (!status) {
    status = ingot_status_prefix(set_rows(program, file, verify, weights), "'%s'", path);
  }
  release_file(file, NULL);
  return status;
}

/* -- writing ----------------------------------------------------------------------------------- */

typedef struct packing_t {
  const ingot_vm_image_t *image;
  const ingot_vm_weights_t *weights;
  bool *wanted; /* per global of the image */
  ingot_write_function_t write;
  void *user;
  uint64_t written;
} packing_t;

static ingot_status_t write_bytes(packing_t *packing, const void *data, size_t length) {
  packing->written += length;
  if (packing->write(packing->user, data, length)) return NULL;
  return ingot_status_create(packing->weights->allocator, INGOT_STATUS_CANCELLED,
                             "the packed weights could not be written");
}

/* Zeros up to a page. */
static ingot_status_t write_padding(packing_t *packing) {
  const uint8_t zeros[64] = {0};
  uint64_t left = on_page(packing->written) - packing->written;
  for (; left > sizeof(zeros); left -= sizeof(zeros)) {
    INGOT_TRY(write_bytes(packing, zeros, sizeof(zeros)));
  }
  return write_bytes(packing, zeros, (size_t)left);
}

/* The crc of a global, continued, or its bytes. */
static ingot_status_t visit_global(packing_t *packing, uint32_t global, uint32_t *crc) {
  ingot_buffer_t *buffer = packing->weights->globals[packing->image->first_global + global];
  ingot_status_t status = NULL;
  void *data = NULL;
  INGOT_TRY(ingot_hal_buffer_map(buffer, 0, buffer->length, INGOT_HAL_ACCESS_READ, &data));
  if (crc) *crc = ingot_crc32(*crc, data, (size_t)buffer->length);
  else status = write_bytes(packing, data, (size_t)buffer->length);
  ingot_hal_buffer_unmap(buffer, data);
  return status;
}

/* Header, module table and rows, as they stand in the file, in `head`. */
static ingot_status_t fill_head(packing_t *packing, uint8_t *head, uint32_t row_count) {
  const ingot_module_t *module = packing->image->module;
  packed_header_t header = {.version = PACKED_VERSION, .table_length = table_length(module)};
  uint64_t at = sizeof(header) + header.table_length;
  header.data_offset = on_page(at + row_count * sizeof(packed_row_t));
  header.row_count = row_count;
  memcpy(header.magic, PACKED_MAGIC, sizeof(header.magic));
  memcpy(head + sizeof(header), module->data, header.table_length);
  uint64_t end = header.data_offset;
  for (uint32_t g = 0; g < module->global_count; ++g) {
    if (!packing->wanted[g]) continue;
    const ingot_buffer_t *buffer = packing->weights->globals[packing->image->first_global + g];
    const packed_row_t row = {g, 0, on_page(end), (uint64_t)buffer->length};
    memcpy(head + at, &row, sizeof(row));
    at += sizeof(row);
    end = row.offset + row.length;
    INGOT_TRY(visit_global(packing, g, &header.data_crc));
  }
  header.file_length = end;
  memcpy(head, &header, sizeof(header));
  header.crc = head_crc(head, header.data_offset);
  memcpy(head, &header, sizeof(header));
  return NULL;
}

static ingot_status_t write_packed(packing_t *packing) {
  const ingot_module_t *module = packing->image->module;
  const ingot_allocator_t *allocator = packing->weights->allocator;
  uint32_t row_count = 0;
  for (uint32_t g = 0; g < module->global_count; ++g) row_count += packing->wanted[g];
  void *head = NULL;
  uint64_t length =
      on_page(sizeof(packed_header_t) + table_length(module) + row_count * sizeof(packed_row_t));
  INGOT_TRY(ingot_allocate(allocator, (size_t)length, &head));
  ingot_status_t status = fill_head(packing, head, row_count);
  if (!status) status = write_bytes(packing, head, (size_t)length);
  ingot_release_memory(allocator, head);
  for (uint32_t g = 0; !status && g < module->global_count; ++g) {
    if (!packing->wanted[g]) continue;
    status = write_padding(packing);
    if (!status) status = visit_global(packing, g, NULL);
  }
  return status;
}

/* Marks the globals of functions that read `scope`; all with NULL. Adds whether any does to
 * `found`. */
static ingot_status_t choose_globals(packing_t *packing, const char *scope, bool *found) {
  const ingot_module_t *module = packing->image->module;
  void *marks = NULL;
  size_t count = (size_t)module->parameter_count + module->global_count;
  INGOT_TRY(ingot_allocate_array(packing->weights->allocator, count, sizeof(bool), &marks));
  bool *reads = marks;
  bool *sets = reads + module->parameter_count;
  for (uint32_t f = 0; f < module->function_count; ++f) {
    const ingot_layout_function_t *function = &module->functions[f];
    if (!ingot_vm_image_is_init(packing->image, function)) continue;
    memset(marks, 0, count);
    ingot_vm_init_scan(module, function, reads, sets);
    if (scope && !ingot_program_reads_scope(module, reads, scope)) continue;
    *found = true;
    /* One may be set on a condition only. */
    ingot_buffer_t *const *made = &packing->weights->globals[packing->image->first_global];
    for (uint32_t g = 0; g < module->global_count; ++g) packing->wanted[g] |= sets[g] && made[g];
  }
  ingot_release_memory(packing->weights->allocator, marks);
  return NULL;
}

static ingot_status_t save_weights(const ingot_program_t *program, packing_t *packing,
                                   const char *scope) {
  const ingot_allocator_t *allocator = packing->weights->allocator;
  void *wanted = NULL;
  INGOT_TRY(ingot_allocate(allocator, packing->image->module->global_count, &wanted));
  packing->wanted = wanted;
  bool found = !scope;
  ingot_status_t status = choose_globals(packing, scope, &found);
  if (!status && !found) status = ingot_program_refuse_scope(program, scope);
  if (!status) status = write_packed(packing);
  ingot_release_memory(allocator, wanted);
  return status;
}

ingot_status_t ingot_program_save_weights(ingot_program_t *program, const ingot_module_t *module,
                                          const char *scope, ingot_write_function_t write,
                                          void *user) {
  packing_t packing = {.write = write, .user = user};
  for (uint32_t i = 0; i < program->image_count; ++i) {
    if (program->images[i].module == module) packing.image = &program->images[i];
  }
  if (!packing.image) {
    return ingot_status_create(ingot_program_allocator(program), INGOT_STATUS_INVALID_ARGUMENT,
                               "the program was not made from this module");
  }
  ingot_vm_weights_t *weights = ingot_program_hold_weights(program);
  packing.weights = weights;
  ingot_status_t status = save_weights(program, &packing, scope);
  ingot_vm_weights_release(weights);
  return status;
}

#endif /* INGOT_NO_FILES */
