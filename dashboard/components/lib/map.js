// The map itself: cells on the base canvas; names, ticks, crosshair and pin on the canvas over it.

import { GUTTER, clamp, fit } from "./layout.js";
import { cssShade, fontOf, hatch, shade } from "./theme.js";
import { ticks } from "./tokens.js";

// What is below the threshold is drawn as nothing, and still read as what it is.
export const drawn = (view, value) => (view.threshold && Math.abs(value) < view.threshold ? 0 : value);

// Mean (or largest) of the cells under each pixel, and NaN where all are masked.
function pooled(view, out) {
  const { r0, r1, c0, c1 } = view.window;
  const { values, mask, cols } = view.current;
  const result = new Float32Array(out.rows * out.cols);
  const largest = view.pool === "max";
  for (let y = 0; y < out.rows; y++) {
    const from = r0 + Math.floor((y * (r1 - r0)) / out.rows);
    const to = Math.max(from + 1, r0 + Math.floor(((y + 1) * (r1 - r0)) / out.rows));
    for (let x = 0; x < out.cols; x++) {
      const left = c0 + Math.floor((x * (c1 - c0)) / out.cols);
      const right = Math.max(left + 1, c0 + Math.floor(((x + 1) * (c1 - c0)) / out.cols));
      let sum = 0, count = 0, most = -Infinity;
      for (let i = from; i < to; i++) {
        for (let j = left; j < right; j++) {
          if (mask && !mask[i * cols + j]) continue;
          const value = drawn(view, values[i * cols + j]);
          sum += value;
          count++;
          if (value > most) most = value;
        }
      }
      result[y * out.cols + x] = count ? (largest ? most : sum / count) : NaN;
    }
  }
  return result;
}

// A small canvas, one pixel a cell; masked cells stay clear so that the hatch below shows.
export function toImage(values, cols, rows, view) {
  const canvas = document.createElement("canvas");
  canvas.width = cols;
  canvas.height = rows;
  const ctx = canvas.getContext("2d");
  const image = ctx.createImageData(cols, rows);
  const [low, high] = view.range;
  const table = view.theme.table;
  for (let at = 0; at < values.length; at++) {
    if (Number.isNaN(values[at])) continue;
    const k = 3 * shade(values[at], low, high);
    image.data[4 * at] = table[k];
    image.data[4 * at + 1] = table[k + 1];
    image.data[4 * at + 2] = table[k + 2];
    image.data[4 * at + 3] = 255;
  }
  ctx.putImageData(image, 0, 0);
  return canvas;
}

export function drawMatrix(ctx, view, box) {
  const { r0, c0 } = view.window;
  const { values, mask, cols } = view.current;
  if (mask) hatch(ctx, view.theme, box.x, box.y, box.w, box.h);
  if (box.gap) {
    const [low, high] = view.range;
    for (let i = 0; i < box.rows; i++) {
      for (let j = 0; j < box.cols; j++) {
        const at = (r0 + i) * cols + c0 + j;
        if (mask && !mask[at]) continue;
        ctx.fillStyle = cssShade(view.theme, shade(drawn(view, values[at]), low, high));
        ctx.fillRect(box.x + j * box.cw, box.y + i * box.ch, box.cw - 1, box.ch - 1);
      }
    }
    return;
  }
  const out = {
    cols: box.cw < 1 ? Math.max(1, Math.round(box.w)) : box.cols,
    rows: box.ch < 1 ? Math.max(1, Math.round(box.h)) : box.rows,
  };
  ctx.imageSmoothingEnabled = false;
  ctx.drawImage(toImage(pooled(view, out), out.cols, out.rows, view), box.x, box.y, box.w, box.h);
  ctx.strokeStyle = view.theme.hairline;
  ctx.strokeRect(box.x - 0.5, box.y - 0.5, box.w + 1, box.h + 1);
}

const rowMiddle = (box, view, i) => box.y + (i - view.window.r0 + 0.5) * box.ch;
const colMiddle = (box, view, j) => box.x + (j - view.window.c0 + 0.5) * box.cw;

// Where names are closer than they are high, every second token has its own.
const skipped = (box, step, at) => !step && at % (box.every ?? 1) > 0;

export function drawRowNames(ctx, view, box, picked) {
  const theme = view.theme, { r0, r1 } = view.window;
  ctx.textAlign = "right";
  ctx.textBaseline = "middle";
  const active = picked && picked.i >= r0 && picked.i < r1 ? picked.i : -1;
  const step = box.rowStep;
  const right = box.x - GUTTER.pad;
  for (const { at, text } of ticks(view, "rows", view.queries, r0, r1, step)) {
    if (at === active || skipped(box, step, at)) continue;
    // Neighbours of the named row give way, unless every row has its name anyway.
    if ((step || box.every > 1) && active >= 0 && Math.abs(rowMiddle(box, view, at) - rowMiddle(box, view, active)) < 13) continue;
    const y = rowMiddle(box, view, at);
    ctx.font = fontOf(theme, step ? 12 : 13);
    ctx.fillStyle = theme.secondary;
    ctx.fillText(fit(ctx, text, GUTTER.high), right, y);
    if (step) tickMark(ctx, theme, box.x - 6, y, 5, 0);
  }
  if (active >= 0) {
    ctx.font = fontOf(theme, 13, 600);
    ctx.fillStyle = theme.pick;
    ctx.fillText(fit(ctx, view.queries[active], box.gutter - GUTTER.pad + 2), right, rowMiddle(box, view, active));
  }
}

