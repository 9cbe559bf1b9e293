/* Sessions: calls with all their checks. Everything about a call that depends on the
 * signature only is checked here, before any work; what depends on symbolic dims is checked
 * by the code itself.
 */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>

#include "api/session.h"
#include "base/float_environment.h"
#include "base/dtype.h"
#include "hal/account.h"
#include "hal/pool.h"
#include "module/instruction.h"
#include "platform/platform.h"
#include "vm/debug.h"
#include "vm/measure.h"
#include "vm/reference.h"

/* -- weights ----------------------------------------------------------------------------------- */

/* Takes the program's weights. With the program's mutex, and with the session held. */
static void renew_weights(ingot_session_t *session) {
  ingot_vm_weights_t *weights = session->program->weights;
  if (session->weights == weights) return;
  ingot_vm_weights_retain(weights);
  ingot_vm_weights_release(session->weights);
  session->weights = weights;
}

/* The same if nobody holds the session. */
static void renew_idle(ingot_session_t *session) {
  uint32_t idle = 0;
  if (!atomic_compare_exchange_strong(&session->context.stop.flags, &idle, INGOT_STOP_RENEWED)) {
    return;
  }
  renew_weights(session);
  uint32_t flags = atomic_fetch_and(&session->context.stop.flags, ~INGOT_STOP_RENEWED);
  if (flags & INGOT_STOP_QUEUED)
    ingot_call_queue_wake(&session->queue); /* submitted in this moment */
}

/* Either this sees that the weights have been swapped, or the swap that nobody is here: both
 * write before they read. */
void ingot_session_settle(ingot_session_t *session) {
  if (atomic_load(&session->weights) == atomic_load(&session->program->weights)) return;
  ingot_mutex_lock(&session->program->mutex);
  renew_idle(session);
  ingot_mutex_unlock(&session->program->mutex);
}

void ingot_program_renew_sessions(const ingot_program_t *program) {
  for (ingot_session_t *each = program->sessions; each; each = each->next) renew_idle(each);
}

static void enlist_session(ingot_session_t *session) {
  ingot_program_t *program = session->program;
  ingot_mutex_lock(&program->mutex);
  session->next = program->sessions;
  session->previous = &program->sessions;
  if (session->next) session->next->previous = &session->next;
  program->sessions = session;
  renew_weights(session);
  ingot_mutex_unlock(&program->mutex);
}

/* -- memory ------------------------------------------------------------------------------------ */

static ingot_status_t check_slab(const ingot_session_t *session,
                                 const ingot_session_options_t *options) {
  const ingot_device_t *device = session->program->device;
  ingot_buffer_t *slab = options->slab;
  const char *wrong = NULL;
  if (options->shares_slab) wrong = "given and shares_slab is set: expected one of both";
  else if (slab->device != device) wrong = "on another device than the program";
  else if ((uintptr_t)slab->host % sizeof(int64_t) != 0) wrong = "not on a multiple of 8 bytes";
  else if (!ingot_hal_slab_claim(slab)) wrong = "that of another session, or overlaps it";
  if (!wrong) return NULL;
  return ingot_status_create(ingot_session_allocator(session), INGOT_STATUS_INVALID_ARGUMENT,
                             "the session's slab is %s", wrong);
}

/* Takes what the options say; what was taken is released with the session. */
static ingot_status_t rule_memory(ingot_session_t *session,
                                  const ingot_session_options_t *options) {
  const ingot_session_options_t no_options = {.memory_limit = 0};
  ingot_vm_context_t *context = &session->context;
  if (!options) options = &no_options;
  INGOT_TRY(ingot_hal_account_create(ingot_session_allocator(session), "session",
                                     options->memory_limit, session->program->account,
                                     &context->account));
  context->state.account = context->account;
  if (options->slab) {
    INGOT_TRY(check_slab(session, options));
    return ingot_vm_context_give_slab(context, options->slab);
  }
  context->shares_slab = options->shares_slab;
  if (context->shares_slab) ingot_hal_pool_join(session->program->device);
  return NULL;
}

/* -- lifetime ---------------------------------------------------------------------------------- */

