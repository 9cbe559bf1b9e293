/* The object of a variant of format "opencl-c": what the OpenCL driver needs to know of each
 * kernel, and the OpenCL C source of all of them.
 *
 * Little-endian. The header, then six tables and the source, each on a multiple of 8 bytes
 * behind the one before; offsets count from the header's first byte. The compiler writes the
 * structs through cffi from this very text: keep to plain C declarations without includes.
 * Every reserved field is zero. The driver checks all of it at load; a bad object is
 * DataLoss.
 *
 * The kernel of entry number e is named as the module's entry e, and takes:
 *
 *   per binding:  __global T *base, INGOT_INDEX first    its first element, counted from base
 *   per constant: long
 *   3 x long                                            the workload
 *   __global uchar *scratch                             only if scratch_length is not 0
 *   __global int *fault, int ticket                     ingot_opencl_fault_t
 *
 * A group's position in the grid ceil(workload / tile) is get_group_id plus, along y and z,
 * get_global_offset / local_size: a grid that is longer there than devices allow runs as
 * several launches. It owns scratch_length bytes of scratch from its linear position in its
 * launch (get_group_id, x fastest) times that on.
 */
#ifndef INGOT_OPENCL_OBJECT_H_
#define INGOT_OPENCL_OBJECT_H_

#include <stdint.h>

#define INGOT_OPENCL_OBJECT_MAGIC "INGOTCL\x1a"
#define INGOT_OPENCL_OBJECT_VERSION 3
#define INGOT_OPENCL_OBJECT_ALIGNMENT 8

/* Beside these the driver defines INGOT_INDEX (int or long), INGOT_GROUP_SIZE and
 * INGOT_LOCAL_LENGTH (the device's limits: a kernel whose groups may be too large stands inside
 * an #if), and INGOT_OPENCL_EXACT_DIVISION where f32 division and sqrt are rounded correctly. */

/* What a kernel may need beyond OpenCL 1.2's core. The driver builds with a macro of the
 * same name for each that the device has; a kernel that needs one stands inside its #ifdef. */
#define INGOT_OPENCL_FP64 0x1
#define INGOT_OPENCL_FP16 0x2          /* arithmetic; storage by vload_half needs nothing */
#define INGOT_OPENCL_INT64_ATOMICS 0x4 /* base and extended */
#define INGOT_OPENCL_SUBGROUPS 0x8

/* What a device must have for a whole variant, whose schedules want groups of 256 work items
 * with 32 KB of local memory and the registers of a large GPU. The driver looks at the device's
 * kind and limits; `groups=` of its URI has the last word. */
#define INGOT_OPENCL_LARGE_GROUPS 0x1

/* Flags of an entry. */
#define INGOT_OPENCL_HOST 0x1 /* it has no kernel in the source: the generic variant runs it */

typedef struct ingot_opencl_header_t {
  uint8_t magic[8];
  uint32_t version;
  uint32_t entry_count;         /* = that of the module's executable */
  uint64_t entry_offset;        /* ingot_opencl_entry_t[entry_count] */
  uint64_t binding_offset;      /* ingot_opencl_binding_t[binding_count] */
  uint64_t binding_count;       /* of all entries */
  uint64_t test_offset;         /* ingot_opencl_test_t[test_count] */
  uint64_t test_count;
  uint64_t test_binding_offset; /* ingot_opencl_test_binding_t[test_binding_count] */
  uint64_t test_binding_count;
  uint64_t test_constant_offset; /* int64_t[test_constant_count] */
  uint64_t test_constant_count;
  uint64_t source_offset;       /* bytes, without a NUL */
  uint64_t source_length;
  uint64_t step_offset;         /* ingot_opencl_step_t[step_count] */
  uint64_t step_count;          /* of all entries */
} ingot_opencl_header_t;

typedef struct ingot_opencl_entry_t {
  uint64_t features;       /* INGOT_OPENCL_FP64...: all that it needs */
  uint32_t flags;          /* INGOT_OPENCL_HOST */
  uint32_t binding_count;  /* = that of the module's entry */
  uint64_t first_binding;  /* into the binding table */
  uint64_t constant_count; /* = that of the module's entry */
  int64_t tile[3];         /* workload covered by one group; each at least 1 */
  uint32_t local_size[3];  /* work items of a group; each at least 1 */
  uint32_t step_count;     /* of its contract; the steps of entries follow each other */
  uint64_t written;        /* bit b: binding b is written; = that of the module's entry */
  uint64_t local_length;   /* bytes of local memory of a group */
  uint64_t scratch_length; /* bytes of global scratch of a group; a multiple of 64 */
} ingot_opencl_entry_t;

