/* The container of a module file: header, section table, padding and crcs. What is inside
 * the sections is checked by tables.c and verify.c.
 */
#include <string.h>

#include "base/arithmetic.h"
#include "base/crc32.h"
#include "base/lz4.h"
#include "module/module.h"

#define MAX_SECTIONS 256u
#define MAX_GLOBALS 65536u /* operands are u16 */

_Static_assert(sizeof(ingot_layout_header_t) == 64, "the header is part of the format");
_Static_assert(sizeof(ingot_layout_section_t) == 24, "the section table is part of the format");

static ingot_status_t check_header(const ingot_module_t *module,
                                   const ingot_layout_header_t *header) {
  if (module->length < sizeof(*header)) {
    return ingot_module_damaged(module, "it has %zu bytes, a header alone has %zu", module->length,
                                sizeof(*header));
  }
  if (memcmp(header->magic, INGOT_MODULE_MAGIC, sizeof(header->magic)) != 0) {
    return ingot_module_damaged(module,
                                "this is no Ingot module: it does not start with the "
                                "module magic");
  }
  if (header->version_major < INGOT_MODULE_VERSION_MAJOR_OF_TENSORS ||
      header->version_major > INGOT_MODULE_VERSION_MAJOR) {
    return ingot_status_create(
        &module->instance->allocator, INGOT_STATUS_INCOMPATIBLE,
        "module: its format is version %u.%u, this runtime reads versions %d to %d; compile the "
        "model again or use the runtime that belongs to it",
        header->version_major, header->version_minor, INGOT_MODULE_VERSION_MAJOR_OF_TENSORS,
        INGOT_MODULE_VERSION_MAJOR);
  }
  uint32_t reserved = 0;
  for (size_t i = 0; i < sizeof(header->reserved) / sizeof(*header->reserved); ++i) {
    reserved |= header->reserved[i];
  }
  if (reserved != 0) {
    return ingot_module_damaged(module, "a reserved field of its header is not zero");
  }
  if (header->file_length != module->length) {
    return ingot_module_damaged(module, "it has %zu bytes, its header says %llu", module->length,
                                (unsigned long long)header->file_length);
  }
  size_t room = (module->length - sizeof(*header)) / sizeof(ingot_layout_section_t);
  if (header->section_count > MAX_SECTIONS || header->section_count > room) {
    return ingot_module_damaged(module, "its section table has %u entries, there is room for %zu",
                                header->section_count, room < MAX_SECTIONS ? room : MAX_SECTIONS);
  }
  return NULL;
}

/* The crc of header and section table, with the crc field as zero. */
static uint32_t header_crc(const ingot_module_t *module, size_t length) {
  static const uint8_t zero[sizeof(uint32_t)] = {0};
  size_t field = offsetof(ingot_layout_header_t, crc);
  uint32_t crc = ingot_crc32(0, module->data, field);
  crc = ingot_crc32(crc, zero, sizeof(zero));
  return ingot_crc32(crc, module->data + field + sizeof(zero), length - field - sizeof(zero));
}

/* What has a section table: the file, or the bytes that a section of it holds. */
typedef struct container_t {
  const uint8_t *data;
  uint64_t length;
  const ingot_layout_section_t *sections;
  uint64_t count;
  uint64_t head; /* where the section table ends */
  uint32_t alignment;
} container_t;

static bool is_file(const ingot_module_t *module, const container_t *container) {
  return container->data == module->data;
}

/* Padding between sections is zero and shorter than the alignment. */
static ingot_status_t check_padding(const ingot_module_t *module, const container_t *container,
                                    uint64_t begin, uint64_t end) {
  bool zero = end - begin < container->alignment;
  for (uint64_t i = begin; zero && i < end; ++i) zero = container->data[i] == 0;
  if (zero) return NULL;
  return ingot_module_damaged(module,
                              "bytes %llu to %llu %sbelong to no section and are not zero "
                              "padding",
                              (unsigned long long)begin, (unsigned long long)end,
                              is_file(module, container) ? "" : "of its tables ");
}

