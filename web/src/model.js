// A model in this thread: a module, its program and one session, in a host of their own.
import { IngotError } from "./errors.js";
import { Host } from "./host.js";
import { readTensors } from "./safetensors.js";
import { readBytes } from "./sources.js";
import { arrayOf, tensorOf } from "./tensors.js";

const SEQUENCE = 1; // INGOT_VALUE_*
const OPTIONAL = 2;

export class LocalModel {
  #host;
  #session;
  #dtypes = new Map(); // codes by name
  #functions = [];

  /** What `Ingot.load` says; all sources are given. */
  static async load(source, { parameters = [], maximumMemory, threads = 1 } = {}) {
    const starting = Host.create(threads, maximumMemory);
    const sources = [source, ...[parameters].flat()].map(readBytes);
    const [host, bytes, ...files] = await Promise.all([starting, ...sources]);
    const model = new LocalModel();
    model.#host = host;
    model.#learnDtypes();
    await model.#open(bytes, readTensors(files));
    return model;
  }

  async #open(bytes, tensors) {
    const { api } = this.#host;
    const data = this.#host.allocate(bytes.length, "the module");
    this.#host.bytes.set(bytes, data);
    const module = this.#host.made((out) => api.ingot_web_load(data, bytes.length, out));
    const program = await this.#makeProgram(module, tensors);
    await this.#host.startThreads();
    this.#session = this.#host.made((out) => api.ingot_session_create(program, 0, out));
    const count = api.ingot_program_function_count(program);
    this.#functions = Array.from({ length: count }, (_, f) => this.#readFunction(program, f));
  }

  async #makeProgram(module, tensors) {
    const { api } = this.#host;
    const blocks = [];
    const allocate = (length) => {
      blocks.push(this.#host.allocate(length, "parameters"));
      return blocks.at(-1);
    };
    this.#placeParameters(module, tensors, allocate);
    const program = await this.#host.madeWithCode((out) => api.ingot_web_program(module, out));
    this.#host.spans.clear();
    blocks.forEach((block) => this.#host.release(block));
    return program;
  }

  /** Copies the tensors that the module asks for. */
  #placeParameters(module, tensors, allocate) {
    const { api } = this.#host;
    const about = allocate(24);
    for (let p = 0; ; ++p) {
      const status = api.ingot_module_parameter(module, p, about);
      if (status !== 0) return void api.ingot_status_free(status);
      const key = this.#host.text(this.#words(about + 4, 1)[0]);
      const tensor = tensors.get(key);
      if (!tensor) continue;
      const span = allocate(24);
      const data = allocate(tensor.bytes.length);
      this.#host.bytes.set(tensor.bytes, data);
      const dims = this.#putDims(tensor.dims, allocate);
      const code = this.#dtypes.get(tensor.dtype);
      this.#putWords(span, [data, tensor.bytes.length, code, tensor.dims.length, dims, 0]);
      this.#host.spans.set(key, span);
    }
  }

  /** For `Ingot`: what does not change. */
  describe() {
    const { api } = this.#host;
    const device = this.#host.text(api.ingot_device_description(api.ingot_web_device()));
    return { functions: this.#functions, device };
  }

  // -- signatures --------------------------------------------------------------------------------

  #learnDtypes() {
    for (let code = 1; ; ++code) {
      const name = this.#host.api.ingot_dtype_name(code);
      if (name === 0) return;
      this.#dtypes.set(this.#host.text(name), code);
    }
  }

  #nameOfDtype(code) {
    return this.#host.text(this.#host.api.ingot_dtype_name(code));
  }

  #readFunction(program, number) {
    const { api } = this.#host;
    return this.#host.within((allocate) => {
      const out = allocate(24);
      this.#host.check(api.ingot_program_function(program, number, out, out + 4));
      const [module, ordinal] = this.#words(out, 2);
      this.#host.check(api.ingot_module_function(module, ordinal, out));
      const [name, doc, , , argumentCount, resultCount] = this.#words(out, 6);
      const values = Array.from({ length: argumentCount + resultCount }, (_, v) =>
        this.#readValue(module, ordinal, v, out),
      );
      return {
        name: this.#host.text(name),
        doc: this.#host.text(doc),
        arguments: values.slice(0, argumentCount),
        results: values.slice(argumentCount),
      };
    });
  }

  #readValue(module, ordinal, value, out) {
    this.#host.check(this.#host.api.ingot_module_value(module, ordinal, value, out));
    const [name, doc, dtype, kind, rank, firstDim] = this.#words(out, 6);
    const dims = Array.from({ length: rank }, (_, d) => this.#readDim(module, firstDim + d, out));
    return {
      name: this.#host.text(name),
      doc: this.#host.text(doc),
      dtype: this.#nameOfDtype(dtype),
      dims,
      isSequence: Boolean(kind & SEQUENCE),
      isOptional: Boolean(kind & OPTIONAL),
    };
  }

  /** A number, or the name of one that calls decide. */
  #readDim(module, dim, out) {
    this.#host.check(this.#host.api.ingot_module_dim(module, dim, out));
    const size = Number(this.#host.view.getBigInt64(out, true));
    return size >= 0 ? size : this.#host.text(this.#words(out + 8, 1)[0]);
  }

  #words(address, count) {
    const { view } = this.#host;
    return Array.from({ length: count }, (_, word) => view.getUint32(address + 4 * word, true));
  }

  #putWords(address, words) {
    const { view } = this.#host;
    words.forEach((word, at) => view.setUint32(address + 4 * at, word, true));
    return address;
  }

  #putDims(dims, allocate) {
    const address = allocate(8 * dims.length);
    const { view } = this.#host;
    dims.forEach((dim, at) => view.setBigInt64(address + 8 * at, BigInt(dim), true));
    return address;
  }

  // -- calls -------------------------------------------------------------------------------------

  /** `{arguments, function, timeout}`: an array of tensors. */
  call({ arguments: given, function: name, timeout = 0 }) {
    const number = this.#find(name);
    const about = this.#functions[number];
    const values = this.#order(given, about);
    if (!(timeout >= 0 && timeout < 1e12)) {
      const wrong = `timeout is ${timeout}: expected milliseconds, or 0 for none`;
      throw new IngotError("InvalidArgument", wrong);
    }
    const { api } = this.#host;
    return this.#host.within((allocate) => {
      const views = []; // to be released
      try {
        const handles = values.map((value, at) =>
          this.#put(value, about.arguments[at], allocate, views),
        );
        const results = this.#putWords(
          allocate(4 * about.results.length),
          about.results.map(() => 0),
        );
        const inputs = this.#putWords(allocate(4 * handles.length), handles);
        const counts = [handles.length, about.results.length];
        this.#host.check(
          api.ingot_web_call(this.#session, number, inputs, counts[0], results, counts[1], timeout),
        );
        const made = this.#words(results, counts[1]);
        views.push(...made);
        return made.map((view, at) => this.#take(view, about.results[at]));
      } finally {
        if (!this.#host.hasFailed) views.forEach((view) => api.ingot_buffer_view_release(view));
      }
    });
  }

  #find(name) {
    const names = this.#functions.map((each) => each.name);
    const found = names.indexOf(name ?? (names.length === 1 ? names[0] : "main"));
    if (found >= 0) return found;
    throw new IngotError(
      "NotFound",
      `there is no function '${name ?? "main"}': the module has ${names.join(", ") || "none"}`,
    );
  }

  /** Arguments in their order, of an array or of an object by names. */
  #order(given, { name, arguments: wanted }) {
    const names = wanted.map((each) => each.name);
    const say = (wrong) => {
      const all = `${name}(${names.join(", ")})`;
      throw new IngotError("InvalidArgument", `function '${name}': ${wrong}; it is ${all}`);
    };
    if (Array.isArray(given)) {
      if (given.length !== names.length) say(`got ${given.length} arguments`);
      return given;
    }
    if (typeof given !== "object" || given === null || ArrayBuffer.isView(given)) {
      say("expected arguments as an object by names, or an array");
    }
    for (const each of Object.keys(given)) {
      if (!names.includes(each)) say(`there is no argument '${each}'`);
    }
    wanted.forEach(({ name: each, isOptional }) => {
      if (!Object.hasOwn(given, each) && !isOptional) say(`argument '${each}' is missing`);
    });
    return names.map((each) => (Object.hasOwn(given, each) ? given[each] : null));
  }

  /** A view of an argument: of a tensor, a list of them, or 0 for none. */
  #put(value, about, allocate, views) {
    if ((value ?? null) === null && about.isOptional) return 0;
    if (!about.isSequence) return this.#putTensor(tensorOf(value, about), allocate, views);
    if (!Array.isArray(value)) {
      throw new IngotError(
        "InvalidArgument",
        `argument '${about.name}': expected an array of tensors, it is a sequence`,
      );
    }
    const each = value.map((one) => this.#putTensor(tensorOf(one, about), allocate, views));
    const { api } = this.#host;
    const elements = this.#putWords(allocate(4 * each.length), each);
    views.push(
      this.#host.made((out) =>
        api.ingot_buffer_view_create_list(api.ingot_web_device(), elements, each.length, out),
      ),
    );
    return views.at(-1);
  }

  #putTensor({ dtype, dims, data }, allocate, views) {
    const { api } = this.#host;
    const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    const address = allocate(bytes.length + 8);
    const aligned = Math.ceil(address / 8) * 8;
    this.#host.bytes.set(bytes, aligned);
    const code = this.#dtypes.get(dtype);
    const sizes = this.#putDims(dims, allocate);
    const wrap = (out) =>
      api.ingot_buffer_view_wrap(
        ...[api.ingot_web_device(), aligned, bytes.length, code, dims.length, sizes, 0, 0, out],
      );
    views.push(this.#host.made(wrap));
    return views.at(-1);
  }

  #take(view, about) {
    if (view === 0) return null;
    if (!about.isSequence) return this.#takeTensor(view);
    const { api } = this.#host;
    return Array.from({ length: api.ingot_buffer_view_count(view) }, (_, at) =>
      this.#takeTensor(api.ingot_buffer_view_element(view, at)),
    );
  }

  /** A copy. */
  #takeTensor(view) {
    const { api } = this.#host;
    const [buffer, offset, length, code, rank, dims] = this.#words(
      api.ingot_buffer_view_layout(view) >>> 0,
      6,
    );
    const data = this.#read(buffer, offset, length);
    const sizes = Array.from({ length: rank }, (_, d) =>
      Number(this.#host.view.getBigInt64(dims + 8 * d, true)),
    );
    const dtype = this.#nameOfDtype(code);
    return { dtype, dims: sizes, data: new (arrayOf(dtype))(data.buffer) };
  }

  #read(buffer, offset, length) {
    if (length === 0) return new Uint8Array(0);
    const { api } = this.#host;
    const address = this.#host.made((out) => api.ingot_buffer_map(buffer, offset, length, 1, out));
    const data = this.#host.bytes.slice(address, address + length);
    api.ingot_buffer_unmap(buffer, address);
    return data;
  }

  /** Leaves all memory to the engine. */
  close() {
    this.#host = null;
  }

  // -- state -------------------------------------------------------------------------------------

  reset() {
    this.#host.check(this.#host.api.ingot_session_reset(this.#session));
  }

  async saveState() {
    const parts = [];
    this.#host.write = (bytes) => parts.push(bytes);
    this.#host.check(this.#host.api.ingot_web_save(this.#session));
    return new Uint8Array(await new Blob(parts).arrayBuffer());
  }

  async loadState(source) {
    const bytes = await readBytes(source);
    let at = 0;
    this.#host.read = (length) => {
      at += length;
      return at <= bytes.length ? bytes.subarray(at - length, at) : null;
    };
    this.#host.check(this.#host.api.ingot_web_restore(this.#session));
  }
}
