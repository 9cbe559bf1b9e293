/* Native functions of a program: finding them by name among those of the application and in other
 * modules, comparing signatures, and one message for all that are missing or other than expected.
 */
#include <string.h>

#include "api/program.h"
#include "base/text.h"

/* -- signatures -------------------------------------------------------------------------------- */

#define MOST_SYMBOLS 64 /* of one signature */

/* A signature as it is read. */
typedef struct reader_t {
  const char *at;
  size_t length; /* of the symbol or other character at `at`; 0 at the end */
  int depth; /* of brackets: dims are inside */
} reader_t;

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool is_symbol(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_';
}

/* Goes to the next symbol or other character. Parentheses around values are as spaces. */
static void read_next(reader_t *reader) {
  reader->at += reader->length;
  reader->length = 0;
  while (*reader->at == ' ' || (!reader->depth && (*reader->at == '(' || *reader->at == ')'))) {
    ++reader->at;
  }
  reader->depth += *reader->at == '[' ? 1 : *reader->at == ']' ? -1 : 0;
  while (is_symbol(reader->at[reader->length])) ++reader->length;
  if (reader->length == 0 && *reader->at) reader->length = 1;
}

static bool same_text(const char *a, size_t a_length, const char *b, size_t b_length) {
  return a_length == b_length && memcmp(a, b, a_length) == 0;
}

/* A symbol that stands for a dim: neither a number nor the name of a function of dims. */
static bool is_dim(const reader_t *reader) {
  return reader->depth > 0 && is_symbol(*reader->at) && !is_digit(*reader->at) &&
         reader->at[reader->length] != '(';
}

/* Whether two signatures say the same; symbols of dims may have other names. */
static bool same_signature(const char *a, const char *b) {
  reader_t pairs[MOST_SYMBOLS][2];
  uint32_t count = 0;
  reader_t x = {.at = a};
  reader_t y = {.at = b};
  for (;;) {
    read_next(&x);
    read_next(&y);
    if (x.length == 0 || y.length == 0) return x.length == y.length;
    if (!is_dim(&x) || !is_dim(&y)) {
      if (!same_text(x.at, x.length, y.at, y.length)) return false;
      continue;
    }
    bool known = false;
    for (uint32_t k = 0; k < count; ++k) {
      bool first = same_text(pairs[k][0].at, pairs[k][0].length, x.at, x.length);
      bool second = same_text(pairs[k][1].at, pairs[k][1].length, y.at, y.length);
      if (first != second) return false;
      known |= first;
    }
    if (known) continue;
    if (count == MOST_SYMBOLS) return false;
    pairs[count][0] = x;
    pairs[count++][1] = y;
  }
}

/* -- the table --------------------------------------------------------------------------------- */

/* What is wrong, as a text that is cut where it gets too long. */
typedef struct problems_t {
  uint32_t count;
  bool is_cut;
  char text[1024];
} problems_t;

static void add_problem(problems_t *problems, const char *name, const char *signature,
                        const char *given) {
  const char *comma = problems->count++ ? ", " : "";
  problems->is_cut |=
      !ingot_text_add(problems->text, sizeof(problems->text), "%s'%s' %s%s%s", comma, name,
                      signature, given ? ", given as " : "", given ? given : "");
}

static const ingot_native_t *find_native(const ingot_program_options_t *options, const char *name) {
  for (uint32_t i = 0; i < options->native_count; ++i) {
    if (strcmp(options->natives[i].name, name) == 0) return &options->natives[i];
  }
  return NULL;
}

static ingot_status_t check_natives_given(const ingot_allocator_t *allocator,
                                          const ingot_program_options_t *options) {
  for (uint32_t i = 0; i < options->native_count; ++i) {
    const ingot_native_t *native = &options->natives[i];
    if (!native->name || !native->call) {
      return ingot_status_create(allocator, INGOT_STATUS_INVALID_ARGUMENT,
                                 "native function %u has no %s", i,
                                 native->name ? "function to call" : "name");
    }
    if (find_native(options, native->name) == native) continue;
    return ingot_status_create(allocator, INGOT_STATUS_INVALID_ARGUMENT,
                               "native function '%s' is given twice", native->name);
  }
  return NULL;
}

/* What code calls as "?NAME" to ask whether anybody gives NAME. */
static ingot_status_t tell_given(void *user, const ingot_native_call_t *call) {
  (void)user;
  *(uint8_t *)call->results[0].data = 1;
  return NULL;
}

