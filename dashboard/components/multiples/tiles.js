// Where each map stands, and how it is drawn: every tile is a small view that matrix.js can draw.

import { sized } from "../lib/dom.js";
import { GUTTER, NARROW, cells, clamp, closeTicks, widest } from "../lib/layout.js";
import { drawColNames, drawCross, drawMatrix, drawPin, drawRowNames } from "../lib/map.js";
import { fontOf } from "../lib/theme.js";

const BETWEEN = 8; // px between maps, beside the edges that the outlines need
export const EDGE = 3; // px that the row's outline stands out of a map
const LEAST_MAP = 120; // px: below this a map of a row of four says nothing

function unpackNumbers({ type, low, step, bytes }) {
  const raw = fromBase64(bytes);
  if (type === "f4") return new Float32Array(raw.buffer, raw.byteOffset, raw.length / 4);
  return Float32Array.from(new Uint16Array(raw.buffer, raw.byteOffset, raw.length / 2), (k) => low + k * step);
}

function fromBase64(text) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let at = 0; at < raw.length; at++) bytes[at] = raw.charCodeAt(at);
  return bytes;
}

// One bit a cell, most significant first, as numpy packs them.
function unpackMask(mask, size) {
  if (!mask) return null;
  const raw = fromBase64(mask.bytes);
  return Uint8Array.from({ length: size }, (_, at) => (raw[at >> 3] >> (7 - (at & 7))) & 1);
}

export function tileOf(board, sent) {
  const size = sent.rows * sent.cols;
  const current = { rows: sent.rows, cols: sent.cols, values: unpackNumbers(sent.values), mask: unpackMask(sent.mask, size) };
  return small(board, sent, current, [sent.low, sent.high], sent.signed);
}

// One map minus another; a cell that neither may see stays hatched.
export function differenceOf(board, a, b, spread) {
  const first = a.current, second = b.current;
  const values = first.values.map((value, at) => value - second.values[at]);
  const both = first.mask && second.mask;
  const mask = both ? first.mask.map((allowed, at) => allowed | second.mask[at]) : null;
  const sent = { name: `${a.name} \u2212 ${b.name}`, note: "", marker: -1 };
  return { ...small(board, sent, { ...first, values, mask }, [-spread, spread], true), of: [a, b] };
}

function small(board, sent, current, range, signed) {
  return { name: sent.name, note: sent.note, marker: sent.marker, current, range, signed, window: board.window,
    pool: "mean", queries: board.queries, keys: board.keys, pin: null, absent: board.absent };
}

// How many maps stand in a row, how wide each is, and whether there is room for names.
export function arrange(board) {
  const shown = board.alone ? 1 : board.tiles.length;
  const narrow = board.width < NARROW;
  const gutter = gutterOf(board);
  const fits = Math.max(1, Math.floor((board.width - gutter + BETWEEN) / (LEAST_MAP + BETWEEN)));
  const wanted = narrow ? 2 : shown <= 4 ? shown : Math.ceil(shown / 2) <= 4 ? Math.ceil(shown / 2) : 4;
  const across = Math.max(1, Math.min(shown, wanted, narrow ? 2 : fits));
  const bare = narrow && shown > 1; // two by two on a phone: the crosshair's words stand under each map
  const lead = bare ? 0 : gutter;
  const between = bare ? 26 : BETWEEN;
  // A container may be a fraction of a pixel narrower than it says, and the last map would wrap.
  const room = Math.floor((board.width - 1 - lead - between * (across - 1)) / across);
  return { across, bare, lead, between, room };
}

export function gutterOf(board) {
  const ctx = board.measure;
  ctx.font = fontOf(board.theme, 13, 600);
  return clamp(Math.ceil(widest(ctx, board.queries)), GUTTER.low, GUTTER.high) + GUTTER.pad;
}

// The box of one tile; `lead` is the gutter's width where the tile has one, 0 elsewhere.
export function placeTile(board, tile, room, lead, bare) {
  const { r0, r1, c0, c1 } = tile.window;
  const rows = r1 - r0, cols = c1 - c0;
  const cap = board.height ?? 420;
  const [cw, ch] = cells(room - 2 * EDGE, cap, cols, rows, board.ratio);
  const ticks = closeTicks(cw, ch);
  const ctx = board.measure;
  ctx.font = fontOf(board.theme, 13, 600);
  const wide = Math.ceil(widest(ctx, board.keys.slice(c0, c1)));
  const top = bare ? EDGE : ticks.words ? clamp(wide, 20, GUTTER.high) + 10 : 22;
  tile.box = {
    x: lead + (lead ? 0 : EDGE), y: top, cw, ch, rows, cols, gutter: lead, top, flat: false,
    w: Math.max(1, Math.round(cw * cols * board.ratio) / board.ratio),
    h: Math.max(1, Math.round(ch * rows * board.ratio) / board.ratio),
    ...ticks,
    gap: Math.min(cw, ch) >= 8 ? 1 : 0,
  };
  tile.named = { rows: lead > 0, columns: !bare };
  tile.width = tile.box.x + tile.box.w + EDGE;
  tile.canvasHeight = tile.box.y + tile.box.h + EDGE;
}

export function drawTile(board, tile) {
  tile.theme = tile.signed ? board.signedTheme : board.theme;
  tile.ratio = board.ratio;
  const ctx = sized(tile.dom.base, tile.width, tile.canvasHeight, board.ratio);
  drawMatrix(ctx, tile, tile.box);
}

export function drawTileOver(board, tile, picked) {
  const ctx = sized(tile.dom.over, tile.width, tile.canvasHeight, board.ratio);
  tile.pin = board.pin;
  if (tile.named.rows) drawRowNames(ctx, tile, tile.box, picked);
  if (tile.named.columns) drawColNames(ctx, tile, tile.box, picked);
  if (picked) drawCross(ctx, tile, tile.box, picked);
  if (board.pin) drawPin(ctx, tile, tile.box);
  if (board.drag?.tile === tile) outlineDrag(ctx, board);
}

function outlineDrag(ctx, board) {
  const { x0, y0, x1, y1 } = board.drag;
  ctx.setLineDash([4, 3]);
  ctx.strokeStyle = board.theme.text;
  ctx.lineWidth = 1;
  ctx.strokeRect(Math.min(x0, x1), Math.min(y0, y1), Math.abs(x1 - x0), Math.abs(y1 - y0));
  ctx.setLineDash([]);
}
