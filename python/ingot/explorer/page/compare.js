// Two modules: totals side by side, and differences by source layer.

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
