// A drag over a map picks the rows and columns that are drawn.

/** @import { Box, Drag, MapView, Point, Pointed, Span, Theme } from "./types" */
import { zoomOf } from "./dom.js";
import { clamp } from "./layout.js";
import { cellAt } from "./map.js";

const DRAG_FROM = 5; // px before a press becomes a drag

/** @returns {Span} all rows and columns */
export const whole = ({ queries, keys }) => ({ r0: 0, r1: queries.length, c0: 0, c1: keys.length });

export function isZoomed(view) {
  const { r0, r1, c0, c1 } = view.window, all = whole(view);
  return r0 > 0 || c0 > 0 || r1 < all.r1 || c1 < all.c1;
}

/** @param {HTMLElement} canvas @param {PointerEvent | MouseEvent | Touch} event @returns {Point} */
export function pointIn(canvas, event) {
  const { left, top } = canvas.getBoundingClientRect();
  const zoom = zoomOf(canvas);
  return { x: (event.clientX - left) / zoom, y: (event.clientY - top) / zoom };
}

/** Follow the pointer of a pressed view. @param {Pointed} view @param {Point} point */
export function dragTo(view, { x, y }) {
  const { press } = view;
  if (!view.drag && Math.hypot(x - press.x, y - press.y) <= DRAG_FROM) return;
  view.drag = { x0: press.x, y0: press.y, x1: x, y1: y };
}

/** End a press; the drag that it was, or null. The click that follows a drag pins nothing. @param {Pointed} view */
export function endDrag(view) {
  const { drag } = view;
  view.press = view.drag = null;
  view.dragged = Boolean(drag);
  setTimeout(() => (view.dragged = false), 0);
  return drag ?? null;
}

/** What lies under a drag, or null when it is less than two rows or columns. @param {MapView} view @param {Box} box @param {Drag} drag */
export function spanUnder(view, box, { x0, y0, x1, y1 }) {
  const inX = (x) => clamp(x, box.x, box.x + box.w - 0.01), inY = (y) => clamp(y, box.y, box.y + box.h - 0.01);
  const a = cellAt(view, box, inX(Math.min(x0, x1)), inY(Math.min(y0, y1)));
  const b = cellAt(view, box, inX(Math.max(x0, x1)), inY(Math.max(y0, y1)));
  return b.i > a.i && b.j > a.j ? { r0: a.i, r1: b.i + 1, c0: a.j, c1: b.j + 1 } : null;
}

/** @param {CanvasRenderingContext2D} ctx @param {Theme} theme @param {Drag} drag */
export function outlineDrag(ctx, theme, { x0, y0, x1, y1 }) {
  ctx.setLineDash([4, 3]);
  ctx.strokeStyle = theme.text;
  ctx.lineWidth = 1;
  ctx.strokeRect(Math.min(x0, x1), Math.min(y0, y1), Math.abs(x1 - x0), Math.abs(y1 - y0));
  ctx.setLineDash([]);
}
