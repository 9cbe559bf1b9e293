/* The ELF loader: read program headers, copy segments, relocate, look up, protect.
 *
 * Two rules make it safe on any bytes: the file is only read through ingot_elf_file_read,
 * the image only through ingot_elf_at, and both check bounds. Everything that the dynamic
 * section points to is read from the image, after its segments were copied.
 */
#include "hal/cpu/elf.h"

#if defined(INGOT_LOADS_ELF)

#include <string.h>

#include "base/arithmetic.h"
#include "hal/cpu/elf_format.h"
#include "platform/platform.h"

#define INGOT_ELF_MAX_IMAGE (UINT64_C(1) << 30) /* bytes in memory */

/* What the dynamic section says; addresses in the image, 0 if absent. */
typedef struct ingot_elf_dynamic_t {
  uint64_t symbols;
  uint64_t strings;
  uint64_t strings_length;
  uint64_t relocations;
  uint64_t relocations_length;
  uint64_t hash;
  uint64_t gnu_hash;
} ingot_elf_dynamic_t;

/* One object on its way into memory. */
typedef struct ingot_elf_loader_t {
  const ingot_allocator_t *allocator;
  const uint8_t *file;
  size_t file_length;
  const char *function;
  uint64_t first_address; /* of the image, as the file counts: page-aligned */
  uint64_t page;
  uint64_t dynamic_address;
  uint64_t dynamic_length;
  uint64_t read_only_address; /* INGOT_ELF_SEGMENT_RELRO */
  uint64_t read_only_length;
  ingot_elf_dynamic_t dynamic;
  ingot_elf_image_t image;
} ingot_elf_loader_t;

static ingot_status_t ingot_elf_damaged(const ingot_elf_loader_t *loader, const char *what) {
  return ingot_status_create(loader->allocator, INGOT_STATUS_DATA_LOSS,
                             "the object of %zu bytes is damaged: %s", loader->file_length, what);
}

static ingot_status_t ingot_elf_refused(const ingot_elf_loader_t *loader, const char *what,
                                        const char *name) {
  return ingot_status_create(loader->allocator, INGOT_STATUS_UNSUPPORTED,
                             "the object %s%s%s%s: kernels must stand alone; compile and link "
                             "them without",
                             what, name[0] ? " '" : "", name, name[0] ? "'" : "");
}

static bool ingot_elf_file_read(const ingot_elf_loader_t *loader, uint64_t offset, void *out,
                                size_t length) {
  if (!ingot_range_fits_u64(offset, length, loader->file_length)) return false;
  memcpy(out, loader->file + offset, length);
  return true;
}

/* The bytes of the file's address range in the image; NULL if it is not all in there. */
static uint8_t *ingot_elf_at(const ingot_elf_loader_t *loader, uint64_t address, uint64_t length) {
  if (address < loader->first_address) return NULL;
  uint64_t offset = address - loader->first_address;
  if (!ingot_range_fits_u64(offset, length, loader->image.length)) return NULL;
  return loader->image.base + offset;
}

static bool ingot_elf_read_u32(const ingot_elf_loader_t *loader, uint64_t address, uint32_t *out) {
  const uint8_t *bytes = ingot_elf_at(loader, address, sizeof(*out));
  if (bytes) memcpy(out, bytes, sizeof(*out));
  return bytes != NULL;
}

/* Entry `index` of a table in the image. */
static bool ingot_elf_read_item(const ingot_elf_loader_t *loader, uint64_t table, uint64_t index,
                                void *out, size_t length) {
  uint64_t address;
  if (!ingot_multiply_u64(index, length, &address) || !ingot_add_u64(address, table, &address)) {
    return false;
  }
  const uint8_t *bytes = ingot_elf_at(loader, address, length);
  if (bytes) memcpy(out, bytes, length);
  return bytes != NULL;
}