ingot_status_t ingot_session_allocate(ingot_program_t *program,
                                      const ingot_session_options_t *options,
                                      ingot_session_t **out_session) {
  void *memory = NULL;
  INGOT_TRY(ingot_allocate(ingot_hal_device_allocator(program->device), sizeof(ingot_session_t),
                           &memory));
  ingot_session_t *session = memory;
  ingot_reference_count_initialize(&session->references);
  ingot_reference_count_initialize(&session->users);
  ingot_call_queue_initialize(&session->queue);
  ingot_program_retain(program);
  session->program = program;
  enlist_session(session);
  ingot_status_t status = ingot_vm_context_initialize(&session->context, program->device,
                                                      program->images, program->image_count);
  session->context.zero_memory = program->zero_memory;
  if (!status) status = rule_memory(session, options);
  if (status) {
    ingot_session_release(session);
    return status;
  }
  *out_session = session;
  return NULL;
}

void ingot_session_retain(ingot_session_t *session) {
  ingot_reference_count_retain(&session->references);
}

void ingot_session_release(ingot_session_t *session) {
  if (session && ingot_reference_count_release(&session->references)) ingot_session_drop(session);
}

void ingot_session_drop(ingot_session_t *session) {
  if (!ingot_reference_count_release(&session->users)) return;
  ingot_program_t *program = session->program;
  for (uint32_t i = 0; session->inner && i < program->image_count; ++i) {
    ingot_session_release(session->inner[i]);
  }
  ingot_release_memory(ingot_session_allocator(session), session->inner);
  ingot_mutex_lock(&program->mutex);
  *session->previous = session->next;
  if (session->next) session->next->previous = session->previous;
  ingot_mutex_unlock(&program->mutex);
  ingot_vm_context_deinitialize(&session->context);
  if (session->context.shares_slab) ingot_hal_pool_leave(program->device);
  ingot_hal_account_release(session->context.account);
  ingot_vm_weights_release(session->weights);
  ingot_mutex_deinitialize(&session->queue.mutex);
  ingot_release_memory(ingot_session_allocator(session), session);
  ingot_program_release(program); /* last: it keeps the allocator alive */
}

/* -- one caller at a time ---------------------------------------------------------------------- */

static ingot_status_t busy_failure(const ingot_session_t *session, uint32_t flags) {
  const ingot_allocator_t *allocator = ingot_session_allocator(session);
  if (flags & INGOT_STOP_QUEUED) {
    return ingot_status_create(allocator, INGOT_STATUS_FAILED_PRECONDITION,
                               "the session has submitted calls that have not ended; wait for a "
                               "fence that the last one signals, or submit this one too");
  }
  const char *native = atomic_load(&session->context.native);
  return ingot_status_create(allocator, INGOT_STATUS_FAILED_PRECONDITION,
                             "the session is in a call%s%s%s; use one session per thread%s",
                             native ? ", inside of its native function '" : "",
                             native ? native : "", native ? "'" : "",
                             native ? ", and another one in a native function" : "");
}

ingot_status_t ingot_session_enter(ingot_session_t *session, uint32_t flags) {
  uint32_t found = 0;
  while (!atomic_compare_exchange_strong_explicit(&session->context.stop.flags, &found, flags,
                                                  memory_order_acquire, memory_order_relaxed)) {
    if (found != INGOT_STOP_RENEWED) return busy_failure(session, found);
    ingot_mutex_lock(&session->program->mutex); /* a swap is here, with the mutex */
    ingot_mutex_unlock(&session->program->mutex);
    found = 0;
  }
  return NULL;
}

void ingot_session_leave(ingot_session_t *session) {
  /* Calls that were submitted meanwhile are still there. */
  uint32_t flags = atomic_fetch_and(&session->context.stop.flags, INGOT_STOP_QUEUED);
  if (flags & INGOT_STOP_QUEUED) ingot_call_queue_wake(&session->queue);
  else ingot_session_settle(session);
}

