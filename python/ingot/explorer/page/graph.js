// Pictures on a canvas that can be moved and zoomed, and the one of the graph.

// A canvas that fills `host`; `scene` has a box, draw(context, transform) and hit(x, y).
class Surface {
  constructor(host, scene, label) {
    this.scene = scene;
    this.canvas = h("canvas", { tabindex: 0, role: "img", "aria-label": label });
    host.append(this.canvas);
    this.transform = d3.zoomIdentity;
    this.zoom = d3
      .zoom()
      .scaleExtent([0.02, 4])
      .on("zoom", (event) => {
        this.transform = event.transform;
        this.redraw();
      });
    d3.select(this.canvas).call(this.zoom).on("dblclick.zoom", null);
    this.canvas.addEventListener("click", (event) => scene.click?.(this.find(event), event));
    this.canvas.addEventListener("mousemove", (event) => this.hover(event));
    this.canvas.addEventListener("mouseleave", () => showTip(null));
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(host);
  }

  resize() {
    const { clientWidth: width, clientHeight: height } = this.canvas.parentElement;
    if (!width || !height) return;
    const isFirst = !this.width;
    Object.assign(this, { width, height });
    this.canvas.width = width * devicePixelRatio;
    this.canvas.height = height * devicePixelRatio;
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    if (isFirst) this.fit(this.scene.leastScale);
    else this.redraw();
  }

  redraw() {
    if (this.isWaiting || !this.width) return;
    this.isWaiting = true;
    requestAnimationFrame(() => {
      this.isWaiting = false;
      const context = this.canvas.getContext("2d");
      const { x, y, k } = this.transform;
      context.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
      context.clearRect(0, 0, this.width, this.height);
      context.translate(x, y);
      context.scale(k, k);
      const view = {
        left: -x / k,
        top: -y / k,
        right: (this.width - x) / k,
        bottom: (this.height - y) / k,
      };
      this.scene.draw(context, view, k);
    });
  }

  find(event) {
    const [x, y] = this.transform.invert([event.offsetX, event.offsetY]);
    return this.scene.hit(x, y);
  }

  hover(event) {
    const found = this.find(event);
    this.canvas.style.cursor = found ? "pointer" : "grab";
    showTip(found && this.scene.tip(found), event);
  }

  // All of the picture, or from its top as much as can be read, where it were smaller than `least`.
  fit(least = 0) {
    const { x, y, width, height } = this.scene.box;
    const wide = Math.min(1, (this.width - 24) / width);
    const whole = Math.min(wide, (this.height - 24) / height);
    const k = whole < least ? Math.max(wide, least) : whole;
    const top = height * k > this.height ? 12 : (this.height - height * k) / 2;
    this.moveTo(
      d3.zoomIdentity.translate((this.width - width * k) / 2 - x * k, top - y * k).scale(k),
    );
  }

  center(box) {
    const k = Math.max(this.transform.k, 0.7);
    const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
    this.moveTo(
      d3.zoomIdentity.translate(this.width / 2 - x * k, this.height / 2 - y * k).scale(k),
    );
  }

  moveTo(transform) {
    d3.select(this.canvas).call(this.zoom.transform, transform);
  }

  scaleBy(factor) {
    d3.select(this.canvas).call(this.zoom.scaleBy, factor);
  }
}

function showTip(lines, event) {
  const tip = document.getElementById("tip");
  tip.hidden = !lines;
  if (!lines) return;
  tip.replaceChildren(...lines.map((line) => h("div", {}, cut(line, 160))));
  tip.style.left = `${Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)}px`;
  tip.style.top = `${Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8)}px`;
}

const contains = (box, x, y) =>
  x >= box.x && y >= box.y && x <= box.x + box.width && y <= box.y + box.height;
const meets = (box, view) =>
  box.x < view.right &&
  box.y < view.bottom &&
  box.x + box.width > view.left &&
  box.y + box.height > view.top;

// Kinds of kernels by color: a name for each in page.css.
const KINDS = ["contraction", "row", "map", "attention", "convolution", "window", "copy"];

function kindColor(kind) {
  const known = KINDS.findIndex((name) => kind.includes(name));
  const winograd = /winograd|depthwise/.test(kind) ? 4 : /few_rows/.test(kind) ? 0 : -1;
  const place =
    known >= 0 ? known : winograd >= 0 ? winograd : /update|store|slot/.test(kind) ? 6 : 7;
  return cssColor(`kind-${place}`);
}

