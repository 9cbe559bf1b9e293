/* Windows 10 and later. */
#include "platform/platform.h"

#if defined(INGOT_PLATFORM_WINDOWS)

#define WIN32_LEAN_AND_MEAN 1
#define NOMINMAX 1
#include <windows.h>

#include <stdio.h>
#include <string.h>

#define INGOT_WINDOWS_PATH_CAPACITY 4096

static void ingot_windows_reason(DWORD error, ingot_reason_t *out_reason) {
  wchar_t text[sizeof(out_reason->text)];
  DWORD length = FormatMessageW(FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS, NULL,
                                error, 0, text, sizeof(text) / sizeof(text[0]), NULL);
  while (length > 0 && (text[length - 1] <= L' ' || text[length - 1] == L'.')) length--;
  int count = WideCharToMultiByte(CP_UTF8, 0, text, (int)length, out_reason->text,
                                  (int)sizeof(out_reason->text) - 1, NULL, NULL);
  out_reason->text[count] = 0;
  if (count > 0) return;
  (void)snprintf(out_reason->text, sizeof(out_reason->text), "error %lu of Windows", error);
}

#if !defined(INGOT_NO_FILES) || !defined(INGOT_NO_LOADER)

static ingot_status_code_t ingot_windows_failed(DWORD error, ingot_reason_t *out_reason) {
  ingot_windows_reason(error, out_reason);
  switch (error) {
    case ERROR_FILE_NOT_FOUND:
    case ERROR_PATH_NOT_FOUND: return INGOT_STATUS_NOT_FOUND;
    case ERROR_ACCESS_DENIED:
    case ERROR_SHARING_VIOLATION: return INGOT_STATUS_PERMISSION_DENIED;
    case ERROR_NOT_ENOUGH_MEMORY:
    case ERROR_OUTOFMEMORY:
    case ERROR_COMMITMENT_LIMIT: return INGOT_STATUS_OUT_OF_MEMORY;
    case ERROR_INVALID_NAME:
    case ERROR_FILENAME_EXCED_RANGE: return INGOT_STATUS_INVALID_ARGUMENT;
    default: return INGOT_STATUS_INTERNAL;
  }
}

static size_t ingot_windows_page(void) {
  SYSTEM_INFO facts;
  GetSystemInfo(&facts);
  return facts.dwPageSize;
}

#endif

/* False if the path is no UTF-8 or too long. */
static bool ingot_windows_path(const char *path, wchar_t out_path[INGOT_WINDOWS_PATH_CAPACITY]) {
  if (MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, out_path,
                          INGOT_WINDOWS_PATH_CAPACITY) > 0) {
    return true;
  }
  SetLastError(ERROR_INVALID_NAME);
  return false;
}

/* -- threads ------------------------------------------------------------------------------------- */

#if !defined(INGOT_NO_THREADS)

_Static_assert(sizeof(ingot_mutex_t) == sizeof(SRWLOCK), "the header does not name the type");
_Static_assert(sizeof(ingot_condition_t) == sizeof(CONDITION_VARIABLE), "as above");

static SRWLOCK *ingot_windows_lock(ingot_mutex_t *mutex) { return (SRWLOCK *)(void *)mutex; }

static CONDITION_VARIABLE *ingot_windows_condition(ingot_condition_t *condition) {
  return (CONDITION_VARIABLE *)(void *)condition;
}

void ingot_mutex_initialize(ingot_mutex_t *mutex) { InitializeSRWLock(ingot_windows_lock(mutex)); }

void ingot_mutex_deinitialize(ingot_mutex_t *mutex) { (void)mutex; }

void ingot_mutex_lock(ingot_mutex_t *mutex) { AcquireSRWLockExclusive(ingot_windows_lock(mutex)); }

void ingot_mutex_unlock(ingot_mutex_t *mutex) {
  ReleaseSRWLockExclusive(ingot_windows_lock(mutex));
}

