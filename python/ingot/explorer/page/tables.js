// The other views: all dispatches as a table, the plan of memory, weights, the module, two modules.

const COLUMNS = [
  ["#", (model, command) => command.order, String],
  ["layer", (model, command) => command.layer || command.op, null],
  ["kind", (model, command) => model.kind(command), null],
  ["FLOPs", (model, command, cost) => cost.flops, flopsText],
  ["bytes", (model, command, cost) => cost.bytes, lengthText],
  ["predicted", (model, command, cost) => cost.predicted, timeText],
  ["measured", (model, command, cost) => cost.time, timeText],
  ["GFLOP/s", (model, command, cost) => cost.flops / cost.time, (rate) => rate.toFixed(1)],
  ["GB/s", (model, command, cost) => cost.bytes / cost.time, (rate) => rate.toFixed(1)],
  ["roofline", (model, command, cost) => cost.predicted / cost.time, shareText],
  ["share", (model, command, cost, shares) => shares.get(command.id), shareText],
];

function dispatchView(pane) {
  const { model } = pane;
  const shares = model.shares();
  const rows = model.work
    .filter((command) => !pane.hits || pane.hits.has(command.id))
    .map((command) => {
      const cost = model.cost(command);
      return { command, cells: COLUMNS.map(([, value]) => value(model, command, cost, shares)) };
    });
  pane.sort = pane.sort || { column: model.function.times ? 6 : 10, sign: -1 };
  const { column, sign } = pane.sort;
  const rank = (value) =>
    typeof value === "number" && !Number.isFinite(value) ? -1 : (value ?? -1);
  rows.sort((a, b) => {
    const [x, y] = [rank(a.cells[column]), rank(b.cells[column])];
    return x === y ? a.command.order - b.command.order : (x < y ? -1 : 1) * sign;
  });
  const head = COLUMNS.map(([name], place) => {
    const mark = place === column ? (sign < 0 ? " ↓" : " ↑") : "";
    const sort = () => {
      pane.sort = { column: place, sign: place === column ? -sign : place < 3 ? 1 : -1 };
      pane.show();
    };
    return h("button", { onclick: sort }, name + mark);
  });
  const render = (first, last) =>
    rows.slice(first, last).map(({ command, cells }, place) => {
      const chosen = pane.selected?.id === command.id ? " chosen" : "";
      return h(
        "div",
        {
          class: `line cells${chosen}`,
          style: `top:${(first + place) * LINE}px`,
          onclick: () => pane.select(command, false),
        },
        cells.map((cell, at) => h("span", {}, cellText(cell, COLUMNS[at][2]))),
      );
    });
  const list = lineList(rows.length, render);
  return h("div", { class: "dispatches" }, h("div", { class: "cells head" }, head), list);
}

function cellText(cell, text) {
  if (cell === undefined || (typeof cell === "number" && !Number.isFinite(cell))) return "";
  return text ? text(cell) : cut(cell, 200);
}

// -- the plan of memory: time from left to right, addresses from below ------------------------------

const MEMORY = { width: 1200, height: 600, left: 70, bottom: 30 };

class MemoryScene {
  constructor(pane) {
    this.pane = pane;
    this.rows = pane.model.memory();
    this.peak = pane.model.peak() || 1;
    this.count = Math.max(1, ...this.rows.map((each) => each.end));
    const ends = this.rows.map((each) => each.from + each.size);
    this.top = this.rows[ends.indexOf(Math.max(...ends))];
    this.held = this.rows
      .filter((each) => each.begin <= this.top.begin && this.top.begin < each.end)
      .sort((a, b) => b.size - a.size);
    this.box = {
      x: 0,
      y: 0,
      width: MEMORY.width + MEMORY.left + 20,
      height: MEMORY.height + MEMORY.bottom + 20,
    };
    const [dx, dy] = [MEMORY.width / this.count, MEMORY.height / this.peak];
    for (const each of this.rows) {
      const y = 20 + MEMORY.height - (each.from + each.size) * dy;
      const x = MEMORY.left + each.begin * dx;
      each.box = {
        x,
        y,
        width: Math.max((each.end - each.begin) * dx, 1),
        height: Math.max(each.size * dy, 0.5),
      };
      each.maker = pane.model.byId.get(each.command);
    }
  }

