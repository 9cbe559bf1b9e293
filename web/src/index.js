// Ingot in pages and in node: see README.md, and index.d.ts for what all of this takes and gives.
import { IngotError } from "./errors.js";
import { LocalModel } from "./model.js";
import { RemoteModel } from "./remote.js";
import { inNode, portable } from "./sources.js";

export { IngotError };

/** Threads share memory, which pages may that are isolated from others. */
function checkThreads(threads) {
  if (!Number.isInteger(threads) || threads < 1 || threads > 64) {
    throw new IngotError("InvalidArgument", `threads is ${threads}: expected 1 to 64`);
  }
  if (threads === 1 || inNode || globalThis.crossOriginIsolated) return;
  throw new IngotError(
    "Unsupported",
    `${threads} threads need a page that is isolated, which this one is not: serve it with the ` +
      "headers Cross-Origin-Opener-Policy: same-origin and Cross-Origin-Embedder-Policy: " +
      "require-corp, or leave threads out",
  );
}

export class Ingot {
  #model;
  functions;
  device;

  static async load(source, { worker = false, threads = 1, ...options } = {}) {
    const ingot = new Ingot();
    checkThreads(threads);
    if (worker || threads > 1) {
      const [from, parameters] = await Promise.all([source, options.parameters ?? []].map(portable));
      ingot.#model = await RemoteModel.load(from, { ...options, parameters, threads });
    } else {
      ingot.#model = await LocalModel.load(source, options);
    }
    const { functions, device } = await ingot.#model.describe();
    ingot.functions = functions;
    ingot.device = device;
    return ingot;
  }

  async call(given, options = {}) {
    return this.#open().call({ ...options, arguments: given });
  }

  async reset() {
    await this.#open().reset();
  }

  async saveState() {
    return this.#open().saveState();
  }

  async loadState(source) {
    const bytes = await portable(source);
    await this.#open().loadState(bytes);
  }

  close() {
    this.#model?.close();
    this.#model = null;
  }

  #open() {
    if (this.#model) return this.#model;
    throw new IngotError("FailedPrecondition", "the model is closed");
  }
}
