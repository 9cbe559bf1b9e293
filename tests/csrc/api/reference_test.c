/* References: who may be passed where, that each object is released once, and that bytes which code
 * makes up are none. Every n-th allocation fails, too.
 */
#include "vm/harness.h"

#define OPEN "(&acme.tok) -> (&acme.db)"

/* An object of the application. */
typedef struct object_t {
  int releases;
} object_t;

/* What acme.open does. */
typedef enum give_t {
  GIVE_DATABASE,
  GIVE_NOTHING,
  GIVE_ARGUMENT,
  GIVE_TENSOR,
  FAIL_BEHIND,
} give_t;

typedef struct notes_t {
  give_t give;
  object_t *database;
  void *seen;
} notes_t;

static harness_t harness;

static void release_object(void *user, void *object) {
  ++*(int *)user;
  ++((object_t *)object)->releases;
}

static int releases; /* of all objects */

static ingot_buffer_view_t *make(const harness_t *with, const char *type, object_t *object) {
  ingot_buffer_view_t *view = NULL;
  EXPECT_OK(ingot_reference_create(with->device, type, object, release_object, &releases, &view));
  return view;
}

static ingot_status_t open_database(void *user, const ingot_native_call_t *call) {
  notes_t *notes = user;
  const ingot_native_tensor_t *tokenizer = &call->arguments[0];
  ingot_native_tensor_t *result = &call->results[0];
  EXPECT(!tokenizer->dtype && tokenizer->length == 0 && !result->data);
  EXPECT_TEXT(tokenizer->type, "acme.tok");
  EXPECT_TEXT(result->type, "acme.db");
  notes->seen = tokenizer->data;
  if (notes->give == GIVE_NOTHING) return NULL;
  if (notes->give == GIVE_ARGUMENT) {
    ingot_buffer_view_retain(tokenizer->view);
    result->view = tokenizer->view;
    return NULL;
  }
  if (notes->give == GIVE_TENSOR) {
    static float data[1] = {1};
    return ingot_buffer_view_wrap(call->device, data, 4, INGOT_DTYPE_F32, 0, NULL, NULL, NULL,
                                  &result->view);
  }
  INGOT_TRY(ingot_reference_create(call->device, "acme.db", notes->database, release_object,
                                   &releases, &result->view));
  return notes->give == FAIL_BEHIND ? ingot_status_make(INGOT_STATUS_NOT_FOUND, "no") : NULL;
}

/* main(tok: &acme.tok, made_up: i64[]) -> (same: &acme.tok, db: &acme.db) opens a database;
 * forge(tok: &acme.tok, made_up: i64[]) -> (forged: &acme.tok) gives what its bytes say. */
static builder_bytes_t reference_module(void) {
  builder_t parts = builder_create();
  builder_t *builder = &parts;
  for (int forges = 0; forges < 2; ++forges) {
    builder_function(builder, forges ? "forge" : "main", INGOT_FUNCTION_EXPORTED);
    builder_value(builder, false, "tok", INGOT_DTYPE_I64, 0, NULL);
    builder_reference(builder, 0, "acme.tok");
    builder_value(builder, false, "made_up", INGOT_DTYPE_I64, 0, NULL);
    builder_value(builder, true, forges ? "forged" : "same", INGOT_DTYPE_I64, 0, NULL);
    builder_reference(builder, 0, "acme.tok");
    EMIT(CONST_I64, 2, 8);
    EMIT(ARGUMENT_BUFFER, 0, 0, forges);
    EMIT(RESULT_BUFFER, 1, 1, 0, 0);
    EMIT(COPY, 0, 0, 1, 1, 2);
    if (!forges) {
      builder_value(builder, true, "db", INGOT_DTYPE_I64, 0, NULL);
      builder_reference(builder, 0, "acme.db");
      EMIT(SLAB, 2, 3, 2);
      builder_location(builder, "Open", "net/open");
      EMIT(NATIVE_CALL, 0, 0, 0, 0, 2, 0, 0, 2, 2, 3, 2);
      EMIT(RESULT_BUFFER, 3, 4, 1, 0);
      EMIT(COPY, 2, 3, 3, 4, 2);
    }
    EMIT(RETURN, 0, 0, 0);
  }
  static const builder_tensor_t handles[2] = {{INGOT_DTYPE_I64, 0, {0}}, {INGOT_DTYPE_I64, 0, {0}}};
  builder_native(builder, "acme.open", OPEN, handles, 1, 1, 0);
  builder_reference(builder, 1, "acme.tok");
  builder_reference(builder, 0, "acme.db");
  return builder_finish(builder);
}