static ingot_status_t check_section(const ingot_module_t *module, const container_t *container,
                                    uint32_t ordinal, uint64_t previous_end,
                                    bool verify_constants) {
  const ingot_layout_section_t *section = &container->sections[ordinal];
  if (section->offset % container->alignment != 0 || section->offset < previous_end ||
      !ingot_range_fits_u64(section->offset, section->length, container->length)) {
    return ingot_module_damaged(
        module,
        "section %u (kind %u) leaves the %s, is not on a multiple of %u or overlaps the one "
        "before it",
        ordinal, section->kind, is_file(module, container) ? "file" : "tables",
        container->alignment);
  }
  INGOT_TRY(check_padding(module, container, previous_end, section->offset));
  if (!is_file(module, container)) {
    if (section->kind != INGOT_SECTION_CONSTANTS &&
        section->kind != INGOT_SECTION_COMPRESSED_TABLES && section->crc == 0) {
      return NULL;
    }
    return ingot_module_damaged(module, "section %u (kind %u) cannot be in its tables", ordinal,
                                section->kind);
  }
  if (section->kind == INGOT_SECTION_CONSTANTS && !verify_constants) return NULL;
  uint32_t crc = ingot_crc32(0, container->data + section->offset, (size_t)section->length);
  if (crc != section->crc) {
    return ingot_module_damaged(module,
                                "section %u (kind %u) does not match its crc: the file was "
                                "changed or cut",
                                ordinal, section->kind);
  }
  return NULL;
}

/* Items of a table; DataLoss unless the length is a multiple of an item. */
static ingot_status_t item_count(const ingot_module_t *module,
                                 const ingot_layout_section_t *section, size_t item_length,
                                 uint32_t *out_count) {
  uint64_t count = section->length / item_length;
  if (section->length % item_length != 0 || count > UINT32_MAX) {
    return ingot_module_damaged(module, "section kind %u has %llu bytes, which is no table",
                                section->kind, (unsigned long long)section->length);
  }
  *out_count = (uint32_t)count;
  return NULL;
}

/* Sets the fields of one kind; kinds of later minor versions are skipped. */
static ingot_status_t take_section(ingot_module_t *module, const container_t *container,
                                   const ingot_layout_section_t *section) {
  const void *data = container->data + section->offset;
#define TABLE(field, count_field) \
  module->field = data;           \
  return item_count(module, section, sizeof(*module->field), &module->count_field)
  switch (section->kind) {
    case INGOT_SECTION_STRINGS:
      module->strings = data;
      return item_count(module, section, 1, &module->strings_length);
    case INGOT_SECTION_FUNCTIONS: TABLE(functions, function_count);
    case INGOT_SECTION_VALUES: TABLE(values, value_count);
    case INGOT_SECTION_DIMS: TABLE(dims, dim_count);
    case INGOT_SECTION_PARAMETERS: TABLE(parameters, parameter_count);
    case INGOT_SECTION_EXECUTABLES: TABLE(executables, executable_count);
    case INGOT_SECTION_ENTRIES: TABLE(entries, entry_count);
    case INGOT_SECTION_VARIANTS: TABLE(variants, variant_count);
    case INGOT_SECTION_LOCATIONS: TABLE(locations, location_count);
    case INGOT_SECTION_VARIABLES: TABLE(variables, variable_count);
    case INGOT_SECTION_NATIVES: TABLE(natives, native_count);
    case INGOT_SECTION_VERSIONS: TABLE(versions, version_count);
    case INGOT_SECTION_CODE:
      module->code = data;
      module->code_length = section->length / sizeof(uint16_t);
      return NULL;
    case INGOT_SECTION_CONSTANTS:
      module->constants = data;
      module->constants_length = section->length;
      return NULL;
    case INGOT_SECTION_OBJECTS:
      module->objects = data;
      module->objects_length = section->length;
      return NULL;
    case INGOT_SECTION_REGIONS: module->regions_length = section->length; return NULL;
    case INGOT_SECTION_COMPRESSED_REGIONS: /* only tools decompress them */
      if (section->length >= sizeof(module->regions_length)) {
        memcpy(&module->regions_length, data, sizeof(module->regions_length));
      }
      return NULL;
    case INGOT_SECTION_METADATA:
      module->metadata = data;
      module->metadata_length = section->length;
      return NULL;
    default: return NULL;
  }
#undef TABLE
}

/* Smaller constants are read: then the file may change, or be cut. */
#define MAPPED_CONSTANTS (UINT64_C(1) << 20)

void ingot_module_choose_constants(const uint8_t *head, size_t length, uint64_t *begin,
                                   uint64_t *end) {
  const ingot_layout_header_t *header = (const void *)head;
  const ingot_layout_section_t *sections = (const void *)(header + 1);
  for (uint32_t i = 0;
       length >= (size_t)((const uint8_t *)(sections + i + 1) - head) && i < header->section_count;
       ++i) {
    uint64_t section_end = 0;
    if (sections[i].kind != INGOT_SECTION_CONSTANTS || sections[i].length < MAPPED_CONSTANTS ||
        !ingot_add_u64(sections[i].offset, sections[i].length, &section_end)) {
      continue;
    }
    *begin = sections[i].offset;
    *end = section_end;
  }
}

