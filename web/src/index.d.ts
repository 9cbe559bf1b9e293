/** Where bytes come from: a URL (relative to the page; in node also a path), an answer of `fetch`,
 * or the bytes themselves. */
export type Source = string | URL | Response | Blob | ArrayBuffer | ArrayBufferView;

export type TypedArray =
  | Float32Array
  | Float64Array
  | Int8Array
  | Int16Array
  | Int32Array
  | BigInt64Array
  | Uint8Array
  | Uint8ClampedArray
  | Uint16Array
  | Uint32Array
  | BigUint64Array;

/** A result. `dtype` is Ingot's name: "f32", "i64", ... `data` is row-major: f16 and bf16 are the bits
 * in a Uint16Array, booleans (i1), f8 and what has less than 8 bits a byte each, complex numbers
 * pairs. */
export interface Tensor {
  readonly dtype: string;
  readonly dims: readonly number[];
  readonly data: TypedArray;
}

/** An argument. Without `dims`, which only more than one unknown dim needs, they follow from the
 * length. Arrays of plain numbers are converted if they are numbers of the dtype, but not to f16, bf16
 * and f8; typed arrays must be those of the dtype. */
export type Argument =
  | { readonly data: TypedArray | readonly Scalar[]; readonly dims?: readonly number[] }
  | TypedArray
  | readonly Scalar[]
  | Scalar
  | readonly Argument[] // a sequence
  | null; // an optional without a value

export type Scalar = number | bigint | boolean;

export interface ValueInfo {
  readonly name: string;
  readonly doc: string;
  readonly dtype: string;
  /** A text, as "batch" or "2*batch", is known at the call only. */
  readonly dims: readonly (number | string)[];
  /** Results are arrays of tensors then, or null where there is no value. */
  readonly isSequence: boolean;
  readonly isOptional: boolean;
}

export interface FunctionInfo {
  readonly name: string;
  readonly doc: string;
  readonly arguments: readonly ValueInfo[];
  readonly results: readonly ValueInfo[];
}

export interface LoadOptions {
  /** safetensors files, for a module compiled with external parameters. */
  parameters?: Source | readonly Source[];
  /** Load and call in a worker, which leaves this thread free. Default: false. */
  worker?: boolean;
  /** How many work for a call: more than one in a worker, and only in node and in pages that are
   * isolated (`crossOriginIsolated`). Default: 1. */
  threads?: number;
  /** Bytes of WebAssembly memory, 4 GB at most, which is the default. */
  maximumMemory?: number;
}

export interface CallOptions {
  /** Default: "main", or the only function. */
  function?: string;
  /** Milliseconds until the call ends with DeadlineExceeded. Default: 0, none. */
  timeout?: number;
}

/** A loaded model: its weights, its state, its memory. */
export class Ingot {
  private constructor();
  /** IngotError, with a code: NotFound if a source cannot be read; DataLoss or Incompatible for what
   * is no module of this version; Unsupported where it has no code for this engine. */
  static load(source: Source, options?: LoadOptions): Promise<Ingot>;
  readonly functions: readonly FunctionInfo[];
  /** What it runs on: "wasm32 simd128 relaxed-simd, 1 thread". */
  readonly device: string;
  /** Arguments by names, or in their order. Calls of a model run one after another, and without a
   * worker on this thread. */
  call<T = Tensor>(
    given: Readonly<Record<string, Argument>> | readonly Argument[],
    options?: CallOptions,
  ): Promise<T[]>;
  /** Gives all variables their initial values. */
  reset(): Promise<void>;
  /** All variables, as bytes that any build of Ingot loads. */
  saveState(): Promise<Uint8Array>;
  loadState(source: Source): Promise<void>;
  /** Gives the memory back. Calls in a worker that have not ended fail with Cancelled. */
  close(): void;
}

export type Code =
  | "InvalidArgument"
  | "NotFound"
  | "OutOfRange"
  | "OutOfMemory"
  | "FailedPrecondition"
  | "Incompatible"
  | "DataLoss"
  | "Unsupported"
  | "PermissionDenied"
  | "DeadlineExceeded"
  | "Cancelled"
  | "DeviceLost"
  | "Internal";

export class IngotError extends Error {
  readonly code: Code;
}