void ingot_condition_initialize(ingot_condition_t *condition) {
  InitializeConditionVariable(ingot_windows_condition(condition));
}

void ingot_condition_deinitialize(ingot_condition_t *condition) { (void)condition; }

void ingot_condition_wait(ingot_condition_t *condition, ingot_mutex_t *mutex) {
  (void)SleepConditionVariableSRW(ingot_windows_condition(condition), ingot_windows_lock(mutex),
                                  INFINITE, 0);
}

void ingot_condition_wait_for(ingot_condition_t *condition, ingot_mutex_t *mutex,
                              int64_t nanoseconds) {
  int64_t milliseconds = nanoseconds / 1000000 + 1;
  if (milliseconds > INT32_MAX) milliseconds = INT32_MAX;
  (void)SleepConditionVariableSRW(ingot_windows_condition(condition), ingot_windows_lock(mutex),
                                  (DWORD)milliseconds, 0);
}

void ingot_condition_signal(ingot_condition_t *condition) {
  WakeConditionVariable(ingot_windows_condition(condition));
}

void ingot_condition_broadcast(ingot_condition_t *condition) {
  WakeAllConditionVariable(ingot_windows_condition(condition));
}

static DWORD WINAPI ingot_windows_thread_main(void *argument) {
  ingot_thread_t *thread = argument;
  thread->function(thread->argument);
  return 0;
}

bool ingot_thread_start(ingot_thread_t *thread, size_t stack_length) {
  /* All of the stack at once: see ingot_stack_prepare. */
  thread->handle = CreateThread(NULL, stack_length, ingot_windows_thread_main, thread, 0, NULL);
  return thread->handle != NULL;
}

void ingot_thread_join(ingot_thread_t *thread) {
  (void)WaitForSingleObject(thread->handle, INFINITE);
  (void)CloseHandle(thread->handle);
}

void ingot_thread_detach(ingot_thread_t *thread) { (void)CloseHandle(thread->handle); }

bool ingot_thread_bind(const ingot_processor_set_t *processors) {
  return SetThreadAffinityMask(GetCurrentThread(), (DWORD_PTR)processors->words[0]) != 0;
}

bool ingot_thread_prioritize(int32_t priority) {
  int level = priority < 0 ? THREAD_PRIORITY_BELOW_NORMAL : THREAD_PRIORITY_ABOVE_NORMAL;
  return SetThreadPriority(GetCurrentThread(), level) != 0;
}

void ingot_thread_yield(void) { (void)SwitchToThread(); }

uintptr_t ingot_thread_self(void) { return GetCurrentThreadId(); }

int64_t ingot_process_id(void) { return GetCurrentProcessId(); }

#endif

/* -- clock --------------------------------------------------------------------------------------- */

int64_t ingot_clock(void) {
  LARGE_INTEGER count, frequency;
  (void)QueryPerformanceCounter(&count);
  (void)QueryPerformanceFrequency(&frequency);
  int64_t seconds = count.QuadPart / frequency.QuadPart;
  int64_t rest = count.QuadPart % frequency.QuadPart;
  return seconds * 1000000000 + rest * 1000000000 / frequency.QuadPart;
}

/* The cheap clock of Windows has ticks of 16 milliseconds and another start. */
int64_t ingot_clock_tick(void) { return ingot_clock(); }

/* -- files --------------------------------------------------------------------------------------- */

#if !defined(INGOT_NO_FILES)

static const uint64_t ingot_windows_empty_file[1] = {0}; /* aligned as any file is */

/* Makes the pages at [begin, end) of a mapped file the process's own: what is written to a page of
 * a private view does not change any more. */
static void ingot_windows_own(uint8_t *data, uint64_t begin, uint64_t end, uint64_t page) {
  for (uint64_t at = begin / page * page; at < end; at += page) {
    volatile uint8_t *byte = data + at;
    *byte = *byte;
  }
}