static ingot_status_t load(const harness_t *with, builder_bytes_t file, notes_t *notes,
                           const char *signature, harness_program_t *out) {
  const ingot_native_t native = {
      .name = "acme.open", .signature = signature, .call = open_database, .user = notes};
  const ingot_program_options_t options = {.natives = &native, .native_count = 1};
  return harness_load_with(with, file, NULL, &options, out);
}

static ingot_status_t call(const harness_t *with, const harness_program_t *program,
                           uint32_t function, ingot_buffer_view_t *reference, uint64_t made_up,
                           ingot_buffer_view_t **results) {
  ingot_buffer_view_t *arguments[2] = {reference, NULL};
  INGOT_TRY(ingot_buffer_view_wrap(with->device, &made_up, 8, INGOT_DTYPE_I64, 0, NULL, NULL, NULL,
                                   &arguments[1]));
  ingot_status_t status = ingot_session_call(program->session, function, arguments, 2, results,
                                             function == 0 ? 2 : 1, NULL);
  ingot_buffer_view_release(arguments[1]);
  return status;
}

static void expect_failure(ingot_status_t status, ingot_status_code_t code, const char *message) {
  EXPECT_EQUAL(ingot_status_code(status), code);
  if (!strstr(ingot_status_message(status), message)) {
    FAIL("\"%s\" lacks \"%s\"", ingot_status_message(status), message);
  }
  ingot_status_free(status);
}

TEST(references_come_and_go_and_objects_are_released_once) {
  object_t tokenizer = {0}, database = {0};
  notes_t notes = {.database = &database};
  harness_program_t program;
  REQUIRE_OK(load(&harness, reference_module(), &notes, OPEN, &program));
  ingot_buffer_view_t *tok = make(&harness, "acme.tok", &tokenizer);
  for (int turn = 1; turn <= 3; ++turn) {
    ingot_buffer_view_t *results[2] = {NULL, NULL};
    void *object = NULL;
    REQUIRE_OK(call(&harness, &program, 0, tok, 0, results));
    EXPECT(notes.seen == &tokenizer);
    EXPECT_OK(ingot_reference_object(results[0], "acme.tok", &object));
    EXPECT(object == &tokenizer);
    EXPECT_OK(ingot_reference_object(results[1], "acme.db", &object));
    EXPECT(object == &database);
    EXPECT_EQUAL(ingot_buffer_view_layout(results[1])->dtype, 0);
    expect_failure(ingot_reference_object(results[1], "acme.tok", &object),
                   INGOT_STATUS_INVALID_ARGUMENT, "&acme.db, expected &acme.tok");
    EXPECT_EQUAL(database.releases, turn - 1);
    ingot_buffer_view_release(results[1]);
    EXPECT_EQUAL(database.releases, turn);
    if (turn == 3) { /* the result keeps the object, too */
      ingot_buffer_view_release(tok);
      EXPECT_EQUAL(tokenizer.releases, 0);
    }
    ingot_buffer_view_release(results[0]);
  }
  EXPECT_EQUAL(tokenizer.releases, 1);
  harness_unload(&program);
}

