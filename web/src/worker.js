// The worker's end of remote.js: one model, messages in order.
import { LocalModel } from "./model.js";
import { serveMessages } from "./sources.js";

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

serveMessages(async (message, port) => {
  const sent = await answer(message);
  port.postMessage(sent, buffersOf(sent.result));
});
