/* The layout of a module file, as structs.
 *
 * Little-endian. A header, a section table, then the sections, each on a 64-byte
 * boundary with zero bytes between. Everything refers to everything else by offset or
 * ordinal, so a file is mapped and used in place. The compiler writes these structs
 * through cffi from this very text: keep to plain C declarations without includes.
 *
 * A reader refuses a newer major version, and skips section kinds that it does not know. A
 * file has the least version that can say what it holds: 3.0 if its tables are compressed or
 * a variant continues another, 2.3 if code or graph text of kernels is compressed, 2.2 if it has
 * references, 2.1 if it calls native functions, 2.0 if an argument or result is a sequence or an
 * optional, else 1.1.
 * Every reserved field is zero. Strings are offsets into the string section: UTF-8,
 * NUL-terminated; offset 0 is the empty string; the section's last byte is NUL.
 */
#ifndef INGOT_MODULE_LAYOUT_H_
#define INGOT_MODULE_LAYOUT_H_

#include <stdint.h>

#define INGOT_MODULE_MAGIC "INGOT\r\n\x1a"
#define INGOT_MODULE_VERSION_MAJOR 3
#define INGOT_MODULE_VERSION_MINOR 0
#define INGOT_MODULE_VERSION_MAJOR_OF_PLAIN_TABLES 2
#define INGOT_MODULE_VERSION_MINOR_OF_COMPRESSED_CODE 3
#define INGOT_MODULE_VERSION_MINOR_OF_REFERENCES 2
#define INGOT_MODULE_VERSION_MINOR_OF_NATIVES 1
#define INGOT_MODULE_VERSION_MINOR_OF_LISTS 0
#define INGOT_MODULE_VERSION_MAJOR_OF_TENSORS 1
#define INGOT_MODULE_VERSION_MINOR_OF_TENSORS 1
#define INGOT_MODULE_ALIGNMENT 64
#define INGOT_MODULE_MAX_NAME 4096 /* bytes of what is found by its name, with the NUL */

/* Kinds of sections. A module has at most one of each, wherever it stands. */
#define INGOT_SECTION_STRINGS 1        /* bytes */
#define INGOT_SECTION_FUNCTIONS 2      /* ingot_layout_function_t[] */
#define INGOT_SECTION_VALUES 3         /* ingot_layout_value_t[]: arguments and results */
#define INGOT_SECTION_DIMS 4           /* ingot_layout_dim_t[] */
#define INGOT_SECTION_CODE 5           /* uint16_t[]: bytecode of all functions */
#define INGOT_SECTION_CONSTANTS 6      /* bytes: the one section whose crc load may skip */
#define INGOT_SECTION_PARAMETERS 7     /* ingot_layout_parameter_t[] */
#define INGOT_SECTION_EXECUTABLES 8    /* ingot_layout_executable_t[] */
#define INGOT_SECTION_ENTRIES 9        /* ingot_layout_entry_t[]: kernels, numbered module-wide */
#define INGOT_SECTION_VARIANTS 10      /* ingot_layout_variant_t[] */
#define INGOT_SECTION_OBJECTS 11       /* bytes: native code of the variants */
#define INGOT_SECTION_LOCATIONS 12     /* ingot_layout_location_t[]: bytecode to source layer */
#define INGOT_SECTION_REGIONS 13       /* bytes: graph text per entry (strippable) */
#define INGOT_SECTION_METADATA 14      /* bytes: JSON object, UTF-8 */
#define INGOT_SECTION_VARIABLES 15     /* ingot_layout_variable_t[]: state; since version 1.1 */
#define INGOT_SECTION_DEBUG 16 /* bytes for tools, by zlib: compiler/debug_info.py (strippable) */
#define INGOT_SECTION_NATIVES 17       /* ingot_layout_native_t[]; since version 2.1 */
#define INGOT_SECTION_VERSIONS 18      /* ingot_layout_version_t[]; earlier readers skip it */
#define INGOT_SECTION_COMPRESSED_REGIONS 19 /* in place of 13, compressed; since version 2.3 */
#define INGOT_SECTION_COMPRESSED_TABLES 20  /* other sections, compressed; since version 3.0 */