TEST(what_is_no_reference_of_the_type_is_refused) {
  object_t object = {0};
  notes_t notes = {.database = &object};
  harness_program_t program;
  ingot_buffer_view_t *results[2] = {NULL, NULL}, *list = NULL;
  uint64_t number = 0;
  REQUIRE_OK(load(&harness, reference_module(), &notes, NULL, &program));
  ingot_buffer_view_t *db = make(&harness, "acme.db", &object);
  ingot_buffer_view_t *tok = make(&harness, "acme.tok", &object);
  ingot_buffer_view_t *tensor = harness_view(&harness, &number, INGOT_DTYPE_I64, 1);
  REQUIRE_OK(ingot_buffer_view_create_list(harness.device, &tok, 1, &list));
  const struct {
    ingot_buffer_view_t *view;
    const char *message;
  } wrong[] = {{NULL, "argument 0 'tok': NULL, expected &acme.tok"},
               {db, "argument 0 'tok': &acme.db, expected &acme.tok"},
               {tensor, "argument 0 'tok': no reference, expected &acme.tok"},
               {list, "argument 0 'tok': no reference, expected &acme.tok"}};
  for (size_t k = 0; k < sizeof(wrong) / sizeof(*wrong); ++k) {
    expect_failure(call(&harness, &program, 0, wrong[k].view, 0, results),
                   INGOT_STATUS_INVALID_ARGUMENT, wrong[k].message);
  }
  ingot_buffer_view_t *two[2] = {tok, tok};
  expect_failure(ingot_session_call(program.session, 0, two, 2, results, 2, NULL),
                 INGOT_STATUS_INVALID_ARGUMENT,
                 "argument 1 'made_up' is a reference, expected a tensor");
  two[1] = tensor; /* of rank 1, but looked at behind the results */
  results[0] = tok;
  expect_failure(call(&harness, &program, 0, tok, 0, results), INGOT_STATUS_INVALID_ARGUMENT,
                 "result 0 'same' is no tensor");
  ingot_buffer_view_release(list);
  ingot_buffer_view_release(tensor);
  ingot_buffer_view_release(tok);
  ingot_buffer_view_release(db);
  EXPECT_EQUAL(object.releases, 2);
  harness_unload(&program);
  expect_failure(
      load(&harness, reference_module(), &notes, "(&acme.tok) -> (&acme.other)", &program),
      INGOT_STATUS_INVALID_ARGUMENT, "'acme.open' " OPEN ", given as (&acme.tok) -> (&acme.other)");
  harness_unload(&program);
}

TEST(what_a_function_gives_is_checked_and_released) {
  static const char *const messages[] = {
      [GIVE_NOTHING] =
          "Open 'net/open': native function 'acme.open': result 0: NULL, expected &acme.db",
      [GIVE_ARGUMENT] = "result 0: &acme.tok, expected &acme.db",
      [GIVE_TENSOR] = "result 0: no reference, expected &acme.db",
      [FAIL_BEHIND] = "native function 'acme.open': no",
  };
  object_t tokenizer = {0}, database = {0};
  notes_t notes = {.database = &database};
  harness_program_t program;
  REQUIRE_OK(load(&harness, reference_module(), &notes, OPEN, &program));
  ingot_buffer_view_t *tok = make(&harness, "acme.tok", &tokenizer);
  for (notes.give = GIVE_NOTHING; notes.give <= FAIL_BEHIND; ++notes.give) {
    ingot_buffer_view_t *results[2] = {NULL, NULL};
    expect_failure(
        call(&harness, &program, 0, tok, 0, results),
        notes.give == FAIL_BEHIND ? INGOT_STATUS_NOT_FOUND : INGOT_STATUS_INVALID_ARGUMENT,
        messages[notes.give]);
    EXPECT(!results[0] && !results[1]);
  }
  EXPECT_EQUAL(database.releases, 1);
  ingot_buffer_view_release(tok);
  EXPECT_EQUAL(tokenizer.releases, 1);
  harness_unload(&program);
}

/* The handle of a reference; what stands in its bytes. */
static uint64_t handle_of(const ingot_buffer_view_t *view) {
  const ingot_buffer_view_layout_t *layout = ingot_buffer_view_layout(view);
  uint64_t handle = 0;
  EXPECT_OK(ingot_buffer_read(layout->buffer, layout->offset, &handle, sizeof(handle)));
  expect_failure(ingot_buffer_write(layout->buffer, layout->offset, &handle, sizeof(handle)),
                 INGOT_STATUS_PERMISSION_DENIED, "readable only");
  return handle;
}

