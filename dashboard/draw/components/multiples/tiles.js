// Where each map stands, and how it is drawn: every tile is a small view that map.js can draw.

/** @import { Board, Cell, Tile } from "./types" */
import { unpack, unpackBits } from "../lib/bytes.js";
import { growthOf, resized, zoomOf } from "../lib/dom.js";
import { CLOSE_NAMES_FROM, NAMES_FROM, NARROW, closeBox, gutterOf } from "../lib/layout.js";
import { drawColNames, drawCrosshair, drawMap, drawPin, drawRowNames } from "../lib/map.js";
import { MINUS } from "../lib/numbers.js";
import { outlineDrag } from "../lib/zoom.js";

export const BETWEEN = 7; // px between maps, beside the edges that the outlines need
export const EDGE = 3; // px that the row's outline stands out of a map
const LEAST_MAP = 120; // px: below this a map of a row of four says nothing
const HEIGHT = 420; // px a map, at most
const WIDE = 1080; // px from which more than eight maps are up to six in a row, else five

/** @param {Board} board @returns {Tile} */
export function tileOf(board, { name, note, marker, rows, cols, values, mask, low, high, signed }) {
  const current = { rows, cols, values: unpack(values), mask: unpackBits(mask, rows * cols)?.[0] ?? null };
  return makeTile(board, { name, note, marker, current, range: [low, high], signed });
}

/** One map minus another. @param {Board} board @param {Tile} a @param {Tile} b @param {number} end of its scale */
export function differenceOf(board, a, b, end) {
  const first = a.current, second = b.current;
  const values = first.values.map((value, at) => value - second.values[at]);
  const mask = first.mask && second.mask ? first.mask.map((allowed, at) => allowed | second.mask[at]) : null;
  const current = { ...first, values, mask };
  const name = `${a.name} ${MINUS} ${b.name}`;
  return makeTile(board, { name, note: "", marker: -1, current, range: [-end, end], signed: true, operands: [a, b] });
}

function makeTile(board, own) {
  const { queries, keys, reads, absent, window, signedTheme, theme } = board;
  return { ...own, queries, keys, reads, absent, window, theme: own.signed ? signedTheme : theme, pool: "mean", numbers: true };
}

/** How many maps stand in a row, how wide each is. @param {Board} board */
export function arrange(board) {
  const count = board.alone ? 1 : board.tiles.length;
  const gutter = gutterOfBoard(board);
  const fitting = Math.max(1, Math.floor((board.width - gutter + BETWEEN) / (LEAST_MAP + BETWEEN)));
  const most = count <= 8 ? 4 : board.width > WIDE ? 6 : 5;
  const even = count <= 4 ? count : Math.ceil(count / Math.ceil(count / most)); // rows of nearly as many maps
  const across = isPhone(board) ? 1 : Math.min(even, fitting);
  // A container may be a fraction of a pixel narrower than it says, and the last map would wrap.
  const room = Math.floor((board.width - 1 - gutter - BETWEEN * (across - 1)) / across);
  return { across, gutter, room };
}

/** @param {Board} board */
const gutterOfBoard = ({ measure, theme, queries }) => gutterOf(measure, theme, queries);

/** Whether one map is shown at a time: two stand side by side while every second name has room, more while every name
 * has. @param {Board} board */
export function isPhone(board) {
  const { width, tiles, alone, window } = board;
  const half = (width - 1 - gutterOfBoard(board) - BETWEEN) / 2 - 2 * EDGE;
  return tiles.length > 1 && !alone && width < Math.min(NARROW, 210 * tiles.length)
    && (tiles.length > 4 || half < (tiles.length > 2 ? NAMES_FROM : CLOSE_NAMES_FROM) * (window.c1 - window.c0));
}

/** The box of one tile; `lead` is the gutter's width where the tile has one, 0 elsewhere. @param {Board} board @param {Tile} tile */
export function placeTile(board, tile, room, lead) {
  tile.ratio = board.ratio;
  const x = lead || EDGE, cap = board.height ?? HEIGHT;
  const { root } = board, [zoom, growth] = [zoomOf(root), growthOf(root)];
  const box = closeBox(board.measure, tile, { x, gutter: lead, room: room - 2 * EDGE, cap, cell: board.cell, beside: board.beside, zoom, growth });
  tile.box = box;
  tile.named = lead > 0;
  tile.width = box.x + box.w + EDGE;
  tile.canvas = { width: tile.width, height: box.y + box.h + EDGE };
}

/** @param {Board} board @param {Tile} tile */
export function drawTile({ dimmed }, tile) {
  const { box } = tile, { c0, c1 } = tile.window, ctx = resized(tile.dom.base, tile.canvas.width, tile.canvas.height, tile.ratio);
  drawMap(ctx, tile, box);
  ctx.fillStyle = tile.theme.ground;
  ctx.globalAlpha = 0.75;
  for (const column of dimmed ?? []) if (column >= c0 && column < c1) ctx.fillRect(box.x + (column - c0) * box.cw, box.y, box.cw, box.h);
  ctx.globalAlpha = 1;
}

/** @param {Board} board @param {Tile} tile @param {Cell | null} picked */
export function drawTileOver(board, tile, picked) {
  const ctx = resized(tile.dom.over, tile.canvas.width, tile.canvas.height, tile.ratio);
  if (tile.named) drawRowNames(ctx, tile, tile.box, picked);
  drawColNames(ctx, tile, tile.box, picked);
  if (picked) drawCrosshair(ctx, tile, tile.box, picked);
  if (board.pin) drawPin(ctx, tile, tile.box, { i: board.pin[0], j: board.pin[1] });
  if (board.drag && board.over === tile) outlineDrag(ctx, board.theme, board.drag);
}
