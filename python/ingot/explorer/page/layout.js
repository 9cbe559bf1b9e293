// The graph: a tree of layers and loops, some of them folded, and where what is visible lies.
//
// Work is queued in one order, so a row is never above one that it depends on, and the layout is
// one pass: a rank for each node below what it reads, a row per rank, a node below the middle of
// what it reads. Open groups are laid out for themselves and placed like a node.

const NODE = { width: 232, height: 54 };
const GAP = { x: 26, y: 30, header: 26, pad: 16 };
const MOST_IN_ROW = 6;
const FIRST_VISIBLE = 70; // nodes that a page begins with

class Group {
  constructor(name, key, parent) {
    Object.assign(this, { name, key, parent, children: [], isOpen: false });
  }

  // The group of this name for what comes next. One that others came after is not opened again: a
  // layer that is used twice is two groups, so that no group is above and below another one.
  group(name) {
    const last = this.children.at(-1);
    if (last instanceof Group && last.name === name) return last;
    const made = new Group(name, `${this.key}\n${this.children.length} ${name}`, this);
    this.children.push(made);
    return made;
  }

  get work() {
    return this.children.flatMap((child) => (child instanceof Group ? child.work : [child]));
  }
}

// The root group of a model's function, opened down to what fits a screen.
function makeTree(model) {
  const root = new Group("", "", null);
  root.isOpen = true;
  const { function: each } = model;
  for (const value of each.arguments) addEnd(root, "argument", value.name, value);
  for (const command of model.work) {
    let group = root;
    for (const name of [...command.around, ...command.path]) group = group.group(name);
    group.children.push({
      key: `work ${command.id}`,
      parent: group,
      command,
      order: command.order,
    });
  }
  for (const value of each.results) addEnd(root, "result", value.name, value);
  root.children = root.children.map((child) => simplified(child, root));
  number(root);
  openToFit(root);
  return root;
}

function addEnd(root, kind, name, value) {
  root.children.push({ key: `${kind} ${name}`, parent: root, end: kind, name, value });
}

// A group of one group takes its name; one of a single command is that command.
function simplified(node, parent) {
  if (!(node instanceof Group)) return Object.assign(node, { parent });
  while (node.children.length === 1 && node.children[0] instanceof Group) {
    const [only] = node.children;
    Object.assign(node, {
      name: `${node.name} / ${only.name}`,
      key: only.key,
      children: only.children,
    });
  }
  if (node.children.length === 1) return simplified(node.children[0], parent);
  node.parent = parent;
  node.children = node.children.map((child) => simplified(child, node));
  return node;
}

function number(group) {
  for (const child of group.children) if (child instanceof Group) number(child);
  const orders = group.children.map((child) => child.order).filter((order) => order !== undefined);
  group.order = Math.min(...orders);
}

function openToFit(root) {
  let level = root.children.filter((child) => child instanceof Group);
  let visible = root.children.length;
  while (level.length) {
    const more = level.reduce((sum, group) => sum + group.children.length, 0);
    if (visible + more > FIRST_VISIBLE) break;
    for (const group of level) group.isOpen = true;
    visible += more;
    level = level.flatMap((group) => group.children).filter((child) => child instanceof Group);
  }
}

function setOpen(group, isOpen) {
  group.isOpen = isOpen;
  for (const child of group.children) if (child instanceof Group) setOpen(child, isOpen);
}

// Nodes, open groups and edges with their places; the tree's root is at 0, 0.
function layOut(root, model) {
  const shown = new Map(); // by command or end, what stands for it
  const nodes = [];
  const visit = (node, visible) => {
    const here = visible || (node instanceof Group && !node.isOpen ? node : null);
    if (!(node instanceof Group)) {
      const key = node.command ? node.command.id : node.key;
      shown.set(key, here || node);
    } else {
      for (const child of node.children) visit(child, here);
    }
    if (!visible && (!(node instanceof Group) || !node.isOpen)) nodes.push(node);
  };
  visit(root, null);
  const edges = edgesOf(model, shown);
  const inside = new Map(); // by open group, the edges between its children
  for (const { from, to } of edges) {
    const [group, a, b] = meeting(from, to);
    if (!inside.has(group)) inside.set(group, []);
    inside.get(group).push([a, b]);
  }
  const groups = [];
  place(root, inside, groups);
  move(root, 0, 0);
  return { nodes, groups: groups.filter((group) => group !== root), edges, box: root.box };
}

