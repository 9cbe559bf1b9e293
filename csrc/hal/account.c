/* Accounts of buffers. Counters are atomic: results are released on any thread. */
#include "hal/account.h"

#include <inttypes.h>

ingot_status_t ingot_hal_account_create(const ingot_allocator_t *allocator, const char *owner,
                                        size_t limit, ingot_hal_account_t *parent,
                                        ingot_hal_account_t **out_account) {
  void *memory = NULL;
  INGOT_TRY(ingot_allocate(allocator, sizeof(ingot_hal_account_t), &memory));
  ingot_hal_account_t *account = memory;
  ingot_reference_count_initialize(&account->references);
  account->allocator = allocator;
  account->owner = owner;
  account->limit = limit && (uint64_t)limit < INT64_MAX ? (int64_t)limit : INT64_MAX;
  account->parent = parent;
  if (parent) ingot_reference_count_retain(&parent->references);
  *out_account = account;
  return NULL;
}

void ingot_hal_account_release(ingot_hal_account_t *account) {
  while (account && ingot_reference_count_release(&account->references)) {
    ingot_hal_account_t *parent = account->parent;
    ingot_release_memory(account->allocator, account);
    account = parent;
  }
}

void ingot_hal_account_move(ingot_hal_account_t *account, ingot_hal_account_t *parent) {
  ingot_reference_count_retain(&parent->references);
  ingot_hal_account_release(account->parent);
  account->parent = parent;
}

/* -- counting -------------------------------------------------------------------------------- */

static int64_t usage_add(ingot_hal_usage_t *usage, int64_t length) {
  return atomic_fetch_add_explicit(&usage->current, length, memory_order_relaxed) + length;
}

/* Adds what stays below the limit and gives the sum, else -1; what asks for too much does not keep
 * others out. */
static int64_t usage_take(ingot_hal_usage_t *usage, int64_t length, int64_t limit) {
  int64_t held = atomic_load_explicit(&usage->current, memory_order_relaxed);
  do {
    if (length > limit - held) return -1;
  } while (!atomic_compare_exchange_weak(&usage->current, &held, held + length));
  return held + length;
}

static void usage_raise_peak(ingot_hal_usage_t *usage, int64_t current) {
  int64_t peak = atomic_load_explicit(&usage->peak, memory_order_relaxed);
  while (current > peak && !atomic_compare_exchange_weak(&usage->peak, &peak, current)) continue;
}

static void account_take_back(ingot_hal_account_t *account, const ingot_hal_account_t *end,
                              uint32_t kind, int64_t length) {
  for (; account != end; account = account->parent) {
    (void)usage_add(&account->total, -length);
    (void)usage_add(&account->kinds[kind], -length);
  }
}

static ingot_status_t account_failure(const ingot_hal_account_t *account, int64_t length) {
  return ingot_status_create(
      account->allocator, INGOT_STATUS_OUT_OF_MEMORY,
      "%" PRId64 " bytes are asked for, but the %s's memory_limit is %" PRId64
      ", of which it holds %" PRId64,
      length, account->owner, account->limit, atomic_load(&account->total.current));
}

/* Counts `length` in an account and those above it, or in none. */
static ingot_status_t account_put(ingot_hal_account_t *first, uint32_t kind, int64_t length) {
  for (ingot_hal_account_t *account = first; account; account = account->parent) {
    int64_t total = usage_take(&account->total, length, account->limit);
    if (total < 0) {
      account_take_back(first, account, kind, length);
      return account_failure(account, length);
    }
    usage_raise_peak(&account->total, total);
    usage_raise_peak(&account->kinds[kind], usage_add(&account->kinds[kind], length));
  }
  return NULL;
}

ingot_status_t ingot_hal_account_add(ingot_hal_account_t *account, uint32_t kind,
                                     ingot_buffer_t *buffer) {
  INGOT_TRY(account_put(account, kind, buffer->length));
  ingot_reference_count_retain(&account->references);
  buffer->account = account;
  buffer->kind = kind;
  return NULL;
}

void ingot_hal_account_remove(ingot_buffer_t *buffer) {
  account_take_back(buffer->account, NULL, buffer->kind, buffer->length);
  ingot_hal_account_release(buffer->account);
  buffer->account = NULL;
}

/* -- reading --------------------------------------------------------------------------------- */

static ingot_memory_usage_t usage_read(const ingot_hal_usage_t *usage) {
  return (ingot_memory_usage_t){
      (size_t)atomic_load_explicit(&usage->current, memory_order_relaxed),
      (size_t)atomic_load_explicit(&usage->peak, memory_order_relaxed),
  };
}

ingot_memory_statistics_t ingot_hal_account_read(const ingot_hal_account_t *account) {
  const ingot_hal_usage_t *kinds = account->kinds;
  return (ingot_memory_statistics_t){
      .total = usage_read(&account->total),
      .constants = usage_read(&kinds[INGOT_MEMORY_CONSTANTS]),
      .parameters = usage_read(&kinds[INGOT_MEMORY_PARAMETERS]),
      .weights = usage_read(&kinds[INGOT_MEMORY_WEIGHTS]),
      .state = usage_read(&kinds[INGOT_MEMORY_STATE]),
      .slabs = usage_read(&kinds[INGOT_MEMORY_SLABS]),
      .lists = usage_read(&kinds[INGOT_MEMORY_LISTS]),
      .results = usage_read(&kinds[INGOT_MEMORY_RESULTS]),
  };
}
