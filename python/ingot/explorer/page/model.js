// One module: its functions and kernels, and what its dispatches cost at the chosen sizes.

const GUESS = 64; // of a dim that nobody gave a size, as the compiler's report takes it

class Model {
  constructor(facts) {
    this.facts = facts;
    this.given = new Map(Object.entries(facts.sizes));
    const called = (each) => (each.times ? 0 : each.exported ? 1 : 2);
    this.functions = [...facts.functions].sort((a, b) => called(a) - called(b));
    this.select(0);
  }

  select(place) {
    this.function = this.functions[place];
    const rows = this.facts.executables.filter((each) => each.target === this.function.target);
    this.kernels = new Map(rows.flatMap((each) => each.kernels).map((each) => [each.kernel, each]));
    const names = rows.flatMap((each) => each.variants.map((variant) => variant.name));
    this.variants = [...new Set(names)];
    this.variant = this.variants[0];
    this.host = new Map(
      rows.flatMap((each) => each.host).map((each) => [each.kernel, each.reason]),
    );
    this.work = [];
    this.flatten(this.function.commands, []);
    this.byId = new Map(this.work.map((each) => [each.id, each]));
    const dims = this.work.flatMap((each) => [each.flops, each.bytes]);
    for (const each of this.function.memory) dims.push(each.offset, each.length);
    for (const value of [...this.function.arguments, ...this.function.results])
      dims.push(...value.shape);
    this.names = [...new Set(dims.flatMap(namesIn))].sort();
    this.sizes = new Map(
      this.names.map((name) => [name, this.given.get(name) ?? this.guess(name)]),
    );
  }

  // All work in the order of the queue, with the loops and branches around it.
  flatten(commands, around) {
    for (const command of commands) {
      if (!command.bodies) {
        this.work.push({
          ...command,
          around,
          order: this.work.length,
          path: pathOf(command.layer),
        });
        continue;
      }
      command.bodies.forEach((body, place) => {
        const part = command.op === "while" ? ["condition", "step"][place] : `branch ${place}`;
        this.flatten(body, [...around, `${command.op} ${command.id}: ${part}`]);
      });
    }
  }

  // The least size of a dim and the greatest, or null.
  ends(name) {
    const { symbols } = this.function;
    return Object.hasOwn(symbols, name) ? symbols[name] : [0, null];
  }

  guess(name) {
    const [low, high] = this.ends(name);
    return Math.max(low, high === null ? GUESS : Math.min(high, GUESS));
  }

  setSize(name, size) {
    this.given.set(name, size);
    if (this.sizes.has(name)) this.sizes.set(name, size);
  }

  at(dim) {
    return dim === undefined ? NaN : Math.max(0, formula(dim)(this.sizes));
  }

  kernel(command) {
    return this.kernels.get(command.kernel);
  }

  kind(command) {
    return command.kernel ? this.kernel(command)?.kind || "kernel" : command.op;
  }

  // What a command takes in one call; a loop's of all steps if they were measured, else of one.
  cost(command) {
    const measured = this.function.times?.[command.id];
    const runs = measured ? measured[1] : 1;
    const flops = command.kernel ? this.at(command.flops) * runs : 0;
    const bytes = measured ? measured[2] : command.kernel ? this.at(command.bytes) : NaN;
    const predicted = Math.max(flops / roofline.flops, bytes / roofline.bytes);
    const time = measured ? measured[0] : undefined;
    return { flops, bytes, runs, predicted, time, weight: this.weightOf(time, predicted) };
  }

  weightOf(time, predicted) {
    if (this.function.times) return time ?? 0;
    return Number.isFinite(predicted) ? predicted : 0;
  }

  // Share of a call of each command, by measured time, else by the prediction.
  shares() {
    const weights = new Map(this.work.map((each) => [each.id, this.cost(each).weight]));
    const total = [...weights.values()].reduce((a, b) => a + b, 0) || 1;
    return new Map([...weights].map(([id, weight]) => [id, weight / total]));
  }

  totals() {
    const sum = { flops: 0, bytes: 0, predicted: 0, time: 0 };
    for (const command of this.work) {
      const cost = this.cost(command);
      for (const key of Object.keys(sum)) sum[key] += Number.isFinite(cost[key]) ? cost[key] : 0;
    }
    return sum;
  }

  // Whether the trace was of calls with these sizes: the bytes of kernels agree.
  fitsTrace() {
    return this.work.every((command) => {
      const measured = this.function.times?.[command.id];
      if (!measured || command.around.length || !Number.isFinite(this.at(command.bytes)))
        return true;
      const most = this.at(command.bytes) * measured[1];
      const least = most - this.at(command.untouched) * measured[1];
      return measured[2] >= least && measured[2] <= most;
    });
  }

  memory() {
    return this.function.memory.map((each) => ({
      ...each,
      from: this.at(each.offset),
      size: this.at(each.length),
    }));
  }

  peak() {
    const ends = this.memory().map((each) => each.from + each.size);
    return Math.max(0, this.function.peak === undefined ? 0 : this.at(this.function.peak), ...ends);
  }

  weights() {
    const known = new Map();
    for (const each of this.function.weights) {
      known.set(`${each.kind} ${each.key}`, { ...each, size: this.at(each.length) });
    }
    if (known.size) return [...known.values()];
    return this.facts.parameters.map((each) => ({
      kind: "parameter",
      name: each.name,
      type: `${each.dtype}[${each.shape.join(",")}]`,
      size: each.shape.reduce((all, size) => all * size, widthOf(each.dtype)),
    }));
  }

  matches(command, words) {
    const text = [
      command.layer,
      command.kernel,
      command.operations,
      command.op,
      this.kind(command),
    ];
    const all = text.join(" ").toLowerCase();
    return words.every((word) => all.includes(word));
  }
}

// Bytes of an element: those narrower than a byte take one.
function widthOf(dtype) {
  return Math.max(1, Number(dtype.match(/\d+/)?.[0] || 8) / 8);
}

// The scopes of a layer's name, outermost first: "a.0/b/c" is in "a.0", "b".
function pathOf(layer) {
  const parts = layer.split(", ")[0].split(/[/.]/).filter(Boolean).slice(0, -1);
  const path = [];
  for (const part of parts.slice(0, 12)) {
    if (/^\d+$/.test(part) && path.length) path[path.length - 1] += `.${part}`;
    else path.push(part);
  }
  return path;
}

// The layers of a command, shortest form: the last parts of their names.
function shortLayer(command) {
  if (!command.layer) return command.kernel || command.op;
  const tails = command.layer.split(", ").map((layer) => layer.split("/").pop());
  return [...new Set(tails)].join(" + ");
}
