/* The kernels of the conformance suite as a module would describe them: ordinals, bindings,
 * constants. Their code is per driver: kernels.c for the CPU.
 */
#ifndef INGOT_TESTS_CTS_KERNELS_H_
#define INGOT_TESTS_CTS_KERNELS_H_

#include "hal/hal.h"

enum { KERNEL_ADD, KERNEL_COUNT, KERNEL_GATHER, KERNEL_SCRATCH, KERNEL_HALVE, KERNEL_ECHO };

static const ingot_hal_entry_description_t kernel_descriptions[] = {
    {"add", "layer/Add", 3, 0, 4},       {"count", "layer/Count", 1, 0, 1},
    {"gather", "layer/Gather", 3, 1, 4}, {"scratch", "layer/Scratch", 1, 0, 1},
    {"halve", "layer/Halve", 2, 0, 2},   {"echo", "", 2, 2, 1},
};

#define KERNEL_DESCRIPTION_COUNT 6

#endif /* INGOT_TESTS_CTS_KERNELS_H_ */
