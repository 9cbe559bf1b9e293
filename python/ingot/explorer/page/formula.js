// Dims: integers, or formulas such as `64*floordiv(b*s+15, 16)`, as compiler/ir/dim_text.py reads.

const FUNCTIONS = {
  floordiv: (a, b) => Math.floor(a / b),
  mod: (a, b) => a - b * Math.floor(a / b),
  min: Math.min,
  max: Math.max,
  broadcast: (...sizes) => sizes.find((size) => size !== 1) ?? 1,
};
const formulas = new Map();
const NAME = "[A-Za-z_][\\p{L}\\p{N}_.']*"; // as Python's [A-Za-z_][\w.']*
const TOKENS = new RegExp(`${NAME}|\\d+|[-+*(),]`, "gu");
const NAMES = new RegExp(`${NAME}(?![\\p{L}\\p{N}_.'(])`, "gu"); // a function is before "("

// A function of the sizes (a Map by name), or of nothing for a number.
function formula(text) {
  if (typeof text === "number") return () => text;
  if (!formulas.has(text)) formulas.set(text, parseFormula(text));
  return formulas.get(text);
}

function parseFormula(text) {
  const tokens = text.match(TOKENS) || [];
  let at = 0;
  const take = (token) => tokens[at] === token && ++at > 0;

  function sum() {
    const terms = [take("-") ? negated(product()) : product()];
    while (tokens[at] === "+" || tokens[at] === "-") {
      terms.push(tokens[at++] === "-" ? negated(product()) : product());
    }
    return terms.length === 1
      ? terms[0]
      : (sizes) => terms.reduce((all, term) => all + term(sizes), 0);
  }
  function product() {
    const factors = [atom()];
    while (take("*")) factors.push(atom());
    return factors.length === 1
      ? factors[0]
      : (sizes) => factors.reduce((all, factor) => all * factor(sizes), 1);
  }
  function atom() {
    if (take("-")) return negated(atom());
    if (take("(")) return closed(sum());
    const token = tokens[at++];
    if (/^\d/.test(token)) return () => Number(token);
    if (!take("(")) return (sizes) => sizes.get(token) ?? NaN;
    const operands = [sum()];
    while (take(",")) operands.push(sum());
    return closed((sizes) => FUNCTIONS[token](...operands.map((operand) => operand(sizes))));
  }
  function closed(inner) {
    take(")");
    return inner;
  }
  const negated = (inner) => (sizes) => -inner(sizes);
  return sum();
}

// The names of dims in a formula.
function namesIn(text) {
  return (typeof text === "string" && text.match(NAMES)) || [];
}
