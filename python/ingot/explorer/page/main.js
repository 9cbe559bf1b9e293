// The page: a pane per module, views, search, keys and colors.

const roofline = { flops: 100, bytes: 20 }; // GFLOP/s and GB/s, which are FLOP and bytes per ns
const LEAST_SHARE = 0.02; // of a call, from which on a dispatch says something of the machine,
const LEAST_TIME = 5000; // or nanoseconds of a run
const PARTIAL = /take|gather|slice|scatter/; // ops whose bytes are all that they could touch
const VIEWS = [
  ["graph", "Graph"],
  ["dispatches", "Dispatches"],
  ["memory", "Memory"],
  ["weights", "Weights"],
  ["code", "Bytecode"],
  ["module", "Module"],
  ["compare", "Compare"],
];

class Pane {
  constructor(facts, host) {
    this.model = new Model(facts);
    this.controls = h("div", { class: "controls" });
    this.view = h("div", { class: "view" });
    this.detail = h("aside", { class: "detail" });
    this.element = h("section", { class: "pane" }, this.controls, this.view, this.detail);
    host.append(this.element);
    this.graphs = new Map(); // by function, so that what is open stays so
  }

  begin() {
    this.showControls();
    this.show();
    this.showDetail();
  }

  showControls() {
    const { model } = this;
    const options = model.functions.map((each, place) =>
      h(
        "option",
        { value: place, selected: each === model.function },
        `${cut(each.name, 40)} (${each.target})`,
      ),
    );
    const choose = (event) => {
      model.select(Number(event.target.value));
      this.selected = this.hits = null;
      this.begin();
      app.search();
    };
    const sizes = model.names.map((name) =>
      numberField(cut(name, 24), model.sizes.get(name), (size) => app.resize(name, size)),
    );
    const peaks = [
      numberField("GFLOP/s", Math.round(roofline.flops), (number) =>
        app.setRoofline("flops", number),
      ),
      numberField("GB/s", Math.round(roofline.bytes), (number) => app.setRoofline("bytes", number)),
    ];
    this.fitNote = h("span", { class: "warning" });
    this.controls.replaceChildren(
      h("b", {}, cut(model.facts.name, 60)),
      h("select", { onchange: choose, "aria-label": "function" }, options),
      ...sizes,
      h(
        "span",
        { class: "peaks", title: "what this machine can do: predictions follow it" },
        "roofline",
        ...peaks,
      ),
      this.fitNote,
    );
    if (model.function.call) {
      const text = `a call took ${timeText(model.function.call)}`;
      this.controls.append(h("span", { class: "note" }, text));
    }
    for (const line of model.facts.missing) {
      this.controls.append(h("span", { class: "warning" }, line));
    }
    this.showFit();
  }

  showFit() {
    const text = "the trace was of calls with other sizes: choose them here, or with --dim";
    this.fitNote.textContent = this.model.fitsTrace() ? "" : text;
  }

  resize(name, size) {
    this.model.setSize(name, size);
    this.showFit();
    this.refresh();
  }

  refresh() {
    for (const scene of this.graphs.values()) scene.refresh();
    this.show();
    this.showDetail();
  }

  show() {
    this.surface?.observer.disconnect();
    this.surface = null;
    const views = {
      dispatches: dispatchView,
      memory: memoryView,
      weights: weightView,
      code: codeView,
      module: moduleView,
    };
    if (app.view === "compare") return;
    this.view.replaceChildren(app.view === "graph" ? this.graph() : views[app.view](this));
  }

  graph() {
    const key = this.model.function;
    if (!this.graphs.has(key)) this.graphs.set(key, new GraphScene(this));
    const picture = h("div", { class: "picture" });
    this.scene = this.graphs.get(key);
    this.surface = new Surface(picture, this.scene, "the graph of layers and dispatches");
    return picture;
  }

  fold(group) {
    const before = group.box && { ...group.box };
    group.isOpen = !group.isOpen;
    this.scene.refresh();
    // The group stays where it was on the screen.
    const { x, y, k } = this.surface.transform;
    const moved = d3.zoomIdentity.translate(
      x + (before.x - group.box.x) * k,
      y + (before.y - group.box.y) * k,
    );
    this.surface.moveTo(moved.scale(k));
  }

