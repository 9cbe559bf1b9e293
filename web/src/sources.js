// Bytes from where an application has them.
import { IngotError } from "./errors.js";

export const inNode = Boolean(globalThis.process?.versions?.node);

/** A worker, told of its messages and its failure. */
export async function startWorker(url, take, fail) {
  if (inNode) {
    const { Worker } = await import("node:worker_threads");
    const worker = new Worker(url, { execArgv: [] }); // what node was told is for its own script
    return worker.on("message", take).on("error", fail);
  }
  const worker = new Worker(url, { type: "module" });
  worker.onmessage = ({ data }) => take(data);
  worker.onerror = fail;
  return worker;
}

/** In a worker: calls `take` for each message, with a function that answers. */
export async function serveMessages(take) {
  if (inNode) {
    const { parentPort } = await import("node:worker_threads");
    parentPort.on("message", (message) => take(message, parentPort));
  } else {
    globalThis.onmessage = ({ data }) => take(data, globalThis);
  }
}

/** What a worker can read as well: a URL becomes absolute, a Response its bytes. */
export async function portable(source) {
  if (Array.isArray(source)) return Promise.all(source.map(portable));
  if (typeof source === "string") return absolute(source);
  if (source instanceof URL) return source.href;
  return source instanceof Uint8Array || source instanceof Blob ? source : readBytes(source);
}

/** A Uint8Array of a URL, a path (in node), a Response, a Blob, an ArrayBuffer or a view of one. */
export async function readBytes(source) {
  if (typeof source === "string" || source instanceof URL) return fetchBytes(absolute(`${source}`));
  if (ArrayBuffer.isView(source)) {
    return new Uint8Array(source.buffer, source.byteOffset, source.byteLength);
  }
  if (source instanceof ArrayBuffer) return new Uint8Array(source);
  if (typeof SharedArrayBuffer === "function" && source instanceof SharedArrayBuffer) {
    return new Uint8Array(source);
  }
  if (source instanceof Response) return bodyOf(source, source.url);
  if (source instanceof Blob) return new Uint8Array(await source.arrayBuffer());
  throw new IngotError(
    "InvalidArgument",
    `expected a URL, a Response, a Blob or bytes, got ${source === null ? "null" : typeof source}`,
  );
}

function absolute(url) {
  if (inNode) return url;
  try {
    return new URL(url, globalThis.document?.baseURI ?? globalThis.location.href).href;
  } catch (error) {
    throw new IngotError("InvalidArgument", `'${url}' is no URL`, error);
  }
}

async function fetchBytes(url) {
  if (inNode && !/^(https?|data|blob):/.test(url)) {
    const { readFile } = await import("node:fs/promises");
    try {
      return await readFile(url.startsWith("file:") ? new URL(url) : url);
    } catch (error) {
      throw new IngotError("NotFound", `cannot read '${url}': ${error.message}`, error);
    }
  }
  let response;
  try {
    response = await fetch(url);
  } catch (error) {
    throw new IngotError("NotFound", `cannot fetch '${url}': ${error.message}`, error);
  }
  return bodyOf(response, url);
}

async function bodyOf(response, url) {
  if (!response.ok) {
    throw new IngotError("NotFound", `cannot fetch '${url}': the server says ${response.status}`);
  }
  try {
    return new Uint8Array(await response.arrayBuffer());
  } catch (error) {
    throw new IngotError("DataLoss", `'${url}' did not come whole: ${error.message}`, error);
  }
}
