package dev.ingot.sample

import android.app.Activity
import android.content.Context
import android.graphics.Canvas
import android.graphics.Paint
import android.os.Bundle
import android.view.MotionEvent
import android.view.View
import dev.ingot.DType
import dev.ingot.Model
import dev.ingot.Tensor
import dev.ingot.loadModel

/** One draws a digit, and sees after each stroke which one the network reads. */
class DigitsActivity : Activity() {
  private lateinit var model: Model

  override fun onCreate(saved: Bundle?) {
    super.onCreate(saved)
    model = assets.loadModel("digits.ingot")
    setContentView(DigitsView(this, model))
  }

  override fun onDestroy() {
    model.close()
    super.onDestroy()
  }
}

private const val SIDE = 8
private const val INK = 16f // the images that the network has learned are of 0 to 16

private class DigitsView(context: Context, private val model: Model) : View(context) {
  private val image = Tensor(DType.F32, 1, 1, SIDE.toLong(), SIDE.toLong())
  private val scores = Tensor(DType.F32, 1, 10)
  private val paint = Paint()
  private var answer = "draw a digit"

  override fun onTouchEvent(event: MotionEvent): Boolean {
    val cell = width / SIDE.toFloat()
    val column = (event.x / cell).toInt()
    val row = (event.y / cell).toInt()
    when {
      row >= SIDE -> begin()
      event.action == MotionEvent.ACTION_UP -> answer = "It reads ${read()}; touch here to begin anew"
      row >= 0 && column in 0 until SIDE -> image.floats.put(row * SIDE + column, INK)
    }
    invalidate()
    return true
  }

  private fun begin() {
    for (place in 0 until SIDE * SIDE) image.floats.put(place, 0f)
    answer = "draw a digit"
  }

  private fun read(): Int {
    model.call(listOf(image), listOf(scores))
    return (0 until 10).maxByOrNull { scores.floats.get(it) } ?: 0
  }

  override fun onDraw(canvas: Canvas) {
    val cell = width / SIDE.toFloat()
    for (place in 0 until SIDE * SIDE) {
      val level = (255 * (1 - image.floats.get(place) / INK)).toInt()
      paint.setARGB(255, level, level, level)
      val left = place % SIDE * cell
      val top = place / SIDE * cell
      canvas.drawRect(left, top, left + cell - 2, top + cell - 2, paint)
    }
    paint.setARGB(255, 0, 0, 160)
    paint.textSize = cell / 2
    canvas.drawText(answer, cell / 4, (SIDE + 1) * cell, paint)
  }
}