/* Names a function of the program to the context, for whoever has the session. */
static void set_function(ingot_session_t *session, uint32_t function) {
  ingot_vm_context_t *context = &session->context;
  ingot_program_function_t target = session->program->functions[function];
  const ingot_vm_image_t *image = &session->program->images[target.image];
  context->image = image;
  context->function = target.function;
  context->variables = context->state.variables + image->first_variable;
  const ingot_session_t *root = session->root ? session->root : session;
  if (root == session &&
      session->weights != atomic_load_explicit(&session->program->weights, memory_order_acquire)) {
    ingot_mutex_lock(&session->program->mutex);
    renew_weights(session);
    ingot_mutex_unlock(&session->program->mutex);
  }
  context->globals = root->weights->globals + image->first_global;
}

static ingot_status_t check_function(const ingot_session_t *session, uint32_t function) {
  if (function < session->program->function_count) return NULL;
  return ingot_status_create(ingot_session_allocator(session), INGOT_STATUS_OUT_OF_RANGE,
                             "function %u, the program has %u", function,
                             session->program->function_count);
}

ingot_status_t ingot_session_enter_function(ingot_session_t *session, uint32_t function) {
  INGOT_TRY(check_function(session, function));
  INGOT_TRY(ingot_session_enter(session, INGOT_STOP_BUSY | INGOT_STOP_CALL));
  set_function(session, function);
  return NULL;
}

/* -- checks of a call -------------------------------------------------------------------------- */

/* The function being called, and how to name its values. */
typedef struct call_t {
  ingot_session_t *session;
  const ingot_module_t *module;
  const ingot_layout_function_t *function;
  ingot_buffer_view_t *const *arguments;
  ingot_buffer_view_t **results;
} call_t;

static const ingot_layout_value_t *result_layout(const call_t *call, uint32_t result) {
  return &call->module
              ->values[call->function->first_value + call->function->argument_count + result];
}

static ingot_status_t kind_failure(const call_t *call, const char *kind, uint32_t ordinal,
                                   const ingot_layout_value_t *value,
                                   const ingot_buffer_view_t *view) {
  return ingot_status_create(ingot_session_allocator(call->session), INGOT_STATUS_INVALID_ARGUMENT,
                             "%s %u '%s' is %s, expected a %s", kind, ordinal,
                             ingot_module_string(call->module, value->name),
                             !view                ? "NULL"
                             : !view->span        ? "a list"
                             : view->layout.dtype ? "a tensor"
                                                  : "a reference",
                             value->kind & INGOT_VALUE_SEQUENCE ? "list" : "tensor");
}

/* What does not fit in a tensor, or an element, of `rank`. */
static __attribute__((noinline)) ingot_status_t value_failure(const call_t *call, const char *kind,
                                                              uint32_t ordinal,
                                                              const ingot_layout_value_t *value,
                                                              uint32_t rank,
                                                              const ingot_buffer_view_t *view) {
  const ingot_allocator_t *allocator = ingot_session_allocator(call->session);
  const char *name = ingot_module_string(call->module, value->name);
  if (!view || !view->layout.dtype) return kind_failure(call, kind, ordinal, value, view);
  if (view->span->device != call->session->program->device) {
    return ingot_status_create(allocator, INGOT_STATUS_INVALID_ARGUMENT,
                               "%s %u '%s' is on another device than the program; copy it there",
                               kind, ordinal, name);
  }
  if (view->layout.dtype != value->dtype) {
    return ingot_status_create(
        allocator, INGOT_STATUS_INVALID_ARGUMENT, "%s %u '%s' is %s, expected %s", kind, ordinal,
        name, ingot_dtype_name(view->layout.dtype), ingot_dtype_name(value->dtype));
  }
  if (view->layout.rank != rank) {
    return ingot_status_create(allocator, INGOT_STATUS_INVALID_ARGUMENT,
                               "%s %u '%s' has rank %u, expected %u", kind, ordinal, name,
                               view->layout.rank, rank);
  }
  const ingot_layout_dim_t *dims = &call->module->dims[value->first_dim];
  uint32_t d = 0;
  while (d + 1 < value->rank && (dims[d].size < 0 || dims[d].size == view->dims[d])) ++d;
  return ingot_status_create(allocator, INGOT_STATUS_INVALID_ARGUMENT,
                             "%s %u '%s': dim %u is %" PRId64 ", expected %" PRId64, kind, ordinal,
                             name, d, view->dims[d], dims[d].size);
}

