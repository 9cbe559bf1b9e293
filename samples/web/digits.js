// Every movement goes to the model, as the data set has digits: one fills a square of 32 x 32 pixels,
// and each of the 8 x 8 numbers counts the dark ones of 4 x 4.
import { Ingot } from "./ingot-runtime/index.js";

const PEN = 5; // pixels of 32, as wide as the lines of the data set
const pad = document.querySelector("#pad");
const ink = pad.getContext("2d");
const seen = document.querySelector("#seen").getContext("2d");
const status = document.querySelector("#status");
const small = new OffscreenCanvas(32, 32).getContext("2d", { willReadFrequently: true });
const rows = Array.from({ length: 10 }, (_, digit) => {
  const row = document.createElement("li");
  row.innerHTML = `<b>${digit}</b><div class="bar"><i></i></div><span></span>`;
  document.querySelector("#answers").append(row);
  return { row, bar: row.querySelector("i"), text: row.querySelector("span") };
});
const lines = []; // of points
let model;

function draw(context, lines, width, place) {
  context.clearRect(0, 0, context.canvas.width, context.canvas.height);
  context.lineWidth = width;
  context.lineCap = context.lineJoin = "round";
  context.strokeStyle = getComputedStyle(document.body).color;
  for (const line of lines) {
    context.beginPath();
    line.forEach((point) => context.lineTo(...place(point)));
    context.lineTo(...place(line.at(-1))); // one point is a dot
    context.stroke();
  }
}

/** The lines as an image of the data set. */
function pixels() {
  const counts = new Float32Array(64);
  const points = lines.flat();
  if (points.length === 0) return counts;
  const [xs, ys] = [0, 1].map((axis) => points.map((point) => point[axis]));
  const [left, right] = [Math.min(...xs), Math.max(...xs)];
  const [top, bottom] = [Math.min(...ys), Math.max(...ys)];
  const scale = (32 - PEN) / Math.max(right - left, bottom - top, 1);
  const to = (value, low, high) => 16 + (value - (low + high) / 2) * scale;
  draw(small, lines, PEN, ([x, y]) => [to(x, left, right), to(y, top, bottom)]);
  const { data } = small.getImageData(0, 0, 32, 32);
  for (let at = 0; at < 1024; ++at) {
    if (data[4 * at + 3] > 127) counts[(at >> 7) * 8 + ((at & 31) >> 2)] += 1;
  }
  return counts;
}

function show(counts, logits) {
  const image = seen.createImageData(8, 8);
  const [r, g, b] = getComputedStyle(document.body).color.match(/\d+/g).map(Number);
  counts.forEach((count, at) => image.data.set([r, g, b, (count * 255) / 16], 4 * at));
  seen.putImageData(image, 0, 0);
  const most = Math.max(...logits);
  const weights = Array.from(logits, (each) => Math.exp(each - most));
  const all = weights.reduce((a, b) => a + b);
  const isBlank = counts.every((count) => count === 0);
  rows.forEach(({ row, bar, text }, digit) => {
    const share = isBlank ? 0 : weights[digit] / all;
    row.classList.toggle("best", !isBlank && logits[digit] === most);
    bar.style.width = `${100 * share}%`;
    text.textContent = isBlank ? "" : `${(100 * share).toFixed(1)} %`;
  });
}

function fail(error) {
  status.className = "wrong";
  status.textContent = error.message;
}

async function read() {
  if (!model) return;
  const counts = pixels();
  const start = performance.now();
  const [logits] = await model.call({ images: counts });
  const time = performance.now() - start;
  show(counts, logits.data);
  status.textContent = `${time.toFixed(1)} ms on ${model.device}`;
}

function add({ offsetX, offsetY }) {
  const scale = pad.width / pad.clientWidth;
  lines.at(-1).push([offsetX * scale, offsetY * scale]);
  draw(ink, lines, 48, (point) => point);
  read().catch(fail);
}

pad.addEventListener("pointerdown", (event) => {
  pad.setPointerCapture(event.pointerId);
  lines.push([]);
  add(event);
});
pad.addEventListener("pointermove", (event) => {
  if (pad.hasPointerCapture(event.pointerId)) add(event);
});
document.querySelector("#clear").addEventListener("click", () => {
  lines.length = 0;
  draw(ink, lines);
  read().catch(fail);
});

try {
  model = await Ingot.load("digits.ingot");
  status.textContent = `Ready, on ${model.device}`;
} catch (error) {
  fail(error);
}