  foldAll(isOpen) {
    if (app.view !== "graph") return;
    for (const child of this.scene.tree.children)
      if (child instanceof Group) setOpen(child, isOpen);
    this.scene.refresh();
    this.surface.fit(this.scene.leastScale);
  }

  // Chooses a command; of another module, which is shown beside it, the one of the same layer.
  select(command, moves = true) {
    for (const other of app.panes.filter((pane) => pane !== this)) {
      const same = other.model.work.find((each) => each.layer && each.layer === command?.layer);
      if (same || !command) other.take(same || null, true);
    }
    this.take(command, moves);
  }

  take(command, moves) {
    this.selected = command;
    this.element.classList.toggle("has-detail", Boolean(command));
    if (!command) this.element.classList.remove("wide");
    this.showDetail();
    this.surface?.resize(); // the detail may have come or gone
    if (app.view === "graph" && command && moves)
      this.surface.center(this.scene.reveal(command).box);
    else if (this.surface) this.surface.redraw();
    else if (app.view === "dispatches") this.mark();
  }

  // The table keeps its place when another row is chosen.
  mark() {
    const top = this.view.querySelector(".lines").scrollTop;
    this.show();
    this.view.querySelector(".lines").scrollTop = top;
  }

  showDetail() {
    this.detail.replaceChildren(detailView(this));
  }

  step(count) {
    const { work } = this.model;
    const at = this.selected ? this.selected.order + count : 0;
    if (work[at]) this.select(work[at]);
  }

  search(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const found = words.length
      ? this.model.work.filter((command) => this.model.matches(command, words))
      : null;
    this.found = found;
    this.hits = found && new Set(found.map((command) => command.id));
    if (app.view === "dispatches") this.show();
    else this.surface?.redraw();
    return found ? found.length : 0;
  }

  nextFound() {
    if (!this.found?.length) return;
    const at = this.found.findIndex((command) => command.id === this.selected?.id);
    this.select(this.found[(at + 1) % this.found.length]);
  }
}

function numberField(name, value, set) {
  const change = (event) => {
    const number = Number(event.target.value);
    if (Number.isFinite(number) && number > 0) set(number);
    else event.target.value = value;
  };
  const input = h("input", { type: "number", min: 1, value, onchange: change });
  return h("label", { class: "field" }, name, input);
}

