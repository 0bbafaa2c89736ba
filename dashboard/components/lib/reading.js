// Numbers and tokens as words, for the tooltip, the caption, the live region and the table.

import { number, ordinal } from "./numbers.js";

const rankWords = (rank) => (rank === 1 ? "largest" : `${ordinal(rank)} largest`);

// A layer by the model's own number: between those drawn there may be some that have no attention.
export const layerNumber = (view, layer) => view.numbers?.[layer] ?? layer;

export const headName = (view, layer, head) => `L${layerNumber(view, layer)}·H${head}`;

// Value, rank and company of one cell; ties share the better rank.
export function readCell(view, i, j) {
  const { values, mask, cols } = view.current;
  const at = i * cols;
  if (mask && !mask[at + j]) {
    return { masked: true, value: 0, rank: 0, seen: countSeen(view, i), i, j };
  }
  const value = values[at + j];
  let rank = 1, seen = 0;
  for (let k = 0; k < cols; k++) {
    if (mask && !mask[at + k]) continue;
    seen++;
    if (values[at + k] > value) rank++;
  }
  return { masked: false, value, rank, seen, i, j };
}

function countSeen(view, i) {
  const { mask, cols } = view.current;
  if (!mask) return cols;
  let seen = 0;
  for (let k = 0; k < cols; k++) seen += mask[i * cols + k];
  return seen;
}

export function maskedRows(view) {
  if (!view.current.mask) return [];
  return Array.from({ length: view.current.rows }, (_, i) => i).filter((i) => countSeen(view, i) === 0);
}

const keysWord = (n) => (n === 1 ? "1 key" : `${n} keys`);

// What the live region says.
export function spoken(view, i, j) {
  const cell = readCell(view, i, j);
  const pair = `${view.queries[i]} to ${view.keys[j]}`;
  if (cell.masked) return cell.seen ? `${pair}, masked` : `${view.queries[i]} sees no key: its output is 0`;
  return `${pair}, ${number(cell.value)}, ${rankWords(cell.rank)} of ${cell.seen}`;
}

// The tooltip's three lines.
export function tipLines(view, i, j) {
  const cell = readCell(view, i, j);
  const title = `${view.queries[i]} → ${view.keys[j]}`;
  if (cell.masked) {
    return [title, cell.seen ? "masked: never weighed" : "sees no key: its output is 0", "", ""];
  }
  const noun = view.signed ? "value" : "weight";
  // Of a part of a map, or of its blocks, one cannot say what the whole row would be.
  const all = !view.edges;
  return [
    title,
    `${noun} ${number(cell.value)}`,
    ` · ${rankWords(cell.rank)} of ${all ? keysWord(cell.seen) : `${cell.seen} in sight`}`,
    view.signed || !all ? "" : `uniform would be ${number(1 / cell.seen)}`,
  ];
}

// The row as a table, largest first, masked keys last.
export function sortedRow(view, i) {
  const { cols } = view.current;
  const cells = Array.from({ length: cols }, (_, j) => readCellFast(view, i, j));
  return cells.sort((a, b) => a.masked - b.masked || b.value - a.value || a.j - b.j);
}

export function readCellFast(view, i, j) {
  const at = i * view.current.cols + j;
  const masked = view.current.mask ? !view.current.mask[at] : false;
  return { j, masked, value: masked ? 0 : view.current.values[at] };
}
