// One instance of the runtime: its memory, what it asks of its host, and statuses as errors.
//
// Kernels are side modules of the tool conventions (docs/design/0021): they are instantiated on the
// runtime's memory and table, so that the runtime calls them by pointers. The runtime asks for them
// in the middle of a call, and pages compile without blocking only in between: so a call that
// asked for code that is not there yet fails, and is made again when it has been compiled.
import { IngotError } from "./errors.js";
import { needsOf, shareMemory, sideModule } from "./side_modules.js";
import { inNode, readBytes, startWorker } from "./sources.js";

const PAGE = 65536;
const INITIAL_PAGES = 32;
const MAXIMUM_PAGES = 65535; // of 2^32 bytes all but the last
const SIMD = [
  ...[0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 8, 1, 6],
  ...[0, 65, 0, 253, 15, 11], // i8x16.splat
];
const RELAXED = [
  ...[0, 97, 115, 109, 1, 0, 0, 0, 1, 8, 1, 96, 3, 123, 123, 123, 1, 123, 3, 2, 1, 0, 10, 13, 1],
  ...[11, 0, 32, 0, 32, 1, 32, 2, 253, 133, 2, 11], // f32x4.relaxed_madd
];
const STACK = 262144; // bytes of each thread, aligned to it: wasm.c

const compiled = {}; // by file: the promise of the runtime's code, the same for all instances

export const processors = () => globalThis.navigator?.hardwareConcurrency ?? 1;

/** Bit 0: simd128, bit 1: relaxed SIMD. */
export function features() {
  const has = (bytes) => WebAssembly.validate(Uint8Array.from(bytes));
  return (has(SIMD) ? 1 : 0) | (has(RELAXED) ? 2 : 0);
}

function checkEngine() {
  if (typeof WebAssembly === "object" && features() & 1) return;
  const missing = "this engine has no WebAssembly with SIMD, which all code for it needs";
  throw new IngotError("Unsupported", `${missing}: Chrome 91, Firefox 89 and Safari 16.4 have it`);
}

async function compileRuntime(file) {
  return WebAssembly.compile(await readBytes(new URL(file, import.meta.url)));
}

const isEqual = (a, b) => a.length === b.length && a.every((byte, i) => byte === b[i]);

export class Host {
  #memory;
  #table;
  #code = []; // native code that there is: its bytes, and what its instance exports
  #libraries = [null]; // by number: those that the runtime has opened
  #wanted = null; // the bytes of code that the runtime has asked for in vain
  #failed = null; // what the engine threw
  #threads;
  #runtime; // compiled
  #sides = []; // what threads need of side modules
  spans = new Map(); // of parameters, by key: where their ingot_parameter_span_t lie
  read = () => null; // (length) => the next bytes of a state, or null
  write = () => {}; // (bytes): some more of a state

  static async create(threads, maximumMemory = MAXIMUM_PAGES * PAGE) {
    const maximum = Math.min(Math.floor(maximumMemory / PAGE), MAXIMUM_PAGES);
    if (!(maximum >= INITIAL_PAGES)) {
      throw new IngotError(
        "InvalidArgument",
        `maximumMemory is ${maximumMemory}: expected at least ${INITIAL_PAGES * PAGE} bytes`,
      );
    }
    checkEngine();
    const host = new Host();
    host.#threads = threads;
    const shared = threads > 1;
    const file = shared ? "./ingot-threads.wasm" : "./ingot.wasm";
    compiled[file] ??= compileRuntime(file);
    try {
      host.#runtime = await compiled[file];
      host.#memory = new WebAssembly.Memory({ initial: INITIAL_PAGES, maximum, shared });
      const { exports } = await WebAssembly.instantiate(host.#runtime, {
        env: { memory: host.#memory },
        ingot: host.#imports(),
      });
      host.#table = exports.__indirect_function_table;
      host.stackPointer = exports.__stack_pointer;
      host.api = host.#guarded(exports);
      host.check(host.api.ingot_web_start(threads));
    } catch (error) {
      if (!host.#runtime) delete compiled[file]; // what was missing may come
      if (error instanceof IngotError) throw error;
      if (error instanceof RangeError) {
        throw new IngotError("OutOfMemory", `no memory for the runtime: ${error.message}`, error);
      }
      throw new IngotError(
        "Unsupported",
        `this engine refuses the runtime (a content security policy has to allow ` +
          `'wasm-unsafe-eval'): ${error.message}`,
        error,
      );
    }
    return host;
  }

  /** The runtime's functions. What an engine throws leaves the runtime in the middle of something:
   * nothing is called after that. */
  #guarded(exports) {
    const api = {};
    for (const [name, call] of Object.entries(exports)) {
      if (typeof call !== "function") continue;
      api[name] = (...given) => {
        if (this.#failed) {
          throw new IngotError("FailedPrecondition", `the model has failed: ${this.#failed.message}`);
        }
        try {
          return call(...given);
        } catch (error) {
          this.#failed = error;
          throw new IngotError(
            "Internal",
            `the model's code has failed, load it again: ${error.message}`,
            error,
          );
        }
      };
    }
    return api;
  }

  get hasFailed() {
    return this.#failed !== null;
  }

  // -- memory ------------------------------------------------------------------------------------

