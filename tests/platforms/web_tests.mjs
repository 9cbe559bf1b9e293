// Tests of the npm package in node: `node --test`, with INGOT_PACKAGE, its folder, and INGOT_MODULES,
// where test_web.py put modules and what they give in Python.
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";
import { pathToFileURL } from "node:url";

const { Ingot, IngotError } = await import(pathToFileURL(`${process.env.INGOT_PACKAGE}/index.js`));
const folder = `${process.env.INGOT_MODULES}/`;
const { images, logits } = JSON.parse(readFileSync(`${folder}digits.json`));

const failure = (code, message) => (error) => {
  assert.ok(error instanceof IngotError, error.stack);
  assert.equal(error.code, code, error.message);
  assert.match(error.message, message);
  return true;
};

function close(found, wanted) {
  assert.equal(found.length, wanted.length);
  wanted.forEach((each, at) => assert.ok(Math.abs(found[at] - each) <= 1e-4 * Math.abs(each) + 1e-4));
}

for (const worker of [false, true]) {
  test(`digits of any batch, in ${worker ? "a worker" : "this thread"}`, async () => {
    const model = await Ingot.load(`${folder}digits.ingot`, { worker });
    assert.match(model.device, /^wasm32 simd128/);
    const [main] = model.functions;
    assert.deepEqual([main.name, main.arguments[0].name, main.results[0].name], ["main", "images", "logits"]);
    assert.deepEqual(main.arguments[0].dims, ["batch", 1, 8, 8]);
    const data = Float32Array.from(images);
    const [all] = await model.call({ images: data });
    assert.deepEqual([all.dtype, all.dims], ["f32", [data.length / 64, 10]]);
    close(all.data, logits);
    const [one] = await model.call([{ dims: [1, 1, 8, 8], data: data.subarray(64, 128) }]);
    close(one.data, logits.slice(10, 20));
    const [none] = await model.call({ images: new Float32Array(0) });
    assert.deepEqual([none.dims, none.data.length], [[0, 10], 0]);
    model.close();
    await assert.rejects(model.call({ images: data }), failure("FailedPrecondition", /closed/));
  });
}

test("threads share the work of a call", async () => {
  const model = await Ingot.load(`${folder}digits.ingot`, { threads: 3 });
  assert.match(model.device, /3 threads$/);
  const times = 400;
  const data = new Float32Array(times * images.length);
  for (let at = 0; at < times; ++at) data.set(images, at * images.length);
  for (let round = 0; round < 20; ++round) {
    const [y] = await model.call({ images: data });
    for (const at of [0, 199, times - 1]) close(y.data.slice(at * logits.length, (at + 1) * logits.length), logits);
  }
  model.close();
  const wrong = Ingot.load(`${folder}digits.ingot`, { threads: 0 });
  await assert.rejects(wrong, failure("InvalidArgument", /threads is 0/));
});

test("what a worker computes ends when its model is closed", async () => {
  for (const threads of [1, 2]) {
    const model = await Ingot.load(`${folder}state.ingot`, { worker: true, threads });
    const endless = model.call({ count: 2n ** 62n }, { function: "turns" });
    setTimeout(() => model.close(), 50);
    await assert.rejects(endless, failure("Cancelled", /closed/));
  }
});

test("an answer on its way when its model is closed is dropped", async () => {
  const model = await Ingot.load(`${folder}digits.ingot`, { worker: true });
  const cancelled = assert.rejects(model.call([Float32Array.from(images)]), failure("Cancelled", /closed/));
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 300); // the worker answers
  model.close();
  await cancelled;
  await new Promise((resolve) => setTimeout(resolve, 100)); // no exception that nobody catches
});

test("several models at once, from bytes and from URLs", async () => {
  const bytes = readFileSync(`${folder}digits.ingot`);
  const sources = [bytes, new Blob([bytes]), pathToFileURL(`${folder}digits.ingot`), new Response(bytes)];
  const models = await Promise.all(sources.map((source) => Ingot.load(source)));
  const data = Float32Array.from(images.slice(0, 64));
  for (const [y] of await Promise.all(models.map((model) => model.call([data])))) {
    close(y.data, logits.slice(0, 10));
  }
});

for (const worker of [false, true]) {
  test(`state stays, is saved and restored${worker ? ", in a worker" : ""}`, async () => {
    const model = await Ingot.load(`${folder}state.ingot`, { worker });
    const add = async (x) => Array.from((await model.call({ x }, { function: "add" }))[0].data);
    assert.deepEqual(await add([1, 2, 3, 4]), [1, 2, 3, 4]);
    assert.deepEqual(await add([1, 1, 1, 1, 1, 1, 1, 1]), [3, 4, 5, 6]);
    const saved = await model.saveState();
    assert.deepEqual(await add([1, 0, 0, 0]), [4, 4, 5, 6]);
    await model.loadState(saved);
    assert.deepEqual(await add([0, 0, 0, 0]), [3, 4, 5, 6]);
    await model.reset();
    assert.deepEqual(await add([0, 0, 0, 0]), [0, 0, 0, 0]);
    await assert.rejects(model.loadState(saved.subarray(0, 30)), failure("DataLoss", /state/));
    const other = await Ingot.load(`${folder}digits.ingot`, { worker });
    await assert.rejects(other.loadState(saved), failure("InvalidArgument", /state/));
    model.close();
    other.close();
  });
}

