// All dispatches as a table, sorted by any column.

const COLUMNS = [
  ["#", (model, command) => command.order, String],
  ["layer", (model, command) => command.layer || command.op, null],
  ["kind", (model, command) => model.kind(command), null],
  ["FLOPs", (model, command, cost) => cost.flops, flopsText],
  ["bytes", (model, command, cost) => cost.bytes, lengthText],
  ["predicted", (model, command, cost) => cost.predicted, timeText],
  ["share", (model, command, cost, shares) => shares.get(command.id), shareText],
];
const TIMED = [
  ["measured", (model, command, cost) => cost.time, timeText],
  ["GFLOP/s", (model, command, cost) => over(cost.flops, cost.time), (rate) => rate.toFixed(1)],
  ["GB/s", (model, command, cost) => over(cost.bytes, cost.time), (rate) => rate.toFixed(1)],
  ["roofline", (model, command, cost) => over(cost.predicted, cost.time), shareText],
];

function dispatchView(pane) {
  const { model } = pane;
  const shares = model.shares();
  const columns = [...COLUMNS, ...(model.function.times ? TIMED : [])];
  const rows = model.work
    .filter((command) => !pane.hits || pane.hits.has(command.id))
    .map((command) => {
      const cost = model.cost(command);
      return { command, cells: columns.map(([, value]) => value(model, command, cost, shares)) };
    });
  const isShown = columns.some(([name]) => name === pane.sort?.name);
  pane.sort = isShown ? pane.sort : { name: "share", sign: -1 };
  const { sign } = pane.sort;
  const column = columns.findIndex(([name]) => name === pane.sort.name);
  const rank = (value) =>
    typeof value === "number" && !Number.isFinite(value) ? -1 : (value ?? -1);
  rows.sort((a, b) => {
    const [x, y] = [rank(a.cells[column]), rank(b.cells[column])];
    return x === y ? a.command.order - b.command.order : (x < y ? -1 : 1) * sign;
  });
  const head = columns.map(([name], place) => {
    const mark = place === column ? (sign < 0 ? " ↓" : " ↑") : "";
    const sort = () => {
      pane.sort = { name, sign: place === column ? -sign : place < 3 ? 1 : -1 };
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
        cells.map((cell, at) => h("span", {}, cellText(cell, columns[at][2]))),
      );
    });
  const list = lineList(rows.length, render);
  const timed = model.function.times ? "" : " untimed";
  return h("div", { class: `dispatches${timed}` }, h("div", { class: "cells head" }, head), list);
}

function cellText(cell, text) {
  if (cell === undefined || (typeof cell === "number" && !Number.isFinite(cell))) return "";
  return text ? text(cell) : cut(cell, 200);
}
