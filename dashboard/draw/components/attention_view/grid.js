// Layers × heads: every head as a thumbnail, roles as corners, a ring around the picked one.

/** @import { AttentionView, GridBox } from "./types" */
import { fromBase64 } from "../lib/bytes.js";
import { pixels } from "../lib/dom.js";
import { clamp, write } from "../lib/layout.js";
import { outline } from "../lib/map.js";
import { hatch, lookup } from "../lib/theme.js";
import { layerNumber } from "./texts.js";

const CORNER = 9.5;

export function decodeGrid(grid) {
  const bytes = fromBase64(grid.bytes);
  let at = 0;
  return grid.shapes.map(([heads, rows, cols], k) => ({
    layer: grid.layers[k], rows, cols,
    heads: Array.from({ length: heads }, () => bytes.subarray(at, (at += rows * cols))),
  }));
}

/** @param {AttentionView} view @param {number} growth of a wide window @returns {GridBox} */
export function layoutGrid(view, width, growth = 1) {
  const heads = Math.max(...view.grid.map((one) => one.heads.length));
  const narrow = width < 400;
  const gutter = narrow ? 20 : 34, gap = 4, top = 20;
  const size = clamp(Math.floor((width - gutter - 2 - gap * (heads - 1)) / heads), 12, Math.floor(view.thumb * growth ** 2));
  const wide = size + (size >= 30 ? 5 : gap);
  const pitch = wide > (width - gutter) / heads ? size + gap : wide;
  // Where thumbnails are small the rows stand apart, so that a finger finds one.
  const rowPitch = narrow ? Math.max(pitch, 36) : pitch;
  const right = Math.max(220, gutter + heads * pitch);
  const height = top + rowPitch * view.grid.length + 4;
  return { right: Math.min(width, right), gutter, top, size, pitch, rowPitch, heads, narrow, height, width };
}

// Bytes 0 to 254 as an index into 256 colours; where 255 is masked, the hatch below shows.
const thumbShade = (byte) => (byte === 255 ? -1 : Math.round((byte * 255) / 254));

const thumbX = (box, head) => box.gutter + head * box.pitch;
const thumbY = (box, row) => box.top + row * box.rowPitch;

/** @param {CanvasRenderingContext2D} ctx @param {AttentionView} view @param {GridBox} box */
export function drawGrid(ctx, view, box) {
  ctx.imageSmoothingEnabled = false;
  const signed = lookup(view.theme.signed);
  view.grid.forEach((one, row) => {
    const table = view.gridInfo.ends?.[row]?.[0] < 0 ? signed : view.theme.table;
    one.heads.forEach((bytes, head) => {
      const x = thumbX(box, head), y = thumbY(box, row);
      if (view.gridMasked) hatch(ctx, view.theme, x, y, box.size, box.size);
      ctx.drawImage(pixels(one.cols, one.rows, table, (k) => thumbShade(bytes[k])), x, y, box.size, box.size);
      outline(ctx, x, y, box.size + 1, box.size + 1, 1, view.theme.hairline);
    });
  });
  for (const [layer, head, category] of view.roles) {
    const row = view.grid.findIndex((one) => one.layer === layer);
    if (row >= 0) corner(ctx, view, thumbX(box, head) + box.size, thumbY(box, row) + box.size, category);
  }
}

function corner(ctx, view, x, y, category) {
  ctx.fillStyle = view.theme.categories[category % view.theme.categories.length];
  ctx.beginPath();
  ctx.moveTo(x, y);
  ctx.lineTo(x - CORNER, y);
  ctx.lineTo(x, y - CORNER);
  ctx.fill();
}

/** @param {CanvasRenderingContext2D} ctx @param {AttentionView} view @param {GridBox} box */
export function drawGridOver(ctx, view, box) {
  const theme = view.theme;
  ctx.textBaseline = "middle";
  const number = (text, x, y, active, align) => {
    ctx.textAlign = align;
    write(ctx, theme, text, x, y, { size: 12, ...(active ? { weight: 600, colour: theme.pick } : {}) });
  };
  if (!box.narrow) number("head", 0, 9, false, "left");
  for (let head = 0; head < box.heads; head++) {
    number(String(head), thumbX(box, head) + box.size / 2, 9, head === view.head, "center");
  }
  view.grid.forEach((one, row) => {
    number(String(layerNumber(view, one.layer)), box.gutter - 10, thumbY(box, row) + box.size / 2, one.layer === view.layer, "right");
  });
  const at = view.hoverHead;
  if (at) ring(ctx, box, at.row, at.head, 1.5, theme.secondary);
  const row = view.grid.findIndex((one) => one.layer === view.layer);
  if (row >= 0) ring(ctx, box, row, view.head, 2.25, theme.pick);
}

function ring(ctx, box, row, head, width, colour) {
  ctx.strokeStyle = colour;
  ctx.lineWidth = width;
  ctx.beginPath();
  ctx.roundRect(thumbX(box, head) - 2, thumbY(box, row) - 2, box.size + 4, box.size + 4, 2);
  ctx.stroke();
}

/** The head under a point, or null. @param {AttentionView} view @param {GridBox} box */
export function headAt(view, box, x, y) {
  const head = Math.floor((x - box.gutter) / box.pitch), row = Math.floor((y - box.top) / box.rowPitch);
  const one = view.grid[row];
  return x < box.gutter || y < box.top || !one || head >= one.heads.length ? null : { row, layer: one.layer, head };
}