static ingot_status_code_t ingot_windows_load(HANDLE handle, ingot_file_choose_t choose,
                                              ingot_file_t *out_file, ingot_reason_t *out_reason) {
  LARGE_INTEGER size;
  if (GetFileType(handle) != FILE_TYPE_DISK || !GetFileSizeEx(handle, &size)) {
    (void)snprintf(out_reason->text, sizeof(out_reason->text), "it is no regular file");
    return INGOT_STATUS_INVALID_ARGUMENT;
  }
  *out_file = (ingot_file_t){(const uint8_t *)ingot_windows_empty_file, 0};
  if (size.QuadPart == 0) return INGOT_STATUS_OK; /* it cannot be mapped */
  if ((uint64_t)size.QuadPart > SIZE_MAX / 2) {
    return ingot_windows_failed(ERROR_NOT_ENOUGH_MEMORY, out_reason);
  }
  HANDLE mapping = CreateFileMappingW(handle, NULL, PAGE_WRITECOPY, 0, 0, NULL);
  if (!mapping) return ingot_windows_failed(GetLastError(), out_reason);
  uint8_t *data = MapViewOfFile(mapping, FILE_MAP_COPY, 0, 0, 0);
  DWORD error = GetLastError();
  (void)CloseHandle(mapping); /* the view keeps it */
  if (!data) return ingot_windows_failed(error, out_reason);
  uint64_t length = (uint64_t)size.QuadPart;
  uint64_t page = ingot_windows_page();
  uint64_t head = length < INGOT_FILE_HEAD ? length : INGOT_FILE_HEAD;
  uint64_t begin = 0;
  uint64_t end = 0;
  ingot_windows_own(data, 0, head, page); /* what is checked must not change */
  if (choose) choose(data, (size_t)head, &begin, &end);
  if (end > length || begin > end) begin = end = 0;
  ingot_windows_own(data, head, begin, page);
  ingot_windows_own(data, end > head ? end : head, length, page);
  *out_file = (ingot_file_t){data, (size_t)length};
  return INGOT_STATUS_OK;
}

ingot_status_code_t ingot_file_load(const ingot_allocator_t *allocator, const char *path,
                                    ingot_file_choose_t choose, ingot_file_t *out_file,
                                    ingot_reason_t *out_reason) {
  (void)allocator;
  wchar_t wide[INGOT_WINDOWS_PATH_CAPACITY];
  if (!ingot_windows_path(path, wide)) return ingot_windows_failed(GetLastError(), out_reason);
  DWORD attributes = GetFileAttributesW(wide);
  if (attributes != INVALID_FILE_ATTRIBUTES && (attributes & FILE_ATTRIBUTE_DIRECTORY)) {
    (void)snprintf(out_reason->text, sizeof(out_reason->text), "it is a folder");
    return INGOT_STATUS_INVALID_ARGUMENT;
  }
  HANDLE handle = CreateFileW(wide, GENERIC_READ, FILE_SHARE_READ, NULL, OPEN_EXISTING,
                              FILE_ATTRIBUTE_NORMAL, NULL);
  if (handle == INVALID_HANDLE_VALUE) return ingot_windows_failed(GetLastError(), out_reason);
  ingot_status_code_t code = ingot_windows_load(handle, choose, out_file, out_reason);
  (void)CloseHandle(handle);
  return code;
}

void ingot_file_unload(const ingot_allocator_t *allocator, ingot_file_t *file) {
  (void)allocator;
  if (file->length > 0) (void)UnmapViewOfFile((void *)(uintptr_t)file->data);
  *file = (ingot_file_t){NULL, 0};
}

static bool ingot_windows_write(HANDLE handle, const void *data, size_t length) {
  const char *bytes = data;
  while (length > 0) {
    DWORD count = length < INT32_MAX ? (DWORD)length : INT32_MAX;
    DWORD written = 0;
    if (!WriteFile(handle, bytes, count, &written, NULL) || written == 0) return false;
    bytes += written;
    length -= written;
  }
  return true;
}

