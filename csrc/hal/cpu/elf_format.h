/* The part of the ELF format that the loader reads, for the machine that it runs on: its class,
 * its number, its one kind of relocation. Names after the standard's, of which the fields keep the
 * order.
 */
#ifndef INGOT_HAL_CPU_ELF_FORMAT_H_
#define INGOT_HAL_CPU_ELF_FORMAT_H_

#include <stdint.h>

#define INGOT_ELF_MACHINE_NONE 0
#define INGOT_ELF_MACHINE_ARM 40
#define INGOT_ELF_MACHINE_X86_64 62
#define INGOT_ELF_MACHINE_AARCH64 183
#define INGOT_ELF_MACHINE_RISCV 243

/* INGOT_ELF_RELATIVE: the relocation that adds the image's address. */
#if defined(__x86_64__) && !defined(__ILP32__)
#define INGOT_ELF_MACHINE INGOT_ELF_MACHINE_X86_64
#define INGOT_ELF_RELATIVE 8
#elif defined(__aarch64__) && !defined(__ILP32__)
#define INGOT_ELF_MACHINE INGOT_ELF_MACHINE_AARCH64
#define INGOT_ELF_RELATIVE 1027
#elif defined(__riscv) && __riscv_xlen == 64
#define INGOT_ELF_MACHINE INGOT_ELF_MACHINE_RISCV
#define INGOT_ELF_RELATIVE 3
#elif defined(__arm__)
#define INGOT_ELF_MACHINE INGOT_ELF_MACHINE_ARM
#define INGOT_ELF_RELATIVE 23
#else
#define INGOT_ELF_MACHINE INGOT_ELF_MACHINE_NONE /* loads nothing: kernels are linked statically */
#define INGOT_ELF_RELATIVE UINT32_MAX
#endif

#if UINTPTR_MAX == UINT64_MAX
#define INGOT_ELF_BITS 64
#else
#define INGOT_ELF_BITS 32
#endif

/* Arm keeps what is added in the place that is changed, the others in the relocation. */
#define INGOT_ELF_HAS_ADDENDS (INGOT_ELF_MACHINE != INGOT_ELF_MACHINE_ARM)

typedef uintptr_t ingot_elf_word_t; /* an address, an offset or a length */

typedef struct ingot_elf_header_t {
  uint8_t magic[4];
  uint8_t bits; /* 1: 32, 2: 64 */
  uint8_t endian; /* 1: little */
  uint8_t rest_of_identification[10];
  uint16_t type;
  uint16_t machine;
  uint32_t version;
  ingot_elf_word_t entry;
  ingot_elf_word_t segments; /* offset of the program headers */
  ingot_elf_word_t sections;
  uint32_t flags;
  uint16_t header_length;
  uint16_t segment_length; /* of one program header */
  uint16_t segment_count;
  uint16_t section_length;
  uint16_t section_count;
  uint16_t names;
} ingot_elf_header_t;

#define INGOT_ELF_TYPE_SHARED 3

typedef struct ingot_elf_program_header_t {
  uint32_t type;
#if INGOT_ELF_BITS == 64
  uint32_t flags;
#endif
  ingot_elf_word_t offset;
  ingot_elf_word_t address;
  ingot_elf_word_t physical_address;
  ingot_elf_word_t file_length;
  ingot_elf_word_t memory_length;
#if INGOT_ELF_BITS == 32
  uint32_t flags;
#endif
  ingot_elf_word_t alignment;
} ingot_elf_program_header_t;

enum { /* of a program header; flags are INGOT_PAGES_* */
       INGOT_ELF_SEGMENT_LOAD = 1,
       INGOT_ELF_SEGMENT_DYNAMIC = 2,
       INGOT_ELF_SEGMENT_INTERPRETER = 3,
       INGOT_ELF_SEGMENT_TLS = 7,
       INGOT_ELF_SEGMENT_RELRO = 0x6474e552,
};

typedef struct ingot_elf_dynamic_entry_t {
  ingot_elf_word_t tag;
  ingot_elf_word_t value;
} ingot_elf_dynamic_entry_t;

enum {
  INGOT_ELF_DYNAMIC_NULL = 0,
  INGOT_ELF_DYNAMIC_NEEDED = 1,
  INGOT_ELF_DYNAMIC_PLTRELSZ = 2,
  INGOT_ELF_DYNAMIC_HASH = 4,
  INGOT_ELF_DYNAMIC_STRTAB = 5,
  INGOT_ELF_DYNAMIC_SYMTAB = 6,
  INGOT_ELF_DYNAMIC_STRSZ = 10,
  INGOT_ELF_DYNAMIC_INIT = 12,
  INGOT_ELF_DYNAMIC_FINI = 13,
  INGOT_ELF_DYNAMIC_TEXTREL = 22,
  INGOT_ELF_DYNAMIC_JMPREL = 23,
  INGOT_ELF_DYNAMIC_INIT_ARRAYSZ = 27,
  INGOT_ELF_DYNAMIC_FINI_ARRAYSZ = 28,
  INGOT_ELF_DYNAMIC_FLAGS = 30,
  INGOT_ELF_DYNAMIC_RELRSZ = 35,
  INGOT_ELF_DYNAMIC_RELOCATIONS = INGOT_ELF_HAS_ADDENDS ? 7 : 17, /* RELA or REL */
  INGOT_ELF_DYNAMIC_RELOCATIONSZ = INGOT_ELF_HAS_ADDENDS ? 8 : 18,
  INGOT_ELF_DYNAMIC_FOREIGNSZ = INGOT_ELF_HAS_ADDENDS ? 18 : 8,
  INGOT_ELF_DYNAMIC_GNU_HASH = 0x6ffffef5,
};

#define INGOT_ELF_FLAG_TEXTREL 4u

typedef struct ingot_elf_symbol_t {
  uint32_t name;
#if INGOT_ELF_BITS == 64
  uint8_t info;
  uint8_t other;
  uint16_t section;
#endif
  ingot_elf_word_t value;
  ingot_elf_word_t length;
#if INGOT_ELF_BITS == 32
  uint8_t info;
  uint8_t other;
  uint16_t section;
#endif
} ingot_elf_symbol_t;

#define INGOT_ELF_SYMBOL_KIND(info) ((info) & 15)
#define INGOT_ELF_SYMBOL_FUNCTION 2

typedef struct ingot_elf_relocation_t {
  ingot_elf_word_t offset;
  ingot_elf_word_t info;
#if INGOT_ELF_HAS_ADDENDS
  ingot_elf_word_t addend;
#endif
} ingot_elf_relocation_t;

#if INGOT_ELF_BITS == 64
#define INGOT_ELF_RELOCATION_SYMBOL(info) ((uint32_t)((info) >> 32))
#define INGOT_ELF_RELOCATION_TYPE(info) ((uint32_t)(info))
#else
#define INGOT_ELF_RELOCATION_SYMBOL(info) ((info) >> 8)
#define INGOT_ELF_RELOCATION_TYPE(info) ((uint32_t)((info) & 255))
#endif

#endif /* INGOT_HAL_CPU_ELF_FORMAT_H_ */
