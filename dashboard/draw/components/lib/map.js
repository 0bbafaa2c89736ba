// The map itself: cells on the base canvas; names, ticks, crosshair and pins on the canvas over it.

/** @import { Box, Cell, MapView } from "./types" */
import { pixels } from "./dom.js";
import { GUTTER, NAME_SIZE, clamp, fit, write } from "./layout.js";
import { ticks } from "./tokens.js";
import { cellDecimals, cellNumber } from "./numbers.js";
import { colourAt, fontOf, hatch, rgbAt, shade, textOn } from "./theme.js";

const NUMBERS_FROM = 40; // px a cell: from this width on it holds its number

/** What is below the threshold is drawn as nothing, and still read as what it is. @param {MapView} view @param {number} value */
export const visibleValue = (view, value) => (view.threshold && Math.abs(value) < view.threshold ? 0 : value);

/** Mean (or largest) of the cells under each pixel, and NaN where all are masked. @param {MapView} view */
export function pooled(view, rows, cols) {
  const { r0, r1, c0, c1 } = view.window;
  const edges = (from, to, count) => Array.from({ length: count + 1 }, (_, k) => from + Math.floor((k * (to - from)) / count));
  const down = edges(r0, r1, rows), across = edges(c0, c1, cols);
  return Float32Array.from({ length: rows * cols }, (_, at) => {
    const x = at % cols, y = (at - x) / cols, top = down[y], left = across[x];
    return pool(view, top, Math.max(top + 1, down[y + 1]), left, Math.max(left + 1, across[x + 1]));
  });
}

function pool(view, top, bottom, left, right) {
  const { values, mask, cols } = view.current;
  let sum = 0, count = 0, most = 0; // by size
  for (let i = top; i < bottom; i++) {
    for (let j = left; j < right; j++) {
      if (mask && !mask[i * cols + j]) continue;
      const value = visibleValue(view, values[i * cols + j]);
      sum += value;
      count++;
      if (Math.abs(value) > Math.abs(most)) most = value;
    }
  }
  return !count ? NaN : view.pool === "max" ? most : sum / count;
}

/** A canvas of one pixel a value; NaN stays clear so that the hatch below shows. @param {Float32Array} values @param {MapView} view */
export function valueImage(values, cols, rows, view) {
  return pixels(cols, rows, view.theme.table, (at) => (Number.isNaN(values[at]) ? -1 : shade(values[at], ...view.range)));
}

/** @param {CanvasRenderingContext2D} ctx @param {MapView} view @param {Box} box */
export function drawMap(ctx, view, box) {
  if (view.current.mask) hatch(ctx, view.theme, box.x, box.y, box.w, box.h);
  if (box.gap) return drawCells(ctx, view, box);
  const cols = box.cw < 1 ? Math.max(1, Math.round(box.w)) : box.cols;
  const rows = box.ch < 1 ? Math.max(1, Math.round(box.h)) : box.rows;
  ctx.imageSmoothingEnabled = false;
  ctx.drawImage(valueImage(pooled(view, rows, cols), cols, rows, view), box.x, box.y, box.w, box.h);
  ctx.strokeStyle = view.theme.hairline;
  ctx.strokeRect(box.x - 0.5, box.y - 0.5, box.w + 1, box.h + 1);
}

function drawCells(ctx, view, box) {
  const { values, mask, cols } = view.current;
  const decimals = cellDecimals(values.reduce((most, value) => Math.max(most, Math.abs(value)), 0));
  for (let i = 0; i < box.rows; i++) {
    for (let j = 0; j < box.cols; j++) {
      const at = (view.window.r0 + i) * cols + view.window.c0 + j;
      if (mask && !mask[at]) continue;
      const x = box.x + j * box.cw, y = box.y + i * box.ch, shown = shade(visibleValue(view, values[at]), ...view.range);
      ctx.fillStyle = colourAt(view.theme.table, shown);
      ctx.fillRect(x, y, box.cw - 1, box.ch - 1);
      if (view.numbers && box.cw >= NUMBERS_FROM) drawNumber(ctx, view, cellNumber(values[at], decimals), x + box.cw / 2, y + box.ch / 2, shown);
    }
  }
}

/** @param {CanvasRenderingContext2D} ctx @param {MapView} view */
function drawNumber(ctx, view, text, x, y, shown) {
  ctx.fillStyle = textOn(view.theme, rgbAt(view.theme.table, shown));
  ctx.font = fontOf(view.theme, 12);
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  ctx.fillText(text, x, y);
}

const rowMiddle = (box, view, i) => box.y + (i - view.window.r0 + 0.5) * box.ch;
const colMiddle = (box, view, j) => box.x + (j - view.window.c0 + 0.5) * box.cw;

// Where names are closer than they are high, every second token has its own.
const skipped = (box, step, at) => !step && at % (box.every ?? 1) > 0;

/** @param {CanvasRenderingContext2D} ctx @param {MapView} view @param {Box} box @param {Cell | null} picked */
export function drawRowNames(ctx, view, box, picked) {
  const theme = view.theme, { r0, r1 } = view.window;
  ctx.textAlign = "right";
  ctx.textBaseline = "middle";
  const active = picked && picked.i >= r0 && picked.i < r1 ? picked.i : -1;
  const step = box.rowStep, right = box.x - GUTTER.pad, size = box.nameSize ?? NAME_SIZE;
  for (const { at, text } of ticks(view, "rows", view.queries, r0, r1, step)) {
    if (at === active || skipped(box, step, at)) continue;
    const y = rowMiddle(box, view, at);
    // Neighbours of the named row give way, unless every row has its name anyway.
    if ((step || box.every > 1) && active >= 0 && Math.abs(y - rowMiddle(box, view, active)) < 13) continue;
    write(ctx, theme, text, right, y, { size: step ? 12 : size, room: GUTTER.high });
    if (step) ctx.fillRect(Math.round(box.x - 6), Math.round(y), 5, 1);
  }
  if (active < 0) return;
  const look = { size, weight: 600, colour: theme.pick, room: box.gutter - GUTTER.pad + 2 };
  write(ctx, theme, view.queries[active], right, rowMiddle(box, view, active), look);
}

