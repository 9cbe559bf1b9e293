// What is known of one dispatch: layers, cost, operands, schedule, loop IR and source.

function detailView(pane) {
  const command = pane.selected;
  if (!command) {
    return h(
      "div",
      { class: "empty" },
      h("p", {}, "Choose a dispatch to see its layers, cost, schedule, loop IR and source."),
      ...pane.model.facts.missing.map((line) => h("p", { class: "warning" }, line)),
      keysHelp(),
    );
  }
  const kernel = pane.model.kernel(command);
  return h(
    "div",
    { class: "detail-inner" },
    detailHead(pane, command),
    costTable(pane.model, command),
    operandTable(pane, command),
    kernel ? kernelView(pane, command, kernel) : null,
    ...pane.model.facts.missing.map((line) => h("p", { class: "warning" }, line)),
  );
}

function keysHelp() {
  const keys = [
    ["/", "search"],
    ["Enter", "next found"],
    ["j k", "next, previous dispatch"],
    ["f", "all of the picture"],
    ["+ -", "zoom"],
    ["e c", "open, fold all layers"],
    ["1 ... 7", "views"],
    ["Escape", "close this"],
  ];
  return h(
    "table",
    { class: "keys" },
    keys.map(([key, text]) => row(h("kbd", {}, key), text)),
  );
}

function detailHead(pane, command) {
  const layers = command.layer ? command.layer.split(", ") : ["without a layer's name"];
  const reason = pane.model.host.get(command.kernel);
  const close = () => pane.select(null);
  const wide = () => pane.element.classList.toggle("wide");
  return h(
    "div",
    { class: "detail-head" },
    h(
      "div",
      { class: "buttons" },
      h("button", { class: "small", onclick: wide, title: "as wide as the page" }, "⤢"),
      h("button", { class: "small", onclick: close, title: "close" }, "✕"),
    ),
    h("h2", {}, cut(shortLayer(command), 120)),
    h(
      "ul",
      { class: "layers" },
      layers.map((layer) => h("li", {}, cut(layer, 300))),
    ),
    h("code", {}, command.kernel || command.op),
    reason ? h("p", { class: "warning" }, `runs on the host: ${printable(reason)}`) : null,
    command.around.length ? h("p", { class: "note" }, `in ${command.around.join(" / ")}`) : null,
  );
}

function costTable(model, command) {
  const cost = model.cost(command);
  const table = h("table", { class: "facts" });
  table.append(row("kind", model.kind(command)));
  if (command.operations) table.append(row("ops", command.operations));
  if (command.workload) {
    const sizes = command.workload.map((dim) => model.at(dim)).join(" × ");
    table.append(row("workload", sizes, formulaNote(command.workload.join(" × "), sizes)));
  }
  if (!command.kernel || command.flops === undefined) return table;
  if (cost.time === undefined && command.around.length) {
    table.append(row("runs", "once in every step or branch; of one:"));
  }
  if (cost.runs !== 1) table.append(row("runs", `${cost.runs} in a call; all of them together:`));
  table.append(
    row("FLOPs", flopsText(cost.flops), formulaNote(command.flops)),
    row("bytes", lengthText(cost.bytes), formulaNote(command.bytes)),
    row(
      "predicted",
      timeText(cost.predicted),
      h("small", {}, ` by the ${boundText(cost)} of the roofline`),
    ),
  );
  if (cost.time !== undefined) table.append(...measuredRows(cost));
  return table;
}

const boundText = (cost) =>
  cost.flops / roofline.flops > cost.bytes / roofline.bytes ? "FLOPs" : "bytes";

function measuredRows(cost) {
  const measured = row("measured", h("b", {}, timeText(cost.time)));
  if (!cost.time) return [measured];
  const share = cost.predicted / cost.time;
  const bar = h(
    "span",
    { class: "bar" },
    h("i", { style: `width:${Math.min(100, 100 * share)}%` }),
  );
  return [
    measured,
    row(
      "rates",
      rateText(cost.flops / cost.time, "GFLOP/s"),
      ", ",
      rateText(cost.bytes / cost.time, "GB/s"),
    ),
    row("of the roofline", shareText(share), bar),
  ];
}

