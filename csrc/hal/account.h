/* Accounts: how many bytes buffers hold, by kind, and how many they may hold.
 *
 * A buffer with an account is counted from its creation to its destruction, whoever holds it. An
 * account with a parent counts there too: those of a program's sessions in the program's.
 */
#ifndef INGOT_HAL_ACCOUNT_H_
#define INGOT_HAL_ACCOUNT_H_

#include "hal/hal.h"

/* Bytes now, and the most that there were. */
typedef struct ingot_hal_usage_t {
  _Atomic int64_t current;
  _Atomic int64_t peak;
} ingot_hal_usage_t;

struct ingot_hal_account_t {
  ingot_reference_count_t references;
  const ingot_allocator_t *allocator; /* that every buffer of the account keeps alive */
  ingot_hal_account_t *parent;        /* retained; may be NULL */
  const char *owner;                  /* in messages: "session" */
  int64_t limit;                      /* of the total */
  ingot_hal_usage_t total;
  ingot_hal_usage_t kinds[INGOT_MEMORY_KINDS];
};

/* `limit`: bytes, 0 for none. `owner` is constant, `parent` may be NULL. */
ingot_status_t ingot_hal_account_create(const ingot_allocator_t *allocator, const char *owner,
                                        size_t limit, ingot_hal_account_t *parent,
                                        ingot_hal_account_t **out_account);

/* Gives an account that counts nothing yet another parent. */
void ingot_hal_account_move(ingot_hal_account_t *account, ingot_hal_account_t *parent);

/* Accepts NULL. */
void ingot_hal_account_release(ingot_hal_account_t *account);

/* Counts a root that nobody counts yet as `kind`, INGOT_MEMORY_*. OutOfMemory where the limit does
 * not allow it; then nothing is counted. */
ingot_status_t ingot_hal_account_add(ingot_hal_account_t *account, uint32_t kind,
                                     ingot_buffer_t *buffer);

/* Stops counting a root that has an account; before it is destroyed. */
void ingot_hal_account_remove(ingot_buffer_t *buffer);

ingot_memory_statistics_t ingot_hal_account_read(const ingot_hal_account_t *account);

#endif /* INGOT_HAL_ACCOUNT_H_ */
