// Elements, and numbers as text. Whatever comes from a module becomes a text node, never HTML.

function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== false && value !== undefined) element.setAttribute(name, value);
  }
  for (const child of children.flat(Infinity)) {
    if (typeof child === "string") element.append(escaped(child));
    else if (child !== null && child !== undefined) element.append(child);
  }
  return element;
}

function scaled(value, units, step) {
  let place = 0;
  while (Math.abs(value) >= step * 0.9995 && place < units.length - 1) {
    value /= step;
    place += 1;
  }
  const digits = place === 0 || Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return `${value.toFixed(Number.isInteger(value) ? 0 : digits)} ${units[place]}`;
}

const lengthText = (bytes) => scaled(bytes, ["B", "KB", "MB", "GB", "TB"], 1000);
const flopsText = (flops) => scaled(flops, ["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP"], 1000);
const timeText = (ns) => scaled(ns, ["ns", "us", "ms", "s"], 1000);
const shareText = (share) => `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;
const rateText = (rate, unit) => `${rate >= 100 ? rate.toFixed(0) : rate.toFixed(1)} ${unit}`;
const countText = (count, noun) =>
  `${count} ${noun}${count === 1 ? "" : noun.endsWith("ch") ? "es" : "s"}`;

// What cannot be printed, or turns the direction of text, as an escape; not the ends of lines.
const escaped = (text) => text.replace(/(?!\n)[\p{C}\p{Zl}\p{Zp}]/gu, escapeOf);
const escapeOf = (point) => `\\u${point.codePointAt(0).toString(16).padStart(4, "0")}`;

// The same in one line.
const printable = (text) => escaped(String(text)).replaceAll("\n", escapeOf);

function cut(text, most) {
  const shown = printable(text);
  return shown.length <= most ? shown : `${shown.slice(0, most - 1)}…`;
}

// A rate or a share; no number where the time was too short for the clock.
const over = (amount, time) => (time > 0 ? amount / time : NaN);

function row(name, ...value) {
  return h("tr", {}, h("th", {}, name), h("td", {}, ...value));
}

const cssColor = (name) => getComputedStyle(document.body).getPropertyValue(`--${name}`).trim();