  draw(context, view, scale) {
    const [line, dim, text, panel] = ["line", "dim", "text", "panel"].map(cssColor);
    const { left, width, height } = MEMORY;
    context.fillStyle = panel;
    context.fillRect(left, 20, width, height);
    for (const each of this.rows) if (meets(each.box, view)) this.drawRange(context, each, scale);
    context.fillStyle = dim;
    context.font = `${11 / Math.max(scale, 0.6)}px system-ui, sans-serif`;
    context.textAlign = "right";
    for (let part = 0; part <= 4; part += 1) {
      const y = 20 + height - (part / 4) * height;
      context.fillText(lengthText((part / 4) * this.peak), left - 8, y + 4);
      context.fillRect(left - 4, y, 4, 1);
    }
    context.textAlign = "left";
    context.fillText("values in the order in which they are made →", left, 20 + height + 20);
    const x = left + ((this.top.begin + 0.5) / this.count) * width;
    context.strokeStyle = text;
    context.setLineDash([5, 4]);
    context.beginPath();
    context.moveTo(x, 8);
    context.lineTo(x, 20 + height);
    context.stroke();
    context.setLineDash([]);
    context.fillStyle = text;
    context.textAlign = x > left + width / 2 ? "right" : "left";
    const by = cut(this.top.layer || this.top.made_by, 60);
    context.fillText(` the peak, ${lengthText(this.peak)}: ${by} `, x, 13);
    context.textAlign = "left";
    context.strokeStyle = line;
    context.strokeRect(left, 20, width, height);
  }

  drawRange(context, each, scale) {
    const { x, y, width, height } = each.box;
    const isChosen = this.pane.selected && each.command === this.pane.selected.id;
    context.globalAlpha = this.held.includes(each) || isChosen ? 0.95 : 0.5;
    context.fillStyle = kindColor(each.maker ? this.pane.model.kind(each.maker) : each.made_by);
    context.fillRect(x, y, width, height);
    context.globalAlpha = 1;
    context.strokeStyle = isChosen ? cssColor("text") : cssColor("panel");
    context.lineWidth = (isChosen ? 2.5 : 0.8) / scale;
    context.strokeRect(x, y, width, height);
    if (height * scale < 16 || width * scale < 60) return;
    context.save();
    context.beginPath();
    context.rect(x, y, width, height);
    context.clip();
    context.fillStyle = "#10141a";
    context.font = `${12 / scale}px system-ui, sans-serif`;
    context.fillText(cut(`${each.type} ${each.layer}`, 80), x + 5 / scale, y + 14 / scale);
    context.restore();
  }

  hit(x, y) {
    return this.rows.find((each) => contains(each.box, x, y));
  }

  tip(each) {
    return [
      each.layer || "without a layer's name",
      `${each.type}, made by ${each.made_by}`,
      `${lengthText(each.size)} at ${lengthText(each.from)}`,
    ];
  }

  click(each) {
    if (each?.maker) this.pane.select(each.maker, false);
  }
}

function memoryView(pane) {
  if (!pane.model.memory().length) {
    const why = pane.model.facts.missing.length
      ? pane.model.facts.missing[0]
      : "A call needs no working memory.";
    return h("p", { class: "empty" }, why);
  }
  const picture = h("div", { class: "picture" });
  const scene = new MemoryScene(pane);
  pane.surface = new Surface(picture, scene, "what lies in working memory, and when");
  const rows = scene.held.slice(0, 12).map((each) => {
    const layer = each.maker
      ? h(
          "a",
          { href: "#", onclick: (event) => follow(event, pane, each.maker) },
          cut(each.layer || each.made_by, 90),
        )
      : cut(each.made_by, 90);
    return h(
      "tr",
      {},
      h("td", {}, lengthText(each.size)),
      h("td", {}, h("code", {}, each.type)),
      h("td", {}, layer),
    );
  });
  const formulaLine = formulaNote(pane.model.function.peak);
  const title = `${lengthText(scene.peak)} of working memory at the peak, held by`;
  return h(
    "div",
    { class: "memory" },
    picture,
    h("div", { class: "held" }, h("h3", {}, title), formulaLine, h("table", {}, rows)),
  );
}

// -- weights ----------------------------------------------------------------------------------------

class WeightScene {
  constructor(weights) {
    this.box = { x: 0, y: 0, width: 1200, height: 640 };
    const tree = new Map();
    for (const each of weights) {
      let group = tree;
      for (const name of pathOf(each.name).slice(0, 3)) {
        if (!(group.get(name) instanceof Map)) group.set(name, new Map());
        group = group.get(name);
      }
      group.set(`${group.size} ${each.name}`, each);
    }
    const children = (node) => (node[1] instanceof Map ? [...node[1]] : null);
    const root = d3
      .hierarchy(["weights", tree], children)
      .sum(([, each]) => (each instanceof Map ? 0 : each.size))
      .sort((a, b) => b.value - a.value);
    d3
      .treemap()
      .size([1200, 640])
      .paddingInner(1.5)
      .paddingTop((node) => (node.depth ? 15 : 0))(root);
    this.nodes = root.descendants().filter((node) => node.depth && node.x1 > node.x0);
    for (const node of this.nodes) {
      node.box = { x: node.x0, y: node.y0, width: node.x1 - node.x0, height: node.y1 - node.y0 };
      node.place = node.ancestors().at(-2).data[0];
    }
  }

