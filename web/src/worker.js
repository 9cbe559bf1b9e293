// The worker's end of remote.js: one model, messages in order.
import { LocalModel } from "./model.js";
import { inNode } from "./sources.js";

let model = null;

async function answer({ number, method, given }) {
  try {
    if (method === "load") {
      model = await LocalModel.load(...given);
      return { number };
    }
    return { number, result: await model[method](...given) };
  } catch ({ code = "Internal", message }) {
    return { number, error: { code, message } };
  }
}

function buffersOf(result) {
  if (ArrayBuffer.isView(result)) return [result.buffer];
  if (Array.isArray(result)) return result.flatMap(buffersOf);
  return result?.data ? [result.data.buffer] : [];
}

async function serve(port, message) {
  const sent = await answer(message);
  port.postMessage(sent, buffersOf(sent.result));
}

if (inNode) {
  const { parentPort } = await import("node:worker_threads");
  parentPort.on("message", (message) => serve(parentPort, message));
} else {
  globalThis.onmessage = ({ data }) => serve(globalThis, data);
}
