// What test_android.py runs in a desktop JVM: digits MODULE IMAGES, with IMAGES as f32.

import dev.ingot.DType
import dev.ingot.IngotException
import dev.ingot.Model
import dev.ingot.Tensor
import java.io.RandomAccessFile
import java.nio.ByteBuffer
import java.nio.channels.FileChannel.MapMode

fun mapped(path: String): ByteBuffer {
  val channel = RandomAccessFile(path, "r").channel
  return channel.map(MapMode.READ_ONLY, 0, channel.size())
}

fun told(wrong: () -> Any?) {
  try {
    println(wrong())
  } catch (error: IngotException) {
    println("${error.code}: ${error.message}")
  } catch (error: RuntimeException) {
    println(error)
  }
}

fun main(words: Array<String>) {
  val module = mapped(words[0])
  val pixels = mapped(words[1])
  val count = pixels.remaining() / 256L
  val images = Tensor(pixels, DType.F32, count, 1, 8, 8)
  val scores = Tensor(DType.F32, count, 10)
  val model = Model(module)
  val floats = scores.floats
  for (turn in 1..100) model.call(listOf(images), listOf(scores))
  println((0 until count.toInt()).joinToString("") { image ->
    (0..9).maxBy { floats.get(image * 10 + it) }.toString()
  })
  val few = Tensor(DType.F32, 3, 10)
  told { model.call(listOf(images), listOf(few)) }
  told { model.call(listOf(images), listOf(scores), "größe") }
  told { model.call(listOf(images), listOf(images)) }
  told { model.call(listOf(), listOf()) }
  model.close()
  model.close()
  told { model.call(listOf(images), listOf(scores)) }
  val copy = ByteBuffer.allocateDirect(module.remaining() + 4)
  copy.position(4)
  copy.put(module.duplicate())
  copy.position(4)
  told { Model(copy) }
  copy.position(0)
  told { Model(copy) }
  told { Model(ByteBuffer.allocate(64)) }
  told { Tensor(copy, DType.F64, 1, 1000000) }
}
