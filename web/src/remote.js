// A model in a worker, so that the page's own thread stays free.
import { IngotError } from "./errors.js";
import { startWorker } from "./sources.js";

export class RemoteModel {
  #worker;
  #waiting = new Map(); // by the message's number
  #count = 0;
  #ended = null; // why there is no worker any more

  static async load(source, options) {
    const model = new RemoteModel();
    const url = new URL("./worker.js", import.meta.url);
    const ended = (error) => {
      const reason = error?.message ?? "no reason";
      model.#fail(new IngotError("Internal", `the worker has ended: ${reason}`));
    };
    model.#worker = await startWorker(url, (answer) => model.#take(answer), ended);
    try {
      await model.#send("load", source, options);
    } catch (error) {
      model.close();
      throw error;
    }
    return model;
  }

  #send(method, ...given) {
    const number = ++this.#count;
    if (this.#ended) return Promise.reject(this.#ended);
    return new Promise((resolve, reject) => {
      try {
        this.#worker.postMessage({ number, method, given });
      } catch (error) {
        const wrong = `what was given cannot go to a worker: ${error.message}`;
        reject(new IngotError("InvalidArgument", wrong, error));
        return;
      }
      this.#waiting.set(number, { resolve, reject });
      this.#worker.ref?.();
    });
  }

  describe() {
    return this.#send("describe");
  }

  call(given) {
    return this.#send("call", given);
  }

  reset() {
    return this.#send("reset");
  }

  saveState() {
    return this.#send("saveState");
  }

  loadState(bytes) {
    return this.#send("loadState", bytes);
  }

  #take({ number, result, error }) {
    if (!this.#waiting.has(number)) return; // closed meanwhile: node hands over what was on its way
    const { resolve, reject } = this.#waiting.get(number);
    this.#waiting.delete(number);
    if (this.#waiting.size === 0) this.#worker.unref?.(); // node may end
    if (error) reject(new IngotError(error.code, error.message));
    else resolve(result);
  }

  #fail(error) {
    this.#ended = error;
    for (const { reject } of this.#waiting.values()) reject(error);
    this.#waiting.clear();
  }

  close() {
    this.#worker.terminate();
    this.#fail(new IngotError("Cancelled", "the model was closed"));
  }
}
