/* The native part of dev.ingot.Model: its functions as Native.kt declares them. A failure is thrown
 * as dev.ingot.IngotException. */
#include <jni.h>
#include <stdlib.h>
#include <string.h>

#include "ingot/ingot.h"

typedef struct model_t {
  jobject memory; /* a global reference: the module is read in place */
  ingot_device_t *device;
  ingot_program_t *program;
  ingot_session_t *session;
} model_t;

/* The message goes as bytes: JNI's own strings are no UTF-8. Frees the status. */
static void throw_status(JNIEnv *env, ingot_status_t status) {
  const char *message = ingot_status_message(status);
  const jsize length = (jsize)strlen(message);
  jclass kind = (*env)->FindClass(env, "dev/ingot/IngotException");
  jstring code = (*env)->NewStringUTF(env, ingot_status_code_name(ingot_status_code(status)));
  jbyteArray bytes = (*env)->NewByteArray(env, length);
  if (kind && code && bytes) { /* else an exception is there already */
    (*env)->SetByteArrayRegion(env, bytes, 0, length, (const jbyte *)message);
    jmethodID make = (*env)->GetMethodID(env, kind, "<init>", "(Ljava/lang/String;[B)V");
    jobject error = make ? (*env)->NewObject(env, kind, make, code, bytes) : NULL;
    if (error) (*env)->Throw(env, (jthrowable)error);
  }
  ingot_status_free(status);
}

static void throw_out_of_memory(JNIEnv *env) {
  jclass kind = (*env)->FindClass(env, "java/lang/OutOfMemoryError");
  if (kind) (*env)->ThrowNew(env, kind, "dev.ingot.Model");
}

static void release(JNIEnv *env, model_t *model) {
  ingot_session_release(model->session);
  ingot_program_release(model->program);
  ingot_device_release(model->device);
  (*env)->DeleteGlobalRef(env, model->memory);
  free(model);
}

static ingot_status_t open_session(model_t *model, const void *data, size_t length) {
  ingot_instance_t *instance = NULL;
  ingot_module_t *module = NULL;
  ingot_status_t status = ingot_instance_create(NULL, &instance);
  if (!status) status = ingot_device_create(instance, "cpu", NULL, &model->device);
  if (!status) status = ingot_module_load_memory(instance, data, length, 0, NULL, NULL, &module);
  if (!status) {
    status = ingot_program_create(model->device, &module, 1, NULL, NULL, &model->program);
  }
  if (!status) status = ingot_session_create(model->program, NULL, &model->session);
  ingot_module_release(module); /* the program keeps it, and it the instance */
  ingot_instance_release(instance);
  return status;
}

JNIEXPORT jlong JNICALL Java_dev_ingot_Native_open(JNIEnv *env, jclass self, jobject memory) {
  (void)self;
  model_t *model = calloc(1, sizeof(*model));
  if (!model) return throw_out_of_memory(env), 0;
  model->memory = (*env)->NewGlobalRef(env, memory);
  ingot_status_t status = open_session(model, (*env)->GetDirectBufferAddress(env, memory),
                                       (size_t)(*env)->GetDirectBufferCapacity(env, memory));
  if (!status) return (jlong)(intptr_t)model;
  throw_status(env, status);
  release(env, model);
  return 0;
}

JNIEXPORT void JNICALL Java_dev_ingot_Native_close(JNIEnv *env, jclass self, jlong handle) {
  (void)self;
  release(env, (model_t *)(intptr_t)handle);
}

/* A view of a direct buffer; NULL with an exception set. */
static ingot_buffer_view_t *wrap(JNIEnv *env, const model_t *model, jobject buffer, jint dtype,
                                 jlongArray shape) {
  int64_t dims[INGOT_MAX_RANK];
  const jsize rank = (*env)->GetArrayLength(env, shape);
  const jsize kept = rank < INGOT_MAX_RANK ? rank : INGOT_MAX_RANK; /* a greater one is refused */
  (*env)->GetLongArrayRegion(env, shape, 0, kept, (jlong *)dims);
  ingot_buffer_view_t *view = NULL;
  ingot_status_t status =
      ingot_buffer_view_wrap(model->device, (*env)->GetDirectBufferAddress(env, buffer),
                             (size_t)(*env)->GetDirectBufferCapacity(env, buffer),
                             (ingot_dtype_t)dtype, (uint32_t)rank, dims, NULL, NULL, &view);
  if (status) throw_status(env, status);
  return view;
}

/* Fills `views`; false with an exception set. */
static jboolean wrap_all(JNIEnv *env, const model_t *model, jobjectArray buffers, jintArray dtypes,
                         jobjectArray shapes, ingot_buffer_view_t **views) {
  const jsize count = (*env)->GetArrayLength(env, buffers);
  for (jsize i = 0; i < count; ++i) {
    jint dtype = 0;
    jobject buffer = (*env)->GetObjectArrayElement(env, buffers, i);
    jobject shape = (*env)->GetObjectArrayElement(env, shapes, i);
    (*env)->GetIntArrayRegion(env, dtypes, i, 1, &dtype);
    views[i] = wrap(env, model, buffer, dtype, (jlongArray)shape);
    (*env)->DeleteLocalRef(env, shape);
    (*env)->DeleteLocalRef(env, buffer);
    if (!views[i]) return JNI_FALSE;
  }
  return JNI_TRUE;
}

/* `buffers`, `dtypes` and `shapes` are of the arguments, of which there are `argument_count`, then
 * of the results. */
JNIEXPORT void JNICALL Java_dev_ingot_Native_call(JNIEnv *env, jclass self, jlong handle,
                                                  jstring function, jobjectArray buffers,
                                                  jintArray dtypes, jobjectArray shapes,
                                                  jint argument_count) {
  (void)self;
  const model_t *model = (const model_t *)(intptr_t)handle;
  const jsize count = (*env)->GetArrayLength(env, buffers);
  ingot_buffer_view_t **views = calloc((size_t)count + 1, sizeof(*views));
  const char *name = (*env)->GetStringUTFChars(env, function, NULL);
  if (!views) throw_out_of_memory(env);
  if (views && name && wrap_all(env, model, buffers, dtypes, shapes, views)) {
    uint32_t number = 0;
    ingot_status_t status = ingot_program_find_function(model->program, name, &number);
    if (!status) {
      status = ingot_session_call(model->session, number, views, (uint32_t)argument_count,
                                  views + argument_count, (uint32_t)(count - argument_count), NULL);
    }
    if (status) throw_status(env, status);
  }
  for (jsize i = 0; views && i < count; ++i) ingot_buffer_view_release(views[i]);
  if (name) (*env)->ReleaseStringUTFChars(env, function, name);
  free(views);
}
