/* Weights to large pages; see mover.h. */
#include "hal/cpu/mover.h"

#include "base/thread.h"

#if !defined(INGOT_NO_THREADS)

#define INGOT_MOVER_STACK_LENGTH (64 * 1024)
#define INGOT_MOVER_PIECE_LENGTH (8 * INGOT_LARGE_PAGE) /* 50 ms; each interrupts all processors */

struct ingot_hal_cpu_mover_t {
  ingot_hal_cpu_device_t *device;
  ingot_thread_t thread;
  uint8_t *data;
  size_t length;
  int64_t process; /* that the thread lives in */
  _Atomic bool stops;
};

static void ingot_mover_run(void *argument) {
  ingot_hal_cpu_mover_t *mover = argument;
  ingot_hal_cpu_place_thread(&mover->device->options, &mover->device->base.instance->log);
  (void)ingot_thread_prioritize(-1);
  for (size_t at = INGOT_LARGE_PAGE; at < mover->length; at += INGOT_MOVER_PIECE_LENGTH) {
    size_t rest = mover->length - at;
    size_t piece = rest < INGOT_MOVER_PIECE_LENGTH ? rest : INGOT_MOVER_PIECE_LENGTH;
    if (atomic_load_explicit(&mover->stops, memory_order_relaxed)) return;
    if (!ingot_memory_move_to_large_pages(mover->data + at, piece)) return;
  }
}

ingot_hal_cpu_mover_t *ingot_hal_cpu_mover_start(ingot_hal_cpu_device_t *device, void *data,
                                                 size_t length) {
  const ingot_allocator_t *allocator = ingot_hal_device_allocator(&device->base);
  if (device->has_lent_threads) return NULL;
  if (!ingot_memory_move_to_large_pages(data, INGOT_LARGE_PAGE)) return NULL;
  ingot_hal_cpu_mover_t *mover = allocator->resize(allocator->user, NULL, sizeof(*mover));
  if (!mover) return NULL;
  *mover = (ingot_hal_cpu_mover_t){
      .device = device,
      .thread = {.function = ingot_mover_run, .argument = mover},
      .data = data,
      .length = length,
      .process = ingot_process_id(),
  };
  if (ingot_thread_start(&mover->thread, INGOT_MOVER_STACK_LENGTH)) return mover;
  ingot_release_memory(allocator, mover);
  return NULL;
}

void ingot_hal_cpu_mover_stop(ingot_hal_cpu_mover_t *mover) {
  if (!mover) return;
  atomic_store_explicit(&mover->stops, true, memory_order_relaxed);
  if (mover->process == ingot_process_id()) ingot_thread_join(&mover->thread);
  ingot_release_memory(ingot_hal_device_allocator(&mover->device->base), mover);
}

#else

ingot_hal_cpu_mover_t *ingot_hal_cpu_mover_start(ingot_hal_cpu_device_t *device, void *data,
                                                 size_t length) {
  (void)device;
  (void)data;
  (void)length;
  return NULL;
}

void ingot_hal_cpu_mover_stop(ingot_hal_cpu_mover_t *mover) { (void)mover; }

#endif