function formulaNote(text, shown) {
  return typeof text === "string" && text !== shown
    ? h("div", { class: "formula" }, cut(text, 300))
    : null;
}

function operandTable(pane, command) {
  const lines = command.operands.map((operand) =>
    h(
      "tr",
      {},
      h("th", {}, "reads"),
      h("td", {}, h("code", {}, operand.type)),
      h("td", {}, sourcesOf(pane, operand)),
    ),
  );
  for (const result of command.results) {
    const place = result.place ? `in ${placeText(pane.model, result.place)}` : "";
    lines.push(
      h(
        "tr",
        {},
        h("th", {}, "makes"),
        h("td", {}, h("code", {}, result.type)),
        h("td", {}, place),
      ),
    );
  }
  for (const other of command.alternatives || []) {
    const when = other.sizes.map(([dim, size]) => `${dim} = ${size}`).join(", ");
    lines.push(
      h(
        "tr",
        {},
        h("th", {}, "where"),
        h("td", {}, when),
        h("td", {}, h("code", {}, other.kernel)),
      ),
    );
  }
  return h("table", { class: "operands" }, lines);
}

// A place is a kind and a number, or in the memory of a call a kind, an offset and its scope.
function placeText(model, [kind, where, scope]) {
  return scope === undefined ? `${kind} ${where}` : `${kind} at ${lengthText(model.at(where))}`;
}

function sourcesOf(pane, operand) {
  return operand.from.slice(0, 4).map((source) => {
    if (Array.isArray(source))
      return h("span", { class: "source" }, `${source[0]} ${cut(source[1], 60)}`);
    const maker = pane.model.byId.get(source);
    if (!maker) return null;
    return h(
      "a",
      { href: "#", onclick: (event) => follow(event, pane, maker) },
      cut(shortLayer(maker), 60),
    );
  });
}

function follow(event, pane, command) {
  event.preventDefault();
  pane.select(command);
}

function kernelView(pane, command, kernel) {
  const names = Object.keys(kernel.variants || {});
  const region = kernel.region ? textBlock("graph of the kernel", kernel.region, "ir") : null;
  if (!names.length) return h("div", {}, region);
  const name = names.includes(pane.model.variant) ? pane.model.variant : names[0];
  const variant = kernel.variants[name];
  const choose = (event) => {
    pane.model.variant = event.target.value;
    pane.showDetail();
  };
  const options = names.map((each) => h("option", { selected: each === name }, each));
  const [kind, ...fields] = variant.schedule;
  const { texts } = pane.model.facts;
  const source = texts[variant.source];
  const language = name.startsWith("opencl") ? "OpenCL C" : "C";
  const without = h(
    "p",
    { class: "note" },
    `${name} has no code for this kernel: the host runs it.`,
  );
  return h(
    "div",
    { class: "kernel" },
    h("label", { class: "field" }, "code for ", h("select", { onchange: choose }, options)),
    h("h3", {}, "schedule ", h("code", {}, kind)),
    h(
      "table",
      { class: "facts" },
      fields.map(([field, value]) => row(field.replaceAll("_", " "), cut(value, 200))),
      fields.some(([field]) => field === "tile") ? null : row("tile", variant.tile.join(" × ")),
      variant.local_size.some((size) => size > 1)
        ? row("work items", variant.local_size.join(" × "))
        : null,
      variant.local_length ? row("local memory", lengthText(variant.local_length)) : null,
      variant.scratch_length ? row("scratch", lengthText(variant.scratch_length)) : null,
    ),
    h(
      "div",
      { class: "texts" },
      textBlock("loop IR", texts[variant.loops], "ir"),
      source ? textBlock(language, source, "C") : without,
    ),
    region,
  );
}
