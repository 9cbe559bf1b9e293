/* What this processor can do, and what the operating system lets it.
 */
#ifndef INGOT_HAL_CPU_FEATURES_H_
#define INGOT_HAL_CPU_FEATURES_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* INGOT_CPU_* bits of module_layout.h. */
uint64_t ingot_hal_cpu_features(void);

/* Those of `features` whose instructions take this processor longer than the same without them. */
uint64_t ingot_hal_cpu_slow_features(uint64_t features);

/* Whether threads of this process may use them, of which some must be asked for: done here, for code
 * that is about to run. False where the system refuses. */
bool ingot_hal_cpu_permits(uint64_t features);

/* The name of the compiler's variant for such a processor: "x86-64-v4". */
const char *ingot_hal_cpu_variant(uint64_t features);

/* For people, as "x86-64-v4 avx512-vnni"; `features` as above. `capacity` at least 64. */
void ingot_hal_cpu_features_text(uint64_t features, char *out_text, size_t capacity);

#endif /* INGOT_HAL_CPU_FEATURES_H_ */
