// A drag over any map zooms all of them to the same rows and columns; Esc, a double click or the tool undoes it.

import { clamp } from "../lib/layout.js";
import { cellAt } from "../lib/map.js";
import { drawAll, drawOver } from "./draw.js";

export const ZOOM = "multiples:zoom";
const DRAG_FROM = 5; // px before a press becomes a zoom

export function setWindow(board, cells, tell = true) {
  board.window = cells;
  board.dom.root.dataset.window = Object.values(cells).join(",");
  for (const tile of board.shown) tile.window = cells;
  drawAll(board);
  if (tell) window.dispatchEvent(new CustomEvent(ZOOM, { detail: { from: board, tokens: board.tokens, cells } }));
}

// A board of the same tokens was zoomed, so that a difference elsewhere shows the same cells as its maps.
export function onZoom(board, { detail: { from, tokens, cells } }) {
  if (from !== board && tokens === board.tokens) setWindow(board, cells, false);
}

export function pointIn(tile, event) {
  const own = tile.dom.over.getBoundingClientRect();
  return { x: event.clientX - own.left, y: event.clientY - own.top };
}

export function onDown(board, tile, event) {
  board.touch = event.pointerType === "touch";
  const at = pointIn(tile, event);
  if (event.button > 0 || board.touch || !cellAt(tile, tile.box, at.x, at.y)) return;
  board.press = { tile, ...at };
  tile.dom.over.setPointerCapture(event.pointerId);
}

export function dragged(board, tile, event) {
  if (board.press?.tile !== tile) return;
  const at = pointIn(tile, event);
  if (board.drag || Math.hypot(at.x - board.press.x, at.y - board.press.y) > DRAG_FROM) {
    board.drag = { tile, x0: board.press.x, y0: board.press.y, x1: at.x, y1: at.y };
  }
}

export function onUp(board) {
  const { drag } = board;
  board.press = board.drag = null;
  if (!drag) return;
  const { box } = drag.tile;
  const inX = (x) => clamp(x, box.x, box.x + box.w - 0.01), inY = (y) => clamp(y, box.y, box.y + box.h - 0.01);
  const a = cellAt(drag.tile, box, inX(Math.min(drag.x0, drag.x1)), inY(Math.min(drag.y0, drag.y1)));
  const b = cellAt(drag.tile, box, inX(Math.max(drag.x0, drag.x1)), inY(Math.max(drag.y0, drag.y1)));
  board.zoomed = true; // the click that follows a drag pins nothing
  setTimeout(() => (board.zoomed = false), 0);
  if (a && b && b.i - a.i >= 1 && b.j - a.j >= 1) setWindow(board, { r0: a.i, r1: b.i + 1, c0: a.j, c1: b.j + 1 });
  else drawOver(board);
}