  draw(context, view, scale) {
    const places = [...new Set(this.nodes.map((node) => node.place))];
    const [panel, text] = ["panel-2", "text"].map(cssColor);
    for (const node of this.nodes.filter((each) => meets(each.box, view))) {
      const { x, y, width, height } = node.box;
      const isLeaf = !node.children;
      context.fillStyle = isLeaf ? cssColor(`kind-${places.indexOf(node.place) % 7}`) : panel;
      context.globalAlpha = isLeaf ? 0.85 : 1;
      context.fillRect(x, y, width, height);
      context.globalAlpha = 1;
      if (width * scale < 50 || height * scale < 13) continue;
      context.save();
      context.beginPath();
      context.rect(x, y, width, height);
      context.clip();
      context.fillStyle = isLeaf ? "#10141a" : text;
      context.font = "11px system-ui, sans-serif";
      const name = isLeaf ? node.data[1].name.split(/[/.]/).slice(-2).join(".") : node.data[0];
      context.fillText(`${cut(name, 60)}  ${lengthText(node.value)}`, x + 4, y + 11.5);
      context.restore();
    }
  }

  hit(x, y) {
    return this.nodes.find((node) => !node.children && contains(node.box, x, y));
  }

  tip({ data: [, each] }) {
    return [each.name, `${each.type}, ${lengthText(each.size)}`, each.kind];
  }
}

function weightView(pane) {
  const weights = pane.model.weights().filter((each) => each.size > 0);
  if (!weights.length)
    return h("p", { class: "empty" }, "The function reads no weights that the module names.");
  const total = weights.reduce((sum, each) => sum + each.size, 0);
  const picture = h("div", { class: "picture" });
  pane.surface = new Surface(picture, new WeightScene(weights), "weights by size");
  const rows = [...weights]
    .sort((a, b) => b.size - a.size)
    .slice(0, 200)
    .map((each) => [
      lengthText(each.size),
      shareText(each.size / total),
      each.type,
      cut(each.name, 120),
    ])
    .map((cells) =>
      h(
        "tr",
        {},
        cells.map((cell) => h("td", {}, cell)),
      ),
    );
  const title = `${countText(weights.length, "tensor")}, ${lengthText(total)}`;
  return h(
    "div",
    { class: "memory" },
    picture,
    h("div", { class: "held" }, h("h3", {}, title), h("table", {}, rows)),
  );
}

// -- the module -------------------------------------------------------------------------------------

function moduleView(pane) {
  const { model } = pane;
  const { facts } = model;
  const each = model.function;
  const values = (title, list) => [
    h("h3", {}, title),
    list.length
      ? h(
          "table",
          { class: "facts" },
          list.map((value) =>
            row(
              cut(value.name, 80),
              h("code", {}, typeText(value)),
              value.doc ? h("small", {}, ` ${cut(value.doc, 200)}`) : null,
            ),
          ),
        )
      : h("p", { class: "note" }, "none"),
  ];
  const data = Object.entries(facts.metadata).map(([key, value]) =>
    row(cut(key, 80), typeof value === "string" ? cut(value, 300) : JSON.stringify(value)),
  );
  return h(
    "div",
    { class: "module" },
    h("h2", {}, `${cut(facts.name, 80)}, ${lengthText(facts.length)}`),
    ...facts.missing.map((line) => h("p", { class: "warning" }, line)),
    h(
      "p",
      {},
      `function ${cut(each.name, 80)} for ${each.target}`,
      each.doc ? `: ${cut(each.doc, 300)}` : "",
    ),
    values("arguments", each.arguments),
    values("results", each.results),
    h("h3", {}, "dims"),
    dimTable(model),
    values("state", facts.variables),
    h("h3", {}, "kernels"),
    kindTable(model),
    h("h3", {}, "variants"),
    h(
      "table",
      { class: "facts" },
      facts.executables.flatMap((one) =>
        one.variants.map((variant) =>
          row(`${one.target} ${variant.name}`, `${variant.format}, ${lengthText(variant.length)}`),
        ),
      ),
    ),
    h("h3", {}, "sections of the file"),
    h(
      "table",
      { class: "facts" },
      facts.sections.map((section) => row(section.name, lengthText(section.length))),
    ),
    h("h3", {}, "metadata"),
    h("table", { class: "facts" }, data),
  );
}