function edgesOf(model, shown) {
  const found = new Map();
  const add = (source, to) => {
    const from = shown.get(Array.isArray(source) ? source.join(" ") : source);
    if (!from || !to || from === to) return;
    const key = `${from.key}\n\n${to.key}`;
    if (!found.has(key)) found.set(key, { from, to, count: 0 });
    found.get(key).count += 1;
  };
  for (const command of model.work) {
    for (const operand of command.operands) {
      for (const source of operand.from) add(source, shown.get(command.id));
    }
  }
  for (const [name, sources] of Object.entries(model.function.results_from)) {
    for (const source of sources) add(source, shown.get(`result ${name}`));
  }
  return [...found.values()];
}

// The group that holds both nodes, and its children that they are in.
function meeting(one, other) {
  const chain = [];
  for (let node = one; node; node = node.parent) chain.push(node);
  let below = other;
  for (let node = other.parent; node; node = node.parent) {
    const at = chain.indexOf(node);
    if (at > 0) return [node, chain[at - 1], below];
    below = node;
  }
  return [null, one, other];
}

function place(group, inside, groups) {
  groups.push(group);
  for (const child of group.children) {
    if (child instanceof Group && child.isOpen) place(child, inside, groups);
    else child.box = { x: 0, y: 0, width: NODE.width, height: child.end ? 34 : NODE.height };
  }
  const above = new Map(group.children.map((child) => [child, []]));
  const below = new Map(group.children.map((child) => [child, []]));
  const position = (node) => (node.end === "result" ? Infinity : node.end ? -1 : node.order);
  for (const [a, b] of inside.get(group) || []) {
    if (position(a) >= position(b)) continue; // to the next step of a loop
    above.get(b).push(a);
    below.get(a).push(b);
  }
  const sorted = [...group.children].sort((a, b) => position(a) - position(b) || 0);
  const rank = new Map();
  for (const node of sorted)
    rank.set(node, Math.max(0, ...above.get(node).map((each) => rank.get(each) + 1)));
  for (const node of sorted.reverse()) {
    const readers = below.get(node).map((each) => rank.get(each));
    if (!above.get(node).length && readers.length) rank.set(node, Math.min(...readers) - 1);
  }
  const last = Math.max(...rank.values()) + 1;
  for (const node of sorted) if (node.end === "result") rank.set(node, last);
  placeRows(group, rank, above);
}

function placeRows(group, rank, above) {
  const rows = new Map();
  for (const node of group.children) {
    if (!rows.has(rank.get(node))) rows.set(rank.get(node), []);
    rows.get(rank.get(node)).push(node);
  }
  const middle = (node) => node.box.x + node.box.width / 2;
  let y = 0;
  for (const key of [...rows.keys()].sort((a, b) => a - b)) {
    const wanted = new Map();
    for (const node of rows.get(key)) {
      const near = above.get(node).filter((each) => rank.get(each) >= key - 1);
      const read = near.length ? near : above.get(node);
      wanted.set(
        node,
        read.length ? read.reduce((sum, each) => sum + middle(each), 0) / read.length : 0,
      );
    }
    const nodes = rows.get(key).sort((a, b) => wanted.get(a) - wanted.get(b));
    for (let first = 0; first < nodes.length; first += MOST_IN_ROW) {
      y = placeRow(nodes.slice(first, first + MOST_IN_ROW), wanted, y);
    }
  }
  const left = Math.min(...group.children.map((node) => node.box.x), 0);
  const right = Math.max(...group.children.map((node) => node.box.x + node.box.width), 0);
  group.box = {
    x: 0,
    y: 0,
    width: right - left + 2 * GAP.pad,
    height: y - GAP.y + GAP.header + 2 * GAP.pad,
  };
  for (const node of group.children) {
    node.box.x += GAP.pad - left;
    node.box.y += GAP.pad + GAP.header;
  }
}

function placeRow(nodes, wanted, y) {
  const width = nodes.reduce((sum, node) => sum + node.box.width + GAP.x, -GAP.x);
  let x = nodes.reduce((sum, node) => sum + wanted.get(node), 0) / nodes.length - width / 2;
  for (const node of nodes) {
    node.box.x = x;
    node.box.y = y;
    x += node.box.width + GAP.x;
  }
  return y + Math.max(...nodes.map((node) => node.box.height)) + GAP.y;
}

// From places in their groups to places on the whole page.
function move(group, x, y) {
  for (const child of group.children) {
    child.box.x += x;
    child.box.y += y;
    if (child instanceof Group && child.isOpen) move(child, child.box.x, child.box.y);
  }
}