typedef struct ingot_layout_header_t {
  uint8_t magic[8];
  uint32_t version_major;
  uint32_t version_minor;
  uint64_t file_length; /* bytes of the whole file */
  uint32_t section_count; /* entries of the section table, which follows the header */
  uint32_t crc; /* CRC-32 (IEEE) of header and section table, with this field 0 */
  uint32_t global_count; /* program globals that init sets */
  uint32_t reserved[7];
} ingot_layout_header_t;

typedef struct ingot_layout_section_t {
  uint32_t kind; /* INGOT_SECTION_* */
  uint32_t crc; /* CRC-32 (IEEE) of the section's bytes */
  uint64_t offset;
  uint64_t length; /* bytes */
} ingot_layout_section_t;

/* What COMPRESSED_TABLES holds: a u64, how many rows of ingot_layout_section_t follow it, these rows,
 * and their sections, each on an 8-byte boundary, with zero bytes between. Offsets are from the u64
 * on, a crc is 0: that of the compressed bytes is for all. CONSTANTS are never in it. */

#define INGOT_FUNCTION_EXPORTED 1 /* callers see it; it has arguments and results */
#define INGOT_FUNCTION_INIT 2 /* runs once when a program is created; no arguments */

typedef struct ingot_layout_function_t {
  uint32_t name; /* string; unique among functions of one target */
  uint32_t doc; /* string */
  uint32_t target; /* string: "cpu", "opencl": the devices whose code this is */
  uint32_t flags; /* one of INGOT_FUNCTION_* */
  uint32_t first_value; /* arguments, then results, in the value section */
  uint32_t argument_count; /* of an exported function; else 0 */
  uint32_t result_count;
  uint32_t i64_count; /* registers used */
  uint32_t f64_count;
  uint32_t ref_count;
  uint32_t reserved[6];
  uint64_t code_offset; /* u16 words into the code section */
  uint64_t code_length; /* u16 words */
} ingot_layout_function_t;

typedef struct ingot_layout_value_t {
  uint32_t name; /* string */
  uint32_t doc; /* string */
  uint32_t first_dim; /* into the dim section; of a reference a dim whose text is its type */
  uint8_t rank; /* of a sequence: of each element; of a reference, which is i64, 0 */
  uint8_t kind; /* INGOT_VALUE_* of ingot.h; 0 is a tensor */
  uint16_t dtype; /* spec/dtype.def */
} ingot_layout_value_t;

typedef struct ingot_layout_dim_t {
  int64_t size; /* the static size, or -1: known at the call; the code checks relations */
  uint32_t text; /* string: "b", "2*b", ... as the signature shows it */
  uint32_t reserved;
} ingot_layout_dim_t;

typedef struct ingot_layout_parameter_t {
  uint32_t scope; /* string: "" unless several files feed one program */
  uint32_t key; /* string: the tensor's name in the file */
  uint32_t first_dim;
  uint16_t rank;
  uint16_t dtype;
} ingot_layout_parameter_t;

/* State that every session has of its own. All dims are static, but the first may be open: then
 * there are no rows at first, and code makes more. */
typedef struct ingot_layout_variable_t {
  uint32_t name; /* string; unique among variables */
  uint32_t doc; /* string */
  uint32_t first_dim;
  uint16_t rank;
  uint16_t dtype;
  uint64_t offset; /* of the initial value, in the constant section */
  uint64_t length; /* of it: the tensor's; one element's (at most 8), which is repeated; or 0:
                    * zeros */
} ingot_layout_variable_t;

#define INGOT_NATIVE_OPTIONAL 1 /* it may be missing */

/* A function of the application that code calls. One called "?NAME", of the signature
 * "() -> (i1[])", is the runtime's own: it tells whether anybody gives NAME. */