const NEAR = 2 * NODE.height; // what an edge goes straight through, having no node in its way

class GraphScene {
  constructor(pane) {
    this.pane = pane;
    this.leastScale = 0.62;
    this.tree = makeTree(pane.model);
    this.refresh();
  }

  refresh() {
    Object.assign(this, layOut(this.tree, this.pane.model));
    this.shares = this.pane.model.shares();
    this.groupShares = new Map();
    this.most = Math.max(...this.shares.values(), 1e-9);
  }

  shareOf(node) {
    if (node.command) return this.shares.get(node.command.id);
    if (!(node instanceof Group)) return 0;
    if (!this.groupShares.has(node)) {
      const ids = node.work.filter((each) => each.command).map((each) => each.command.id);
      this.groupShares.set(
        node,
        ids.reduce((sum, id) => sum + this.shares.get(id), 0),
      );
    }
    return this.groupShares.get(node);
  }

  draw(context, view, scale) {
    const colors = {};
    for (const name of [
      "line",
      "edge",
      "panel",
      "panel-2",
      "text",
      "dim",
      "accent",
      "hit",
      "heat",
    ]) {
      colors[name] = cssColor(name);
    }
    const kinds = new Map();
    this.color = (kind) => {
      if (!kinds.has(kind)) kinds.set(kind, kindColor(kind));
      return kinds.get(kind);
    };
    for (const group of this.groups) {
      if (meets(group.box, view)) this.drawGroup(context, group, colors, scale);
    }
    for (const edge of this.edges) this.drawEdge(context, edge, view, colors);
    for (const node of this.nodes) {
      if (meets(node.box, view)) this.drawNode(context, node, colors, scale);
    }
  }

  drawGroup(context, group, colors, scale) {
    const { x, y, width, height } = group.box;
    roundedBox(context, group.box, 10, colors["panel-2"], colors.line);
    if (scale < 0.22) return;
    context.fillStyle = colors.dim;
    context.font = "600 12px system-ui, sans-serif";
    context.fillText(
      cut(`▾ ${group.name}`, Math.max(8, Math.floor((width - 90) / 7))),
      x + 10,
      y + 18,
    );
    const share = this.shareOf(group);
    if (share && width > 200) {
      context.textAlign = "right";
      context.fillText(shareText(share), x + width - 10, y + 18);
      context.textAlign = "left";
    }
  }

  drawEdge(context, { from, to }, view, colors) {
    const [a, b] = [from.box, to.box];
    const [x1, y1] = [a.x + a.width / 2, a.y + a.height];
    const [x2, y2] = [b.x + b.width / 2, b.y];
    const chosen = this.pane.selected;
    const isChosen = chosen && (this.standsFor(from, chosen) || this.standsFor(to, chosen));
    const isFar = Math.abs(y2 - y1) > 1200;
    if (Math.min(y1, y2) > view.bottom || Math.max(y1, y2) < view.top) return;
    if (isFar && !isChosen && from.end) return; // such as a mask that every layer reads
    context.beginPath();
    context.moveTo(x1, y1);
    const isStraight = y2 - y1 <= NEAR || Math.abs(x2 - x1) > a.width / 2;
    if (y2 < y1 || !isStraight) {
      const bow =
        Math.max(x1, x2) + (a.width / 2 + 14) / 0.75 + Math.min(30, Math.abs(y2 - y1) / 40);
      context.bezierCurveTo(bow, y1 + 20, bow, y2 - 20, x2, y2);
    } else {
      const middle = (y1 + y2) / 2;
      context.bezierCurveTo(x1, middle, x2, middle, x2, y2);
    }
    context.strokeStyle = isChosen ? colors.accent : colors.edge;
    context.globalAlpha = isFar && !isChosen ? 0.35 : 1;
    context.lineWidth = isChosen ? 2 : 1.2;
    context.stroke();
    context.globalAlpha = 1;
    context.fillStyle = context.strokeStyle;
    context.beginPath();
    context.moveTo(x2, y2);
    context.lineTo(x2 - 4, y2 - 7);
    context.lineTo(x2 + 4, y2 - 7);
    context.fill();
  }

  standsFor(node, command) {
    return node.command?.id === command.id;
  }

