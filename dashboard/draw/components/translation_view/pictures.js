// The drawing of both pictures: input words on the left, output words on the right. Each returns a function that shows
// a moment of the translation.

import { svgElement } from "../lib/dom.js";
import { number } from "../lib/numbers.js";

const ROW = 32, PHONE_ROW = 24, PHONE = 400, TOP = 22, WIDEST = 520, RADIUS = 7; // px; the picture grows beyond WIDEST as a whole
const LARGEST = 1.6, LEAST_WEIGHT = 0.015, WORDS = 78;

/** Where the rows and columns are, in a room of so many px. */
export function sizes({ source, target }, room) {
  const scale = Math.min(LARGEST, Math.max(1, room / WIDEST)), width = room / scale;
  const row = room < PHONE ? PHONE_ROW : ROW, rows = Math.max(source.length, target.length), height = TOP + rows * row;
  const inputs = WORDS + 18, outputs = width - WORDS - 18;
  const at = (count) => (index) => TOP + (index + 0.5 + (rows - count) / 2) * row;
  return { scale, width, height, row, inputs, outputs, inputY: at(source.length), outputY: at(target.length) };
}

/** The output word nearest to a height on the screen. */
export function rowAt({ layout, target }, board, clientY) {
  const box = board.getBoundingClientRect(), y = ((clientY - box.top) / box.height) * layout.height;
  const nearest = Math.round((y - layout.outputY(0)) / layout.row);
  return Math.max(0, Math.min(target.length - 1, nearest));
}

function canvas({ layout }, board) {
  board.replaceChildren();
  const { width, height, scale } = layout;
  return svgElement(board, "svg", { viewBox: `0 0 ${width} ${height}`, height: height * scale, "aria-hidden": "true" });
}

/** The words of both sides with a circle each: the states of the encoder and of the decoder. */
function drawWords({ layout, source, target }, svg) {
  const { inputs, outputs, inputY, outputY } = layout;
  svgElement(svg, "text", { class: "small part", x: inputs, y: 10, "text-anchor": "middle" }, "encoder");
  svgElement(svg, "text", { class: "small part", x: outputs, y: 10, "text-anchor": "middle" }, "decoder");
  const side = (words, x, y, anchor, offset) => words.map((word, row) => ({
    text: svgElement(svg, "text", { x: x + offset, y: y(row), "text-anchor": anchor }, word),
    state: svgElement(svg, "circle", { class: "state", cx: x, cy: y(row), r: RADIUS }),
  }));
  return { ins: side(source, inputs, inputY, "end", -RADIUS - 8), outs: side(target, outputs, outputY, "start", RADIUS + 8) };
}

/** The line from each state of a side to the next. */
function drawChain(svg, x, y, count) {
  return Array.from({ length: Math.max(0, count - 1) }, (_, row) =>
    svgElement(svg, "path", { class: "link", d: `M${x} ${y(row) + RADIUS}V${y(row + 1) - RADIUS}` }));
}

const curve = (x1, y1, x2, y2) => `M${x1} ${y1}C${(x1 + x2) / 2} ${y1} ${(x1 + x2) / 2} ${y2} ${x2} ${y2}`;
const later = (node, is) => node.classList.toggle("later", is);

function showWords({ ins, outs }, read, written) {
  ins.forEach(({ state }, row) => state.classList.toggle("now", row === read - 1 && written === 0));
  outs.forEach(({ text, state }, row) => [text, state].forEach((node) => later(node, row >= written)));
}

/** The left picture: every word goes through the states into one vector, and from it to every output. */
export function drawVector(view, board) {
  const svg = canvas(view, board), { layout, source, target } = view;
  const { inputs, outputs, inputY, outputY } = layout, x = (inputs + outputs) / 2, y = (TOP + layout.height) / 2;
  const chains = [drawChain(svg, inputs, inputY, source.length), drawChain(svg, outputs, outputY, target.length)];
  const into = svgElement(svg, "path", { class: "link", d: curve(inputs + RADIUS, inputY(source.length - 1), x - 9, y) });
  const away = target.map((_, row) =>
    svgElement(svg, "path", { class: "link", d: curve(x + 9, y, outputs - RADIUS, outputY(row)) }));
  const vector = svgElement(svg, "rect", { class: "vector", x: x - 9, y: y - 45, width: 18, height: 90, rx: 3 });
  for (let cell = 1; cell < 6; cell++) {
    svgElement(svg, "path", { class: "link", d: `M${x - 9} ${y - 45 + 15 * cell}h18`, opacity: 0.5 });
  }
  svgElement(svg, "text", { class: "small", x, y: y - 58, "text-anchor": "middle" }, "one vector");
  const words = drawWords(view, svg);
  return ({ read, vector: full, written }) => {
    showWords(words, read, written);
    chains[0].forEach((link, row) => later(link, row >= read - 1));
    chains[1].forEach((link, row) => later(link, row >= written - 1));
    later(into, !full);
    vector.classList.toggle("now", full);
    away.forEach((link, row) => later(link, row >= written));
  };
}

/** The right picture: an arrow from every output word back to every input word, as wide as its weight. */
export function drawAttention(view, board) {
  const svg = canvas(view, board), { layout, source, target, weights } = view;
  const { inputs, outputs, inputY, outputY } = layout, end = inputs + RADIUS + 8;
  const chain = drawChain(svg, inputs, inputY, source.length);
  const arrows = target.flatMap((_, row) => source.flatMap((__, column) => {
    const weight = weights[row][column];
    if (weight < LEAST_WEIGHT) return [];
    const d = curve(outputs - RADIUS, outputY(row), end, inputY(column));
    return [{ row, weight, path: svgElement(svg, "path", { class: "arrow", d, "stroke-width": 0.8 + 6 * weight }) }];
  }));
  const tips = source.map((_, column) => {
    const y = inputY(column), x = inputs + RADIUS + 1;
    return svgElement(svg, "path", { class: "tip-of-arrow", d: `M${x} ${y}l10 -5v10z` });
  });
  const words = drawWords(view, svg), value = svgElement(svg, "text", { class: "value", "text-anchor": "middle" });
  return ({ read, written, row: picked }) => {
    showWords(words, read, written);
    chain.forEach((link, row) => later(link, row >= read - 1));
    for (const { row, weight, path } of arrows) {
      path.classList.toggle("picked", row === picked);
      path.style.opacity = String(row >= written ? 0 : row === picked ? 0.35 + 0.65 * weight : 0.12);
    }
    words.outs.forEach(({ text, state }, row) => [text, state].forEach((node) =>
      node.classList.toggle(node === text ? "picked" : "now", row === picked)));
    showStrongest({ view, words, tips, value }, picked);
  };
}

/** The number on the strongest arrow, the heads of the arrows, and the input words that they reach. */
function showStrongest({ view, words, tips, value }, picked) {
  const row = view.weights[picked], { inputs, outputs, inputY, outputY } = view.layout;
  tips.forEach((tip, column) => later(tip, !row || row[column] < LEAST_WEIGHT));
  later(value, !row);
  const best = row ? row.indexOf(Math.max(...row)) : -1;
  words.ins.forEach(({ text }, column) => text.classList.toggle("picked", column === best));
  if (!row) return;
  value.textContent = `weight ${number(row[best])}`;
  value.setAttribute("x", String((inputs + RADIUS + 8 + outputs - RADIUS) / 2));
  value.setAttribute("y", String((inputY(best) + outputY(picked)) / 2));
}