typedef struct ingot_layout_native_t {
  uint32_t name; /* string; unique among natives */
  uint32_t signature; /* string: "(f32[h,w,3]) -> (f32[224,224,3])" */
  uint32_t first_value; /* arguments, then results, in the value section: tensors and references */
  uint32_t argument_count; /* with the results at most INGOT_ENTRY_MAX_BINDINGS */
  uint32_t result_count;
  uint32_t flags; /* 0 or INGOT_NATIVE_OPTIONAL */
  uint64_t decided; /* bit r: the function decides dims of result r, which goes to a list */
} ingot_layout_native_t;

/* The version of a module, or the least one that it needs of a module which it calls. */
typedef struct ingot_layout_version_t {
  uint32_t name; /* string: the module that it calls; "" is this one */
  uint32_t number;
} ingot_layout_version_t;

typedef struct ingot_layout_executable_t {
  uint32_t name; /* string */
  uint32_t target; /* string: "cpu", "opencl" */
  uint32_t first_variant;
  uint32_t variant_count; /* best first: the runtime takes the first that the device can run */
  uint32_t first_entry;
  uint32_t entry_count;
} ingot_layout_executable_t;

#define INGOT_ENTRY_MAX_BINDINGS 64

typedef struct ingot_layout_entry_t {
  uint32_t name; /* string: for traces and profilers */
  uint32_t layer; /* string: source layers, for messages */
  uint32_t binding_count; /* at most INGOT_ENTRY_MAX_BINDINGS */
  uint32_t constant_count;
  uint64_t written; /* bit b: binding b is written */
  uint64_t region_offset; /* graph text in the region section's bytes; length 0 if stripped */
  uint64_t region_length;
} ingot_layout_entry_t;

/* Compressed bytes are a u64, how many they are, and one block of LZ4. */
#define INGOT_VARIANT_COMPRESSED "lz4:" /* begins the format of one whose object is; since 2.3 */
/* The same, whose block may repeat the objects of the variants in front of it, back to the last one
 * that does not begin so, as if they lay in front of what it holds; since 3.0. */
#define INGOT_VARIANT_CONTINUED "lz4+:"

typedef struct ingot_layout_variant_t {
  uint32_t format; /* string: "elf-x86_64", "elf-aarch64", "opencl-c", ... */
  uint32_t name; /* string: "x86-64-v3", ... */
  uint64_t features; /* INGOT_CPU_* bits that the device must have */
  uint64_t offset; /* into the object section; on a 64-byte boundary */
  uint64_t length;
} ingot_layout_variant_t;

/* Source layer of the instructions from `word` on, up to the next entry; sorted. */
typedef struct ingot_layout_location_t {
  uint64_t word; /* u16 words into the code section */
  uint32_t layer; /* string */
  uint32_t op; /* string: source operations, as "Conv, Relu" */
} ingot_layout_location_t;

/* Feature bits of a variant. An operating system must save the registers too. */
#define INGOT_CPU_X86_AVX2 0x1 /* with FMA, F16C, BMI: x86-64-v3 */
#define INGOT_CPU_X86_AVX512 0x2 /* F, BW, CD, DQ, VL: x86-64-v4 */
#define INGOT_CPU_X86_AVX512_VNNI 0x4
#define INGOT_CPU_X86_AVX512_BF16 0x8
#define INGOT_CPU_X86_V2 0x10 /* SSE4.2, POPCNT: x86-64-v2 */
#define INGOT_CPU_X86_AVX_VNNI 0x20
#define INGOT_CPU_X86_AVX512_FP16 0x40
#define INGOT_CPU_X86_AMX 0x80 /* tiles, AVX512-BF16 and AVX512-VBMI */
#define INGOT_CPU_ARM_DOTPROD 0x100
#define INGOT_CPU_ARM_I8MM 0x200
#define INGOT_CPU_ARM_FP16 0x400 /* arithmetic, not only conversions */
#define INGOT_CPU_ARM_BF16 0x800
#define INGOT_CPU_ARM_NEON 0x1000 /* of 32-bit Arm: with VFPv4 and integer division */
#define INGOT_CPU_RISCV_V 0x10000 /* vectors, 1.0 */
#define INGOT_CPU_WASM_SIMD128 0x100000
#define INGOT_CPU_WASM_RELAXED_SIMD 0x200000

#endif /* INGOT_MODULE_LAYOUT_H_ */
