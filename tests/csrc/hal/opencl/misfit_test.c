/* The steps by which numbers of a dispatch are checked: what they compute, and which of them are
 * no steps at all.
 */
#include "hal/opencl/opencl.h"
#include "test.h"

#define STEP(name, a, b) {INGOT_OPENCL_STEP_##name, a, b}
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Whether steps refuse a dispatch of one binding, whose length is value 0, one constant, value 1,
 * and the workload, values 2 to 4. */
static bool is_misfit(const ingot_opencl_step_t *steps, size_t count, int64_t length,
                      int64_t constant, int64_t workload) {
  const ingot_opencl_entry_t entry = {
      .binding_count = 1, .constant_count = 1, .step_count = (uint32_t)count};
  const ingot_opencl_kernel_t kernel = {.entry = &entry, .steps = steps};
  const ingot_hal_binding_t binding = {.length = length};
  const ingot_hal_dispatch_t dispatch = {.binding_count = 1,
                                         .constant_count = 1,
                                         .bindings = &binding,
                                         .constants = &constant,
                                         .workload = {workload, 1, 1}};
  EXPECT(ingot_opencl_steps_are_sound(steps, entry.step_count, 5));
  return ingot_opencl_is_misfit(&kernel, &dispatch);
}

TEST(steps_compute_what_they_say) {
  const struct {
    uint32_t function;
    int64_t a, b, result;
  } cases[] = {
      {INGOT_OPENCL_STEP_ADD, INT64_MAX, -1, INT64_MAX - 1},
      {INGOT_OPENCL_STEP_MUL, INT64_C(1) << 31, INT64_C(1) << 31, INT64_C(1) << 62},
      {INGOT_OPENCL_STEP_MUL, INT64_MIN, 1, INT64_MIN},
      {INGOT_OPENCL_STEP_FLOORDIV, 7, 2, 3},
      {INGOT_OPENCL_STEP_FLOORDIV, -7, 2, -4},
      {INGOT_OPENCL_STEP_FLOORDIV, 7, -2, -4},
      {INGOT_OPENCL_STEP_FLOORDIV, -8, 2, -4},
      {INGOT_OPENCL_STEP_FLOORDIV, INT64_MIN, 3, INT64_MIN / 3 - 1},
      {INGOT_OPENCL_STEP_MOD, 7, 3, 1},
      {INGOT_OPENCL_STEP_MOD, -7, 3, 2},
      {INGOT_OPENCL_STEP_MOD, 7, -3, -2},
      {INGOT_OPENCL_STEP_MOD, INT64_MIN, INT64_MAX, INT64_MAX - 1},
      {INGOT_OPENCL_STEP_MOD, INT64_MIN, -1, 0},
      {INGOT_OPENCL_STEP_MOD, INT64_MAX, -2, -1},
      {INGOT_OPENCL_STEP_MOD, INT64_MIN + 1, 3, 2},
      {INGOT_OPENCL_STEP_MIN, -3, 5, -3},
      {INGOT_OPENCL_STEP_MAX, -3, 5, 5},
      {INGOT_OPENCL_STEP_BROADCAST, 1, 5, 5},
      {INGOT_OPENCL_STEP_BROADCAST, 5, 1, 5},
      {INGOT_OPENCL_STEP_BROADCAST, 0, 0, 0},
  };
  for (size_t c = 0; c < COUNT(cases); c++) {
    ingot_opencl_step_t steps[] = {
        {cases[c].function, 0, 1}, STEP(NUMBER, 0, cases[c].result), STEP(EQUAL, 5, 6)};
    if (is_misfit(steps, 3, cases[c].a, cases[c].b, 1)) FAIL("case %zu has another result", c);
    steps[1].b = cases[c].result ^ 1;
    if (!is_misfit(steps, 3, cases[c].a, cases[c].b, 1)) FAIL("case %zu has any result", c);
  }
}

TEST(what_overflows_or_has_no_value_does_not_fit) {
  const struct {
    uint32_t function;
    int64_t a, b;
  } cases[] = {
      {INGOT_OPENCL_STEP_ADD, INT64_MAX, 1},
      {INGOT_OPENCL_STEP_ADD, INT64_MIN, -1},
      {INGOT_OPENCL_STEP_MUL, INT64_C(1) << 32, INT64_C(1) << 31},
      {INGOT_OPENCL_STEP_MUL, INT64_MIN, -1},
      {INGOT_OPENCL_STEP_FLOORDIV, 5, 0},
      {INGOT_OPENCL_STEP_FLOORDIV, INT64_MIN, -1},
      {INGOT_OPENCL_STEP_MOD, 5, 0},
      {INGOT_OPENCL_STEP_BROADCAST, 2, 3},
      {INGOT_OPENCL_STEP_BROADCAST, 0, 3},
  };
  for (size_t c = 0; c < COUNT(cases); c++) {
    const ingot_opencl_step_t step = {cases[c].function, 0, 1};
    if (!is_misfit(&step, 1, cases[c].a, cases[c].b, 1)) FAIL("case %zu fits", c);
  }
}

