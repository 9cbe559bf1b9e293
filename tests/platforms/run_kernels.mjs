// Runs kernels of a WebAssembly object in node, as a page would: the module is instantiated on a
// memory and a table that exist already, behind what they hold (docs/design/0021). The jobs are those
// of emulated.c.
import { readFileSync, writeSync } from "node:fs";

const bytes = readFileSync(process.argv[2]);
const input = readFileSync(0);
let place = 0;

function read(length) {
  if (place + length > input.length) throw new Error("the input ends too early");
  place += length;
  return input.subarray(place - length, place);
}
const readI64 = () => Number(read(8).readBigInt64LE());

// What the section "dylink.0" asks for: bytes of memory and entries of the table.
function needs(module) {
  const [section] = WebAssembly.Module.customSections(module, "dylink.0");
  const view = new Uint8Array(section);
  let at = 0;
  const number = () => {
    let value = 0;
    for (let shift = 0; ; shift += 7) {
      const byte = view[at++];
      value |= (byte & 127) << shift;
      if (byte < 128) return value;
    }
  };
  while (at < view.length) {
    const kind = view[at++];
    const length = number();
    if (kind !== 1) {
      at += length;
      continue;
    }
    return { memory: number(), alignment: 1 << number(), table: number() };
  }
  throw new Error("the section dylink.0 says nothing of memory");
}

const memory = new WebAssembly.Memory({ initial: 64 });
const table = new WebAssembly.Table({ initial: 1, element: "anyfunc" });
let top = 1 << 20; // the first megabyte is the stack
function allocate(length, alignment = 64) {
  const start = Math.ceil(top / alignment) * alignment;
  top = start + length;
  const missing = Math.ceil((top - memory.buffer.byteLength) / 65536);
  if (missing > 0) memory.grow(missing);
  return start;
}

const module = new WebAssembly.Module(bytes);
const wanted = needs(module);
const memoryBase = allocate(wanted.memory, Math.max(wanted.alignment, 16));
const tableBase = table.grow(wanted.table + 1);
const constant = (value) => new WebAssembly.Global({ value: "i32", mutable: false }, value);
const env = {
  memory,
  __indirect_function_table: table,
  __stack_pointer: new WebAssembly.Global({ value: "i32", mutable: true }, 1 << 20),
  __memory_base: constant(memoryBase),
  __table_base: constant(tableBase),
};
const { exports } = new WebAssembly.Instance(module, { env });
exports.__wasm_apply_data_relocs?.();

// A function of C for `poll`: it goes on.
const goOn = new WebAssembly.Module(
  Uint8Array.of(
    0, 97, 115, 109, 1, 0, 0, 0, 1, 6, 1, 96, 1, 127, 1, 127, 3, 2, 1, 0, 7, 5, 1, 1, 112, 0, 0,
    10, 6, 1, 4, 0, 65, 0, 11,
  ),
);
const poll = tableBase + wanted.table;
table.set(poll, new WebAssembly.Instance(goOn).exports.p);

const count = read(4).readUInt32LE();
const library = exports.ingot_executable_query(3);
let view = new DataView(memory.buffer);
if (library === 0 || view.getUint32(library + 4, true) !== count) throw new Error("no such kernels");
const entries = view.getUint32(library + 8, true);
const start = top;

while (place < input.length) {
  top = start;
  const [entry, bindingCount, constantCount, ...workload] = Array.from({ length: 6 }, readI64);
  const constants = allocate(8 * constantCount);
  const constantBytes = read(8 * constantCount);
  const pointers = allocate(4 * bindingCount);
  const lengths = allocate(8 * bindingCount);
  const bindings = [];
  for (let b = 0; b < bindingCount; ++b) {
    const length = readI64();
    bindings.push({ address: allocate(length), data: read(length) });
  }
  const dispatch = allocate(48);
  const fault = allocate(24);
  view = new DataView(memory.buffer);
  const row = entries + 64 * entry; // ingot_kernel_entry_t of wasm32
  const scratch = allocate(Number(view.getBigUint64(row + 32, true)));
  view = new DataView(memory.buffer);
  const all = new Uint8Array(memory.buffer);
  all.set(constantBytes, constants);
  bindings.forEach(({ address, data }, b) => {
    all.set(data, address);
    view.setUint32(pointers + 4 * b, address, true);
    view.setBigInt64(lengths + 8 * b, BigInt(data.length), true);
  });
  [pointers, lengths, constants].forEach((at, word) => view.setUint32(dispatch + 4 * word, at, true));
  workload.forEach((work, axis) => view.setBigInt64(dispatch + 16 + 8 * axis, BigInt(work), true));
  view.setUint32(dispatch + 40, poll, true);
  const run = table.get(view.getUint32(row, true));
  const misfit = table.get(view.getUint32(row + 40, true));
  const grid = workload.map((work, axis) =>
    Math.ceil(work / Number(view.getBigInt64(row + 8 + 8 * axis, true))),
  );
  let code = misfit(dispatch) ? -1 : 0;
  for (let z = 0; z < grid[2]; ++z)
    for (let y = 0; y < grid[1]; ++y)
      for (let x = 0; x < grid[0] && code === 0; ++x)
        code = run(dispatch, BigInt(x), BigInt(y), BigInt(z), scratch, fault);
  const head = Buffer.alloc(8);
  head.writeBigInt64LE(BigInt(code));
  const parts = [head, ...bindings.map(({ address, data }) => all.slice(address, address + data.length))];
  for (let rest = Buffer.concat(parts); rest.length > 0; ) rest = rest.subarray(writeSync(1, rest));
}
