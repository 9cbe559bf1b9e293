/* Sessions and their state: made with the first values, variables one by one, forks, and all of it
 * as bytes.
 */
#include <inttypes.h>
#include <string.h>

#include "api/session.h"
#include "base/crc32.h"
#include "base/text.h"
#include "hal/account.h"

/* -- sessions with their first state ----------------------------------------------------------- */

ingot_status_t ingot_session_create(ingot_program_t *program,
                                    const ingot_session_options_t *options,
                                    ingot_session_t **out_session) {
  ingot_session_t *session = NULL;
  INGOT_TRY(ingot_session_allocate(program, options, &session));
  session->context.call_link = ingot_session_call_link;
  ingot_status_t status = ingot_vm_state_initialize(&session->context.state, session->context.queue,
                                                    program->images, program->image_count);
  if (status) {
    ingot_session_release(session);
    return status;
  }
  *out_session = session;
  return NULL;
}

/* -- variables --------------------------------------------------------------------------------- */

ingot_status_t ingot_session_reset(ingot_session_t *session) {
  ingot_vm_context_t *context = &session->context;
  INGOT_TRY(ingot_session_enter(session, INGOT_STOP_BUSY));
  ingot_status_t status = ingot_vm_state_reset(
      &context->state, context->queue, session->program->images, session->program->image_count);
  ingot_session_leave(session);
  return status;
}

/* The image of `module`; checks that its variable has `length` bytes. */
static ingot_status_t find_variable(const ingot_session_t *session, const ingot_module_t *module,
                                    uint32_t variable, size_t length,
                                    const ingot_vm_image_t **out_image) {
  const ingot_program_t *program = session->program;
  const ingot_allocator_t *allocator = ingot_session_allocator(session);
  ingot_value_info_t info;
  INGOT_TRY(ingot_module_variable(module, variable, &info));
  bool grows = ingot_module_variable_length(module, variable, -1) < 0;
  int64_t expected = ingot_module_variable_length(module, variable, 1);
  if (grows ? expected > 0 && length % (uint64_t)expected != 0 : length != (uint64_t)expected) {
    return ingot_status_create(allocator, INGOT_STATUS_INVALID_ARGUMENT,
                               "variable '%s' has %" PRId64 " bytes%s, not %zu", info.name,
                               expected, grows ? " in each row" : "", length);
  }
  for (uint32_t i = 0; i < program->image_count; ++i) {
    if (program->images[i].module != module) continue;
    *out_image = &program->images[i];
    return NULL;
  }
  return ingot_status_create(allocator, INGOT_STATUS_INVALID_ARGUMENT,
                             "variable '%s' is of a module that the session's program was not "
                             "made from",
                             info.name);
}

ingot_status_t ingot_session_read_variable(ingot_session_t *session, const ingot_module_t *module,
                                           uint32_t variable, void *data, size_t length) {
  const ingot_vm_image_t *image = NULL;
  INGOT_TRY(find_variable(session, module, variable, length, &image));
  INGOT_TRY(ingot_session_enter(session, INGOT_STOP_BUSY));
  ingot_status_t status =
      ingot_vm_state_get(&session->context.state, image, variable, data, (int64_t)length);
  ingot_session_leave(session);
  return status;
}

ingot_status_t ingot_session_write_variable(ingot_session_t *session, const ingot_module_t *module,
                                            uint32_t variable, const void *data, size_t length) {
  const ingot_vm_image_t *image = NULL;
  INGOT_TRY(find_variable(session, module, variable, length, &image));
  INGOT_TRY(ingot_session_enter(session, INGOT_STOP_BUSY));
  ingot_status_t status =
      ingot_vm_state_set(&session->context.state, image, variable, data, (int64_t)length);
  ingot_session_leave(session);
  return status;
}

/* -- forks ------------------------------------------------------------------------------------- */

/* Of a session that was entered. */
static ingot_status_t fork_session(ingot_session_t *session, ingot_session_t *fork) {
  const ingot_program_t *program = session->program;
  const ingot_vm_state_t *state = &session->context.state;
  INGOT_TRY(ingot_vm_state_check(state, program->images, program->image_count));
  INGOT_TRY(ingot_hal_queue_wait(session->context.queue)); /* the fork has another queue */
  fork->context.call_link = session->context.call_link;
  return ingot_vm_state_fork(&fork->context.state, state, ingot_session_allocator(session));
}

