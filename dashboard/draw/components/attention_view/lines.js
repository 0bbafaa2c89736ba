// Queries on the left, keys on the right, a curve for each weight worth seeing.

/** @import { AttentionView, Cell, LinesBox } from "./types" */
import { GUTTER, NAMES_FROM, clamp, write } from "../lib/layout.js";
import { visibleValue } from "../lib/map.js";
import { number } from "../lib/numbers.js";
import { largestOf } from "../lib/reading.js";
import { colourAt, rgba, shade } from "../lib/theme.js";
import { ticks } from "../lib/tokens.js";
import { newestPin, otherRows, pickedCell } from "./state.js";

const LINE_FROM = 0.015;
const LINES_MOST = 800; // more curves than this are a blot, and slow
const lineY = (box, view, i) => box.y + (i - view.window.r0 + 0.5) * box.rowPitch;
const keyY = (box, view, j) => box.y + (j - view.window.c0 + 0.5) * box.keyPitch;

/** A weight's share of the full line: signed values are measured against the scale's end. @param {AttentionView} view */
function lineWeight(view, value) {
  const most = Math.max(Math.abs(view.range[0]), Math.abs(view.range[1]));
  return view.signed ? Math.min(1, Math.abs(value) / most) : Math.min(1, value);
}

/** The least share that is drawn. @param {AttentionView} view */
function lineFloor(view) {
  const { r0, r1, c0, c1 } = view.window;
  const least = Math.max(LINE_FROM, view.threshold ? lineWeight(view, view.threshold) : 0);
  const strong = [];
  for (let i = r0; i < r1; i++) {
    for (let j = c0; j < c1; j++) {
      const w = lineWeight(view, view.current.values[i * view.current.cols + j]);
      if (w >= least) strong.push(w);
    }
  }
  if (strong.length <= LINES_MOST) return least;
  return Float32Array.from(strong).sort()[strong.length - LINES_MOST];
}

// Where rows stand close, lines as broad as usual would be one blot.
const lineWidth = (box) => clamp(box.rowPitch / 8, 0.2, 1);

function curve(ctx, view, box, i, j, w, colour, fade, width = lineWidth(box)) {
  const y0 = lineY(box, view, i), y1 = keyY(box, view, j), middle = (box.from + box.to) / 2;
  ctx.strokeStyle = colour;
  ctx.globalAlpha = (0.35 + 0.65 * w) * fade;
  ctx.lineWidth = (0.8 + 6 * w) * width;
  ctx.beginPath();
  ctx.moveTo(box.from, y0);
  ctx.bezierCurveTo(middle, y0, middle, y1, box.to, y1);
  ctx.stroke();
}

/** @param {CanvasRenderingContext2D} ctx @param {AttentionView} view @param {LinesBox} box */
export function drawLines(ctx, view, box) {
  const { window: { r0, r1, c0, c1 }, current: { values, mask, cols } } = view;
  const floor = lineFloor(view), colour = rgba(view.theme.line, 1);
  ctx.lineCap = "round";
  for (let i = r0; i < r1; i++) {
    for (let j = c0; j < c1; j++) {
      const at = i * cols + j;
      if (mask && !mask[at]) continue;
      const w = lineWeight(view, values[at]);
      if (w >= floor) curve(ctx, view, box, i, j, w, lineColour(view, values[at], colour), 0.5);
    }
  }
  ctx.globalAlpha = 1;
  ctx.textBaseline = "middle";
  ctx.textAlign = "right";
  const y = box.y - 14;
  write(ctx, view.theme, "query", box.from - GUTTER.pad, y);
  ctx.textAlign = "left";
  ctx.fillText("key", box.names, y);
  if (floor > Math.max(LINE_FROM, view.threshold || 0)) {
    ctx.textAlign = "center";
    ctx.fillText(`strongest ${LINES_MOST} weights`, (box.from + box.to) / 2, y);
  }
}

export const lineColour = (view, value, colour) => (view.signed ? view.theme.stops[value < 0 ? 2 : 8] : colour);