  /** Views of all memory, to be made anew after every call: it may have grown. */
  get view() {
    return new DataView(this.#memory.buffer);
  }

  get bytes() {
    return new Uint8Array(this.#memory.buffer);
  }

  allocate(length, purpose) {
    const fits = length < 2 ** 32; // else it would wrap
    const address = fits ? this.api.ingot_web_resize(0, Math.max(length, 1)) >>> 0 : 0;
    if (address === 0) throw new IngotError("OutOfMemory", `${this.#full()} for ${purpose}`);
    return address;
  }

  release(address) {
    this.api.ingot_web_resize(address, 0);
  }

  /** Calls `body` with a function that allocates memory for as long as that runs. */
  within(body) {
    const blocks = [];
    try {
      return body((length) => {
        blocks.push(this.allocate(length, "a call"));
        return blocks.at(-1);
      });
    } finally {
      if (!this.hasFailed) blocks.forEach((block) => this.release(block));
    }
  }

  #full() {
    const mega = Math.round(this.#memory.buffer.byteLength / 1e6);
    return `out of memory: WebAssembly has ${mega} MB and gets no more`;
  }

  text(address) {
    const { bytes } = this;
    const begin = address >>> 0;
    return new TextDecoder().decode(bytes.slice(begin, bytes.indexOf(0, begin)));
  }

  /** Throws the failure that a status says. */
  check(status) {
    if (status === 0) return;
    const { api } = this;
    const code = this.text(api.ingot_status_code_name(api.ingot_status_code(status)));
    const message = this.text(api.ingot_status_message(status));
    api.ingot_status_free(status);
    throw new IngotError(code, code === "OutOfMemory" ? `${this.#full()}: ${message}` : message);
  }

  /** What a call writes to its last parameter, a pointer to 32 bits. */
  made(call) {
    return this.within((allocate) => {
      const out = allocate(4);
      this.check(call(out));
      return this.view.getUint32(out, true);
    });
  }

  // -- native code -------------------------------------------------------------------------------

  /** As `made`, of a call that may need code which is not there yet. */
  async madeWithCode(call) {
    for (;;) {
      this.#wanted = null;
      try {
        return this.made(call);
      } catch (error) {
        if (!this.#wanted) throw error;
      }
      await this.#load(this.#wanted);
    }
  }

  async #load(bytes) {
    try {
      const code = this.#threads > 1 ? shareMemory(bytes) : bytes;
      const module = await WebAssembly.compile(code);
      this.#code.push({ bytes, exports: await this.#instantiate(module) });
    } catch (error) {
      if (error instanceof IngotError) throw error;
      const code = error instanceof RangeError ? "OutOfMemory" : "DataLoss";
      throw new IngotError(code, `the module's code for WebAssembly: ${error.message}`, error);
    }
  }

  async #instantiate(module) {
    const needs = needsOf(module);
    const place = () => this.#aligned(needs.memory, needs.alignment, "the code of kernels");
    const tableBase = this.#table.grow(needs.table);
    this.#sides.push({ module, tableBase, tableLength: needs.table, place });
    const shared = { memory: this.#memory, table: this.#table, stackPointer: this.stackPointer };
    return sideModule(module, { ...shared, memoryBase: place(), tableBase });
  }

  /** The address of zeros, a multiple of `alignment`. */
  #aligned(length, alignment, purpose) {
    const block = this.allocate(length + alignment, purpose);
    this.bytes.fill(0, block, block + length + alignment);
    return Math.ceil(block / alignment) * alignment;
  }

  /** Starts the threads, each with all code that there is, which work for calls from now on. */
  async startThreads() {
    const sides = () =>
      this.#sides.map(({ place, ...side }) => ({ ...side, memoryBase: place() }));
    const all = Array.from({ length: this.#threads - 1 }, () => {
      const stack = this.#aligned(STACK, STACK, "the stack of a thread") + STACK;
      const given = { runtime: this.#runtime, memory: this.#memory, stack, sides: sides() };
      return new Promise((resolve, reject) => {
        const url = new URL("./thread.js", import.meta.url);
        startWorker(url, resolve, reject).then((worker) => worker.postMessage(given), reject);
      });
    });
    for (const error of await Promise.all(all)) {
      if (error) throw new IngotError("Internal", `a thread does not start: ${error}`);
    }
  }

  #imports() {
    return {
      now: () => performance.now(),
      features,
      processors,
      open: (data, length) => {
        const given = this.bytes.subarray(data >>> 0, (data >>> 0) + (length >>> 0));
        const found = this.#code.find(({ bytes }) => isEqual(bytes, given));
        if (!found) this.#wanted = given.slice();
        return found ? this.#libraries.push(found.exports) - 1 : 0;
      },
      symbol: (library, name) => {
        const found = this.#libraries[library][this.text(name)];
        if (typeof found !== "function") return 0;
        const place = this.#table.grow(1);
        this.#table.set(place, found);
        return place;
      },
      close: (library) => {
        this.#libraries[library] = null;
      },
      find: (key, out) => {
        const span = this.spans.get(this.text(key));
        if (span) this.bytes.copyWithin(out >>> 0, span, span + 24);
        return span ? 1 : 0;
      },
      write: (data, length) => {
        this.write(this.bytes.slice(data >>> 0, (data >>> 0) + (length >>> 0)));
      },
      read: (data, length) => {
        const bytes = this.read(length >>> 0);
        if (bytes) this.bytes.set(bytes, data >>> 0);
        return bytes ? 1 : 0;
      },
    };
  }
}