ingot_status_t ingot_session_fork(ingot_session_t *session, ingot_session_t **out_session) {
  ingot_session_t *fork = NULL;
  int64_t limit = session->context.account->limit;
  const ingot_session_options_t options = {
      .memory_limit = limit < INT64_MAX ? (size_t)limit : 0,
      .shares_slab = session->context.shares_slab,
  };
  INGOT_TRY(ingot_session_enter(session, INGOT_STOP_BUSY));
  ingot_status_t status = ingot_session_allocate(session->program, &options, &fork);
  if (!status) status = fork_session(session, fork);
  ingot_session_leave(session);
  if (status) {
    ingot_session_release(fork);
    return status;
  }
  *out_session = fork;
  return NULL;
}

/* -- all of it as bytes -------------------------------------------------------------------------
 *
 * Little-endian, without gaps: a header; per variable a signature, its dims in i64 (an open one is
 * the length in bytes), and its name; per variable its bytes as runs of blocks, of which those at
 * the start of a run are zeros and left out, so that a cache costs what is used of it; a crc of all
 * that. A variable that grows has all its bytes instead, so what the file holds tells how much memory
 * it may ask for. */

#define STATE_MAGIC "INGOTST\n"
#define STATE_VERSION 1u
#define BLOCK_LENGTH 4096

typedef struct state_header_t {
  char magic[8];
  uint32_t version;
  uint32_t variable_count;
} state_header_t;

typedef struct state_signature_t {
  int32_t dtype;
  uint32_t rank;
  uint32_t name_length;
} state_signature_t;

typedef struct state_run_t {
  uint32_t zeros; /* blocks */
  uint32_t blocks;
} state_run_t;

/* Bytes on their way out or in: one of both functions. */
typedef struct state_stream_t {
  ingot_session_t *session;
  ingot_write_function_t write;
  ingot_read_function_t read;
  void *user;
  uint32_t crc;
} state_stream_t;

static ingot_status_t state_put(state_stream_t *stream, const void *data, size_t length) {
  stream->crc = ingot_crc32(stream->crc, data, length);
  if (length == 0 || stream->write(stream->user, data, length)) return NULL;
  return ingot_status_create(ingot_session_allocator(stream->session), INGOT_STATUS_CANCELLED,
                             "the state could not be written: the function for it said no");
}

static ingot_status_t state_damaged(const state_stream_t *stream, const char *what) {
  return ingot_status_create(ingot_session_allocator(stream->session), INGOT_STATUS_DATA_LOSS,
                             "the state is damaged: %s", what);
}

static ingot_status_t state_get(state_stream_t *stream, void *data, size_t length) {
  if (length > 0 && !stream->read(stream->user, data, length)) {
    return state_damaged(stream, "it ends too early");
  }
  stream->crc = ingot_crc32(stream->crc, data, length);
  return NULL;
}

typedef ingot_status_t (*stream_function_t)(state_stream_t *stream, const ingot_module_t *module,
                                            uint32_t ordinal, ingot_vm_variable_t *variable);

/* Over all variables of the program, as `state` has them. */
static ingot_status_t stream_variables(state_stream_t *stream, const ingot_vm_state_t *state,
                                       stream_function_t function) {
  const ingot_program_t *program = stream->session->program;
  for (uint32_t i = 0; i < program->image_count; ++i) {
    const ingot_vm_image_t *image = &program->images[i];
    for (uint32_t v = 0; v < image->module->variable_count; ++v) {
      INGOT_TRY(function(stream, image->module, v, &state->variables[image->first_variable + v]));
    }
  }
  return NULL;
}

static state_signature_t variable_signature(const ingot_module_t *module, uint32_t ordinal,
                                            const ingot_vm_variable_t *variable,
                                            int64_t *out_dims) {
  const ingot_layout_variable_t *layout = &module->variables[ordinal];
  const char *name = ingot_module_string(module, layout->name);
  for (uint32_t d = 0; d < layout->rank; ++d) {
    out_dims[d] = module->dims[layout->first_dim + d].size;
    if (out_dims[d] < 0) out_dims[d] = variable->buffer->length;
  }
  return (state_signature_t){layout->dtype, layout->rank, (uint32_t)strlen(name)};
}