typedef struct ingot_opencl_binding_t {
  uint32_t element_length; /* bytes of what the kernel's pointer points to: 1, 2, 4, 8 or 16 */
  uint32_t alignment; /* bytes of the widest it reads there: a binding begins at a multiple */
} ingot_opencl_binding_t;

/* Whether the numbers of a dispatch belong together, so that no group of it leaves its bindings:
 * they come from bytecode, which may be damaged. The values that steps refer to are, in this
 * order, the lengths of the bindings in bytes, the constants, the three numbers of the workload,
 * and what the steps so far have computed. A dispatch fits its kernel if all tests hold, no sum
 * or product overflows, every division has a value, and of the sizes of a broadcast one is 1
 * or both are equal. */
#define INGOT_OPENCL_STEP_NUMBER 0 /* computes b */
#define INGOT_OPENCL_STEP_ADD 1    /* this and the following compute of the values a and b */
#define INGOT_OPENCL_STEP_MUL 2
#define INGOT_OPENCL_STEP_FLOORDIV 3
#define INGOT_OPENCL_STEP_MOD 4
#define INGOT_OPENCL_STEP_MIN 5
#define INGOT_OPENCL_STEP_MAX 6
#define INGOT_OPENCL_STEP_BROADCAST 7
#define INGOT_OPENCL_STEP_LE 8     /* this and the following test the values a and b */
#define INGOT_OPENCL_STEP_EQUAL 9
#define INGOT_OPENCL_STEP_FITS 10  /* a is 1, or b */

#define INGOT_OPENCL_MAX_VALUES 1024 /* of an entry */

typedef struct ingot_opencl_step_t {
  uint32_t function; /* INGOT_OPENCL_STEP_* */
  uint32_t a;        /* the ordinal of a value; 0 where there is none */
  int64_t b;         /* the ordinal of a value, or a number */
} ingot_opencl_step_t;

/* One run of a kernel on small data that both it and the generic variant must agree on. At
 * most one per entry. */
typedef struct ingot_opencl_test_t {
  uint32_t entry;
  uint32_t reserved;
  uint64_t first_binding;  /* into the test bindings; as many as the entry has */
  uint64_t first_constant; /* into the test constants; as many as the entry has */
  int64_t workload[3];
} ingot_opencl_test_t;

/* What a binding holds before the run; integers only such that the dtype has. */
#define INGOT_OPENCL_FILL_ZERO 0
#define INGOT_OPENCL_FILL_UNIFORM 1  /* floats in [-1, 1), booleans, small integers */
#define INGOT_OPENCL_FILL_INDEX 2    /* integers in [0, bound) */
#define INGOT_OPENCL_FILL_POSITIVE 3 /* floats in [0.5, 1.5), integers in [1, 8) */

/* A written binding is compared after the run: integers and booleans bit by bit, floats by
 * |a - b| <= tolerance * max(1, |a|, |b|), NaN equal to NaN. */
typedef struct ingot_opencl_test_binding_t {
  int64_t length;   /* bytes */
  uint32_t dtype;   /* spec/dtype.def */
  uint32_t fill;    /* INGOT_OPENCL_FILL_* */
  int64_t bound;    /* of INGOT_OPENCL_FILL_INDEX; at least 1 */
  double tolerance; /* 0: bit by bit; below 0: not compared, as a workspace */
} ingot_opencl_test_binding_t;

/* Where kernels report the first fault of a queue. `ticket` 0 means none: the first to
 * exchange it for its own ticket fills the rest. */
typedef struct ingot_opencl_fault_t {
  int32_t ticket;
  uint32_t operand;
  uint32_t code; /* INGOT_FAULT_* of kernel_abi.h */
  uint32_t reserved;
  int64_t index;
  int64_t bound;
} ingot_opencl_fault_t;

#endif /* INGOT_OPENCL_OBJECT_H_ */
