/* The contract between a generated kernel and the runtime that calls it.
 *
 * This header stands alone: generated kernels include nothing else of the runtime, and
 * a change here is a new INGOT_KERNEL_ABI_VERSION. An executable exports one symbol,
 * ingot_executable_query. It imports none, uses no thread-local storage, and at most
 * 8 KB of stack per call.
 */
#ifndef INGOT_KERNEL_ABI_H_
#define INGOT_KERNEL_ABI_H_

#include <stdint.h>

#define INGOT_KERNEL_ABI_VERSION 3u

/* Kernels follow the System V calling convention on x86-64 on every operating system,
 * so that an object depends on the instruction set only. */
#if defined(__x86_64__) && !defined(_MSC_VER)
#define INGOT_KERNEL_CALL __attribute__((sysv_abi))
#else
#define INGOT_KERNEL_CALL
#endif

/* Why a workgroup failed. */
enum {
  INGOT_FAULT_NONE = 0,
  INGOT_FAULT_INDEX_OUT_OF_RANGE = 1, /* index is not in [0, bound) (or [-bound, bound)) */
};

typedef struct ingot_kernel_fault_t {
  uint32_t code;    /* INGOT_FAULT_* */
  uint32_t operand; /* ordinal of the operand that held the index */
  int64_t index;    /* the offending value */
  int64_t bound;    /* the size it had to stay below */
} ingot_kernel_fault_t;

/* One dispatch, the same for all of its workgroups. All of it is read-only. */
typedef struct ingot_kernel_dispatch_t {
  void *const *bindings;    /* per binding: its first byte; aligned to its element only */
  const int64_t *lengths;   /* per binding: bytes that may be touched */
  const int64_t *constants; /* the dispatch's i64 constants */
  int64_t workload[3];      /* x, y, z: what the grid divides by the entry's tile */
  /* Asked by a workgroup that runs long, now and then: if it answers other than 0, the call is
   * to end, and so does the workgroup, which returns 0. What it has written is of no use. */
  uint32_t(INGOT_KERNEL_CALL *poll)(const struct ingot_kernel_dispatch_t *dispatch);
} ingot_kernel_dispatch_t;

/* One workgroup: x, y and z are its position in the grid ceil(workload / tile). Writes
 * only what belongs to that tile. `scratch` is the entry's scratch_length bytes, 64-byte
 * aligned, private to the call, of arbitrary content. Returns 0, or fills `fault` and
 * returns its code. */
typedef uint32_t(INGOT_KERNEL_CALL *ingot_kernel_function_t)(
    const ingot_kernel_dispatch_t *dispatch, int64_t x, int64_t y, int64_t z, void *scratch,
    ingot_kernel_fault_t *fault);

/* 0 if the dispatch's addresses, lengths, constants and workload belong together, so that no
 * workgroup of it leaves its bindings, whatever the bytes in them are. Asked once before the
 * workgroups of a dispatch run: the numbers come from bytecode, which may be damaged. */
typedef uint32_t(INGOT_KERNEL_CALL *ingot_kernel_misfit_t)(const ingot_kernel_dispatch_t *dispatch);

typedef struct ingot_kernel_entry_t {
  ingot_kernel_function_t function;
  int64_t tile[3];         /* workload covered by one workgroup; each at least 1 */
  uint64_t scratch_length; /* bytes per worker, at most INGOT_KERNEL_MAX_SCRATCH */
  ingot_kernel_misfit_t misfit;
  uint64_t written;        /* bit b: binding b is written; like the counts the module's */
  uint32_t binding_count;
  uint32_t constant_count;
} ingot_kernel_entry_t;

#define INGOT_KERNEL_MAX_SCRATCH (1u << 20)

typedef struct ingot_kernel_library_t {
  uint32_t abi_version;
  uint32_t entry_count;
  const ingot_kernel_entry_t *entries; /* in the order of the module's entry table */
} ingot_kernel_library_t;

/* The only export: NULL if the object does not speak `abi_version`. */
#define INGOT_KERNEL_QUERY_NAME "ingot_executable_query"
typedef const ingot_kernel_library_t *(INGOT_KERNEL_CALL *ingot_kernel_query_t)(
    uint32_t abi_version);

#endif /* INGOT_KERNEL_ABI_H_ */