static ingot_status_t tell_missing(void *user, const ingot_native_call_t *call) {
  (void)user;
  *(uint8_t *)call->results[0].data = 0;
  return NULL;
}

/* Stands for an optional function that nobody gives. */
static ingot_status_t refuse_call(void *user, const ingot_native_call_t *call) {
  (void)user;
  (void)call;
  return ingot_status_make(INGOT_STATUS_NOT_FOUND, "nobody gives it");
}

/* A native function without `call`, which the session calls in another module. */
static ingot_native_t make_link(ingot_program_t *program, uint32_t caller, uint32_t function,
                                const char *name) {
  ingot_program_link_t *link = &program->links[program->link_count++];
  *link = (ingot_program_link_t){caller, function};
  return (ingot_native_t){.name = name, .user = link, .on_device = true};
}

/* One that `image` calls, or what is wrong with it. */
static void take_native(ingot_program_t *program, uint32_t image,
                        const ingot_layout_native_t *wanted, const ingot_program_options_t *options,
                        problems_t *missing, problems_t *other) {
  const ingot_module_t *module = program->images[image].module;
  const char *name = ingot_module_string(module, wanted->name);
  const char *signature = ingot_module_string(module, wanted->signature);
  const ingot_native_t *native = find_native(options, name);
  ingot_native_t *taken = &program->images[image].natives[wanted - module->natives];
  uint32_t function = 0;
  if (name[0] == '?') {
    bool given =
        find_native(options, name + 1) || ingot_program_find_link(program, name + 1, &function);
    *taken = (ingot_native_t){.name = name, .call = given ? tell_given : tell_missing};
    if (strcmp(signature, "() -> (i1[])") == 0) return;
    add_problem(other, name, signature, "() -> (i1[])");
  } else if (native) {
    *taken = *native;
    if (native->signature && !same_signature(signature, native->signature)) {
      add_problem(other, name, signature, native->signature);
    }
  } else if (ingot_program_find_link(program, name, &function)) {
    char text[256];
    *taken = make_link(program, image, function, name);
    if (ingot_program_link_fits(program, module, wanted, function)) return;
    ingot_program_link_text(program, function, text, sizeof(text));
    add_problem(other, name, signature, text);
  } else {
    *taken = (ingot_native_t){.name = name, .call = refuse_call};
    if (!(wanted->flags & INGOT_NATIVE_OPTIONAL)) add_problem(missing, name, signature, NULL);
  }
}

static ingot_status_t take_all(ingot_program_t *program, const ingot_program_options_t *options,
                               problems_t *missing, problems_t *other) {
  const ingot_allocator_t *allocator = ingot_program_allocator(program);
  size_t count = 0;
  void *memory = NULL;
  for (uint32_t m = 0; m < program->image_count; ++m) {
    count += program->images[m].module->native_count;
  }
  INGOT_TRY(ingot_allocate_array(allocator, count, sizeof(ingot_program_link_t), &memory));
  program->links = memory;
  for (uint32_t m = 0; m < program->image_count; ++m) {
    ingot_vm_image_t *image = &program->images[m];
    INGOT_TRY(ingot_allocate_array(allocator, image->module->native_count, sizeof(ingot_native_t),
                                   &memory));
    image->natives = memory;
    for (uint32_t i = 0; i < image->module->native_count; ++i) {
      take_native(program, m, &image->module->natives[i], options, missing, other);
    }
  }
  return NULL;
}

ingot_status_t ingot_program_take_natives(ingot_program_t *program,
                                          const ingot_program_options_t *options) {
  const ingot_allocator_t *allocator = ingot_program_allocator(program);
  problems_t missing = {.count = 0};
  problems_t other = {.count = 0};
  INGOT_TRY(check_natives_given(allocator, options));
  INGOT_TRY(take_all(program, options, &missing, &other));
  if (missing.count > 0) {
    return ingot_status_create(allocator, INGOT_STATUS_NOT_FOUND,
                               "%u native function%s missing: %s%s; give what the modules call as "
                               "the program's natives, or a module of that name that has it",
                               missing.count, missing.count > 1 ? "s are" : " is", missing.text,
                               missing.is_cut ? ", ..." : "");
  }
  if (other.count > 0) {
    return ingot_status_create(allocator, INGOT_STATUS_INVALID_ARGUMENT,
                               "%u native function%s of another signature than the modules call: "
                               "%s%s",
                               other.count, other.count > 1 ? "s are" : " is", other.text,
                               other.is_cut ? ", ..." : "");
  }
  INGOT_TRY(ingot_program_check_versions(program));
  return ingot_program_check_circles(program);
}
