// The model runs in a worker; while one text is computed, only the newest of what was typed waits.
import { Ingot } from "./ingot-runtime/index.js";
import { WordPiece } from "./wordpiece.js";

const BATCH = 8;
const query = document.querySelector("#query");
const found = document.querySelector("#found");
const status = document.querySelector("#status");
let tokenizer;
let model;
let sentences; // [{text, vector}]
let waiting = null;
let isBusy = false;

/** One vector of length 1 for each text. */
async function embed(texts) {
  const tokens = texts.map((text) => tokenizer.encode(text));
  const dims = [texts.length, Math.max(...tokens.map((each) => each.length))];
  const matrix = (value) => {
    const data = new BigInt64Array(dims[0] * dims[1]);
    tokens.forEach((ids, row) => ids.forEach((id, at) => (data[row * dims[1] + at] = value(id))));
    return { dims, data };
  };
  const [vectors] = await model.call({
    input_ids: matrix((id) => BigInt(id)),
    attention_mask: matrix(() => 1n),
    token_type_ids: matrix(() => 0n),
  });
  const length = vectors.dims[1];
  return texts.map((_, row) => vectors.data.subarray(row * length, (row + 1) * length));
}

function show(scores) {
  const order = scores.map((_, at) => at).sort((a, b) => scores[b] - scores[a]);
  found.replaceChildren(
    ...order.slice(0, 8).map((at, place) => {
      const row = document.createElement("li");
      row.classList.toggle("best", place === 0);
      row.innerHTML = `<div></div><div class="bar"><i></i></div><span></span>`;
      row.firstChild.textContent = sentences[at].text;
      row.querySelector("i").style.width = `${100 * Math.max(scores[at], 0)}%`;
      row.querySelector("span").textContent = scores[at].toFixed(2);
      return row;
    }),
  );
}

async function search() {
  waiting = query.value.trim() || query.placeholder;
  if (isBusy) return;
  isBusy = true;
  try {
    while (waiting) {
      const text = waiting;
      waiting = null;
      const start = performance.now();
      const [vector] = await embed([text]);
      const time = performance.now() - start;
      show(sentences.map((each) => each.vector.reduce((sum, x, at) => sum + x * vector[at], 0)));
      status.textContent = `${time.toFixed(0)} ms on ${model.device}, in a worker`;
    }
  } finally {
    isBusy = false;
  }
}

function fail(error) {
  status.className = "wrong";
  status.textContent = error.message;
}

/** The bytes of a URL; says how far it is. */
async function download(url) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`cannot fetch ${url}: the server says ${response.status}`);
  const parts = [];
  let length = 0;
  const reader = response.body.getReader();
  for (let step = await reader.read(); !step.done; step = await reader.read()) {
    parts.push(step.value);
    length += step.value.length;
    status.textContent = `Loading the weights: ${(length / 1e6).toFixed(0)} MB`;
  }
  return new Blob(parts);
}

async function textOf(url) {
  return (await download(url)).text();
}

try {
  tokenizer = new WordPiece(await textOf("vocab.txt"));
  const parameters = await download("model.safetensors");
  status.textContent = "Preparing the model …";
  model = await Ingot.load("minilm.ingot", { parameters, worker: true });
  const texts = (await textOf("sentences.txt")).trim().split("\n");
  sentences = [];
  while (sentences.length < texts.length) {
    const batch = texts.slice(sentences.length, sentences.length + BATCH);
    const vectors = await embed(batch);
    batch.forEach((text, at) => sentences.push({ text, vector: vectors[at] }));
    status.textContent = `Reading: ${sentences.length} of ${texts.length} sentences`;
  }
  query.disabled = false;
  query.addEventListener("input", () => search().catch(fail));
  await search();
} catch (error) {
  fail(error);
}
