// The elements around the canvases. Tokens and words only ever enter through textContent.

import { element, footOf, readingOf } from "../lib/dom.js";
import { clamp } from "../lib/layout.js";
import { number, scaleEnd } from "../lib/numbers.js";
import { maskedRows, readCell, readCellFast, sortedRow, tipLines } from "../lib/reading.js";
import { pickedCell } from "./state.js";

const KEYS = [
  ["← → ↑ ↓", "move one cell"],
  ["Shift + arrow", "move one tick"],
  ["Home End", "first, last key of the row"],
  ["Enter", "pin or release"],
  ["Esc", "release, reset the zoom"],
  ["T", "read the row as a table"],
  ["?", "show these keys"],
];

export function build(root) {
  root.replaceChildren();
  const dom = { root };
  dom.head = element(root, "div", "head");
  dom.reads = element(dom.head, "span", "reads");
  dom.legend = legendIn(dom.head);
  dom.other = legendIn(dom.head);
  dom.stage = element(root, "div", "stage", { role: "img", tabindex: "0" });
  dom.maps = element(dom.stage, "div", "maps");
  dom.apart = element(dom.stage, "div", "maps apart");
  dom.tip = element(dom.stage, "div", "tip");
  dom.tip.hidden = true;
  dom.masked = element(root, "div", "masked");
  footOf(root, dom, "line");
  readingOf(root, dom, KEYS);
  return dom;
}

export function legendIn(parent) {
  const legend = { root: element(parent, "span", "legend") };
  legend.noun = element(legend.root, "span", "noun");
  const scale = element(legend.root, "span", "scale");
  legend.ramp = element(scale, "span", "ramp");
  legend.low = element(scale, "span", "low");
  legend.middle = element(scale, "span", "middle");
  legend.high = element(scale, "span", "high");
  return legend;
}

export function showLegend(legend, theme, noun, low, high, words = ["", ""]) {
  legend.noun.textContent = noun;
  legend.ramp.style.background = `linear-gradient(to right, ${theme.stops.join(", ")})`;
  legend.low.textContent = scaleEnd(low) + words[0];
  legend.middle.textContent = low < 0 ? "0" : "";
  legend.high.textContent = words[1] + scaleEnd(high);
}

function markOf(parent, board, marker) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  for (const [name, value] of [["viewBox", "0 0 12 12"], ["width", "12"], ["height", "12"], ["aria-hidden", "true"]]) {
    svg.setAttribute(name, value);
  }
  const path = document.createElementNS(space, "path");
  path.setAttribute("d", board.marks[marker % board.marks.length]);
  path.setAttribute("fill", board.theme.categories[marker % board.theme.categories.length]);
  svg.appendChild(path);
  parent.appendChild(svg);
}

// Heading, two canvases and the line of numbers of one map.
export function buildTile(board, tile, parent) {
  const root = element(parent, "figure", "tile");
  const dom = { root };
  dom.heading = element(root, "figcaption", "heading");
  const name = element(dom.heading, "b", "name");
  if (tile.marker >= 0) markOf(name, board, tile.marker);
  element(name, "span").textContent = tile.name;
  name.title = tile.name;
  dom.note = element(dom.heading, "span", "note");
  dom.note.textContent = tile.of ? board.reads : tile.note;
  dom.note.title = dom.note.textContent;
  const drawn = element(root, "div", "drawn");
  dom.base = element(drawn, "canvas", "base");
  dom.over = element(drawn, "canvas", "over");
  dom.foot = element(root, "div", "under");
  dom.pair = element(dom.foot, "span", "pair");
  dom.value = element(dom.foot, "b", "value");
  tile.dom = dom;
}

// The numbers under a map: query → key on the left, what the cell holds on the right.
export function showUnder(tile, picked) {
  const { pair, value } = tile.dom;
  pair.replaceChildren();
  value.textContent = "";
  if (!picked || picked.j < 0) return;
  element(pair, "b", "mark").textContent = tile.queries[picked.i];
  element(pair, "span").textContent = ` → ${tile.keys[picked.j]}`;
  const cell = readCell(tile, picked.i, picked.j);
  value.textContent = cell.masked ? (cell.seen ? "masked" : tile.absent ?? "sees no key") : number(cell.value);
  value.classList.toggle("none", cell.masked);
}

// Rows in which a map sees nothing at all, by name.
export function blindWords(tile) {
  const rows = maskedRows(tile);
  if (!rows.length) return "";
  const names = rows.slice(0, 6).map((i) => tile.queries[i]).join(", ");
  const more = rows.length > 6 ? ` and ${rows.length - 6} more` : "";
  if (tile.absent) return `${tile.name}: ${names}${more} ${rows.length === 1 ? "is" : "are"} ${tile.absent}.`;
  return `${tile.name}: ${names}${more} ${rows.length === 1 ? "sees no key: its output is" : "see no key: their output is"} 0.`;
}

export function showTip(board, x, y) {
  const { tip } = board.dom;
  const { over, hover } = board;
  if (!hover || board.keyboard || x == null || !over) {
    tip.hidden = true;
    return;
  }
  const lines = over.of ? apartLines(over, hover) : tipLines({ ...over, signed: over.signed || board.noun !== "weight" }, hover.i, hover.j);
  const [title, lead, rest, uniform] = lines;
  tip.replaceChildren();
  element(tip, "b").textContent = title;
  const line = element(tip, "div");
  element(line, "span", "lead").textContent = lead.replace(/^(value|weight)/, board.noun);
  element(line, "span").textContent = rest;
  if (uniform) element(tip, "div").textContent = uniform;
  tip.hidden = false;
  const wide = tip.offsetWidth, high = tip.offsetHeight;
  const left = x + 18 + wide > board.width ? x - 18 - wide : x + 18;
  const top = y + 18 + high > board.dom.stage.clientHeight + 24 ? y - 14 - high : y + 18;
  tip.style.transform = `translate(${Math.round(clamp(left, 0, Math.max(0, board.width - wide)))}px, ${Math.round(top)}px)`;
}

function apartLines(tile, { i, j }) {
  const [a, b] = tile.of.map((one) => one.current.values[i * one.current.cols + j]);
  const title = `${tile.queries[i]} → ${tile.keys[j]}`;
  if (readCell(tile, i, j).masked) return [title, "masked in both", "", ""];
  return [title, `${number(a)} \u2212 ${b < 0 ? `(${number(b)})` : number(b)} = `, number(a - b), ""];
}

// The row as a table: a line a key, a column a map, the first map's largest first.
export function showTable(board) {
  const { rows } = board.dom;
  rows.replaceChildren();
  if (rows.hidden) return;
  const i = pickedCell(board)?.i ?? 0;
  const table = element(rows, "table");
  const head = element(element(table, "thead"), "tr");
  element(head, "th").textContent = `${board.queries[i]} → key`;
  const shown = board.shown;
  for (const tile of shown) element(head, "th", "number").textContent = tile.name;
  const body = element(table, "tbody");
  for (const { j } of sortedRow(shown[0], i)) {
    const line = element(body, "tr");
    element(line, "td").textContent = board.keys[j];
    for (const tile of shown) {
      const cell = readCellFast(tile, i, j);
      element(line, "td", cell.masked ? "number hidden-key" : "number").textContent = cell.masked ? "masked" : number(cell.value);
    }
  }
}