static uint32_t blocks_of(int64_t length) {
  return (uint32_t)((length + BLOCK_LENGTH - 1) / BLOCK_LENGTH);
}

/* Bytes of `count` blocks from block `first` on; the last of all may be short. */
static size_t length_of(int64_t length, uint32_t first, uint32_t count) {
  int64_t begin = (int64_t)first * BLOCK_LENGTH;
  int64_t end = begin + (int64_t)count * BLOCK_LENGTH;
  return (size_t)((end < length ? end : length) - begin);
}

/* -- out */

static ingot_status_t put_signature(state_stream_t *stream, const ingot_module_t *module,
                                    uint32_t ordinal, ingot_vm_variable_t *variable) {
  int64_t dims[INGOT_MAX_RANK];
  const state_signature_t signature = variable_signature(module, ordinal, variable, dims);
  INGOT_TRY(state_put(stream, &signature, sizeof(signature)));
  INGOT_TRY(state_put(stream, dims, signature.rank * sizeof(dims[0])));
  return state_put(stream, ingot_module_string(module, module->variables[ordinal].name),
                   signature.name_length);
}

static bool is_zero(const uint8_t *data, size_t length) {
  return data[0] == 0 && memcmp(data, data + 1, length - 1) == 0;
}

static ingot_status_t put_bytes(state_stream_t *stream, const uint8_t *data, int64_t length) {
  uint32_t count = blocks_of(length);
  for (uint32_t block = 0; block < count;) {
    state_run_t run = {0, 0};
    uint32_t first = block;
    for (; block < count; ++block) {
      if (is_zero(data + (int64_t)block * BLOCK_LENGTH, length_of(length, block, 1))) {
        if (run.blocks > 0) break;
        ++run.zeros;
      } else {
        ++run.blocks;
      }
    }
    first += run.zeros;
    INGOT_TRY(state_put(stream, &run, sizeof(run)));
    INGOT_TRY(state_put(stream, data + (int64_t)first * BLOCK_LENGTH,
                        run.blocks > 0 ? length_of(length, first, run.blocks) : 0));
  }
  return NULL;
}

static ingot_status_t put_variable(state_stream_t *stream, const ingot_module_t *module,
                                   uint32_t ordinal, ingot_vm_variable_t *variable) {
  void *data = NULL;
  ingot_buffer_t *buffer = variable->buffer;
  bool grows = ingot_module_variable_length(module, ordinal, -1) < 0;
  INGOT_TRY(ingot_hal_buffer_map(buffer, 0, buffer->length, INGOT_HAL_ACCESS_READ, &data));
  ingot_status_t status = grows ? state_put(stream, data, (size_t)buffer->length)
                                : put_bytes(stream, data, buffer->length);
  ingot_hal_buffer_unmap(buffer, data);
  return status;
}

static ingot_status_t put_state(state_stream_t *stream, const ingot_session_t *session) {
  const ingot_vm_state_t *state = &session->context.state;
  const ingot_program_t *program = session->program;
  state_header_t header = {.version = STATE_VERSION, .variable_count = state->count};
  memcpy(header.magic, STATE_MAGIC, sizeof(header.magic));
  INGOT_TRY(ingot_vm_state_check(state, program->images, program->image_count));
  INGOT_TRY(ingot_hal_queue_wait(session->context.queue));
  INGOT_TRY(state_put(stream, &header, sizeof(header)));
  INGOT_TRY(stream_variables(stream, state, put_signature));
  INGOT_TRY(stream_variables(stream, state, put_variable));
  const uint32_t crc = stream->crc;
  return state_put(stream, &crc, sizeof(crc));
}

ingot_status_t ingot_session_save_state(ingot_session_t *session, ingot_write_function_t write,
                                        void *user) {
  state_stream_t stream = {.session = session, .write = write, .user = user};
  INGOT_TRY(ingot_session_enter(session, INGOT_STOP_BUSY));
  ingot_status_t status = put_state(&stream, session);
  ingot_session_leave(session);
  return status;
}

