// The tensors of safetensors files: a length of 8 bytes, a header in JSON, data.
import { IngotError } from "./errors.js";

const DTYPES = {
  ...{ BOOL: "i1", F8_E5M2: "f8e5m2", F8_E4M3: "f8e4m3fn", BF16: "bf16", F16: "f16", F32: "f32" },
  ...{ F64: "f64", C64: "c64", U8: "u8", I8: "i8", U16: "u16", I16: "i16", U32: "u32", I32: "i32" },
  ...{ U64: "u64", I64: "i64" },
};

const damaged = (why) => new IngotError("DataLoss", `the safetensors file is damaged: ${why}`);

/** By name `{dtype, dims, bytes}`, of files as bytes. */
export function readTensors(files) {
  const tensors = new Map();
  for (const file of files) {
    const header = headerOf(file);
    for (const [name, about] of Object.entries(header.tensors)) {
      if (name !== "__metadata__") tensors.set(name, tensorIn(file, header.end, name, about));
    }
  }
  return tensors;
}

function headerOf(file) {
  if (file.length < 8) throw damaged("it is shorter than its header");
  const length = new DataView(file.buffer, file.byteOffset, 8).getBigUint64(0, true);
  const end = 8 + Number(length);
  if (end > file.length) throw damaged("it is shorter than its header");
  try {
    return { end, tensors: Object(JSON.parse(new TextDecoder().decode(file.subarray(8, end)))) };
  } catch (error) {
    throw damaged(error.message);
  }
}

function tensorIn(file, start, name, about) {
  const dtype = DTYPES[about?.dtype];
  const [begin, end] = about?.data_offsets ?? [];
  const isInside = 0 <= begin && begin <= end && start + end <= file.length;
  const isShape = Array.isArray(about?.shape) && about.shape.every(Number.isSafeInteger);
  if (!dtype || !isShape || !isInside) {
    throw damaged(`tensor '${name}' has a dtype, a shape or a place that cannot be`);
  }
  return { dtype, dims: about.shape, bytes: file.subarray(start + begin, start + end) };
}