/* dtype, rank, static dims and device of a view. */
static inline ingot_status_t check_value(const call_t *call, const char *kind, uint32_t ordinal,
                                         const ingot_layout_value_t *value, uint32_t rank,
                                         const ingot_buffer_view_t *view) {
  bool fits = view && view->span && view->span->device == call->session->program->device &&
              view->layout.dtype == value->dtype && view->layout.rank == rank;
  if (fits) {
    const ingot_layout_dim_t *dims = &call->module->dims[value->first_dim];
    for (uint32_t d = 0; d < value->rank; ++d) {
      fits &= dims[d].size < 0 || dims[d].size == view->dims[d];
    }
  }
  return fits ? NULL : value_failure(call, kind, ordinal, value, rank, view);
}

/* A sequence, an optional or a reference: whether it is one, and every element. */
static __attribute__((noinline)) ingot_status_t check_passed(const call_t *call, uint32_t ordinal,
                                                             const ingot_layout_value_t *value) {
  char kind[32] = "argument";
  uint32_t rank = value->rank;
  ingot_buffer_view_t *view = call->arguments[ordinal];
  bool sequence = value->kind & INGOT_VALUE_SEQUENCE;
  if (value->kind & INGOT_VALUE_REFERENCE) {
    return ingot_status_prefix(
        ingot_reference_check(call->session->program->device, view,
                              ingot_module_reference_type(call->module, value)),
        "argument %u '%s'", ordinal, ingot_module_string(call->module, value->name));
  }
  if (!view && (value->kind & INGOT_VALUE_OPTIONAL)) return NULL;
  if (!view || sequence != !view->span) return kind_failure(call, kind, ordinal, value, view);
  for (uint32_t i = 0; i < view->count; ++i) {
    const ingot_buffer_view_t *element = ingot_buffer_view_element(view, i);
    if (i == 0 && (value->kind & INGOT_VALUE_ANY_RANK)) rank = element->layout.rank;
    if (sequence) (void)snprintf(kind, sizeof(kind), "element %u of argument", i);
    INGOT_TRY(check_value(call, kind, ordinal, value, rank, element));
  }
  return NULL;
}

/* `view` may be a list, or NULL. */
static bool overlaps(const ingot_buffer_t *span, ingot_buffer_view_t *view) {
  for (uint32_t i = 0; view && i < view->count; ++i) {
    const ingot_buffer_t *bytes = ingot_buffer_view_element(view, i)->span;
    if (ingot_hal_ranges_overlap(span, 0, span->length, bytes, 0, bytes->length)) return true;
  }
  return false;
}

static ingot_status_t check_overlap(const call_t *call, uint32_t result, const char *kind,
                                    uint32_t ordinal, ingot_buffer_view_t *other) {
  if (!overlaps(call->results[result]->span, other)) return NULL;
  return ingot_status_create(
      ingot_session_allocator(call->session), INGOT_STATUS_INVALID_ARGUMENT,
      "result %u '%s' is to be written over %s %u; give it memory of its "
      "own",
      result, ingot_module_string(call->module, result_layout(call, result)->name), kind, ordinal);
}

static ingot_status_t check_result(const call_t *call, uint32_t result) {
  const ingot_layout_value_t *value = result_layout(call, result);
  if (value->kind != 0) {
    return ingot_status_create(ingot_session_allocator(call->session),
                               INGOT_STATUS_INVALID_ARGUMENT,
                               "result %u '%s' is no tensor, and for others calls make memory "
                               "themselves: pass NULL",
                               result, ingot_module_string(call->module, value->name));
  }
  INGOT_TRY(check_value(call, "result", result, value, value->rank, call->results[result]));
  for (uint32_t i = 0; i < call->function->argument_count; ++i) {
    INGOT_TRY(check_overlap(call, result, "argument", i, call->arguments[i]));
  }
  for (uint32_t i = 0; i < result; ++i) {
    INGOT_TRY(check_overlap(call, result, "result", i, call->results[i]));
  }
  return NULL;
}

