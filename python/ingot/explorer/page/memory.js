// The plan of memory: time from left to right, addresses from below.

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
