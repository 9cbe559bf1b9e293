package dev.ingot

import java.nio.ByteBuffer

/** A failure in the runtime: [code] is its class, such as "InvalidArgument". */
class IngotException(val code: String, message: ByteArray) :
  RuntimeException(String(message, Charsets.UTF_8))

internal object Native {
  init {
    System.loadLibrary("ingot_jni")
  }

  @JvmStatic external fun open(memory: ByteBuffer): Long

  @JvmStatic external fun close(handle: Long)

  @JvmStatic
  external fun call(
    handle: Long,
    function: String,
    buffers: Array<ByteBuffer>,
    dtypes: IntArray,
    shapes: Array<LongArray>,
    argumentCount: Int
  )
}

/**
 * A loaded module with its state. One call at a time: calls from several threads wait for each
 * other.
 *
 * [memory] holds a module file; it must be direct and start on a multiple of 8 bytes. It is read in
 * place, and must not change while the model is open.
 */
class Model(memory: ByteBuffer) : AutoCloseable {
  private var handle: Long

  init {
    require(memory.isDirect) { "memory is a buffer on the heap, expected a direct one" }
    handle = Native.open(memory.slice())
  }

  /**
   * Calls a function. Arguments are read, and results written, where they are, without a copy: a
   * result has the shape and dtype that the function gives.
   */
  @Synchronized
  fun call(arguments: List<Tensor>, results: List<Tensor>, function: String = "main") {
    check(handle != 0L) { "the model is closed" }
    require(results.none { it.data.isReadOnly }) { "a result is a buffer that is read-only" }
    val all = arguments + results
    Native.call(
      handle,
      function,
      Array(all.size) { all[it].data },
      IntArray(all.size) { all[it].dtype.code },
      Array(all.size) { all[it].shape },
      arguments.size
    )
  }

  /** Frees it; may be called more than once. */
  @Synchronized
  override fun close() {
    if (handle != 0L) Native.close(handle)
    handle = 0
  }
}