function tickMark(ctx, theme, x, y, dx, dy) {
  ctx.fillStyle = theme.secondary;
  ctx.fillRect(Math.round(x), Math.round(y), dx || 1, dy || 1);
}

export function drawColNames(ctx, view, box, picked) {
  const theme = view.theme, { c0, c1 } = view.window;
  const active = picked && picked.j >= c0 && picked.j < c1 ? picked.j : -1;
  const step = box.colStep;
  const base = box.y - GUTTER.pad;
  const turned = !step && !box.flat;
  ctx.textBaseline = "middle";
  let room = 13;
  if (step && active >= 0) {
    ctx.font = fontOf(theme, 13, 600);
    room = ctx.measureText(view.keys[active]).width / 2 + 13;
  }
  for (const { at, text } of ticks(view, "cols", view.keys, c0, c1, step)) {
    if (at === active || skipped(box, step, at)) continue;
    const x = colMiddle(box, view, at);
    if (step) tickMark(ctx, theme, x, box.y - 6, 0, 5);
    if ((step || box.every > 1) && active >= 0 && Math.abs(x - colMiddle(box, view, active)) < room) continue;
    ctx.font = fontOf(theme, step ? 12 : 13);
    ctx.fillStyle = theme.secondary;
    colName(ctx, text, x, step ? box.y - 14 : base, turned);
  }
  if (active >= 0) {
    ctx.font = fontOf(theme, 13, 600);
    ctx.fillStyle = theme.text;
    const half = turned ? 0 : ctx.measureText(view.keys[active]).width / 2;
    const x = clamp(colMiddle(box, view, active), half, Math.max(half, view.width - half));
    colName(ctx, view.keys[active], x, step ? box.y - 14 : base, turned);
  }
}

function colName(ctx, text, x, y, turned) {
  if (!turned) {
    ctx.textAlign = "center";
    ctx.fillText(text, x, y);
    return;
  }
  ctx.save();
  ctx.translate(x, y + 2);
  ctx.rotate(-Math.PI / 2);
  ctx.textAlign = "left";
  ctx.fillText(fit(ctx, text, GUTTER.high), 0, 0);
  ctx.restore();
}

// A box of at least three pixels around the cells [from, to), inside the outlined edge.
export function outline(ctx, x, y, w, h, width, color) {
  const wide = Math.max(w, 3), high = Math.max(h, 3);
  ctx.strokeStyle = color;
  ctx.lineWidth = width;
  ctx.strokeRect(x - 0.5 - (wide - w) / 2, y - 0.5 - (high - h) / 2, wide, high);
}

export function drawCross(ctx, view, box, picked) {
  const { r0, r1, c0, c1 } = view.window;
  const inRow = picked.i >= r0 && picked.i < r1, inCol = picked.j >= c0 && picked.j < c1;
  const y = box.y + (picked.i - r0) * box.ch, x = box.x + (picked.j - c0) * box.cw;
  if (inCol) outline(ctx, x, box.y, box.cw, box.h, 1, view.theme.secondary);
  if (inRow) outline(ctx, box.x - 1, y, box.w + 2, box.ch, 1.75, view.theme.pick);
  if (inRow && inCol && box.cw >= 5) outline(ctx, x, y, box.cw, box.ch, 2.5, view.theme.pick);
}

// A dot in a pinned cell, where it is in sight.
export function drawPin(ctx, view, box, [i, j] = view.pin) {
  const { r0, r1, c0, c1 } = view.window;
  if (i < r0 || i >= r1 || j < c0 || j >= c1) return;
  const k = 3 * shade(view.current.values[i * view.current.cols + j], ...view.range);
  const { table } = view.theme;
  const luma = 0.3 * table[k] + 0.59 * table[k + 1] + 0.11 * table[k + 2];
  ctx.fillStyle = luma > 140 ? "#1B2330" : "#FFFFFF";
  ctx.beginPath();
  const size = clamp(Math.min(box.cw, box.ch) / 6, 2, 3.5);
  ctx.arc(colMiddle(box, view, j) - box.gap / 2, rowMiddle(box, view, i) - box.gap / 2, size, 0, 2 * Math.PI);
  ctx.fill();
}

// The cell under a point, or null.
export function cellAt(view, box, x, y) {
  if (!box || x < box.x || y < box.y || x >= box.x + box.w || y >= box.y + box.h) return null;
  return {
    i: view.window.r0 + Math.min(box.rows - 1, Math.floor((y - box.y) / box.ch)),
    j: view.window.c0 + Math.min(box.cols - 1, Math.floor((x - box.x) / box.cw)),
  };
}