TEST(bytes_that_code_makes_up_are_no_reference) {
  object_t object = {0};
  notes_t notes = {.database = &object};
  harness_program_t program;
  ingot_buffer_view_t *results[2] = {NULL, NULL};
  REQUIRE_OK(load(&harness, reference_module(), &notes, OPEN, &program));
  ingot_buffer_view_t *tok = make(&harness, "acme.tok", &object);
  ingot_buffer_view_t *other = make(&harness, "acme.tok", &object);
  const uint64_t made_up[] = {
      0, 1, UINT64_MAX, (uintptr_t)&object, handle_of(tok) + 8, handle_of(other)};
  for (size_t k = 0; k < sizeof(made_up) / sizeof(*made_up); ++k) {
    expect_failure(call(&harness, &program, 1, tok, made_up[k], results),
                   INGOT_STATUS_INVALID_ARGUMENT, "the call has no such &acme.tok");
  }
  REQUIRE_OK(call(&harness, &program, 1, tok, handle_of(tok), results));
  ingot_buffer_view_release(results[0]);
  ingot_buffer_view_release(other);
  ingot_buffer_view_release(tok);
  EXPECT_EQUAL(object.releases, 2);
  harness_unload(&program);
}

TEST(every_allocation_may_fail) {
  for (int64_t fail_at = 1, reached = 1; reached; ++fail_at) {
    test_allocator_t counter = {.fail_at = fail_at};
    ingot_allocator_t allocator = test_allocator(&counter);
    harness_t with;
    harness_program_t program = {.module = NULL};
    object_t tokenizer = {0}, database = {0};
    notes_t notes = {.database = &database};
    ingot_buffer_view_t *results[2] = {NULL, NULL}, *tok = NULL;
    bool is_made = false;
    releases = 0;
    ingot_status_t status = harness_create(&allocator, &with);
    if (!status) status = load(&with, reference_module(), &notes, OPEN, &program);
    if (!status) {
      status = ingot_reference_create(with.device, "acme.tok", &tokenizer, release_object,
                                      &releases, &tok);
      is_made = !status;
    }
    if (!status) status = call(&with, &program, 0, tok, 0, results);
    for (int r = 0; r < 2; ++r) ingot_buffer_view_release(results[r]);
    ingot_buffer_view_release(tok);
    harness_unload(&program);
    harness_release(&with);
    reached = counter.allocations >= fail_at;
    if (reached && status) EXPECT_EQUAL(ingot_status_code(status), INGOT_STATUS_OUT_OF_MEMORY);
    if (!reached && status) FAIL("without a failure: %s", ingot_status_message(status));
    ingot_status_free(status);
    EXPECT_EQUAL(tokenizer.releases, is_made);
    EXPECT_EQUAL(tokenizer.releases + database.releases, releases);
    EXPECT_EQUAL(counter.live, 0);
  }
}

/* Looks at references as objects, and at nothing else. */
static ingot_status_t touch(void *user, const ingot_native_call_t *call) {
  (void)user;
  for (uint32_t i = 0; i < call->argument_count; ++i) {
    const ingot_native_tensor_t *tensor = &call->arguments[i];
    if (*tensor->type) EXPECT(((object_t *)tensor->data)->releases == 0);
  }
  return NULL;
}

TEST(sealed_mutations_give_a_status_or_references) {
  const ingot_native_t native = {.name = "acme.open", .call = touch};
  const ingot_program_options_t options = {.natives = &native, .native_count = 1};
  uint64_t random = 88172645463325252u;
  int ran = 0;
  for (int round = 0; round < 4000; ++round) {
    object_t object = {0};
    harness_program_t program = {.file = reference_module()};
    ingot_buffer_view_t *results[2] = {NULL, NULL}, *tok = make(&harness, "acme.tok", &object);
    harness_mutate(program.file, 3, 0xF, &random);
    ingot_status_t status = harness_load_with(&harness, program.file, NULL, &options, &program);
    if (!status) status = call(&harness, &program, 1, tok, handle_of(tok), results);
    ran += !status;
    ingot_status_free(status);
    for (int r = 0; r < 2; ++r) ingot_buffer_view_release(results[r]);
    harness_unload(&program);
    EXPECT_EQUAL(object.releases, 0);
    ingot_buffer_view_release(tok);
    EXPECT_EQUAL(object.releases, 1);
  }
  EXPECT(ran > 100);
}

int main(void) {
  if (harness_create(NULL, &harness)) return 1;
  RUN_TESTS();
  harness_release(&harness);
  return TEST_RESULT();
}