static ingot_status_t take_sections(ingot_module_t *module, const container_t *container,
                                    bool verify_constants, uint32_t *seen);

#if !defined(INGOT_ONLY_MODULE)
/* Decompresses tables, and takes what they are. */
static ingot_status_t take_tables(ingot_module_t *module, const ingot_layout_section_t *section,
                                  uint32_t *seen) {
  const uint8_t *packed = module->data + section->offset;
  const size_t packed_length = (size_t)section->length;
  size_t length = 0;
  bool is_whole = ingot_lz4_length(packed, packed_length, &length) && length >= sizeof(uint64_t);
  if (is_whole) {
    INGOT_TRY(ingot_allocate(&module->instance->allocator, length, &module->tables));
    is_whole = ingot_lz4_decompress(packed + sizeof(uint64_t), packed_length - sizeof(uint64_t),
                                    module->tables, length, 0);
  }
  if (!is_whole) {
    return ingot_module_damaged(module, "its compressed tables of %zu bytes are no block of LZ4",
                                packed_length);
  }
  const uint64_t count = *(const uint64_t *)module->tables;
  const uint64_t room = (length - sizeof(count)) / sizeof(ingot_layout_section_t);
  if (count > MAX_SECTIONS || count > room) {
    return ingot_module_damaged(module, "its tables are %llu, there is room for %llu",
                                (unsigned long long)count,
                                (unsigned long long)(room < MAX_SECTIONS ? room : MAX_SECTIONS));
  }
  const container_t container = {
      .data = module->tables,
      .length = length,
      .sections = (const void *)((const uint8_t *)module->tables + sizeof(count)),
      .count = count,
      .head = sizeof(count) + count * sizeof(ingot_layout_section_t),
      .alignment = sizeof(uint64_t),
  };
  return take_sections(module, &container, false, seen);
}
#endif

/* Checks and takes all sections. `seen`: bit per known kind. */
static ingot_status_t take_sections(ingot_module_t *module, const container_t *container,
                                    bool verify_constants, uint32_t *seen) {
  uint64_t end = container->head;
  for (uint32_t i = 0; i < container->count; ++i) {
    const ingot_layout_section_t *section = &container->sections[i];
    INGOT_TRY(check_section(module, container, i, end, verify_constants));
    end = section->offset + section->length;
    uint32_t bit = section->kind <= INGOT_SECTION_COMPRESSED_TABLES ? 1u << section->kind : 0;
    if (*seen & bit) {
      return ingot_module_damaged(module, "it has two sections of kind %u", section->kind);
    }
    *seen |= bit;
    INGOT_TRY(take_section(module, container, section));
#if !defined(INGOT_ONLY_MODULE)
    if (section->kind == INGOT_SECTION_COMPRESSED_TABLES) {
      INGOT_TRY(take_tables(module, section, seen));
    }
#endif
  }
  return check_padding(module, container, end, container->length);
}

ingot_status_t ingot_module_open_sections(ingot_module_t *module, bool verify_constants) {
  const ingot_layout_header_t *header = (const ingot_layout_header_t *)(const void *)module->data;
  INGOT_TRY(check_header(module, header));
  const ingot_layout_section_t *sections =
      (const ingot_layout_section_t *)(const void *)(header + 1);
  size_t head = sizeof(*header) + header->section_count * sizeof(*sections);
  if (header_crc(module, head) != header->crc) {
    return ingot_module_damaged(module,
                                "header and section table do not match their crc: the "
                                "file was changed or cut");
  }
  const container_t file = {.data = module->data,
                            .length = module->length,
                            .sections = sections,
                            .count = header->section_count,
                            .head = head,
                            .alignment = INGOT_MODULE_ALIGNMENT};
  uint32_t seen = 0;
  INGOT_TRY(take_sections(module, &file, verify_constants, &seen));
  if (header->global_count > MAX_GLOBALS) {
    return ingot_module_damaged(module, "it has %u globals, expected at most %u",
                                header->global_count, MAX_GLOBALS);
  }
  module->global_count = header->global_count;
  /* What has no tensors or no bytes has a place in these too: it must be an address. */
  if (!module->strings) {
    module->strings = "";
    module->strings_length = 1;
  }
  if (!module->values) module->values = (const void *)module->data;
  if (!module->dims) module->dims = (const void *)module->data;
  if (!module->objects) module->objects = module->data;
  return NULL;
}