/** Names, the picked row's curves and its weights. @param {AttentionView} view @param {LinesBox} box @param {Cell | null} picked */
export function drawLinesOver(ctx, view, box, picked) {
  const { theme, window: { r0, r1, c0, c1 }, current: { values, mask, cols } } = view;
  const active = picked && picked.i >= r0 && picked.i < r1 ? picked.i : -1;
  ctx.lineCap = "round";
  const others = otherRows(view, active);
  for (const i of active < 0 ? others : [...others, active]) {
    for (let j = c0; j < c1; j++) {
      const at = i * cols + j;
      if (mask && !mask[at]) continue;
      const w = lineWeight(view, visibleValue(view, values[at]));
      if (w >= LINE_FROM) curve(ctx, view, box, i, j, w, theme.pick, i === active ? 0.9 : 0.4, Math.max(0.6, lineWidth(box)));
    }
  }
  ctx.globalAlpha = 1;
  lineNames(ctx, view, box, "right", box.from - GUTTER.pad, view.queries, active, theme.pick);
  // A row picked without a key is read at its largest weight.
  const column = active < 0 ? -1 : picked.j >= 0 ? picked.j : largestOf(view, active);
  if (active >= 0) lineStrip(ctx, view, box, active);
  lineNames(ctx, view, box, "left", box.names, view.keys, column, theme.text);
  if (active >= 0) lineWeights(ctx, view, box, active, column);
}

function lineNames(ctx, view, box, side, x, names, active, colour) {
  const rows = side === "right";
  const [from, to] = rows ? [view.window.r0, view.window.r1] : [view.window.c0, view.window.c1];
  const step = rows ? box.rowStep : box.keyStep;
  const yOf = (k) => (rows ? lineY : keyY)(box, view, k);
  ctx.textAlign = side;
  ctx.textBaseline = "middle";
  for (const { at, text } of ticks(view, rows ? "rows" : "cols", names, from, to, step)) {
    if (at === active || (step && active >= 0 && Math.abs(yOf(at) - yOf(active)) < 13)) continue;
    write(ctx, view.theme, text, x, yOf(at), { size: step ? 12 : 13, room: GUTTER.high });
  }
  if (active < from || active >= to) return;
  write(ctx, view.theme, names[active], x, yOf(active), { weight: 600, colour, room: GUTTER.high });
}

function lineStrip(ctx, view, box, i) {
  const { window: { c0, c1 }, current: { values, mask, cols } } = view;
  const high = Math.max(1, Math.min(box.keyPitch - 6, 12));
  for (let j = c0; j < c1; j++) {
    const at = i * cols + j, y = keyY(box, view, j) - high / 2;
    if (mask && !mask[at]) continue;
    ctx.fillStyle = colourAt(view.theme.table, shade(values[at], ...view.range));
    ctx.fillRect(box.to + 3, y, 4, high);
  }
}

// Numbers of weights from 0.05 on (where rows are close, of the largest alone), and of the one under the pointer.
function lineWeights(ctx, view, box, i, column) {
  const { theme, current: { values, mask, cols } } = view, best = largestOf(view, i);
  ctx.textAlign = "right";
  write(ctx, theme, view.signed && !view.bySize ? "value" : "weight", box.weights, box.y - 14);
  for (let j = view.window.c0; j < view.window.c1; j++) {
    const at = i * cols + j;
    if (mask && !mask[at]) continue;
    const labelled = (box.keyPitch >= NAMES_FROM || j === best) && lineWeight(view, values[at]) >= 0.05;
    if (j !== column && !labelled) continue;
    if (j !== column && column >= 0 && Math.abs(keyY(box, view, j) - keyY(box, view, column)) < 13) continue;
    const look = j === column ? { weight: 600, colour: theme.pick } : {};
    write(ctx, theme, number(values[at]), box.weights, keyY(box, view, j), look);
  }
}

/** Left of the middle the pointer picks a query, right of it a key. @param {AttentionView} view @param {LinesBox} box */
export function lineAt(view, box, x, y) {
  if (!box || x < box.x || x > box.weights || y < box.y || y >= box.y + box.h) return null;
  const { r0, c0 } = view.window;
  const i = r0 + Math.min(box.rows - 1, Math.floor((y - box.y) / box.rowPitch));
  const j = c0 + Math.min(box.cols - 1, Math.floor((y - box.y) / box.keyPitch));
  const query = newestPin(view)?.i ?? view.hover?.i ?? pickedCell(view)?.i;
  if (x > (box.from + box.to) / 2 && query != null) return { i: query, j };
  return { i, j: largestOf(view, i) };
}