/* The application's slab is for what the call computes, and is written over. */
static ingot_status_t check_beside_slab(const call_t *call, const char *kind, uint32_t count,
                                        ingot_buffer_view_t *const *views) {
  const ingot_vm_context_t *context = &call->session->context;
  for (uint32_t i = 0; context->is_slab_given && i < count; ++i) {
    if (!overlaps(context->slab, views[i])) continue;
    return ingot_status_create(
        ingot_session_allocator(call->session), INGOT_STATUS_INVALID_ARGUMENT,
        "%s %u lies in the session's slab; give it memory of its own", kind, i);
  }
  return NULL;
}

static ingot_status_t check_call(const call_t *call, uint32_t argument_count,
                                 uint32_t result_count) {
  const ingot_layout_function_t *function = call->function;
  if (argument_count != function->argument_count || result_count != function->result_count) {
    return ingot_status_create(
        ingot_session_allocator(call->session), INGOT_STATUS_INVALID_ARGUMENT,
        "function '%s' takes %u arguments and gives %u results, it is called with %u and %u",
        ingot_module_string(call->module, function->name), function->argument_count,
        function->result_count, argument_count, result_count);
  }
  const ingot_layout_value_t *values = &call->module->values[function->first_value];
  for (uint32_t i = 0; i < argument_count; ++i) {
    if (INGOT_WITH_LISTS && values[i].kind != 0) INGOT_TRY(check_passed(call, i, &values[i]));
    else
      INGOT_TRY(check_value(call, "argument", i, &values[i], values[i].rank, call->arguments[i]));
  }
  for (uint32_t i = 0; i < result_count; ++i) {
    if (call->results[i]) INGOT_TRY(check_result(call, i));
  }
  INGOT_TRY(check_beside_slab(call, "argument", argument_count, call->arguments));
  return check_beside_slab(call, "result", result_count, call->results);
}

/* -- the call ---------------------------------------------------------------------------------- */

static __attribute__((noinline)) ingot_status_t check_state(const ingot_session_t *session) {
  return ingot_vm_state_check(&session->context.state, session->program->images,
                              session->program->image_count);
}

/* Puts references in the place of results that are their handles. */
static ingot_status_t take_references(const call_t *call) {
  const ingot_vm_context_t *context = &call->session->context;
  for (uint32_t i = 0; i < call->function->result_count; ++i) {
    const ingot_layout_value_t *value = result_layout(call, i);
    if (!(value->kind & INGOT_VALUE_REFERENCE)) continue;
    ingot_buffer_view_t *handle = context->results[i].view;
    INGOT_TRY(ingot_vm_reference_find(context, handle->span, 0,
                                      ingot_module_reference_type(call->module, value),
                                      &context->results[i].view));
    ingot_buffer_view_release(handle);
  }
  return NULL;
}

/* Hands new results to the caller on success, else drops them. */
static void settle_results(const call_t *call, bool success) {
  ingot_vm_result_t *results = call->session->context.results;
  for (uint32_t i = 0; i < call->function->result_count; ++i) {
    if (results[i].given) continue;
    if (success) call->results[i] = results[i].view;
    else ingot_buffer_view_release(results[i].view);
  }
}

/* Runs the code, then waits for the device, in any case: what the call uses may go when it
 * returns. The first failure counts. */
static ingot_status_t run_and_wait(ingot_vm_context_t *context) {
  if (context->debug) INGOT_TRY(ingot_vm_mark(context, NULL, ingot_vm_debug_stop));
  ingot_status_t status = ingot_vm_run(context);
  ingot_status_t waited = ingot_hal_queue_wait(context->queue);
  context->queue->site = NULL;
  ingot_vm_unmark(context);
  if (context->slab_missing) status = ingot_vm_name_widest(context, status);
  if (!status) return waited;
  ingot_status_free(waited);
  return status;
}

static ingot_status_t run_call(const call_t *call, const ingot_call_t *given) {
  ingot_vm_context_t *context = &call->session->context;
  if (context->state.is_changing && !call->session->root) return check_state(call->session);
  for (uint32_t i = 0; i < given->result_count; ++i) {
    ingot_buffer_view_t *view = call->results[i];
    context->results[i] = (ingot_vm_result_t){view, view != NULL, false};
  }
  context->arguments = call->arguments;
  context->is_slab_seen = false;
  ingot_vm_context_limit(context, given->options, given->begin);
  ingot_status_t status = run_and_wait(context);
  if (INGOT_WITH_NATIVES && !status) status = take_references(call);
  settle_results(call, !status);
  if (!status && context->state.is_changing && !call->session->root) {
    ingot_vm_state_keep(&context->state);
  }
  if (context->retired_count + context->list_count > 0 || context->shares_slab) {
    ingot_vm_context_finish_call(context);
  }
  return status;
}

