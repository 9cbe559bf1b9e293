// Tensors as JavaScript has them: typed arrays with dims.
import { IngotError } from "./errors.js";

const ARRAYS = {
  ...{ f64: Float64Array, f32: Float32Array, f16: Uint16Array, bf16: Uint16Array },
  ...{ i64: BigInt64Array, i32: Int32Array, i16: Int16Array, i8: Int8Array },
  ...{ u64: BigUint64Array, u32: Uint32Array, u16: Uint16Array, u8: Uint8Array },
  ...{ c64: Float32Array, c128: Float64Array },
};

/** The typed array of a dtype; those of less than 8 bits and of f8 lie in bytes. */
export const arrayOf = (dtype) => ARRAYS[dtype] ?? Uint8Array;

const product = (dims) => dims.reduce((all, dim) => all * dim, 1);

function refuse(name, message) {
  throw new IngotError("InvalidArgument", `argument '${name}': ${message}`);
}

/** `given` as a tensor for an argument: a tensor or, where its dims follow from its length, a typed
 * array, an array of numbers or a number. */
export function tensorOf(given, { name, dtype, dims }) {
  const Type = arrayOf(dtype);
  const isTensor = given?.data !== undefined;
  if (isTensor && given.dtype !== undefined && given.dtype !== dtype) {
    refuse(name, `expected ${dtype}, got ${given.dtype}`);
  }
  const data = elementsOf(isTensor ? given.data : given, name, dtype, Type);
  const count = data.length / (dtype.startsWith("c") ? 2 : 1); // complex numbers are pairs
  const own = isTensor && given.dims ? Array.from(given.dims, Number) : inferred(name, dims, count);
  if (!own.every((dim) => Number.isSafeInteger(dim) && dim >= 0)) {
    refuse(name, `expected dims of whole numbers, got [${own}]`);
  }
  if (product(own) !== count) {
    refuse(name, `dims [${own}] are ${product(own)} elements, but there are ${count}`);
  }
  return { dtype, dims: own, data };
}

function elementsOf(given, name, dtype, Type) {
  if (given instanceof Type) return given;
  if (given instanceof Uint8ClampedArray && Type === Uint8Array) return given;
  const isScalar = ["number", "bigint", "boolean"].includes(typeof given);
  if (!Array.isArray(given) && !isScalar) {
    const what = given?.constructor?.name ?? `${given}`;
    refuse(name, `expected ${dtype} as ${Type.name}, or an array of numbers, got ${what}`);
  }
  if (/^b?f(8|16)/.test(dtype)) {
    refuse(name, `plain numbers are not converted to ${dtype}: give its bits as ${Type.name}`);
  }
  try {
    return convert(isScalar ? [given] : given, dtype, Type);
  } catch (error) {
    return refuse(name, `its elements are no numbers of ${dtype}: ${error.message}`);
  }
}

function convert(values, dtype, Type) {
  if (Type === Float32Array || Type === Float64Array) return Type.from(values, toNumber);
  const isBig = Type === BigInt64Array || Type === BigUint64Array;
  const isSmall = dtype === "i2" || dtype === "i4"; // a byte each, with its sign
  const numbers = Array.from(values, (value) => (isBig ? BigInt(value) : toNumber(value)));
  const found = (isSmall ? Int8Array : Type).from(numbers);
  const wrong = numbers.find((number, at) => number !== found[at]);
  if (wrong !== undefined) throw new RangeError(`got ${wrong}`);
  return isSmall ? new Uint8Array(found.buffer) : found;
}

function toNumber(value) {
  if (["number", "bigint", "boolean"].includes(typeof value)) return Number(value);
  throw new TypeError(`got ${value === null ? "null" : typeof value}`);
}

/** The dims of a signature with what its one unknown dim must be. */
function inferred(name, dims, count) {
  const unknown = dims.filter((dim) => typeof dim !== "number");
  if (unknown.length > 1) {
    refuse(name, `its dims [${dims}] do not follow from its length: give { dims, data }`);
  }
  const known = product(dims.filter((dim) => typeof dim === "number"));
  if (unknown.length === 1 && (known === 0 || count % known !== 0)) {
    refuse(name, `${count} elements are no [${dims}]`);
  }
  return dims.map((dim) => (typeof dim === "number" ? dim : count / known));
}