bool ingot_file_write(const char *path, const ingot_file_part_t *parts, size_t count) {
  char text[INGOT_WINDOWS_PATH_CAPACITY];
  wchar_t wide[INGOT_WINDOWS_PATH_CAPACITY], fresh[INGOT_WINDOWS_PATH_CAPACITY];
  int length =
      snprintf(text, sizeof(text), "%s.%lx-%lx", path, GetCurrentProcessId(), GetCurrentThreadId());
  if (length <= 0 || (size_t)length >= sizeof(text) || !ingot_windows_path(path, wide) ||
      !ingot_windows_path(text, fresh)) {
    return false;
  }
  HANDLE handle =
      CreateFileW(fresh, GENERIC_WRITE, 0, NULL, CREATE_ALWAYS, FILE_ATTRIBUTE_NORMAL, NULL);
  if (handle == INVALID_HANDLE_VALUE) return false;
  bool is_written = true;
  for (size_t i = 0; i < count && is_written; i++) {
    is_written = ingot_windows_write(handle, parts[i].data, parts[i].length);
  }
  is_written =
      CloseHandle(handle) && is_written && MoveFileExW(fresh, wide, MOVEFILE_REPLACE_EXISTING);
  if (!is_written) (void)DeleteFileW(fresh);
  return is_written;
}

/* A folder below the user's own profile is the user's alone. */
bool ingot_folder_make(const char *path) {
  wchar_t wide[INGOT_WINDOWS_PATH_CAPACITY];
  if (!ingot_windows_path(path, wide)) return false;
  for (wchar_t *at = wide; *at; at++) {
    if ((*at != L'/' && *at != L'\\') || at == wide) continue;
    wchar_t separator = *at;
    *at = 0;
    (void)CreateDirectoryW(wide, NULL);
    *at = separator;
  }
  (void)CreateDirectoryW(wide, NULL);
  DWORD attributes = GetFileAttributesW(wide);
  return attributes != INVALID_FILE_ATTRIBUTES && (attributes & FILE_ATTRIBUTE_DIRECTORY);
}

bool ingot_folder_of_caches(char *out_path, size_t capacity) {
  wchar_t wide[INGOT_WINDOWS_PATH_CAPACITY];
  DWORD length = GetEnvironmentVariableW(L"LOCALAPPDATA", wide, INGOT_WINDOWS_PATH_CAPACITY);
  return length > 0 && length < INGOT_WINDOWS_PATH_CAPACITY &&
         WideCharToMultiByte(CP_UTF8, 0, wide, -1, out_path, (int)capacity, NULL, NULL) > 0;
}

#endif /* INGOT_NO_FILES */

/* -- memory -------------------------------------------------------------------------------------- */

int64_t ingot_memory_length(void) {
  MEMORYSTATUSEX facts;
  facts.dwLength = sizeof(facts);
  return GlobalMemoryStatusEx(&facts) ? (int64_t)facts.ullTotalPageFile : 0; /* with swap space */
}

/* -- loading code -------------------------------------------------------------------------------- */

#if !defined(INGOT_NO_LOADER)

size_t ingot_pages_unit(void) { return ingot_windows_page(); }

