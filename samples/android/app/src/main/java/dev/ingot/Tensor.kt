package dev.ingot

import java.nio.ByteBuffer
import java.nio.ByteOrder
import java.nio.FloatBuffer

/** Types of elements, by their codes in modules, with the bytes of one. */
enum class DType(val code: Int, val bytes: Int) {
  I1(0x01, 1),
  I8(0x04, 1),
  I16(0x05, 2),
  I32(0x06, 4),
  I64(0x07, 8),
  U8(0x0A, 1),
  U16(0x0B, 2),
  U32(0x0C, 4),
  U64(0x0D, 8),
  F16(0x0E, 2),
  BF16(0x0F, 2),
  F32(0x10, 4),
  F64(0x11, 8)
}

/** Elements in a direct buffer, row after row, in the order of bytes of the processor. */
class Tensor(data: ByteBuffer, val dtype: DType, vararg val shape: Long) {
  val data: ByteBuffer

  init {
    require(data.isDirect) { "data is a buffer on the heap, expected a direct one" }
    val length = shape.fold(dtype.bytes.toLong()) { product, dim -> Math.multiplyExact(product, dim) }
    require(data.remaining() >= length) {
      "data has ${data.remaining()} bytes, but ${dtype.name}[${shape.joinToString(",")}] $length"
    }
    this.data = data.slice().order(ByteOrder.nativeOrder())
  }

  /** In new memory, all 0. */
  constructor(dtype: DType, vararg shape: Long) : this(
    ByteBuffer.allocateDirect(
      Math.toIntExact(shape.fold(dtype.bytes.toLong()) { product, dim -> product * dim })
    ),
    dtype,
    *shape
  )

  /** The elements of an F32 tensor, not a copy. */
  val floats: FloatBuffer
    get() = data.asFloatBuffer()
}
