extern const ingot_kernel_library_t *INGOT_KERNEL_CALL NAME_kernels(uint32_t abi_version);
extern const unsigned char NAME_module[];
extern const size_t NAME_module_length;

struct NAME_session_t {
  ingot_arena_t arena;
  ingot_allocator_t allocator;
  ingot_device_t *device;
  ingot_session_t *session;
};

ingot_status_t NAME_create(void *memory, size_t length, NAME_session_t **out_session) {
  const size_t head = (sizeof(NAME_session_t) + 63) & ~(size_t)63;
  const size_t skipped = (size_t)(-(uintptr_t)memory & 63);
  const ingot_static_kernels_t kernels = {"kernels", NAME_kernels};
  ingot_instance_t *instance = NULL;
  ingot_module_t *module = NULL;
  ingot_program_t *program = NULL;
  if (length < skipped + head) {
    return ingot_status_make(INGOT_STATUS_OUT_OF_MEMORY, "NAME: the session needs more memory");
  }
  NAME_session_t *session = (void *)((char *)memory + skipped);
  *session = (NAME_session_t){.session = NULL};
  session->allocator = ingot_arena_initialize(&session->arena, (char *)session + head,
                                              length - skipped - head);
  const ingot_instance_options_t options = {
      .allocator = &session->allocator, .kernels = &kernels, .kernel_count = 1};
  ingot_status_t status = ingot_instance_create(&options, &instance);
  if (!status) status = ingot_device_create(instance, "cpu", NULL, &session->device);
  if (!status) {
    status = ingot_module_load_memory(instance, NAME_module, NAME_module_length, 0, NULL, NULL,
                                      &module);
  }
  if (!status) status = ingot_program_create(session->device, &module, 1, NULL, NULL, &program);
  if (!status) status = ingot_session_create(program, NULL, &session->session);
  if (!status) *out_session = session;
  return status; /* nothing is released: all of it is the caller's memory */
}

size_t NAME_memory_peak(const NAME_session_t *session) {
  return (size_t)((const char *)(session + 1) - (const char *)session) + session->arena.peak;
}

/* A tensor in the caller's memory. Of sizes that no memory has, the runtime says so. */
static ingot_status_t wrap_(const NAME_session_t *session, void *data, ingot_dtype_t dtype,
                            uint32_t rank, const int64_t *dims, ingot_buffer_view_t **out_view) {
  size_t length = ingot_dtype_length(dtype);
  for (uint32_t d = 0; d < rank; ++d) {
    if (dims[d] < 0 || __builtin_mul_overflow(length, dims[d], &length)) length = 0;
  }
  return ingot_buffer_view_wrap(session->device, data, length, dtype, rank, dims, NULL, NULL,
                                out_view);
}
