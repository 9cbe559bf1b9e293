// Ingot in pages and in node: see README.md, and index.d.ts for what all of this takes and gives.
import { IngotError } from "./errors.js";
import { LocalModel } from "./model.js";
import { RemoteModel } from "./remote.js";
import { portable } from "./sources.js";

export { IngotError };

export class Ingot {
  #model;
  functions;
  device;

  static async load(source, { worker = false, ...options } = {}) {
    const ingot = new Ingot();
    if (worker) {
      const [from, parameters] = await Promise.all([source, options.parameters ?? []].map(portable));
      ingot.#model = await RemoteModel.load(from, { ...options, parameters });
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