static ingot_status_t ingot_elf_check_header(const ingot_elf_loader_t *loader,
                                             ingot_elf_header_t *header) {
  if (!ingot_elf_file_read(loader, 0, header, sizeof(*header))) {
    return ingot_elf_damaged(loader, "it is shorter than an ELF header");
  }
  if (memcmp(header->magic, "\177ELF", 4) != 0) {
    return ingot_elf_damaged(loader, "it does not start with the ELF magic");
  }
  if (header->bits != INGOT_ELF_BITS / 32 || header->endian != 1 ||
      header->machine != INGOT_ELF_MACHINE) {
    return ingot_status_create(loader->allocator, INGOT_STATUS_INCOMPATIBLE,
                               "the object is for ELF machine %u, expected %u (%d-bit, "
                               "little-endian): compile for this machine",
                               header->machine, INGOT_ELF_MACHINE, INGOT_ELF_BITS);
  }
  if (header->type != INGOT_ELF_TYPE_SHARED ||
      header->segment_length != sizeof(ingot_elf_program_header_t)) {
    return ingot_elf_damaged(loader, "it is not a shared object");
  }
  return NULL;
}

/* Checks a INGOT_ELF_SEGMENT_LOAD header and appends it to the segments, whose addresses are still the
 * file's here. Segments ascend and never share a page, so each can be protected alone. */
static ingot_status_t ingot_elf_add_segment(ingot_elf_loader_t *loader,
                                            const ingot_elf_program_header_t *header) {
  ingot_elf_image_t *image = &loader->image;
  uint64_t end;
  if (image->segment_count == INGOT_ELF_MAX_SEGMENTS) {
    return ingot_elf_damaged(loader, "it has too many segments");
  }
  if (!ingot_range_fits_u64(header->offset, header->file_length, loader->file_length) ||
      header->file_length > header->memory_length) {
    return ingot_elf_damaged(loader, "a segment lies outside of it");
  }
  if (header->memory_length == 0) return NULL;
  if (!ingot_add_u64(header->address, header->memory_length, &end) || end > INGOT_ELF_MAX_IMAGE) {
    return ingot_elf_damaged(loader, "a segment's address is too large");
  }
  if ((header->flags & INGOT_PAGES_WRITE) && (header->flags & INGOT_PAGES_EXECUTE)) {
    return ingot_elf_refused(loader, "has a segment that is writable and executable", "");
  }
  uint64_t first_page = header->address & ~(loader->page - 1);
  if (image->segment_count == 0) {
    loader->first_address = first_page;
  } else {
    const ingot_elf_segment_t *previous = &image->segments[image->segment_count - 1];
    if (first_page < previous->address + previous->length) {
      return ingot_elf_damaged(loader,
                               "its segments overlap or share a page; link it with "
                               "-z max-page-size=65536");
    }
  }
  image->segments[image->segment_count++] =
      (ingot_elf_segment_t){header->address, header->memory_length, header->flags};
  image->length =
      (size_t)((end + loader->page - 1) & ~(loader->page - 1)) - (size_t)loader->first_address;
  return NULL;
}

static ingot_status_t ingot_elf_read_segments(ingot_elf_loader_t *loader,
                                              const ingot_elf_header_t *header) {
  for (uint32_t p = 0; p < header->segment_count; p++) {
    ingot_elf_program_header_t segment;
    uint64_t offset;
    if (!ingot_add_u64(header->segments, p * sizeof(segment), &offset) ||
        !ingot_elf_file_read(loader, offset, &segment, sizeof(segment))) {
      return ingot_elf_damaged(loader, "its program headers lie outside of it");
    }
    if (segment.type == INGOT_ELF_SEGMENT_LOAD) {
      INGOT_TRY(ingot_elf_add_segment(loader, &segment));
    } else if (segment.type == INGOT_ELF_SEGMENT_DYNAMIC) {
      loader->dynamic_address = segment.address;
      loader->dynamic_length = segment.memory_length;
    } else if (segment.type == INGOT_ELF_SEGMENT_RELRO) {
      loader->read_only_address = segment.address;
      loader->read_only_length = segment.memory_length;
    } else if (segment.type == INGOT_ELF_SEGMENT_TLS) {
      return ingot_elf_refused(loader, "uses thread-local storage", "");
    } else if (segment.type == INGOT_ELF_SEGMENT_INTERPRETER) {
      return ingot_elf_refused(loader, "is a program", "");
    }
  }
  if (loader->image.segment_count == 0 || loader->dynamic_length == 0) {
    return ingot_elf_damaged(loader, "it has nothing to load or no dynamic section");
  }
  return NULL;
}