  drawNode(context, node, colors, scale) {
    const { x, y, width, height } = node.box;
    const isGroup = node instanceof Group;
    if (isGroup)
      roundedBox(context, { x: x + 4, y: y + 4, width, height }, 8, colors["panel-2"], colors.line);
    const isChosen = this.pane.selected && node.command?.id === this.pane.selected.id;
    const isHit = this.isHit(node);
    const line = isChosen ? colors.accent : isHit ? colors.hit : colors.line;
    context.lineWidth = isChosen || isHit ? 3 : 1;
    roundedBox(context, node.box, node.end ? 17 : 8, colors.panel, line);
    if (node.command) {
      context.fillStyle = this.color(this.pane.model.kind(node.command));
      context.fillRect(x + 1, y + 7, 4, height - 14);
    }
    const share = this.shareOf(node);
    if (share > 0 && !node.end) {
      context.fillStyle = colors.heat;
      context.fillRect(
        x + 12,
        y + height - 6,
        (width - 24) * Math.min(1, share / this.heatMost(isGroup)),
        2.5,
      );
    }
    if (scale < 0.22) return;
    context.fillStyle = colors.text;
    context.font = "600 12.5px system-ui, sans-serif";
    const [title, below] = this.textOf(node);
    context.fillText(cut(title, 26), x + 14, y + 21);
    if (node.end || scale < 0.4) return;
    context.fillStyle = colors.dim;
    context.font = "11px system-ui, sans-serif";
    context.fillText(cut(below, 36), x + 14, y + 38);
  }

  heatMost(isGroup) {
    return isGroup
      ? Math.max(...this.nodes.map((node) => this.shareOf(node)), this.most)
      : this.most;
  }

  isHit(node) {
    const { hits } = this.pane;
    if (!hits) return false;
    if (node.command) return hits.has(node.command.id);
    return (
      node instanceof Group && node.work.some((each) => each.command && hits.has(each.command.id))
    );
  }

  textOf(node) {
    if (node.end)
      return [`${node.end === "argument" ? "→" : "←"} ${node.name}: ${typeText(node.value)}`];
    const share = this.shareOf(node);
    const part = share ? ` · ${shareText(share)}` : "";
    if (node instanceof Group)
      return [`▸ ${node.name}`, `${countText(node.work.length, "dispatch")}${part}`];
    const { command } = node;
    const type = command.results[0]?.type || "";
    return [shortLayer(command), `${this.pane.model.kind(command)}${part} · ${type}`];
  }

  hit(x, y) {
    const node = this.nodes.find((each) => contains(each.box, x, y));
    if (node) return node;
    const isHead = (group) => contains({ ...group.box, height: GAP.header }, x, y);
    return [...this.groups].reverse().find(isHead);
  }

  tip(node) {
    const { model } = this.pane;
    if (node.end) return [`${node.end} ${node.name}: ${typeText(node.value)}`];
    if (node instanceof Group) {
      return [
        node.name,
        `${countText(node.work.length, "dispatch")}, ${shareText(this.shareOf(node))}`,
      ];
    }
    const cost = model.cost(node.command);
    const lines = [node.command.layer || node.command.op, node.command.kernel || node.command.op];
    if (Number.isFinite(cost.predicted))
      lines.push(`${flopsText(cost.flops)}, ${lengthText(cost.bytes)}`);
    if (cost.time !== undefined) lines.push(`measured ${timeText(cost.time)}`);
    return lines;
  }

  click(node) {
    if (!node) return;
    if (node instanceof Group) this.pane.fold(node);
    else if (node.command) this.pane.select(node.command, false);
  }

  // Opens what hides a command; gives its node.
  reveal(command) {
    const find = (group) => {
      for (const child of group.children) {
        if (child.command?.id === command.id) return child;
        const found = child instanceof Group && find(child);
        if (found) {
          child.isOpen = true;
          return found;
        }
      }
      return null;
    };
    const node = find(this.tree);
    this.refresh();
    return node;
  }
}

function roundedBox(context, { x, y, width, height }, radius, fill, line) {
  context.beginPath();
  context.roundRect(x, y, width, height, radius);
  context.fillStyle = fill;
  context.fill();
  context.strokeStyle = line;
  context.stroke();
}

function typeText(value) {
  const shape = `${value.dtype}[${value.shape.join(",")}]`;
  return value.kind && value.kind !== "tensor" ? `${value.kind} of ${shape}` : shape;
}
