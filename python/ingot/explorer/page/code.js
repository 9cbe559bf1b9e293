// Texts: kernels with their words marked, and bytecode with its branches drawn beside it.

const WORDS = {
  C: /(\/\/[^\n]*|\/\*[\s\S]*?\*\/)|\b(for|if|else|while|return|const|static|void|kernel|__kernel|global|__global|local|__local|uint32_t|int32_t|int64_t|int|float|double|size_t|index_t|unsigned|char|restrict|barrier)\b|\b(\d[\w.]*)\b/g,
  ir: /(\/\/[^\n]*)|\b(func|loop\.\w+|yield|return|module|symbols|attributes|loc)\b|\b(\d[\w.]*)\b/g,
};
const MOST_MARKED = 200000; // characters, behind which a text is plain

function marked(text, language) {
  if (text.length > MOST_MARKED) return [text];
  const parts = [];
  let at = 0;
  for (const found of text.matchAll(WORDS[language])) {
    parts.push(text.slice(at, found.index));
    const kind = found[1] ? "comment" : found[2] ? "word" : "number";
    parts.push(h("span", { class: kind }, found[0]));
    at = found.index + found[0].length;
  }
  return [...parts, text.slice(at)];
}

function textBlock(title, text, language) {
  const copy = h(
    "button",
    { class: "small", onclick: () => navigator.clipboard?.writeText(text) },
    "copy",
  );
  const lines = text.split("\n").length;
  const head = h(
    "div",
    { class: "text-head" },
    h("span", {}, title),
    h("small", {}, `${lines} lines`),
    copy,
  );
  return h("section", { class: "text" }, head, h("pre", { tabindex: 0 }, marked(text, language)));
}

const LINE = 19; // pixels
const LANE = 9;

// A list that makes elements for the lines that are seen only.
function lineList(count, render) {
  const inner = h("div", { class: "lines-inner", style: `height:${count * LINE}px` });
  const outer = h("div", { class: "lines", tabindex: 0 }, inner);
  let shown = "";
  const update = () => {
    const first = Math.max(0, Math.floor(outer.scrollTop / LINE) - 20);
    const last = Math.min(count, first + Math.ceil(outer.clientHeight / LINE) + 40);
    if (shown === `${first} ${last}`) return;
    shown = `${first} ${last}`;
    inner.replaceChildren(...render(first, last));
  };
  outer.addEventListener("scroll", () => requestAnimationFrame(update));
  new ResizeObserver(update).observe(outer);
  return outer;
}

// Branches as rows from and to, each in a lane that no other one around it has.
function branchesOf(code) {
  const lineOf = new Map(code.map(([word], line) => [word, line]));
  const found = [];
  code.forEach(([, text], line) => {
    if (!text.startsWith("branch")) return;
    for (const [, word] of text.matchAll(/->(\d+)/g))
      found.push({ from: line, to: lineOf.get(Number(word)) });
  });
  const taken = [];
  const span = (each) => [Math.min(each.from, each.to), Math.max(each.from, each.to)];
  found.sort((a, b) => Math.abs(a.from - a.to) - Math.abs(b.from - b.to));
  for (const branch of found) {
    const [low, high] = span(branch);
    const isFree = (lane) => lane.every(([first, last]) => last < low || first > high);
    branch.lane = taken.findIndex(isFree);
    if (branch.lane < 0) branch.lane = taken.push([]) - 1;
    taken[branch.lane].push([low, high]);
  }
  return { branches: found, lanes: taken.length };
}

function codeView(pane) {
  const { code, layers } = pane.model.function;
  const { branches, lanes } = branchesOf(code);
  const margin = Math.min(lanes, 24) * LANE + 16;
  const targets = new Set(branches.map((each) => each.to));
  const layerAt = new Map(
    layers.map(([word, layer, op]) => [word, layer || op ? `${layer} (${op})` : ""]),
  );
  const render = (first, last) => {
    const lines = code.slice(first, last).map(([word, text], place) => {
      const line = first + place;
      const isTarget = targets.has(line) ? " target" : "";
      const layer = layerAt.get(word);
      return h(
        "div",
        { class: `line${isTarget}`, style: `top:${line * LINE}px;padding-left:${margin}px` },
        h("span", { class: "word-at" }, String(word).padStart(6)),
        h(
          "span",
          { class: `op op-${text.replace(/^.* = /, "").split(/[ .]/)[0]}` },
          cut(text, 400),
        ),
        layer ? h("span", { class: "comment" }, `  # ${cut(layer, 200)}`) : null,
      );
    });
    return [branchPicture(branches, first, last, margin), ...lines];
  };
  const list = lineList(code.length, render);
  const counts = h(
    "p",
    { class: "note" },
    `${countText(code.length, "instruction")}, ${countText(branches.length, "branch")}. `,
    "A branch is drawn from its line to where it leads.",
  );
  return h("div", { class: "code-view" }, counts, list);
}

function branchPicture(branches, first, last, margin) {
  const space = "http://www.w3.org/2000/svg";
  const picture = document.createElementNS(space, "svg");
  picture.setAttribute("class", "branches");
  picture.setAttribute("width", margin);
  picture.setAttribute("height", (last - first) * LINE);
  picture.style.top = `${first * LINE}px`;
  for (const { from, to, lane } of branches) {
    if (Math.max(from, to) < first || Math.min(from, to) > last) continue;
    const y = (line) => (line - first + 0.5) * LINE;
    const x = margin - 10 - (lane % 24) * LANE;
    const path = document.createElementNS(space, "path");
    const end = `M${margin - 8} ${y(to) - 3} l6 3 l-6 3`;
    path.setAttribute("d", `M${margin - 3} ${y(from)} H${x} V${y(to)} H${margin - 3} ${end}`);
    path.setAttribute("class", to < from ? "back" : "forth");
    picture.append(path);
  }
  return picture;
}