test("every kind of element, functions by name", async () => {
  const model = await Ingot.load(`${folder}state.ingot`);
  const given = {
    ids: [-1, 2n, 2 ** 40],
    flags: [true, false, true],
    halves: Uint16Array.of(0x3c00, 0x4000, 0xc200),
    count: 3,
  };
  const [ids, flags, halves, count] = await model.call(given, { function: "kinds" });
  assert.deepEqual(ids.data, BigInt64Array.of(0n, 3n, 2n ** 40n + 1n));
  assert.deepEqual(flags.data, Uint8Array.of(0, 1, 0));
  assert.deepEqual(halves.data, Uint16Array.of(0x4000, 0x4400, 0xc600));
  assert.deepEqual([count.dtype, count.dims, count.data[0]], ["i32", [], 9]);
  await assert.rejects(model.call(given), failure("NotFound", /no function 'main': .* add, kinds/));
  const wrong = { ...given, ids: new Int32Array(3) };
  const say = /argument 'ids': expected i64 as BigInt64Array, .* got Int32Array/;
  await assert.rejects(model.call(wrong, { function: "kinds" }), failure("InvalidArgument", say));
});

test("plain numbers that a dtype does not have are refused", async () => {
  const model = await Ingot.load(`${folder}state.ingot`);
  const right = { ids: [1], flags: [1], halves: Uint16Array.of(0), count: -3 };
  const rejects = async (given, message) => {
    const call = model.call({ ...right, ...given }, { function: "kinds" });
    await assert.rejects(call, failure("InvalidArgument", message));
  };
  await rejects({ halves: [1.5] }, /'halves': plain numbers are not converted to f16: .* Uint16Array/);
  await rejects({ count: 2 ** 31 }, /'count': its elements are no numbers of i32: got 2147483648/);
  await rejects({ count: 0.5 }, /of i32: got 0.5/);
  await rejects({ count: NaN }, /of i32: got NaN/);
  await rejects({ ids: [2n ** 63n] }, /of i64: got 9223372036854775808/);
  await rejects({ flags: [-1] }, /of i1: got -1/);
  await rejects({ count: ["7"] }, /of i32: got string/);
  assert.equal((await model.call(right, { function: "kinds" }))[3].data[0], 9);
});

test("sequences are arrays of tensors", async () => {
  const model = await Ingot.load(`${folder}sequences.ingot`);
  const [parts, whole] = await model.call({ x: [1, 2, 3], more: [[4, 5], Float32Array.of(6)] });
  assert.deepEqual(parts.map((each) => Array.from(each.data)), [[1], [2], [3]]);
  assert.deepEqual(Array.from(whole.data), [4, 5, 6]);
  const wrong = model.call({ x: [1], more: Float32Array.of(6) });
  await assert.rejects(wrong, failure("InvalidArgument", /'more': expected an array of tensors/));
});

test("weights from safetensors", async () => {
  const url = `${folder}external.ingot`;
  for (const worker of [false, true]) {
    const model = await Ingot.load(url, { parameters: `${folder}weights.safetensors`, worker });
    const [y] = await model.call({ x: [1, 2] });
    assert.deepEqual(Array.from(y.data), [11, 14, 17]);
    model.close();
  }
  await assert.rejects(Ingot.load(url), failure("NotFound", /w/));
  const cut = readFileSync(`${folder}weights.safetensors`).subarray(0, 40);
  await assert.rejects(Ingot.load(url, { parameters: [cut] }), failure("DataLoss", /safetensors/));
});

