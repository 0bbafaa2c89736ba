// Sizes of cells, names and ticks: arithmetic, no drawing.

/** @import { MapView } from "./types" */
import { fontOf } from "./theme.js";

export const NAMES_FROM = 13; // px a cell: from here every token is named
export const CLOSE_NAMES_FROM = 8; // px: from here every second one
export const NAME_SIZE = 13; // px of the letters
const MIN_NAME = 12; // px of the smallest ones
const TICK_STEPS = [1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000];
export const GUTTER = { low: 40, high: 96, pad: 8 };
export const NARROW = 600; // px: below it the lines go under the map

/** Tokens between two ticks at least `pitch` px apart, or 0 where each cell has room for a name. @param {number} cell px */
export function tickStep(cell, pitch, tokens = 1) {
  if (cell >= NAMES_FROM) return 0;
  return TICK_STEPS.find((step) => (step * cell) / tokens >= pitch) ?? 10000;
}

/** Ticks where room is short: below MIN_NAME names of every second token, or smaller ones where an enlarged page lets
 * these be read. @param {number} cw @param {number} ch */
export function closeTicks(cw, ch, zoom = 1) {
  const cell = Math.min(cw, ch), names = cell >= CLOSE_NAMES_FROM, every = names && cell * zoom < MIN_NAME ? 2 : 1;
  return {
    names, every, nameSize: names && every === 1 ? Math.min(NAME_SIZE, cell) : NAME_SIZE,
    rowStep: names ? 0 : tickStep(Math.min(ch, NAMES_FROM - 1), 15),
    colStep: names ? 0 : tickStep(Math.min(cw, NAMES_FROM - 1), 28),
  };
}

/** @param {number} value @param {number} low @param {number} high */
export const clamp = (value, low, high) => Math.max(low, Math.min(high, value));

/** A label cut to a width, with an ellipsis. @param {CanvasRenderingContext2D} ctx @param {string} text @param {number} width px */
export function fit(ctx, text, width) {
  if (ctx.measureText(text).width <= width) return text;
  const letters = Array.from(text), cut = (count) => letters.slice(0, count).join("") + "…";
  let fits = 1, wide = letters.length; // halved: a text of thousands of letters is measured a dozen times
  while (wide - fits > 1) {
    const middle = (fits + wide) >> 1;
    if (ctx.measureText(cut(middle)).width <= width) fits = middle;
    else wide = middle;
  }
  return cut(fits);
}

/** Write a text in some size (px) and colour, cut to `room` px. @param {CanvasRenderingContext2D} ctx */
export function write(ctx, theme, text, x, y, { size = 13, weight = 400, colour = theme.secondary, room = Infinity } = {}) {
  ctx.font = fontOf(theme, size, weight);
  ctx.fillStyle = colour;
  ctx.fillText(room === Infinity ? text : fit(ctx, text, room), x, y);
}

/** The width of token names in their boldest font. @param {CanvasRenderingContext2D} ctx @param {string[]} names */
export function nameWidth(ctx, theme, names) {
  ctx.font = fontOf(theme, 13, 600);
  // Measuring thousands of names is slow: the longest few decide.
  const longest = names.length > 64 ? [...names].sort((a, b) => b.length - a.length).slice(0, 16) : names;
  return Math.ceil(Math.max(0, ...longest.map((name) => ctx.measureText(name).width)));
}

/** The gutter that row names stand in. @param {CanvasRenderingContext2D} ctx @param {string[]} names */
export const gutterOf = (ctx, theme, names) => clamp(nameWidth(ctx, theme, names), GUTTER.low, GUTTER.high) + GUTTER.pad;

/** The height of column names that stand upright. @param {number} width px of the widest */
export const namesHeight = (width, pad) => clamp(width, 20, GUTTER.high) + pad;

/** The size of `count` cells in some room: whole pixels when large, `most` at most, whole device pixels when small. */
export function cellSize(room, count, ratio, most = 28) {
  const cell = room / count;
  if (cell >= most) return most;
  if (cell >= 10) return Math.floor(cell);
  return cell >= 1 ? Math.floor(cell * ratio) / ratio : cell;
}

/** Width and height of a cell: equal while large or the map nearly square; long thin maps fill their room. */
export function cellSizes(roomX, roomY, cols, rows, ratio, most = 28) {
  const wide = cellSize(roomX, cols, ratio, most);
  const high = cellSize(roomY, rows, ratio, most);
  const both = Math.min(wide, high);
  if (both >= 10 || (rows / cols < 3 && cols / rows < 3)) return [both, both];
  return [wide, high];
}

/** The size of a map in whole device pixels. */
export function mapSize(cw, ch, cols, rows, ratio) {
  const whole = (length) => Math.max(1, Math.round(length * ratio) / ratio);
  return { cw, ch, cols, rows, w: whole(cw * cols), h: whole(ch * rows) };
}

/** The box of a map among others, its names close, as high as those of `beside`; in a wide window it may be `growth` squared as large. @param {CanvasRenderingContext2D} ctx @param {MapView} view */
export function closeBox(ctx, view, { x, gutter, room, cap, cell, beside = [], zoom = 1, growth = 1 }) {
  const { r0, r1, c0, c1 } = view.window;
  const [cw, ch] = cellSizes(room, cap * growth ** 2, c1 - c0, r1 - r0, view.ratio, Math.floor(cell * growth ** 2));
  const ticks = closeTicks(cw, ch, zoom), wide = nameWidth(ctx, view.theme, [...view.keys.slice(c0, c1), ...beside]);
  const flat = ticks.names && wide <= cw - 2;
  const top = ticks.names && !flat ? namesHeight(wide, 10) : 22;
  const gap = Math.min(cw, ch) >= 8 ? 1 : 0;
  return { x, y: top, gutter, top, flat, gap, ...mapSize(cw, ch, c1 - c0, r1 - r0, view.ratio), ...ticks };
}