/* Tells the trace of a call that began at `begin`. */
static void trace_call(const call_t *call, int64_t begin) {
  const ingot_vm_context_t *context = &call->session->context;
  const ingot_program_t *program = call->session->program;
  ingot_trace_event_t event = {
      .kernel = ingot_module_string(call->module, call->function->name),
      .layer = "",
      .begin = begin,
      .end = ingot_clock(),
      .length = context->slab_length,
      .resident = ingot_vm_weights_length(call->session->weights),
      .kind = INGOT_TRACE_CALL,
  };
  for (uint32_t i = 0; i < program->image_count; ++i) {
    const ingot_vm_image_t *image = &program->images[i];
    event.resident += (int64_t)image->module->constants_length;
  }
  context->trace(context->trace_user, &event);
}

/* The function of a call, with its arguments and results. */
static call_t find_call(ingot_session_t *session, const ingot_call_t *call) {
  ingot_program_function_t target = session->program->functions[call->function];
  const ingot_module_t *module = session->program->images[target.image].module;
  return (call_t){session, module, &module->functions[target.function], call->arguments,
                  call->results};
}

ingot_status_t ingot_session_check(ingot_session_t *session, const ingot_call_t *call) {
  INGOT_TRY(check_function(session, call->function));
  const call_t found = find_call(session, call);
  return check_call(&found, call->argument_count, call->result_count);
}

ingot_status_t ingot_session_run(ingot_session_t *session, const ingot_call_t *call) {
  const ingot_vm_context_t *context = &session->context;
  set_function(session, call->function);
  const call_t found = find_call(session, call);
  int64_t begin = context->trace ? ingot_clock() : 0;
  ingot_float_environment_t saved = ingot_float_environment_enter();
  ingot_status_t status = run_call(&found, call);
  ingot_float_environment_leave(saved);
  if (context->trace) trace_call(&found, begin);
  return status;
}

ingot_status_t ingot_session_call(ingot_session_t *session, uint32_t function,
                                  ingot_buffer_view_t *const *arguments, uint32_t argument_count,
                                  ingot_buffer_view_t **results, uint32_t result_count,
                                  const ingot_call_options_t *options) {
  const ingot_call_t call = {.function = function,
                             .argument_count = argument_count,
                             .result_count = result_count,
                             .arguments = arguments,
                             .results = results,
                             .options = options};
  INGOT_TRY(ingot_session_enter(session, INGOT_STOP_BUSY | INGOT_STOP_CALL));
  ingot_status_t status = ingot_session_check(session, &call);
  if (!status) status = ingot_session_run(session, &call);
  ingot_session_leave(session);
  return status;
}

/* -- between calls ----------------------------------------------------------------------------- */

ingot_status_t ingot_session_trim(ingot_session_t *session) {
  INGOT_TRY(ingot_session_enter(session, INGOT_STOP_BUSY));
  ingot_vm_context_trim(&session->context);
  for (uint32_t i = 0; session->inner && i < session->program->image_count; ++i) {
    if (session->inner[i]) ingot_vm_context_trim(&session->inner[i]->context);
  }
  ingot_session_leave(session);
  return NULL;
}

ingot_status_t ingot_session_set_trace(ingot_session_t *session, ingot_trace_function_t trace,
                                       void *user) {
  INGOT_TRY(ingot_session_enter(session, INGOT_STOP_BUSY));
  ingot_vm_context_set_trace(&session->context, trace, user);
  ingot_session_leave(session);
  return NULL;
}

ingot_status_t ingot_session_set_debug(ingot_session_t *session, ingot_debug_function_t debug,
                                       void *user) {
  INGOT_TRY(ingot_session_enter(session, INGOT_STOP_BUSY));
  session->context.debug = debug;
  session->context.debug_user = user;
  ingot_session_leave(session);
  return NULL;
}
