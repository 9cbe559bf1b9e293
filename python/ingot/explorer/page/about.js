// The module: signature, dims, state, kinds of kernels, files in it.

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
          row(`${one.name} ${variant.name}`, `${variant.format}, ${lengthText(variant.length)}`),
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
      row(kind, bar(sum.share), `${countText(sum.count, "dispatch")}, ${shareText(sum.share)}`),
    ),
  );
}
