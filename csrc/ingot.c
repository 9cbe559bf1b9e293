/* The whole runtime as one translation unit: `cc -c -Icsrc/include -Icsrc csrc/ingot.c` is
 * all that a build needs. Every other .c file of csrc/ is included here, lower layers first,
 * but for the platform.
 */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE 1 /* before the first system header of any file */
#endif

#include "base/allocator.c"
#include "base/crc32.c"
#include "base/dtype.c"
#include "base/float.c"
#include "base/log.c"
#include "base/status.c"
#include "base/stop.c"

#include "hal/buffer.c"
#include "hal/device.c"
#include "hal/executable.c"
#include "hal/host.c"
#include "hal/instance.c"
#include "hal/queue.c"

#include "hal/cpu/buffer.c"
#include "hal/cpu/device.c"
#include "hal/cpu/elf.c"
#include "hal/cpu/executable.c"
#include "hal/cpu/features.c"
#include "hal/cpu/library.c"
#include "hal/cpu/queue.c"
#include "hal/cpu/thread_pool.c"

#if defined(INGOT_OPENCL) /* ask for the driver with -DINGOT_OPENCL */
#include "hal/opencl/buffer.c"
#include "hal/opencl/cache.c"
#include "hal/opencl/device.c"
#include "hal/opencl/dispatch.c"
#include "hal/opencl/driver.c"
#include "hal/opencl/executable.c"
#include "hal/opencl/find.c"
#include "hal/opencl/interop.c"
#include "hal/opencl/library.c"
#include "hal/opencl/misfit.c"
#include "hal/opencl/object.c"
#include "hal/opencl/parts.c"
#include "hal/opencl/program.c"
#include "hal/opencl/queue.c"
#include "hal/opencl/self_test.c"
#include "hal/opencl/sha256.c"
#include "hal/opencl/staging.c"
#include "hal/opencl/transfer.c"
#endif

#include "module/container.c"
#include "module/file.c"
#include "module/instruction.c"
#include "module/module.c"
#include "module/refuse.c"
#include "module/tables.c"
#include "module/verify.c"
#include "module/verify_assignment.c"

#include "vm/context.c"
#include "vm/debug.c"
#include "vm/device_work.c"
#include "vm/image.c"
#include "vm/init.c"
#include "vm/interpreter.c"
#include "vm/list.c"
#include "vm/memory.c"
#include "vm/scalar.c"
#include "vm/state.c"
#include "vm/view.c"

#include "api/device.c"
#include "api/host_kernel.c"
#include "api/json.c"
#include "api/packed.c"
#include "api/parameters.c"
#include "api/program.c"
#include "api/safetensors.c"
#include "api/session.c"
#include "api/state.c"
#include "api/swap.c"
#include "api/weights.c"

/* Last, for systems' headers define many names. */
#include "platform/bare.c"
#include "platform/cgroup.c"
#include "platform/freestanding/libc.c"
#include "platform/posix.c"
#include "platform/wasm.c"
#include "platform/windows.c"
