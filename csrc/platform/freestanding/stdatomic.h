/* What the runtime uses of <stdatomic.h>, without threads: see string.h. Objects are plain, so that
 * none is larger than what the processor can change at once. WebAssembly with threads has the
 * compiler's own.
 */
#ifndef INGOT_PLATFORM_FREESTANDING_STDATOMIC_H_
#define INGOT_PLATFORM_FREESTANDING_STDATOMIC_H_

#if defined(__wasm_atomics__)
#include_next <stdatomic.h>
#else

#include <stdbool.h>

#define _Atomic
#define atomic_bool bool

#define atomic_signal_fence(order) __asm__ __volatile__("" ::: "memory")

#define atomic_init(object, value) ((void)(*(object) = (value)))
#define atomic_load(object) (*(object))
#define atomic_load_explicit(object, order) (*(object))
#define atomic_store(object, value) ((void)(*(object) = (value)))
#define atomic_store_explicit(object, value, order) ((void)(*(object) = (value)))

#define INGOT_BARE_FETCH(object, new_value)       \
  __extension__({                                 \
    __typeof__(object) bare_object = (object);    \
    __typeof__(*bare_object) bare = *bare_object; \
    *bare_object = (new_value);                   \
    bare;                                         \
  })
#define atomic_exchange(object, value) INGOT_BARE_FETCH(object, value)
#define atomic_exchange_explicit(object, value, order) INGOT_BARE_FETCH(object, value)
#define atomic_fetch_add(object, value) INGOT_BARE_FETCH(object, bare + (value))
#define atomic_fetch_add_explicit(object, value, order) INGOT_BARE_FETCH(object, bare + (value))
#define atomic_fetch_sub(object, value) INGOT_BARE_FETCH(object, bare - (value))
#define atomic_fetch_sub_explicit(object, value, order) INGOT_BARE_FETCH(object, bare - (value))
#define atomic_fetch_or(object, value) INGOT_BARE_FETCH(object, bare | (value))
#define atomic_fetch_and(object, value) INGOT_BARE_FETCH(object, bare &(value))

#define INGOT_BARE_COMPARE(object, expected, value)   \
  __extension__({                                     \
    __typeof__(object) bare_object = (object);        \
    bool bare_is_equal = *bare_object == *(expected); \
    if (bare_is_equal) *bare_object = (value);        \
    else *(expected) = *bare_object;                  \
    bare_is_equal;                                    \
  })
#define atomic_compare_exchange_strong(object, expected, value) \
  INGOT_BARE_COMPARE(object, expected, value)
#define atomic_compare_exchange_weak(object, expected, value) \
  INGOT_BARE_COMPARE(object, expected, value)
#define atomic_compare_exchange_strong_explicit(object, expected, value, success, failure) \
  INGOT_BARE_COMPARE(object, expected, value)
#define atomic_compare_exchange_weak_explicit(object, expected, value, success, failure) \
  INGOT_BARE_COMPARE(object, expected, value)

#endif

#endif /* INGOT_PLATFORM_FREESTANDING_STDATOMIC_H_ */