const app = {
  view: "graph",
  panes: [],

  begin(data) {
    this.followColors();
    const host = document.getElementById("panes");
    host.replaceChildren();
    const [first, ...others] = data.models;
    for (const facts of others) facts.sizes = { ...first.sizes, ...facts.sizes };
    guessRoofline(data.models);
    this.panes = data.models.map((facts) => new Pane(facts, host));
    document.title = `${data.models.map((facts) => cut(facts.name, 60)).join(" and ")} - Ingot explorer`;
    document.body.classList.toggle("split", this.panes.length > 1);
    this.compare = h("section", { class: "pane compare-pane", hidden: "" });
    host.append(this.compare);
    this.showBar();
    for (const pane of this.panes) pane.begin();
    document.addEventListener("keydown", (event) => this.key(event));
  },

  showBar() {
    const views = VIEWS.slice(0, this.panes.length > 1 ? 7 : 6);
    this.tabs = views.map(([key, name]) =>
      h("button", { onclick: () => this.setView(key), "data-view": key }, name),
    );
    this.field = h("input", {
      type: "search",
      placeholder: "search layers and kernels  ( / )",
      "aria-label": "search",
      oninput: () => this.search(),
    });
    this.count = h("small", { class: "count" });
    const bar = document.getElementById("bar");
    bar.replaceChildren(
      h("strong", {}, "ingot"),
      h("nav", {}, this.tabs),
      h("span", { class: "space" }),
      this.count,
      this.field,
      h("button", { class: "small", onclick: () => this.help(), title: "keys ( ? )" }, "?"),
      h(
        "button",
        { class: "small", onclick: () => this.turnColors(), title: "light or dark" },
        "◐",
      ),
    );
    this.setView("graph");
  },

  setView(view) {
    this.view = view;
    for (const tab of this.tabs) tab.classList.toggle("chosen", tab.dataset.view === view);
    for (const pane of this.panes) pane.element.hidden = view === "compare";
    this.compare.hidden = view !== "compare";
    if (view === "compare") this.compare.replaceChildren(compareView(this.panes));
    else for (const pane of this.panes) pane.show();
  },

  // A dim of the same name has one size in all modules.
  resize(name, size) {
    for (const pane of this.panes) {
      pane.resize(name, size);
      pane.showControls();
    }
  },

  setRoofline(key, number) {
    roofline[key] = number;
    for (const pane of this.panes) {
      pane.showControls();
      pane.refresh();
    }
  },

  search() {
    const count = this.panes.reduce((sum, pane) => sum + pane.search(this.field.value), 0);
    this.count.textContent = this.field.value.trim() ? `${count} found` : "";
  },

  // Shows what one can do where nothing is chosen.
  help() {
    for (const pane of this.panes) {
      pane.select(null);
      pane.element.classList.add("has-detail");
      pane.surface?.resize();
    }
  },

  // As the system has it, until somebody turns it.
  followColors() {
    const system = matchMedia("(prefers-color-scheme: dark)");
    system.addEventListener("change", () => this.color(system.matches));
    this.color(system.matches);
  },

  turnColors() {
    this.color(document.documentElement.dataset.theme !== "dark");
  },

  color(isDark) {
    document.documentElement.dataset.theme = isDark ? "dark" : "light";
    for (const pane of this.panes) pane.surface?.redraw();
  },

  key(event) {
    const isField = /INPUT|SELECT|TEXTAREA/.test(event.target.tagName);
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") {
      if (isField) event.target.blur();
      else for (const pane of this.panes) pane.select(null);
    } else if (event.target === this.field && event.key === "Enter") {
      for (const pane of this.panes) pane.nextFound();
    } else if (!isField) {
      this.command(event);
    }
  },

  command(event) {
    const each = (act) => this.panes.forEach(act);
    const commands = {
      "/": () => this.field.select(),
      j: () => each((pane) => pane.step(1)),
      k: () => each((pane) => pane.step(-1)),
      f: () => each((pane) => pane.surface?.fit()),
      e: () => each((pane) => pane.foldAll(true)),
      c: () => each((pane) => pane.foldAll(false)),
      "?": () => this.help(),
      "+": () => each((pane) => pane.surface?.scaleBy(1.3)),
      "-": () => each((pane) => pane.surface?.scaleBy(1 / 1.3)),
    };
    const tab = this.tabs[Number(event.key) - 1];
    if (tab) this.setView(tab.dataset.view);
    else if (commands[event.key]) commands[event.key]();
    else return;
    event.preventDefault();
  },
};

// With a trace, the best rates that a dispatch reached are what the machine can do at least. Short
// ones do not count, nor those of which the cost model says too much.
function guessRoofline(models) {
  for (const facts of models) {
    const model = new Model(facts);
    if (!model.function.times) continue;
    const shares = model.shares();
    const isLarge = ({ id, time, runs }) =>
      shares.get(id) >= LEAST_SHARE || time > LEAST_TIME * runs;
    const all = model.work
      .filter((command) => !PARTIAL.test(command.operations))
      .map((command) => ({ id: command.id, ...model.cost(command) }));
    const costs = all.filter(isLarge);
    const best = (key) =>
      Math.max(1, ...costs.map((cost) => over(cost[key], cost.time)).filter(Number.isFinite));
    Object.assign(roofline, { flops: Math.ceil(best("flops")), bytes: Math.ceil(best("bytes")) });
  }
}

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (unit) => unit.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

unpack(document.getElementById("data").textContent)
  .then((data) => {
    app.begin(data);
    window.explorer = app; // for tests and the console
  })
  .catch((error) => {
    const text = `The page cannot be shown: ${error.message}. It needs a browser of 2023 or newer.`;
    document.getElementById("panes").replaceChildren(h("p", { class: "wait" }, text));
  });