/* -- in */

#define NAME_CAPACITY 160

static void describe_variable(char *out_text, size_t capacity, const char *name,
                              const state_signature_t *signature, const int64_t *dims) {
  const char *dtype = ingot_dtype_name(signature->dtype);
  out_text[0] = 0;
  (void)ingot_text_add(
      out_text, capacity, "'%.*s': %s[",
      (int)(signature->name_length < NAME_CAPACITY ? signature->name_length : NAME_CAPACITY), name,
      dtype ? dtype : "?");
  for (uint32_t d = 0; d < signature->rank; ++d) {
    (void)ingot_text_add(out_text, capacity, "%s%" PRId64, d > 0 ? "," : "", dims[d]);
  }
  (void)ingot_text_add(out_text, capacity, "]");
}

/* Notes of a variable that grows how many bytes are to be read. */
static ingot_status_t check_signature(state_stream_t *stream, const ingot_module_t *module,
                                      uint32_t ordinal, ingot_vm_variable_t *variable) {
  state_signature_t found;
  int64_t dims[INGOT_MAX_RANK];
  int64_t own_dims[INGOT_MAX_RANK];
  char name[NAME_CAPACITY] = "";
  char text[2 * NAME_CAPACITY];
  char own_text[2 * NAME_CAPACITY];
  const char *own_name = ingot_module_string(module, module->variables[ordinal].name);
  INGOT_TRY(state_get(stream, &found, sizeof(found)));
  if (found.rank > INGOT_MAX_RANK) return state_damaged(stream, "a variable has too many dims");
  INGOT_TRY(state_get(stream, dims, found.rank * sizeof(dims[0])));
  const state_signature_t own = variable_signature(module, ordinal, variable, own_dims);
  if (found.rank > 0 && ingot_module_variable_length(module, ordinal, -1) < 0) {
    int64_t row = ingot_module_variable_length(module, ordinal, 1);
    if (dims[0] >= 0 && row > 0 && dims[0] % row == 0) own_dims[0] = dims[0];
    variable->saved_length = own_dims[0];
  }
  bool is_same = found.dtype == own.dtype && found.rank == own.rank &&
                 found.name_length == own.name_length &&
                 memcmp(dims, own_dims, found.rank * sizeof(dims[0])) == 0;
  for (size_t done = 0; done < found.name_length;) { /* names may be long: piece by piece */
    char piece[NAME_CAPACITY];
    size_t rest = found.name_length - done;
    size_t count = rest < sizeof(piece) ? rest : sizeof(piece);
    INGOT_TRY(state_get(stream, piece, count));
    is_same = is_same && memcmp(piece, own_name + done, count) == 0;
    if (done == 0) memcpy(name, piece, count);
    done += count;
  }
  if (is_same) return NULL;
  describe_variable(text, sizeof(text), name, &found, dims);
  describe_variable(own_text, sizeof(own_text), own_name, &own, own_dims);
  return ingot_status_create(
      ingot_session_allocator(stream->session), INGOT_STATUS_INVALID_ARGUMENT,
      "the state is of another module: it has %s where the session has %s", text, own_text);
}

static ingot_status_t get_bytes(state_stream_t *stream, uint8_t *data, int64_t length) {
  uint32_t count = blocks_of(length);
  for (uint32_t block = 0; block < count;) {
    state_run_t run;
    INGOT_TRY(state_get(stream, &run, sizeof(run)));
    uint64_t sum = (uint64_t)run.zeros + run.blocks;
    if (sum == 0 || sum > count - block)
      return state_damaged(stream, "a run of blocks is too long");
    size_t zeros = length_of(length, block, run.zeros);
    memset(data + (int64_t)block * BLOCK_LENGTH, 0, zeros);
    block += run.zeros;
    if (run.blocks > 0) {
      INGOT_TRY(state_get(stream, data + (int64_t)block * BLOCK_LENGTH,
                          length_of(length, block, run.blocks)));
    }
    block += run.blocks;
  }
  return NULL;
}

#define STEP_LENGTH (1 << 22)

/* The bytes of what grows, in memory that is made as they come: for twice as many as the file
 * has had so far, and STEP_LENGTH. */