/* Maps the image and copies the segments; from here on `image.base` is set. */
static ingot_status_t ingot_elf_map(ingot_elf_loader_t *loader, const ingot_elf_header_t *header) {
  ingot_elf_image_t *image = &loader->image;
  void *base = ingot_pages_create(image->length);
  if (!base) return ingot_status_out_of_memory();
  image->base = base;
  for (uint32_t p = 0; p < header->segment_count; p++) {
    ingot_elf_program_header_t segment;
    (void)ingot_elf_file_read(loader, header->segments + p * sizeof(segment), &segment,
                              sizeof(segment));
    if (segment.type != INGOT_ELF_SEGMENT_LOAD || segment.file_length == 0) continue;
    memcpy(image->base + (segment.address - loader->first_address), loader->file + segment.offset,
           (size_t)segment.file_length);
  }
  for (uint32_t s = 0; s < image->segment_count; s++) {
    image->segments[s].address -= loader->first_address;
  }
  return NULL;
}

/* The string at `offset` of the string table, "?" if it is not properly in the image. */
static const char *ingot_elf_string(const ingot_elf_loader_t *loader, uint64_t offset) {
  const ingot_elf_dynamic_t *dynamic = &loader->dynamic;
  if (offset >= dynamic->strings_length) return "?";
  const uint8_t *strings = ingot_elf_at(loader, dynamic->strings, dynamic->strings_length);
  if (!strings || !memchr(strings + offset, 0, (size_t)(dynamic->strings_length - offset))) {
    return "?";
  }
  return (const char *)strings + offset;
}

/* One entry of the dynamic section; tags that do not matter to kernels are skipped. */
static ingot_status_t ingot_elf_read_tag(ingot_elf_loader_t *loader, uint64_t tag, uint64_t value) {
  ingot_elf_dynamic_t *dynamic = &loader->dynamic;
  switch (tag) {
    case INGOT_ELF_DYNAMIC_SYMTAB: dynamic->symbols = value; return NULL;
    case INGOT_ELF_DYNAMIC_STRTAB: dynamic->strings = value; return NULL;
    case INGOT_ELF_DYNAMIC_STRSZ: dynamic->strings_length = value; return NULL;
    case INGOT_ELF_DYNAMIC_RELOCATIONS: dynamic->relocations = value; return NULL;
    case INGOT_ELF_DYNAMIC_RELOCATIONSZ: dynamic->relocations_length = value; return NULL;
    case INGOT_ELF_DYNAMIC_HASH: dynamic->hash = value; return NULL;
    case INGOT_ELF_DYNAMIC_GNU_HASH: dynamic->gnu_hash = value; return NULL;
    case INGOT_ELF_DYNAMIC_NEEDED: return ingot_elf_refused(loader, "needs another library", "");
    case INGOT_ELF_DYNAMIC_TEXTREL: return ingot_elf_refused(loader, "has text relocations", "");
    case INGOT_ELF_DYNAMIC_INIT:
    case INGOT_ELF_DYNAMIC_FINI:
      return ingot_elf_refused(loader, "has a constructor or destructor", "");
    default: break;
  }
  if (tag == INGOT_ELF_DYNAMIC_FLAGS && (value & INGOT_ELF_FLAG_TEXTREL)) {
    return ingot_elf_refused(loader, "has text relocations", "");
  }
  if ((tag == INGOT_ELF_DYNAMIC_INIT_ARRAYSZ || tag == INGOT_ELF_DYNAMIC_FINI_ARRAYSZ) &&
      value != 0) {
    return ingot_elf_refused(loader, "has a constructor or destructor", "");
  }
  if ((tag == INGOT_ELF_DYNAMIC_FOREIGNSZ || tag == INGOT_ELF_DYNAMIC_RELRSZ) && value != 0) {
    return ingot_elf_refused(loader, "has relocations of a kind that its machine has not", "");
  }
  return NULL;
}