TEST(tests_see_lengths_constants_and_workload) {
  const ingot_opencl_step_t le = STEP(LE, 2, 0), equal = STEP(EQUAL, 2, 1), fits = STEP(FITS, 1, 2);
  EXPECT(!is_misfit(&le, 1, 8, 0, 8));
  EXPECT(is_misfit(&le, 1, 7, 0, 8));
  EXPECT(!is_misfit(&equal, 1, 0, -8, -8));
  EXPECT(is_misfit(&equal, 1, 0, 8, -8));
  EXPECT(!is_misfit(&fits, 1, 0, 1, 8));
  EXPECT(!is_misfit(&fits, 1, 0, 8, 8));
  EXPECT(is_misfit(&fits, 1, 0, 8, 1));
  EXPECT(!is_misfit(NULL, 0, 0, 0, 0));
}

TEST(steps_that_lead_outside_are_unsound) {
  const ingot_opencl_step_t cases[][2] = {
      {STEP(ADD, 0, 5), STEP(LE, 0, 1)},          /* its own result */
      {STEP(LE, 0, 1), STEP(ADD, 5, 0)},          /* a test has none */
      {STEP(NUMBER, 0, 9), STEP(ADD, 6, 0)},
      {STEP(NUMBER, 0, 9), STEP(MUL, 0, 6)},
      {STEP(LE, 0, -1), STEP(LE, 0, 1)},
      {STEP(LE, 0, INT64_MIN), STEP(LE, 0, 1)},
      {STEP(LE, 0, INT64_MAX), STEP(LE, 0, 1)},
      {STEP(LE, UINT32_MAX, 0), STEP(LE, 0, 1)},
      {STEP(LE, 0, 1), {11, 0, 1}},
      {STEP(LE, 0, 1), {UINT32_MAX, 0, 1}},
      {STEP(NUMBER, 1, 9), STEP(LE, 0, 1)},
  };
  for (size_t c = 0; c < COUNT(cases); c++) {
    if (ingot_opencl_steps_are_sound(cases[c], 2, 5)) FAIL("case %zu is taken for sound", c);
  }
}

TEST(values_are_counted) {
  static ingot_opencl_step_t steps[INGOT_OPENCL_MAX_VALUES];
  EXPECT(ingot_opencl_steps_are_sound(steps, INGOT_OPENCL_MAX_VALUES - 5, 5));
  EXPECT(!ingot_opencl_steps_are_sound(steps, INGOT_OPENCL_MAX_VALUES - 4, 5));
  EXPECT(!ingot_opencl_steps_are_sound(NULL, 0, INGOT_OPENCL_MAX_VALUES + 1));
  EXPECT(!is_misfit(steps, INGOT_OPENCL_MAX_VALUES - 5, 0, 0, 0));
}

/* Any bits whatever are refused or computed; the sanitizers see what leaves its memory. */
TEST(any_bits_are_unsound_or_can_be_computed) {
  static const int64_t numbers[] = {INT64_MIN, INT64_MIN + 1, -2, -1, 0, 1, 2, 3, INT64_MAX};
  enum { STEPS = 12 };
  int sound = 0;
  uint64_t state = 1;
  for (int round = 0; round < 200000; round++) {
    ingot_opencl_step_t steps[STEPS];
    for (int s = 0; s < STEPS; s++) {
      uint64_t bits = state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
      steps[s].function = (uint32_t)(bits >> 60) % 11;
      steps[s].a = steps[s].function == 0 ? 0 : (uint32_t)(bits >> 50 & 31) % (6 + (uint32_t)s);
      steps[s].b = steps[s].function == 0 ? numbers[(bits >> 40 & 255) % COUNT(numbers)]
                                          : (int64_t)((bits >> 32 & 255) % (6 + (uint64_t)s));
    }
    if (!ingot_opencl_steps_are_sound(steps, STEPS, 5)) continue;
    sound++;
    (void)is_misfit(steps, STEPS, numbers[state >> 59 & 7], numbers[state >> 55 & 7],
                    numbers[state >> 51 & 7]);
  }
  EXPECT(sound > 1000);
}

int main(void) {
  RUN_TESTS();
  return TEST_RESULT();
}