function dimTable(model) {
  const rows = model.names.map((name) => {
    const [low, high] = model.ends(name);
    const ends = high === null ? `at least ${low}` : `${low} to ${high}`;
    return row(name, `${model.sizes.get(name)} here, ${ends}`);
  });
  const { peak } = model.function;
  if (peak !== undefined)
    rows.push(row("working memory", lengthText(model.peak()), formulaNote(peak)));
  for (const [name, dim] of Object.entries(model.facts.metadata.dims || {})) {
    rows.push(row(cut(name, 80), h("code", {}, dim), " in the source"));
  }
  return rows.length
    ? h("table", { class: "facts" }, rows)
    : h("p", { class: "note" }, "all are fixed");
}

function kindTable(model) {
  const shares = model.shares();
  const kinds = new Map();
  for (const command of model.work) {
    const sum = kinds.get(model.kind(command)) || { count: 0, share: 0 };
    kinds.set(model.kind(command), {
      count: sum.count + 1,
      share: sum.share + shares.get(command.id),
    });
  }
  const sorted = [...kinds].sort((a, b) => b[1].share - a[1].share);
  const bar = (share) => h("span", { class: "bar" }, h("i", { style: `width:${100 * share}%` }));
  return h(
    "table",
    { class: "facts" },
    sorted.map(([kind, sum]) =>
      row(kind, `${countText(sum.count, "dispatch")}, ${shareText(sum.share)}`, bar(sum.share)),
    ),
  );
}

// -- two modules ------------------------------------------------------------------------------------

function compareView(panes) {
  const [a, b] = panes.map((pane) => pane.model);
  const sums = [a.totals(), b.totals()];
  const both = (name, values, text) => [name, values, text];
  const lines = [
    both("file", [a.facts.length, b.facts.length], lengthText),
    both("dispatches", [a.work.length, b.work.length], String),
    both("kernels", [a.kernels.size, b.kernels.size], String),
    both("instructions", [a.function.code.length, b.function.code.length], String),
    both("working memory", [a.peak(), b.peak()], lengthText),
    both(
      "FLOPs",
      sums.map((sum) => sum.flops),
      flopsText,
    ),
    both(
      "bytes",
      sums.map((sum) => sum.bytes),
      lengthText,
    ),
    both(
      "predicted",
      sums.map((sum) => sum.predicted),
      timeText,
    ),
    both(
      "measured",
      sums.map((sum) => sum.time || NaN),
      timeText,
    ),
  ];
  const names = [a, b].map(
    (model) =>
      `${cut(model.facts.name, 40)}: ${cut(model.function.name, 30)} for ${model.function.target}`,
  );
  return h(
    "div",
    { class: "compare" },
    h("h2", {}, "side by side"),
    compareTable(["", ...names, "difference"], lines),
    h("h2", {}, "by source layer"),
    compareTable(["layer", "FLOPs, bytes", "FLOPs, bytes", "bytes"], layerLines(a, b)),
  );
}

function compareTable(head, lines) {
  const cell = (value, text) => h("td", {}, Number.isFinite(value) ? text(value) : "–");
  const rows = lines.map(([name, [x, y], text, shown]) => {
    const ratio = y / x - 1;
    const mark =
      !Number.isFinite(ratio) || ratio === 0
        ? ""
        : `${ratio > 0 ? "+" : ""}${(100 * ratio).toFixed(1)} %`;
    const cells = shown ? shown.map((each) => h("td", {}, each)) : [cell(x, text), cell(y, text)];
    return h(
      "tr",
      {},
      h("th", {}, cut(name, 110)),
      cells,
      h("td", { class: ratio > 0 ? "more" : "less" }, mark),
    );
  });
  return h(
    "table",
    { class: "grid" },
    h(
      "tr",
      {},
      head.map((each) => h("th", {}, each)),
    ),
    rows,
  );
}

// Sums by layer, those that differ most first; a layer that only one has stands alone.
function layerLines(a, b) {
  const sums = [a, b].map((model) => {
    const found = new Map();
    for (const command of model.work) {
      const cost = model.cost(command);
      const sum = found.get(command.layer) || { flops: 0, bytes: 0, kinds: new Set() };
      sum.flops += cost.flops || 0;
      sum.bytes += cost.bytes || 0;
      sum.kinds.add(model.kind(command));
      found.set(command.layer, sum);
    }
    return found;
  });
  const layers = [...new Set([...sums[0].keys(), ...sums[1].keys()])];
  const text = (sum) =>
    sum ? `${flopsText(sum.flops)}, ${lengthText(sum.bytes)} (${[...sum.kinds].join(", ")})` : "–";
  return layers
    .map((layer) => [layer, sums.map((each) => each.get(layer))])
    .sort(([, x], [, y]) => difference(y) - difference(x))
    .slice(0, 500)
    .map(([layer, pair]) => [
      layer || "without a name",
      pair.map((sum) => sum?.bytes ?? NaN),
      lengthText,
      pair.map(text),
    ]);
}

const difference = ([x, y]) => Math.abs((x?.bytes ?? 0) - (y?.bytes ?? 0));