static ingot_status_t ingot_elf_read_dynamic(ingot_elf_loader_t *loader) {
  uint64_t count = loader->dynamic_length / sizeof(ingot_elf_dynamic_entry_t);
  bool has_plt_relocations = false;
  ingot_elf_dynamic_entry_t entry;
  for (uint64_t i = 0; i < count; i++) {
    if (!ingot_elf_read_item(loader, loader->dynamic_address, i, &entry, sizeof(entry))) {
      return ingot_elf_damaged(loader, "its dynamic section lies outside of its segments");
    }
    if (entry.tag == INGOT_ELF_DYNAMIC_NULL) break;
    if (entry.tag == INGOT_ELF_DYNAMIC_PLTRELSZ && entry.value != 0) has_plt_relocations = true;
    INGOT_TRY(ingot_elf_read_tag(loader, entry.tag, entry.value));
  }
  /* Calls through the PLT go to other objects; with names known, say which symbol. */
  for (uint64_t i = 0; has_plt_relocations && i < count; i++) {
    ingot_elf_relocation_t relocation;
    ingot_elf_symbol_t symbol;
    if (!ingot_elf_read_item(loader, loader->dynamic_address, i, &entry, sizeof(entry))) break;
    if (entry.tag != INGOT_ELF_DYNAMIC_JMPREL) continue;
    if (!ingot_elf_read_item(loader, entry.value, 0, &relocation, sizeof(relocation)) ||
        !ingot_elf_read_item(loader, loader->dynamic.symbols,
                             INGOT_ELF_RELOCATION_SYMBOL(relocation.info), &symbol,
                             sizeof(symbol))) {
      break;
    }
    return ingot_elf_refused(loader, "imports", ingot_elf_string(loader, symbol.name));
  }
  return has_plt_relocations ? ingot_elf_refused(loader, "imports a function", "") : NULL;
}

bool ingot_elf_contains(const ingot_elf_image_t *image, const void *pointer, size_t length,
                        uint32_t flags) {
  uint64_t address = (uint64_t)((uintptr_t)pointer - (uintptr_t)image->base);
  for (uint32_t s = 0; s < image->segment_count; s++) {
    const ingot_elf_segment_t *segment = &image->segments[s];
    if (address >= segment->address && (segment->flags & flags) == flags &&
        ingot_range_fits_u64(address - segment->address, length, segment->length)) {
      return true;
    }
  }
  return false;
}

static ingot_status_t ingot_elf_relocate_one(const ingot_elf_loader_t *loader,
                                             const ingot_elf_relocation_t *relocation) {
  uint32_t type = INGOT_ELF_RELOCATION_TYPE(relocation->info);
  if (type == 0) return NULL; /* R_*_NONE */
  if (type != INGOT_ELF_RELATIVE) {
    ingot_elf_symbol_t symbol;
    if (INGOT_ELF_RELOCATION_SYMBOL(relocation->info) != 0 &&
        ingot_elf_read_item(loader, loader->dynamic.symbols,
                            INGOT_ELF_RELOCATION_SYMBOL(relocation->info), &symbol,
                            sizeof(symbol))) {
      return ingot_elf_refused(loader, "imports", ingot_elf_string(loader, symbol.name));
    }
    return ingot_elf_refused(loader, "has relocations that are not relative", "");
  }
  uint8_t *target = ingot_elf_at(loader, relocation->offset, sizeof(ingot_elf_word_t));
  ingot_elf_word_t addend = 0;
#if INGOT_ELF_HAS_ADDENDS
  addend = relocation->addend;
#else
  if (target) memcpy(&addend, target, sizeof(addend));
#endif
  const uint8_t *value = ingot_elf_at(loader, addend, 0);
  if (!target || !value) return ingot_elf_damaged(loader, "a relocation leaves its segments");
  if (!ingot_elf_contains(&loader->image, target, sizeof(addend), INGOT_PAGES_WRITE)) {
    return ingot_elf_refused(loader, "has text relocations", "");
  }
  memcpy(target, &value, sizeof(value));
  return NULL;
}

