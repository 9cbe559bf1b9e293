/* Continues a text with a small GPT-2, in a module that generate.py saved.
 *
 *   generate MODULE PROMPT
 *
 * The module's functions prefill and decode share a key-value cache, which is state of the
 * session: each call of decode takes one character and gives the next. Nothing is passed
 * around but characters.
 */
#include <stdio.h>
#include <string.h>

#include "ingot/ingot.h"

enum { COUNT = 200, LONGEST_PROMPT = 56 };

/* All that a model needs, made in this order; NULL where it was not reached. */
typedef struct model_t {
  ingot_instance_t *instance;
  ingot_device_t *device;
  ingot_module_t *module;
  ingot_program_t *program;
  ingot_session_t *session;
  uint32_t prefill;
  uint32_t decode;
} model_t;

static ingot_status_t load(const char *path, model_t *model) {
  ingot_status_t status = ingot_instance_create(NULL, &model->instance);
  if (status == NULL) status = ingot_device_create(model->instance, "cpu", NULL, &model->device);
  if (status == NULL) status = ingot_module_load_file(model->instance, path, 0, &model->module);
  if (status == NULL) {
    status = ingot_program_create(model->device, &model->module, 1, NULL, NULL, &model->program);
  }
  if (status == NULL) {
    status = ingot_program_find_function(model->program, "prefill", &model->prefill);
  }
  if (status == NULL) {
    status = ingot_program_find_function(model->program, "decode", &model->decode);
  }
  if (status == NULL) status = ingot_session_create(model->program, NULL, &model->session);
  return status;
}

static void unload(model_t *model) {
  ingot_session_release(model->session);
  ingot_program_release(model->program);
  ingot_module_release(model->module);
  ingot_device_release(model->device);
  ingot_instance_release(model->instance);
}

/* Calls prefill or decode: `ids` are i32 of that shape, `*out_id` is the character after them. */
static ingot_status_t call(model_t *model, uint32_t function, int32_t *ids, uint32_t rank,
                           int64_t count, int32_t *out_id) {
  ingot_buffer_view_t *argument = NULL;
  ingot_buffer_view_t *results[1] = {NULL};
  ingot_status_t status =
      ingot_buffer_view_wrap(model->device, ids, (size_t)count * sizeof(int32_t), INGOT_DTYPE_I32,
                             rank, &count, NULL, NULL, &argument);
  if (status == NULL) {
    status = ingot_session_call(model->session, function, &argument, 1, results, 1, NULL);
  }
  if (status == NULL) {
    const ingot_buffer_view_layout_t *layout = ingot_buffer_view_layout(results[0]);
    status = ingot_buffer_read(layout->buffer, layout->offset, out_id, sizeof *out_id);
  }
  ingot_buffer_view_release(results[0]);
  ingot_buffer_view_release(argument);
  return status;
}

static ingot_status_t generate(model_t *model, int32_t *ids, int64_t count) {
  int32_t id = 0;
  ingot_status_t status = call(model, model->prefill, ids, 1, count, &id);
  for (int made = 1; status == NULL; ++made) {
    putchar((int)id);
    if (made == COUNT) break;
    status = call(model, model->decode, &id, 0, 1, &id);
  }
  putchar('\n');
  return status;
}

int main(int argument_count, char **arguments) {
  int32_t ids[LONGEST_PROMPT];
  const size_t count = argument_count == 3 ? strlen(arguments[2]) : 0;
  if (count == 0 || count > LONGEST_PROMPT) {
    fprintf(stderr, "usage: %s MODULE PROMPT, a prompt of 1 to %d characters\n", arguments[0],
            LONGEST_PROMPT);
    return 2;
  }
  for (size_t place = 0; place < count; ++place) ids[place] = (unsigned char)arguments[2][place];
  model_t model = {0};
  ingot_status_t status = load(arguments[1], &model);
  if (status == NULL) status = generate(&model, ids, (int64_t)count);
  const int failed = status != NULL;
  if (failed) fprintf(stderr, "%s\n", ingot_status_message(status));
  ingot_status_free(status);
  unload(&model);
  return failed;
}
