// Dials: the pointer or the arrow keys pick a position, and the line below says how far each pair has rotated there.

import { element, svgElement } from "../lib/dom.js";
import { clamp } from "../lib/layout.js";
import { mount } from "../lib/mount.js";
import { pointIn } from "../lib/zoom.js";

const GUTTER = 58, TAIL = 104, NUMBERS = 24, WORDS = 18, LETTER = 7.5, LEAST = 24, MOST = 72; // px
const NARROW = 600, LEGIBLE = 44, LINE = 24; // px: below this width a row's name stands in a line above its larger dials
const LARGEST = 1.6; // how far a larger screen enlarges a dial
const MOST_TEXTS = 4;

const degrees = (angle) => ((((angle * 180) / Math.PI) % 360) + 360) % 360;
const middle = (board, column) => board.gutter + (column + 0.5) * board.cell;

function draw(board) {
  const { rows, positions, pick, scroll, words } = board;
  board.width = board.root.clientWidth;
  if (!board.width) return;
  const narrow = board.width < NARROW, tail = narrow ? 0 : TAIL;
  board.gutter = narrow ? 0 : GUTTER;
  board.above = narrow ? LINE : 0;
  const most = MOST * clamp(innerWidth / 1280, 1, LARGEST);
  board.cell = clamp(Math.floor((scroll.clientWidth - board.gutter - tail) / positions.length), narrow ? LEGIBLE : LEAST, most);
  const { cell } = board, pitch = cell + board.above, end = board.gutter + positions.length * cell + 8;
  const line = words.length ? WORDS : 0, top = NUMBERS + line; // the words stand over the numbers of their positions
  const width = end - 8 + tail, height = top + rows.length * pitch + 6;
  scroll.replaceChildren();
  const svg = svgElement(scroll, "svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  board.column = svgElement(svg, "rect", { y: top, width: cell, height: height - top - 4, rx: 3, fill: "none",
    stroke: pick, "stroke-width": 2, visibility: "hidden" });
  if (!narrow) {
    svgElement(svg, "text", { class: "quiet", x: GUTTER - 8, y: line + 14, "text-anchor": "end" }, "pair");
    svgElement(svg, "text", { class: "quiet", x: end, y: line + 14 }, "full circle");
  }
  const every = cell >= 26 ? 1 : 2;
  board.names = positions.map((position, column) => {
    const at = { class: "quiet", x: middle(board, column), y: line + 14, "text-anchor": "middle" };
    return svgElement(svg, "text", at, column % every ? "" : String(position));
  });
  const letters = Math.floor(cell / LETTER);
  words.forEach((word, position) => {
    const text = word.length > letters ? `${word.slice(0, letters - 1)}…` : word;
    svgElement(svg, "text", { x: middle(board, position), y: 14, "text-anchor": "middle" }, text);
  });
  rows.forEach((row, at) => drawRow(board, svg, row, top + (at + 1) * pitch - cell / 2, end));
  board.hint.hidden = scroll.scrollWidth <= scroll.clientWidth;
  show(board, board.position);
}

function drawRow(board, svg, row, y, end) {
  const { cell, hand, positions } = board, radius = cell / 2 - 4;
  const circle = `${row.circle} positions`;
  if (board.above) svgElement(svg, "text", { x: 0, y: y - cell / 2 - 5 }, `pair ${row.name}: full circle in ${circle}`);
  else {
    svgElement(svg, "text", { x: GUTTER - 8, y: y + 4, "text-anchor": "end" }, row.name);
    svgElement(svg, "text", { x: end, y: y + 4 }, circle);
  }
  for (const [column, position] of positions.entries()) {
    const x = middle(board, column);
    svgElement(svg, "circle", { class: "face", cx: x, cy: y, r: radius });
    if (row.before != null) drawHand(svg, x, y, radius, row.before * position, { class: "before" });
    const [cx, cy] = drawHand(svg, x, y, radius, row.angle * position, { class: "hand", stroke: hand });
    svgElement(svg, "circle", { cx, cy, r: 2.5, fill: hand });
  }
}

function drawHand(svg, x, y, radius, angle, attributes) {
  const [x2, y2] = [x + radius * Math.sin(angle), y - radius * Math.cos(angle)]; // from twelve, as on a clock
  svgElement(svg, "line", { x1: x, y1: y, x2, y2, "stroke-width": 2, ...attributes });
  return [x2, y2];
}

function show(board, column) {
  showPosition(board, column);
  board.scroll.setAttribute("aria-valuenow", String(board.position ?? 0));
  board.scroll.setAttribute("aria-valuetext", board.position === null ? "no position is picked" : board.line.textContent);
}

function showPosition(board, at) {
  const { column, line, names, cell, pick, positions, rows, words } = board;
  const inside = at !== null && at >= 0 && at < positions.length;
  board.position = inside ? at : null;
  column.setAttribute("visibility", inside ? "visible" : "hidden");
  names.forEach((name, other) => (name.style.fill = other === board.position ? pick : ""));
  line.textContent = "Point at or tap a position to read its angles.";
  if (!inside) return;
  column.setAttribute("x", board.gutter + at * cell);
  const texts = rows.slice(0, MOST_TEXTS).map((row) => `pair ${row.name}: ${degrees(row.angle * positions[at]).toFixed(1)}°`);
  line.textContent = [`position ${positions[at]}${words[at] ? ` (${words[at]})` : ""}`, ...texts, ...(rows.length > MOST_TEXTS ? ["…"] : [])].join(" · ");
}

function start(board) {
  board.position = null;
  const scroll = board.scroll = element(board.root, "div", "scroll", { tabindex: "0", role: "slider", "aria-valuemin": "0" });
  board.hint = element(board.root, "div", "hint", { hidden: "" });
  board.hint.textContent = "Scroll sideways for more positions.";
  board.line = element(board.root, "div", "line"); // the slider says it, too
  scroll.onpointermove = scroll.onpointerdown = (event) => {
    const x = pointIn(scroll, event).x + scroll.scrollLeft - board.gutter;
    show(board, Math.floor(x / board.cell));
  };
  scroll.onpointerleave = (event) => event.pointerType === "mouse" && show(board, null);
  scroll.onkeydown = (event) => {
    const last = board.positions.length - 1, step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
    const from = board.position ?? (step > 0 ? -1 : board.positions.length);
    const at = step ? clamp(from + step, 0, last) : { Home: 0, End: last, Escape: null }[event.key];
    if (at === undefined) return;
    event.preventDefault();
    show(board, at);
  };
}

function update(board, data) {
  Object.assign(board, data);
  board.scroll.setAttribute("aria-label", data.label);
  board.scroll.setAttribute("aria-valuemax", String(data.positions.length - 1));
  draw(board);
}

export default (component) => mount(component, { start, update, draw });
