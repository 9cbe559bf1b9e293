/* Calls of one module's functions by the code of another.
 *
 * Such a function runs in an inner session, which has working memory of its own and, during the
 * call, the state and the weights of the session that the application calls. Modules do not call
 * each other in a circle, so a session needs one inner session per module. A call waits for the
 * work before it, and for that of the function.
 */
#include <stddef.h>

#include "api/session.h"
#include "hal/account.h"

/* The session whose code calls a native function. */
static ingot_session_t *calling_session(const ingot_native_call_t *call) {
  const ingot_hal_queue_t *queue = call->runtime;
  uint8_t *context = queue->describe_user;
  return (ingot_session_t *)(void *)(context - offsetof(ingot_session_t, context));
}

/* The session below `root` that runs functions of an image. */
static ingot_status_t inner_session(ingot_session_t *root, uint32_t image,
                                    ingot_session_t **out_session) {
  ingot_program_t *program = root->program;
  if (!root->inner) {
    void *memory = NULL;
    INGOT_TRY(ingot_allocate_array(ingot_session_allocator(root), program->image_count,
                                   sizeof(ingot_session_t *), &memory));
    root->inner = memory;
  }
  if (!root->inner[image]) {
    const ingot_session_options_t options = {.shares_slab = root->context.shares_slab};
    INGOT_TRY(ingot_session_allocate(program, &options, &root->inner[image]));
    ingot_hal_account_move(root->inner[image]->context.account, root->context.account);
    root->inner[image]->root = root;
    root->inner[image]->context.call_link = ingot_session_call_link;
  }
  *out_session = root->inner[image];
  return NULL;
}

/* Operands of one call as views; those of results whose dims the function decides are NULL. */
typedef struct linked_call_t {
  ingot_buffer_view_t *arguments[INGOT_HAL_MAX_BINDINGS];
  ingot_buffer_view_t *results[INGOT_HAL_MAX_BINDINGS];
} linked_call_t;

static ingot_status_t view_of(const ingot_native_tensor_t *tensor, ingot_buffer_view_t **out_view) {
  *out_view = tensor->view; /* a reference */
  if (tensor->view) ingot_buffer_view_retain(tensor->view);
  if (!tensor->buffer) return NULL;
  return ingot_buffer_view_create(tensor->buffer, tensor->offset, tensor->dtype, tensor->rank,
                                  tensor->dims, out_view);
}

static ingot_status_t take_operands(const ingot_native_call_t *call, linked_call_t *linked) {
  for (uint32_t i = 0; i < call->argument_count; ++i) {
    INGOT_TRY(view_of(&call->arguments[i], &linked->arguments[i]));
  }
  for (uint32_t i = 0; i < call->result_count; ++i) {
    INGOT_TRY(view_of(&call->results[i], &linked->results[i]));
  }
  return NULL;
}

/* New views of results become those of the native call. */
static void give_operands(const ingot_native_call_t *call, linked_call_t *linked) {
  for (uint32_t i = 0; i < call->argument_count; ++i) {
    ingot_buffer_view_release(linked->arguments[i]);
  }
  for (uint32_t i = 0; i < call->result_count; ++i) {
    if (call->results[i].buffer) ingot_buffer_view_release(linked->results[i]);
    else call->results[i].view = linked->results[i];
  }
}

static bool root_must_stop(void *user) {
  ingot_session_t *root = user;
  return ingot_stop_is_due(&root->context.stop, true);
}

/* Runs the function with the state of `root`, which stays as it is if the call fails. */
static ingot_status_t run_inner(ingot_session_t *inner, uint32_t function,
                                const ingot_native_call_t *call, linked_call_t *linked) {
  ingot_session_t *root = inner->root;
  ingot_vm_context_t *context = &inner->context;
  ingot_call_options_t options = {.should_stop = root_must_stop, .user = root};
  if (root->context.max_steps <= INT64_MAX) options.max_steps = (int64_t)root->context.max_steps;
  if (context->trace != root->context.trace) {
    ingot_vm_context_set_trace(context, root->context.trace, root->context.trace_user);
  }
  context->debug = root->context.debug;
  context->debug_user = root->context.debug_user;
  context->zero_memory = root->context.zero_memory;
  context->state = root->context.state;
  ingot_status_t status =
      ingot_session_call(inner, function, linked->arguments, call->argument_count, linked->results,
                         call->result_count, &options);
  root->context.state.is_changing |= context->state.is_changing;
  context->state = (ingot_vm_state_t){.count = 0};
  bool is_cancelled = ingot_status_code(status) == INGOT_STATUS_CANCELLED;
  if (!is_cancelled || !ingot_stop_is_found(&root->context.stop)) return status;
  ingot_status_free(status); /* the reason is that of the root */
  return ingot_stop_status(ingot_session_allocator(root), &root->context.stop);
}

ingot_status_t ingot_session_call_link(void *user, const ingot_native_call_t *call) {
  const ingot_program_link_t *link = user;
  ingot_session_t *outer = calling_session(call);
  ingot_session_t *inner = NULL;
  linked_call_t linked = {.arguments = {NULL}};
  if (call->attributes[0]) {
    return ingot_status_create(ingot_session_allocator(outer), INGOT_STATUS_INVALID_ARGUMENT,
                               "is called with %s, but functions of modules take tensors alone",
                               call->attributes);
  }
  INGOT_TRY(ingot_hal_queue_wait(outer->context.queue));
  uint32_t image = outer->program->functions[link->target].image;
  INGOT_TRY(inner_session(outer->root ? outer->root : outer, image, &inner));
  ingot_status_t status = take_operands(call, &linked);
  if (!status) status = run_inner(inner, link->target, call, &linked);
  give_operands(call, &linked);
  return status;
}