void *ingot_pages_create(size_t length) {
  return VirtualAlloc(NULL, length, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
}

ingot_status_code_t ingot_pages_protect(void *pages, size_t length, uint32_t access,
                                        ingot_reason_t *out_reason) {
  DWORD before, protection = PAGE_NOACCESS;
  if (access & INGOT_PAGES_READ) protection = PAGE_READONLY;
  if (access & INGOT_PAGES_WRITE) protection = PAGE_READWRITE;
  if (access & INGOT_PAGES_EXECUTE) {
    protection = PAGE_EXECUTE_READ;
    (void)FlushInstructionCache(GetCurrentProcess(), pages, length);
  }
  if (VirtualProtect(pages, length, protection, &before)) return INGOT_STATUS_OK;
  ingot_status_code_t code = ingot_windows_failed(GetLastError(), out_reason);
  return code == INGOT_STATUS_OUT_OF_MEMORY ? code : INGOT_STATUS_PERMISSION_DENIED;
}

void ingot_pages_free(void *pages, size_t length) {
  (void)length;
  (void)VirtualFree(pages, 0, MEM_RELEASE);
}

void ingot_profiler_name_code(const void *code, size_t length, const char *name) {
  (void)code;
  (void)length;
  (void)name;
}

#endif /* INGOT_NO_LOADER */

/* A stack grows where its guard page is touched, and code that skips that page crashes. The
 * compiler touches every page of large arrays. */
__attribute__((noinline)) void ingot_stack_prepare(void) {
  volatile char pages[16 * 1024];
  pages[0] = 0;
}

bool ingot_dynamic_library_open(const char *path, ingot_dynamic_library_t *out_library,
                                ingot_reason_t *out_reason) {
  wchar_t wide[INGOT_WINDOWS_PATH_CAPACITY];
  HMODULE handle = ingot_windows_path(path, wide) ? LoadLibraryW(wide) : NULL;
  *out_library = (ingot_dynamic_library_t){(void *)handle, -1};
  if (!handle) ingot_windows_reason(GetLastError(), out_reason);
  return handle != NULL;
}

bool ingot_dynamic_library_open_bytes(const void *data, size_t length,
                                      ingot_dynamic_library_t *out_library) {
  (void)data;
  (void)length;
  *out_library = (ingot_dynamic_library_t){NULL, -1};
  return false;
}

void *ingot_dynamic_library_symbol(const ingot_dynamic_library_t *library, const char *name) {
  FARPROC function = GetProcAddress((HMODULE)library->handle, name);
  void *symbol;
  memcpy(&symbol, &function, sizeof(symbol)); /* no cast from functions to data in C */
  return symbol;
}

void ingot_dynamic_library_close(ingot_dynamic_library_t *library) {
  if (library->handle) (void)FreeLibrary((HMODULE)library->handle);
  library->handle = NULL;
}

/* -- processors ---------------------------------------------------------------------------------- */

uint32_t ingot_processor_count(void) {
  DWORD_PTR own, all;
  uint32_t count = 0;
  if (GetProcessAffinityMask(GetCurrentProcess(), &own, &all)) {
    for (; own; own &= own - 1) count++;
  }
  if (count == 0) count = GetActiveProcessorCount(ALL_PROCESSOR_GROUPS); /* of several groups */
  return count > 0 ? count : 1;
}

bool ingot_processors_usable(ingot_processor_set_t *out_set) {
  DWORD_PTR own, all;
  if (!GetProcessAffinityMask(GetCurrentProcess(), &own, &all) || !own) return false;
  *out_set = (ingot_processor_set_t){{own}}; /* those of the process's group */
  return true;
}

bool ingot_processor_has_tiles(void) { return false; }
bool ingot_processor_request_tiles(void) { return false; }

ingot_processor_capabilities_t ingot_processor_capabilities(void) {
  ingot_processor_capabilities_t capabilities = {{0, 0}};
#if defined(__aarch64__)
  /* PF_ARM_V82_DP_..., PF_ARM_V82_I8MM_..., PF_ARM_V86_BF16_..., PF_ARM_V82_FP16_...: younger than
   * many a windows.h */
  if (IsProcessorFeaturePresent(43)) capabilities.words[0] |= UINT64_C(1) << 20;
  if (IsProcessorFeaturePresent(66)) capabilities.words[1] |= UINT64_C(1) << 13;
  if (IsProcessorFeaturePresent(68)) capabilities.words[1] |= UINT64_C(1) << 14;
  if (IsProcessorFeaturePresent(67)) capabilities.words[0] |= UINT64_C(3) << 9;
#endif
  return capabilities;
}

#endif /* INGOT_PLATFORM_WINDOWS */
