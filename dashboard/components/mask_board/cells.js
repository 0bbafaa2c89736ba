// Cells as text and back, as core.masks.Drawing writes them; and how the board is drawn.

import { sized } from "../lib/dom.js";
import { GUTTER, cells, clamp, closeTicks, widest } from "../lib/layout.js";
import { drawColNames, drawCross, drawMatrix, drawRowNames } from "../lib/map.js";
import { fontOf } from "../lib/theme.js";

const INK = 0.55; // where on the weights' scale a cell that may be seen lies
const TALLEST = 420; // px

// "3x3:4.6.7" → rows of 0 and 1.
export function readCells(text) {
  const [size, body] = text.split(":");
  const cols = Number(size.split("x")[1]);
  return body.split(".").map((row) => {
    const bits = [...row].map((digit) => parseInt(digit, 16).toString(2).padStart(4, "0")).join("");
    return Uint8Array.from(bits.slice(bits.length - cols), Number);
  });
}

export function writeCells(drawing) {
  const cols = drawing[0].length, digits = Math.ceil(cols / 4);
  const rows = drawing.map((row) => {
    const bits = [...row].join("").padStart(4 * digits, "0");
    return bits.match(/.{4}/g).map((four) => parseInt(four, 2).toString(16)).join("");
  });
  return `${drawing.length}x${cols}:${rows.join(".")}`;
}

// The board as a view that matrix.js can draw.
export function asView(board) {
  const size = board.cells.length, count = size * size;
  const mask = new Uint8Array(count);
  board.cells.forEach((row, i) => mask.set(row, i * size));
  const current = { rows: size, cols: size, values: new Float32Array(count).fill(INK), mask };
  return { current, range: [0, 1], window: { r0: 0, r1: size, c0: 0, c1: size }, pool: "mean", queries: board.names,
    keys: board.names, theme: board.theme, ratio: board.ratio, width: board.width };
}

function boxOf(board, ctx) {
  const size = board.cells.length;
  ctx.font = fontOf(board.theme, 13, 600);
  const wide = Math.ceil(widest(ctx, board.names));
  const gutter = clamp(wide, GUTTER.low, GUTTER.high) + GUTTER.pad;
  const [cw, ch] = cells(board.width - gutter - 4, TALLEST, size, size, board.ratio);
  const ticks = closeTicks(cw, ch);
  const top = ticks.words ? clamp(wide, 20, GUTTER.high) + 10 : 22;
  return { x: gutter, y: top, cw, ch, rows: size, cols: size, gutter, top, flat: false, w: cw * size, h: ch * size,
    ...ticks, gap: cw >= 8 ? 1 : 0 };
}

export function drawBoard(board) {
  board.width = board.dom.root.clientWidth;
  if (!board.width) return;
  board.ratio = window.devicePixelRatio || 1;
  const measure = document.createElement("canvas").getContext("2d");
  board.box = boxOf(board, measure);
  const width = board.box.x + board.box.w + 4, height = board.box.y + board.box.h + 4;
  const view = asView(board);
  drawMatrix(sized(board.dom.base, width, height, board.ratio), view, board.box);
  const over = sized(board.dom.over, width, height, board.ratio);
  const at = board.at ?? (board.query != null ? { i: board.query, j: -1 } : null);
  drawRowNames(over, view, board.box, at);
  drawColNames(over, view, board.box, at);
  if (at) drawCross(over, view, board.box, at);
  board.dom.heading.style.paddingLeft = `${board.box.x}px`;
  board.dom.foot.style.paddingLeft = `${board.box.x}px`;
  tellTests(board);
}

// What a test reads instead of pixels.
function tellTests(board) {
  const { dataset } = board.dom.root;
  dataset.cells = writeCells(board.cells);
  dataset.map = [board.box.x, board.box.y, board.box.cw, board.box.ch].join(",");
  dataset.at = board.at ? `${board.at.i},${board.at.j}` : "";
  dataset.theme = board.theme.dark ? "dark" : "light";
}