static ingot_status_t ingot_elf_relocate(const ingot_elf_loader_t *loader) {
  uint64_t count = loader->dynamic.relocations_length / sizeof(ingot_elf_relocation_t);
  for (uint64_t i = 0; i < count; i++) {
    ingot_elf_relocation_t relocation;
    if (!ingot_elf_read_item(loader, loader->dynamic.relocations, i, &relocation,
                             sizeof(relocation))) {
      return ingot_elf_damaged(loader, "its relocations lie outside of its segments");
    }
    INGOT_TRY(ingot_elf_relocate_one(loader, &relocation));
  }
  return NULL;
}

/* The function if symbol number `index` is it. */
static void *ingot_elf_match(const ingot_elf_loader_t *loader, uint64_t index) {
  ingot_elf_symbol_t symbol;
  if (!ingot_elf_read_item(loader, loader->dynamic.symbols, index, &symbol, sizeof(symbol)) ||
      symbol.section == 0 /* undefined */ ||
      INGOT_ELF_SYMBOL_KIND(symbol.info) != INGOT_ELF_SYMBOL_FUNCTION ||
      strcmp(ingot_elf_string(loader, symbol.name), loader->function) != 0) {
    return NULL;
  }
  uint8_t *function = ingot_elf_at(loader, symbol.value, 1);
  return function && ingot_elf_contains(&loader->image, function, 1, INGOT_PAGES_EXECUTE) ? function
                                                                                          : NULL;
}

/* INGOT_ELF_DYNAMIC_HASH: bucket count, symbol count, buckets, chains. Its chains cover all symbols, and
 * kernels have a handful, so they are walked in order. */
static void *ingot_elf_find_by_hash(const ingot_elf_loader_t *loader) {
  uint32_t symbol_count;
  if (!ingot_elf_read_u32(loader, loader->dynamic.hash + 4, &symbol_count)) return NULL;
  for (uint32_t i = 1; i < symbol_count; i++) {
    void *function = ingot_elf_match(loader, i);
    if (function) return function;
    ingot_elf_symbol_t symbol; /* a wrong count ends with the image */
    if (!ingot_elf_read_item(loader, loader->dynamic.symbols, i, &symbol, sizeof(symbol))) break;
  }
  return NULL;
}

/* INGOT_ELF_DYNAMIC_GNU_HASH: bucket count, first symbol, bloom words, shift; bloom; buckets; chains. */
static void *ingot_elf_find_by_gnu_hash(const ingot_elf_loader_t *loader) {
  uint32_t bucket_count, first_symbol, bloom_count, index, chain;
  const uint64_t table = loader->dynamic.gnu_hash;
  if (!ingot_elf_read_u32(loader, table, &bucket_count) || bucket_count == 0 ||
      !ingot_elf_read_u32(loader, table + 4, &first_symbol) ||
      !ingot_elf_read_u32(loader, table + 8, &bloom_count)) {
    return NULL;
  }
  uint32_t hash = 5381;
  for (const char *c = loader->function; *c; c++) hash = hash * 33 + (uint8_t)*c;
  const uint64_t buckets = table + 16 + (uint64_t)bloom_count * sizeof(ingot_elf_word_t);
  const uint64_t chains = buckets + (uint64_t)bucket_count * 4;
  if (!ingot_elf_read_item(loader, buckets, hash % bucket_count, &index, sizeof(index)) ||
      index < first_symbol) {
    return NULL;
  }
  for (;; index++) {
    if (!ingot_elf_read_item(loader, chains, index - first_symbol, &chain, sizeof(chain))) break;
    if ((chain | 1) == (hash | 1)) {
      void *function = ingot_elf_match(loader, index);
      if (function) return function;
    }
    if ((chain & 1) || index == UINT32_MAX) break;
  }
  return NULL;
}

