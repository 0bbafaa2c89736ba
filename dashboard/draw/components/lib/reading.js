// Cells as words: their value, rank and company, for tooltips, captions, tables and what is read aloud.

/** @import { MapView } from "./types" */
import { number, ordinal, shareText } from "./numbers.js";

const rankText = (view, rank) => (rank === 1 ? "largest" : `${ordinal(rank)} largest`) + (view.bySize ? " by size" : "");

/** What cells are ordered by: of weights that may be negative their size. @param {MapView} view @param {number} value */
const sizeOf = (view, value) => (view.bySize ? Math.abs(value) : value);

const keysText = (n) => (n === 1 ? "1 key" : `${n} keys`);

/** The value of a cell, 0 where it is masked. @param {MapView} view */
export function cellValue({ current: { values, mask, cols } }, i, j) {
  const masked = mask ? !mask[i * cols + j] : false;
  return { i, j, masked, value: masked ? 0 : values[i * cols + j] };
}

/** With it its rank among the keys that the query may see, and their number; ties share the better rank. @param {MapView} view */
export function readCell(view, i, j) {
  const cell = cellValue(view, i, j);
  const row = rowOf(view, i).filter((other) => !other.masked);
  const rank = cell.masked ? 0 : 1 + row.filter((other) => sizeOf(view, other.value) > sizeOf(view, cell.value)).length;
  return { ...cell, rank, visible: row.length };
}

/** @param {MapView} view */
const rowOf = (view, i) => Array.from({ length: view.current.cols }, (_, j) => cellValue(view, i, j));

/** A row's cells, largest first, masked ones last. @param {MapView} view */
export const sortedRow = (view, i) =>
  rowOf(view, i).sort((a, b) => Number(a.masked) - Number(b.masked) || sizeOf(view, b.value) - sizeOf(view, a.value) || a.j - b.j);

/** The column of a row's largest value, 0 where all are masked. @param {MapView} view */
export function largestOf(view, i) {
  const { cols, mask, values } = view.current;
  let best = 0, most = -Infinity;
  for (let j = 0; j < cols; j++) {
    if (mask && !mask[i * cols + j]) continue;
    const size = sizeOf(view, values[i * cols + j]);
    if (size > most) [best, most] = [j, size];
  }
  return best;
}

/** The rows that see no key. @param {MapView} view */
export function maskedRows({ current: { mask, rows, cols } }) {
  if (!mask) return [];
  return Array.from({ length: rows }, (_, i) => i).filter((i) => !mask.subarray(i * cols, (i + 1) * cols).includes(1));
}

/** What a map says of its rows that see no key, "" where there is none. @param {MapView} view */
export function maskedRowsText(view) {
  const rows = maskedRows(view), one = rows.length === 1;
  if (!rows.length) return "";
  const names = rows.slice(0, 6).map((i) => view.queries[i]).join(", ");
  const more = rows.length > 6 ? ` and ${rows.length - 6} more` : "";
  if (view.absent) return `${names}${more} ${one ? "is" : "are"} ${view.absent}`;
  return `${names}${more} ${one ? "sees no key: its output is" : "see no key: their output is"} 0`;
}

/** The number of a cell; where none is negative, it is a weight. @param {MapView} view */
export const cellText = (view, value) => (view.signed ? number(value) : shareText(value));

/** What the live region says. @param {MapView} view */
export function spoken(view, i, j) {
  const cell = readCell(view, i, j);
  const pair = `${view.queries[i]} to ${view.keys[j]}`;
  if (cell.masked) return cell.visible ? `${pair}, masked` : `${view.queries[i]} sees no key: its output is 0`;
  return `${pair}, ${cellText(view, cell.value)}, ${rankText(view, cell.rank)} of ${cell.visible}`;
}

/** The tooltip: a title, a lead, what follows it, a last line. @param {MapView} view @param {string} noun what a cell holds */
export function tipLines(view, i, j, noun) {
  const cell = readCell(view, i, j);
  const title = `${view.queries[i]} → ${view.keys[j]}`;
  if (cell.masked) return [title, cell.visible ? "masked: never weighed" : "sees no key: its output is 0", "", ""];
  // Of a part of a map, or of its blocks, one cannot say what the whole row would be.
  const all = !view.edges;
  const keys = noun === "weight" ? keysText(cell.visible) : `${cell.visible} in its row`;
  const company = all ? keys : `${cell.visible} in sight`;
  const uniform = noun === "weight" && !view.signed && !view.state && all ? `uniform would be ${number(1 / cell.visible)}` : "";
  return [title, `${noun} ${cellText(view, cell.value)}`, ` · ${rankText(view, cell.rank)} of ${company}`, uniform];
}
