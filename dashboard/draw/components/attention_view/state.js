// What a view holds: its current map and its scale, the cell that is read, and the pinned cells.
// Pins are kept by the model's own tokens, so that they stay where they are when a zoom changes the cells.

/** @import { AttentionView, Cell } from "./types" */
import { cellOf } from "../lib/tokens.js";
import { whole } from "../lib/zoom.js";

/** Take the numbers of the picked head or frame, and the scale over them. @param {AttentionView} view */
export function setCurrent(view) {
  const film = view.layout === "frames", source = film ? view.frames : view.one;
  const { rows, cols } = source, masks = film ? view.masks : view.one.masks;
  const k = film ? view.frameIndex : view.one.heads.indexOf(view.head);
  const values = source.values.subarray(k * rows * cols, (k + 1) * rows * cols);
  view.current = { rows, cols, values, mask: masks ? masks[masks.length > 1 ? k : 0] : null };
  view.range = rangeOf(view, film ? source.values : values);
  const size = `${rows}×${cols}${view.part ?? ""}`;
  if (view.size !== size) view.window = whole(view);
  view.size = size;
}

/** The ends of the colour scale. @param {AttentionView} view @param {Float32Array} values @returns {[number, number]} */
export function rangeOf(view, values) {
  if (view.scale === "unit" && !view.signed) {
    const high = values.reduce((largest, value) => (value > largest ? value : largest), 0);
    return [0, high > 1.0005 ? high : 1];
  }
  let most = values.reduce((largest, value) => (Math.abs(value) > largest ? Math.abs(value) : largest), 0);
  if (view.scale === "p99.5") {
    const sorted = Float32Array.from(values, Math.abs).sort();
    most = sorted[Math.min(sorted.length - 1, Math.ceil(0.995 * sorted.length) - 1)] || most;
  }
  most ||= 1;
  return view.signed ? [-most, most] : [0, most];
}

/** @param {AttentionView} view @returns {Cell} -1 for a token that is not in the map now */
const pinCell = (view, [i, j]) => ({ i: cellOf(view, "rows", i), j: cellOf(view, "cols", j) });

/** The pinned cells that are drawn now, oldest first. @param {AttentionView} view */
export const pinnedCells = (view) => view.pins.map((pin) => pinCell(view, pin)).filter(({ i, j }) => i >= 0 && j >= 0);

export const newestPin = (view) => pinnedCells(view).at(-1) ?? null;
export const isPinned = (view, cell) => pinnedCells(view).some(({ i, j }) => i === cell.i && j === cell.j);

/** The pins but for those of a cell. @param {AttentionView} view @param {Cell} cell */
export const otherPins = (view, cell) => view.pins.filter((pin) => {
  const { i, j } = pinCell(view, pin);
  return i !== cell.i || j !== cell.j;
});

/** Rows in sight that are pinned, but for the one that is read now. @param {AttentionView} view @param {number} active */
export function otherRows(view, active) {
  const { r0, r1 } = view.window;
  return [...new Set(pinnedCells(view).map(({ i }) => i))].filter((i) => i !== active && i >= r0 && i < r1);
}

/** The cell that is read: under the pointer, else pinned last, else of the page's row. @param {AttentionView} view @returns {Cell | null} */
export function pickedCell(view) {
  const cell = view.hover ?? newestPin(view);
  if (cell || view.query == null) return cell;
  const i = cellOf(view, "rows", view.query);
  return i < 0 ? null : { i, j: -1 };
}