static ingot_status_t ingot_elf_find(const ingot_elf_loader_t *loader, void **out_function) {
  void *function = NULL;
  if (loader->dynamic.gnu_hash) function = ingot_elf_find_by_gnu_hash(loader);
  if (!function && loader->dynamic.hash) function = ingot_elf_find_by_hash(loader);
  if (!function) {
    return ingot_status_create(loader->allocator, INGOT_STATUS_NOT_FOUND,
                               "the object does not export the function '%s'", loader->function);
  }
  *out_function = function;
  return NULL;
}

static ingot_status_t ingot_elf_protect_range(const ingot_elf_loader_t *loader, uint64_t address,
                                              uint64_t length, uint32_t access) {
  uint64_t first = address & ~(loader->page - 1);
  uint64_t end = (address + length + loader->page - 1) & ~(loader->page - 1);
  ingot_reason_t reason;
  ingot_status_code_t code =
      ingot_pages_protect(loader->image.base + first, (size_t)(end - first), access, &reason);
  if (!code) return NULL;
  if (code == INGOT_STATUS_OUT_OF_MEMORY) return ingot_status_out_of_memory();
  return ingot_status_create(loader->allocator, code, "the system refuses %s memory: %s",
                             access & INGOT_PAGES_EXECUTE ? "executable" : "protected",
                             reason.text);
}

static ingot_status_t ingot_elf_protect(const ingot_elf_loader_t *loader) {
  const ingot_elf_image_t *image = &loader->image;
  for (uint32_t s = 0; s < image->segment_count; s++) {
    const ingot_elf_segment_t *segment = &image->segments[s];
    uint32_t access = segment->flags & (INGOT_PAGES_READ | INGOT_PAGES_WRITE | INGOT_PAGES_EXECUTE);
    INGOT_TRY(ingot_elf_protect_range(loader, segment->address, segment->length, access));
  }
  /* Relocated constants become read-only; only whole pages of them, inward. */
  const uint8_t *read_only =
      ingot_elf_at(loader, loader->read_only_address, loader->read_only_length);
  if (!read_only || loader->read_only_length < loader->page ||
      !ingot_elf_contains(image, read_only, (size_t)loader->read_only_length, INGOT_PAGES_WRITE)) {
    return NULL;
  }
  uint64_t first = (uint64_t)(read_only - image->base);
  uint64_t end = (first + loader->read_only_length) & ~(loader->page - 1);
  first = (first + loader->page - 1) & ~(loader->page - 1);
  return end > first ? ingot_elf_protect_range(loader, first, end - first, INGOT_PAGES_READ) : NULL;
}

static ingot_status_t ingot_elf_load_mapped(ingot_elf_loader_t *loader, void **out_function) {
  INGOT_TRY(ingot_elf_read_dynamic(loader));
  INGOT_TRY(ingot_elf_relocate(loader));
  INGOT_TRY(ingot_elf_find(loader, out_function));
  return ingot_elf_protect(loader);
}

ingot_status_t ingot_elf_load(const ingot_allocator_t *allocator, const void *data, size_t length,
                              const char *name, ingot_elf_image_t *out_image, void **out_function) {
  ingot_elf_loader_t loader = {.allocator = allocator,
                               .file = data,
                               .file_length = length,
                               .function = name,
                               .page = ingot_pages_unit()};
  ingot_elf_header_t header;
  INGOT_TRY(ingot_elf_check_header(&loader, &header));
  INGOT_TRY(ingot_elf_read_segments(&loader, &header));
  INGOT_TRY(ingot_elf_map(&loader, &header));
  ingot_status_t status = ingot_elf_load_mapped(&loader, out_function);
  if (status) {
    ingot_elf_unload(&loader.image);
  } else {
    *out_image = loader.image;
  }
  return status;
}

void ingot_elf_unload(ingot_elf_image_t *image) {
  if (image->length) ingot_pages_free(image->base, image->length);
  image->length = 0;
}

#endif /* INGOT_LOADS_ELF */
