// Side modules, which are what kernels are: docs/design/0021.
import { IngotError } from "./errors.js";

const damaged = (why) =>
  new IngotError("DataLoss", `the module's code for WebAssembly is damaged: ${why}`);

/** Reads numbers as WebAssembly writes them. */
class Reader {
  constructor(bytes, at = 0) {
    this.bytes = bytes;
    this.at = at;
  }

  get isAtEnd() {
    return this.at >= this.bytes.length;
  }

  number() {
    let value = 0;
    for (let shift = 0; shift < 35; shift += 7) {
      if (this.isAtEnd) throw damaged("it ends inside a section");
      const byte = this.bytes[this.at++];
      value += (byte & 127) * 2 ** shift;
      if (!(byte & 128)) return value;
    }
    throw damaged("a number is too long");
  }

  skip(length) {
    this.at += length;
  }
}

/** What the section "dylink.0" asks for: bytes of memory and entries of the table. */
export function needsOf(module) {
  const [section] = WebAssembly.Module.customSections(module, "dylink.0");
  const reader = new Reader(new Uint8Array(section ?? new ArrayBuffer(0)));
  while (!reader.isAtEnd) {
    const kind = reader.number();
    const length = reader.number();
    if (kind === 1) {
      const memory = reader.number();
      const alignment = Math.max(2 ** Math.min(reader.number(), 16), 16);
      return { memory, alignment, table: reader.number() };
    }
    reader.skip(length);
  }
  throw damaged("it is no side module");
}

/** What a side module exports, on a memory, behind what that holds. */
export async function sideModule(module, { memory, table, stackPointer, memoryBase, tableBase }) {
  const constant = (value) => new WebAssembly.Global({ value: "i32", mutable: false }, value);
  const { exports } = await WebAssembly.instantiate(module, {
    env: {
      memory,
      __indirect_function_table: table,
      __stack_pointer: stackPointer,
      __memory_base: constant(memoryBase),
      __table_base: constant(tableBase),
    },
  });
  exports.__wasm_apply_data_relocs?.();
  return exports;
}

/** The module with an import of shared memory in place of one that is not. */
export function shareMemory(bytes) {
  const reader = new Reader(bytes, 8);
  while (!reader.isAtEnd) {
    const start = reader.at;
    const kind = reader.number();
    const length = reader.number();
    const content = reader.at;
    if (kind === 2) {
      const limits = findMemory(reader);
      const least = bytes.subarray(limits.begin + 1, limits.end);
      const most = [3, ...least, 128, 128, 4]; // shared, with a maximum: 65536 pages
      const head = bytes.subarray(content, limits.begin);
      const rest = bytes.subarray(limits.end, content + length);
      const section = [...head, ...most, ...rest];
      const after = bytes.subarray(content + length);
      return joined([bytes.subarray(0, start), [2], written(section.length), section, after]);
    }
    reader.at = content + length;
  }
  throw damaged("it imports no memory");
}

/** Where the limits of the imported memory are, which has no maximum. */
function findMemory(reader) {
  for (let count = reader.number(); count > 0; --count) {
    for (let name = 0; name < 2; ++name) reader.skip(reader.number());
    const kind = reader.number();
    if (kind === 2) {
      const begin = reader.at;
      if (reader.number() !== 0) throw damaged("its memory has a maximum");
      reader.number();
      return { begin, end: reader.at };
    }
    if (kind === 0) reader.number();
    else if (kind === 1) {
      reader.skip(1);
      for (let numbers = reader.number() & 1 ? 2 : 1; numbers > 0; --numbers) reader.number();
    } else reader.skip(2);
  }
  throw damaged("it imports no memory");
}

function written(number) {
  const bytes = [];
  for (; number > 127; number = Math.floor(number / 128)) bytes.push((number & 127) | 128);
  return [...bytes, number];
}

function joined(parts) {
  const all = new Uint8Array(parts.reduce((length, part) => length + part.length, 0));
  parts.reduce((at, part) => (all.set(part, at), at + part.length), 0);
  return all;
}