/** @param {CanvasRenderingContext2D} ctx @param {MapView} view @param {Box} box @param {Cell | null} picked */
export function drawColNames(ctx, view, box, picked) {
  const theme = view.theme, { c0, c1 } = view.window;
  const active = picked && picked.j >= c0 && picked.j < c1 ? picked.j : -1;
  const step = box.colStep, y = box.y - (step ? 14 : GUTTER.pad), upright = !step && !box.flat;
  const size = box.nameSize ?? NAME_SIZE;
  ctx.textBaseline = "middle";
  ctx.font = fontOf(theme, size, 600);
  const room = step && active >= 0 ? ctx.measureText(view.keys[active]).width / 2 + 13 : 13;
  for (const { at, text } of ticks(view, "cols", view.keys, c0, c1, step)) {
    if (at === active || skipped(box, step, at)) continue;
    const x = colMiddle(box, view, at);
    ctx.fillStyle = theme.secondary;
    if (step) ctx.fillRect(Math.round(x), Math.round(box.y - 6), 1, 5);
    if ((step || box.every > 1) && active >= 0 && Math.abs(x - colMiddle(box, view, active)) < room) continue;
    ctx.font = fontOf(theme, step ? 12 : size);
    drawColName(ctx, text, x, y, upright);
  }
  if (active < 0) return;
  ctx.font = fontOf(theme, size, 600);
  ctx.fillStyle = theme.text;
  const half = upright ? 0 : ctx.measureText(view.keys[active]).width / 2;
  drawColName(ctx, view.keys[active], clamp(colMiddle(box, view, active), half, Math.max(half, view.width - half)), y, upright);
}

function drawColName(ctx, text, x, y, upright) {
  ctx.textAlign = upright ? "left" : "center";
  if (!upright) return ctx.fillText(text, x, y);
  ctx.save();
  ctx.translate(x, y + 2);
  ctx.rotate(-Math.PI / 2);
  ctx.fillText(fit(ctx, text, GUTTER.high), 0, 0);
  ctx.restore();
}

/** An outline of at least three pixels each way around a rectangle. @param {CanvasRenderingContext2D} ctx */
export function outline(ctx, x, y, w, h, width, colour) {
  const wide = Math.max(w, 3), high = Math.max(h, 3);
  ctx.strokeStyle = colour;
  ctx.lineWidth = width;
  ctx.strokeRect(x - 0.5 - (wide - w) / 2, y - 0.5 - (high - h) / 2, wide, high);
}

/** @param {CanvasRenderingContext2D} ctx @param {MapView} view @param {Box} box @param {Cell} picked */
export function drawCrosshair(ctx, view, box, { i, j }) {
  const { r0, r1, c0, c1 } = view.window;
  const inRow = i >= r0 && i < r1, inCol = j >= c0 && j < c1;
  const y = box.y + (i - r0) * box.ch, x = box.x + (j - c0) * box.cw;
  if (inCol) outline(ctx, x, box.y, box.cw, box.h, 1, view.theme.secondary);
  if (inRow) outline(ctx, box.x - 1, y, box.w + 2, box.ch, 1.75, view.theme.pick);
  if (inRow && inCol && box.cw >= 5) outline(ctx, x, y, box.cw, box.ch, 2.5, view.theme.pick);
}

/** A dot in a pinned cell that is in sight. @param {CanvasRenderingContext2D} ctx @param {MapView} view @param {Box} box @param {Cell} pin */
export function drawPin(ctx, view, box, { i, j }) {
  const { r0, r1, c0, c1 } = view.window;
  if (i < r0 || i >= r1 || j < c0 || j >= c1) return;
  const k = 3 * shade(view.current.values[i * view.current.cols + j], ...view.range);
  const [r, g, b] = view.theme.table.subarray(k, k + 3);
  ctx.fillStyle = 0.3 * r + 0.59 * g + 0.11 * b > 140 ? view.theme.ink : "#FFFFFF";
  ctx.beginPath();
  const size = clamp(Math.min(box.cw, box.ch) / 6, 2, 3.5);
  // in the corner of a cell that has room for its number
  const aside = Math.min(box.cw, box.ch) >= 20;
  const x = colMiddle(box, view, j) - box.gap / 2 + (aside ? box.cw / 2 - 2 * size : 0);
  const y = rowMiddle(box, view, i) - box.gap / 2 - (aside ? box.ch / 2 - 2 * size : 0);
  ctx.arc(x, y, size, 0, 2 * Math.PI);
  ctx.fill();
}

/** The cell under a point, or null. @param {MapView} view @param {Box | null} box @returns {Cell | null} */
export function cellAt(view, box, x, y) {
  if (!box || x < box.x || y < box.y || x >= box.x + box.w || y >= box.y + box.h) return null;
  return {
    i: view.window.r0 + Math.min(box.rows - 1, Math.floor((y - box.y) / box.ch)),
    j: view.window.c0 + Math.min(box.cols - 1, Math.floor((x - box.x) / box.cw)),
  };
}
