// Weights by size.

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
