package dev.ingot

import android.content.res.AssetManager
import java.io.FileInputStream
import java.nio.ByteBuffer
import java.nio.channels.FileChannel

/**
 * Loads a module from the assets, of which `build.gradle.kts` keeps those that end in `.ingot`
 * uncompressed. It is mapped, not read, where it starts on a multiple of 8 bytes of the APK.
 */
fun AssetManager.loadModel(name: String): Model =
  openFd(name).use { asset ->
    val channel = FileInputStream(asset.fileDescriptor).channel
    val mapped = channel.map(FileChannel.MapMode.READ_ONLY, asset.startOffset, asset.length)
    Model(if (asset.startOffset % 8 == 0L) mapped else copyOf(mapped))
  }

private fun copyOf(data: ByteBuffer): ByteBuffer {
  val copy = ByteBuffer.allocateDirect(data.remaining())
  copy.put(data)
  copy.flip()
  return copy
}