static ingot_status_t get_rows(state_stream_t *stream, size_t length, void **out_data) {
  ingot_status_t status = NULL;
  for (size_t done = 0; !status && done < length;) {
    size_t step = done + STEP_LENGTH < length - done ? done + STEP_LENGTH : length - done;
    status =
        ingot_reallocate_array(ingot_session_allocator(stream->session), done + step, 1, out_data);
    if (!status) status = state_get(stream, (uint8_t *)*out_data + done, step);
    done += step;
  }
  return status;
}

static ingot_status_t get_growing(state_stream_t *stream, ingot_vm_variable_t *variable) {
  int64_t length = variable->saved_length;
  void *data = NULL;
  ingot_status_t status = get_rows(stream, (size_t)length, &data);
  if (!status) {
    status = ingot_vm_variable_renew(&stream->session->context.state, variable, length);
  }
  if (!status) status = ingot_hal_buffer_write(variable->buffer, 0, length, data);
  ingot_release_memory(ingot_session_allocator(stream->session), data);
  return status;
}

static ingot_status_t get_variable(state_stream_t *stream, const ingot_module_t *module,
                                   uint32_t ordinal, ingot_vm_variable_t *variable) {
  void *data = NULL;
  ingot_buffer_t *buffer = variable->buffer;
  if (ingot_module_variable_length(module, ordinal, -1) < 0) {
    return get_growing(stream, variable);
  }
  INGOT_TRY(ingot_hal_buffer_map(buffer, 0, buffer->length, INGOT_HAL_ACCESS_WRITE, &data));
  ingot_status_t status = get_bytes(stream, data, buffer->length);
  ingot_hal_buffer_unmap(buffer, data);
  return status;
}

static ingot_status_t check_state_header(state_stream_t *stream, const ingot_session_t *session) {
  const ingot_allocator_t *allocator = ingot_session_allocator(session);
  uint32_t count = session->context.state.count;
  state_header_t header;
  INGOT_TRY(state_get(stream, &header, sizeof(header)));
  if (memcmp(header.magic, STATE_MAGIC, sizeof(header.magic)) != 0) {
    return ingot_status_create(allocator, INGOT_STATUS_DATA_LOSS,
                               "these bytes are no state: ingot_session_save_state makes one");
  }
  if (header.version != STATE_VERSION) {
    return ingot_status_create(allocator, INGOT_STATUS_INCOMPATIBLE,
                               "the state has version %" PRIu32 ", this runtime reads version %u",
                               header.version, STATE_VERSION);
  }
  if (header.variable_count == count) return NULL;
  return ingot_status_create(allocator, INGOT_STATUS_INVALID_ARGUMENT,
                             "the state is of another module: it has %" PRIu32
                             " variables, the session has %" PRIu32,
                             header.variable_count, count);
}

/* `loaded` is new, and released by the caller. */
static ingot_status_t get_state(state_stream_t *stream, const ingot_session_t *session,
                                ingot_vm_state_t *loaded) {
  const ingot_program_t *program = session->program;
  INGOT_TRY(check_state_header(stream, session));
  INGOT_TRY(
      ingot_vm_state_allocate(loaded, program->device, program->images, program->image_count));
  INGOT_TRY(stream_variables(stream, loaded, check_signature));
  INGOT_TRY(stream_variables(stream, loaded, get_variable));
  const uint32_t expected = stream->crc;
  uint32_t crc = 0;
  INGOT_TRY(state_get(stream, &crc, sizeof(crc)));
  return crc == expected ? NULL : state_damaged(stream, "its crc is wrong");
}

ingot_status_t ingot_session_load_state(ingot_session_t *session, ingot_read_function_t read,
                                        void *user) {
  state_stream_t stream = {.session = session, .read = read, .user = user};
  ingot_vm_state_t other = {.account = session->context.account};
  INGOT_TRY(ingot_session_enter(session, INGOT_STOP_BUSY));
  ingot_status_t status = get_state(&stream, session, &other);
  if (!status) {
    const ingot_vm_state_t loaded = other;
    other = session->context.state;
    session->context.state = loaded;
  }
  ingot_vm_state_deinitialize(&other, ingot_session_allocator(session));
  ingot_session_leave(session);
  return status;
}