test("what is wrong is said", async () => {
  const model = await Ingot.load(`${folder}digits.ingot`);
  const rejects = (given, code, message) => assert.rejects(model.call(given), failure(code, message));
  await rejects({ x: 1 }, "InvalidArgument", /no argument 'x'; it is main\(images\)/);
  await rejects({}, "InvalidArgument", /argument 'images' is missing/);
  await rejects([], "InvalidArgument", /got 0 arguments/);
  await rejects(new Float32Array(64), "InvalidArgument", /by names, or an array/);
  await rejects({ images: new Float32Array(63) }, "InvalidArgument", /63 elements are no \[batch,1,8,8\]/);
  await rejects({ images: [{}] }, "InvalidArgument", /no numbers of f32/);
  const bad = (dims, count = 64) => ({ images: { dims, data: new Float32Array(count) } });
  await rejects(bad([1, 1, 8, 9]), "InvalidArgument", /72 elements, but there are 64/);
  await rejects(bad([1, 8, 8]), "InvalidArgument", /rank 3, expected 4/);
  await rejects(bad([1, 1, 4, 16]), "InvalidArgument", /images/);
  await rejects(bad([-1, 1, -8, 8]), "InvalidArgument", /whole numbers/);
  close((await model.call([Float32Array.from(images)]))[0].data, logits); // it still works
  await assert.rejects(Ingot.load(7), failure("InvalidArgument", /expected a URL/));
  await assert.rejects(Ingot.load(`${folder}none.ingot`), failure("NotFound", /none.ingot/));
  await assert.rejects(Ingot.load(`${folder}none.ingot`, { worker: true }), failure("NotFound", /none/));
  await assert.rejects(Ingot.load(new Uint8Array(100)), failure("DataLoss", /module/));
});

test("a module without code for WebAssembly says what to compile for", async () => {
  const say = /has code for x86-64.*--variants wasm32/;
  await assert.rejects(Ingot.load(`${folder}native.ingot`), failure("Unsupported", say));
});

test("an engine without SIMD, and one without memory", async (context) => {
  context.mock.method(WebAssembly, "validate", () => false);
  const say = /no WebAssembly with SIMD/;
  await assert.rejects(Ingot.load(`${folder}digits.ingot`), failure("Unsupported", say));
  context.mock.restoreAll();
  const little = { maximumMemory: 3 << 20 };
  const model = await Ingot.load(`${folder}digits.ingot`, little);
  const many = { images: new Float32Array(64 * 4000) };
  await assert.rejects(model.call(many), failure("OutOfMemory", /out of memory: WebAssembly has \d MB/));
  close((await model.call([Float32Array.from(images)]))[0].data, logits);
  const much = Ingot.load(new Uint8Array(4 << 20), little);
  await assert.rejects(much, failure("OutOfMemory", /for the module/));
  await assert.rejects(Ingot.load(`${folder}digits.ingot`, { maximumMemory: 9 }), failure("InvalidArgument", /9/));
});

test("code that asks for more than there can be, or ends early, is refused", async () => {
  const { Host } = await import(pathToFileURL(`${process.env.INGOT_PACKAGE}/host.js`));
  const host = await Host.create(1);
  const much = failure("OutOfMemory", /for kernels/); // and not 2 ** 32 bytes less
  assert.throws(() => host.allocate(2 ** 32 + 16, "kernels"), much);
  const { shareMemory } = await import(pathToFileURL(`${process.env.INGOT_PACKAGE}/side_modules.js`));
  const imports = [0, 97, 115, 109, 1, 0, 0, 0, 2, 5, 255, 255, 255, 255, 15]; // very many, of which none follows
  assert.throws(() => shareMemory(Uint8Array.from(imports)), failure("DataLoss", /ends inside/));
});

test("a call ends at its timeout", async () => {
  const model = await Ingot.load(`${folder}state.ingot`);
  const never = model.call({ count: 1 }, { function: "turns", timeout: NaN });
  await assert.rejects(never, failure("InvalidArgument", /timeout is NaN/));
  const endless = model.call({ count: 2n ** 62n }, { function: "turns", timeout: 20 });
  await assert.rejects(endless, failure("DeadlineExceeded", /./));
  assert.equal((await model.call({ count: 5 }, { function: "turns" }))[0].data[0], 5n);
});

test("damaged modules give errors", async () => {
  const names = readdirSync(folder).filter((name) => name.startsWith("damaged"));
  const ends = new Map();
  for (const name of names) {
    const given = [Float32Array.from(images)];
    const worker = name.includes("code"); // kernels with other bytes may never end
    let [end, model, closing, trapped] = ["right", null, null, false];
    try {
      model = await Ingot.load(`${folder}${name}`, { maximumMemory: 64 << 20, worker });
      closing = worker && setTimeout(() => model.close(), 3000);
      await model.call(given, { timeout: 1000, function: model.functions[0]?.name });
    } catch (error) {
      assert.ok(error instanceof IngotError, `${name}: ${error.stack}`);
      end = error.code;
      trapped = /code has failed|has ended/.test(error.message); // not a fault that it tells of
    }
    clearTimeout(closing);
    if (model && trapped) {
      await assert.rejects(model.call(given), failure("FailedPrecondition", /the model has failed/));
    }
    if (worker) model?.close();
    ends.set(end, (ends.get(end) ?? 0) + 1);
  }
  assert.ok(names.length > 100 && ends.get("DataLoss") > names.length / 4, JSON.stringify([...ends]));
});
