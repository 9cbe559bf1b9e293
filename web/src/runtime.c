/* The runtime as one WebAssembly module: the C API that host.js and model.js call, an allocator that
 * grows the memory, and what is set up once. Every model has an instance of its own, so that closing
 * it gives all of its memory back.
 */
#include "ingot.c"
#include "ingot/arena.h"

#define WEB_EXPORT(name) __attribute__((export_name(name)))

extern unsigned char __heap_base; /* the linker's: the end of the program's data */

#define WEB_PAGE 65536u
#define WEB_LEAST_GROWTH 16u /* pages */

static ingot_arena_t web_arena;
static ingot_instance_t *web_instance;
static ingot_device_t *web_device;

/* Bytes from `begin` on become free blocks of the arena. */
static void web_add(uintptr_t begin, size_t length) {
  ingot_arena_block_t *block = (ingot_arena_block_t *)begin;
  block->length = length;
  web_arena.used += length;
  ingot_arena_free(&web_arena, block + 1);
}

static bool web_grow_by(size_t pages) {
  size_t before = __builtin_wasm_memory_grow(0, pages);
  if (before == SIZE_MAX) return false;
  web_add(before * WEB_PAGE, pages * WEB_PAGE);
  return true;
}

static bool web_grow(size_t length) {
  if (length > SIZE_MAX - 2 * WEB_PAGE) return false;
  size_t pages = (length + WEB_PAGE + 63) / WEB_PAGE; /* with room for the block's head */
  return (pages < WEB_LEAST_GROWTH && web_grow_by(WEB_LEAST_GROWTH)) || web_grow_by(pages);
}

static ingot_mutex_t web_mutex; /* of the arena */

static void *web_resize(void *user, void *pointer, size_t length) {
  ingot_mutex_lock(&web_mutex);
  void *resized = ingot_arena_resize(user, pointer, length);
  if (!resized && length > 0 && web_grow(length)) {
    resized = ingot_arena_resize(user, pointer, length);
  }
  ingot_mutex_unlock(&web_mutex);
  return resized;
}

static void web_release(void *user, void *data) { (void)web_resize(user, data, 0); }

/* -- what the host gives --------------------------------------------------------------------------- */

#define WEB_IMPORT(name) __attribute__((import_module("ingot"), import_name(name)))

/* Where a parameter is: false if there is none. */
WEB_IMPORT("find") bool ingot_web_find(const char *key, ingot_parameter_span_t *out_span);
/* Appends to the state that is saved. */
WEB_IMPORT("write") void ingot_web_write(const void *data, size_t length);
/* The next bytes of the state that is loaded; false behind its end. */
WEB_IMPORT("read") bool ingot_web_read(void *data, size_t length);

static ingot_status_t web_find(void *user, const char *scope, const char *key,
                               ingot_parameter_span_t *out_span) {
  (void)user;
  (void)scope;
  if (ingot_web_find(key, out_span)) return NULL;
  return ingot_status_create(&web_instance->allocator, INGOT_STATUS_NOT_FOUND, "it was not given");
}

static bool web_write(void *user, const void *data, size_t length) {
  (void)user;
  ingot_web_write(data, length);
  return true;
}

static bool web_read(void *user, void *data, size_t length) {
  (void)user;
  return ingot_web_read(data, length);
}

/* -- what it calls --------------------------------------------------------------------------------- */

/* Once, first. */
WEB_EXPORT("ingot_web_start") ingot_status_t ingot_web_start(uint32_t threads) {
  const uintptr_t begin = ((uintptr_t)&__heap_base + 15) & ~(uintptr_t)15;
  web_add(begin, __builtin_wasm_memory_size(0) * WEB_PAGE - begin);
  const ingot_allocator_t allocator = {&web_arena, web_resize};
  const ingot_instance_options_t options = {.allocator = &allocator};
  INGOT_TRY(ingot_instance_create(&options, &web_instance));
  char uri[32];
  (void)snprintf(uri, sizeof(uri), "cpu://?threads=%u", threads);
  return ingot_device_create(web_instance, uri, NULL, &web_device);
}

/* As realloc of C. */
WEB_EXPORT("ingot_web_resize") void *ingot_web_resize(void *pointer, size_t length) {
  return web_resize(&web_arena, pointer, length);
}

WEB_EXPORT("ingot_web_device") ingot_device_t *ingot_web_device(void) { return web_device; }

/* Takes over `data`, of ingot_web_resize. */
WEB_EXPORT("ingot_web_load")
ingot_status_t ingot_web_load(void *data, size_t length, ingot_module_t **out_module) {
  ingot_status_t status =
      ingot_module_load_memory(web_instance, data, length, INGOT_MODULE_VERIFY_CONSTANTS,
                               web_release, &web_arena, out_module);
  if (status) web_release(&web_arena, data);
  return status;
}

WEB_EXPORT("ingot_web_program")
ingot_status_t ingot_web_program(ingot_module_t *module, ingot_program_t **out_program) {
  const ingot_parameters_t parameters = {NULL, web_find};
  return ingot_program_create(web_device, &module, 1, &parameters, NULL, out_program);
}

WEB_EXPORT("ingot_web_call")
ingot_status_t ingot_web_call(ingot_session_t *session, uint32_t function,
                              ingot_buffer_view_t *const *arguments, uint32_t argument_count,
                              ingot_buffer_view_t **results, uint32_t result_count,
                              double timeout) {
  const ingot_call_options_t options = {.timeout = (int64_t)(timeout * 1e6)};
  return ingot_session_call(session, function, arguments, argument_count, results, result_count,
                            &options);
}

WEB_EXPORT("ingot_web_save") ingot_status_t ingot_web_save(ingot_session_t *session) {
  return ingot_session_save_state(session, web_write, NULL);
}

WEB_EXPORT("ingot_web_restore") ingot_status_t ingot_web_restore(ingot_session_t *session) {
  return ingot_session_load_state(session, web_read, NULL);
}

/* What the host reads of structs. */
_Static_assert(sizeof(ingot_function_info_t) == 24, "functions of model.js");
_Static_assert(sizeof(ingot_value_info_t) == 24, "values of model.js");
_Static_assert(sizeof(ingot_dim_info_t) == 16, "dims of model.js");
_Static_assert(sizeof(ingot_buffer_view_layout_t) == 24, "tensors of model.js");
_Static_assert(sizeof(ingot_parameter_span_t) == 24, "parameters of model.js");
