// Pointer and keys. Hover, zoom and play stay here; only a pick, a pin and a released frame go to Python.

import { cellAt } from "../lib/map.js";
import { spoken } from "../lib/reading.js";
import { cellOf, ownPair } from "../lib/tokens.js";
import { drawAll, drawOver } from "./draw.js";
import { headAt } from "./grid.js";
import { lineAt } from "./lines.js";
import { patchAt } from "./patches.js";
import { MOST_PINS } from "./pins.js";
import { send, setCurrent } from "./state.js";
import { zoomTo } from "./zoom.js";

const DRAG_FROM = 5; // px before a press becomes a zoom
export const CROSS = "attention-view:cross";

export function pickHead(view, layer, head) {
  const here = view.layout === "grid" || (layer === view.layer && view.one?.heads.includes(head));
  if (here) {
    view.layer = layer;
    view.head = head;
    if (view.layout === "one") setCurrent(view);
    drawAll(view);
  }
  clearTimeout(view.picking);
  view.picking = setTimeout(() => send(view, "pick", [layer, head]), view.layout === "grid" ? 0 : 200);
}

export function setHover(view, hover, keyboard = false, tell = true) {
  view.hover = hover;
  view.keyboard = keyboard;
  if (tell) {
    const detail = hover && { i: hover.i, j: hover.j, tokens: view.tokens, from: view };
    window.dispatchEvent(new CustomEvent(CROSS, { detail: detail ?? { tokens: view.tokens, from: view } }));
  }
  cancelAnimationFrame(view.waiting);
  view.waiting = requestAnimationFrame(() => drawOver(view));
  if (hover && tell) {
    clearTimeout(view.speaking);
    // A moving pointer would flood the live region; keys are read at once.
    view.speaking = setTimeout(() => (view.dom.live.textContent = spoken(view, hover.i, hover.j)), keyboard ? 0 : 150);
  }
}

// Another view of the same tokens moved its crosshair: follow it, without a tooltip.
export function onCross(view, event) {
  const { from, tokens, i, j } = event.detail;
  if (from === view || view.layout === "grid" || tokens !== view.tokens) return;
  view.point = null;
  setHover(view, i == null ? null : { i, j }, false, false);
}

function pointOf(view, event) {
  const box = view.dom.over.getBoundingClientRect();
  return { x: event.clientX - box.left, y: event.clientY - box.top };
}

// The query and the key under a point of the map, the lines or the picture, or null.
const pairAt = (view, x, y) =>
  cellAt(view, view.box.map, x, y) ?? lineAt(view, view.box.lines, x, y) ?? patchAt(view, view.box.picture, x, y);

export function onMove(view, event) {
  const { x, y } = pointOf(view, event);
  if (view.layout === "grid") {
    view.hoverHead = headAt(view, view.box, x, y);
    view.dom.over.style.cursor = view.hoverHead ? "pointer" : "default";
    drawOver(view);
    return;
  }
  view.point = { x, y };
  if (view.press && event.pointerType !== "touch" && Math.hypot(x - view.press.x, y - view.press.y) > DRAG_FROM) {
    view.drag = { x0: view.press.x, y0: view.press.y, x1: x, y1: y };
  }
  setHover(view, pairAt(view, x, y));
}

export function onLeave(view) {
  if (view.press) return;
  view.hoverHead = null;
  view.point = null;
  if (view.layout === "grid") drawOver(view);
  else setHover(view, null);
}

export function onDown(view, event) {
  if (event.button > 0) return;
  const point = pointOf(view, event);
  view.touch = event.pointerType === "touch";
  if (view.layout !== "grid" && cellAt(view, view.box.map, point.x, point.y)) {
    view.press = point;
    if (!view.touch) view.dom.over.setPointerCapture(event.pointerId);
  }
}

export function onUp(view) {
  const drag = view.drag;
  view.press = view.drag = null;
  if (drag) {
    zoomTo(view, drag);
    view.zoomed = true; // the click that follows a drag pins nothing
    setTimeout(() => (view.zoomed = false), 0);
  }
}

export function onClick(view, event) {
  if (view.zoomed) return;
  const { x, y } = pointOf(view, event);
  if (view.layout === "grid") {
    const at = headAt(view, view.box, x, y);
    if (at) pickHead(view, at.layer, at.head);
    return;
  }
  const at = pairAt(view, x, y);
  if (view.touch) view.point = { x, y };
  if (at) setHover(view, at);
  togglePin(view, at);
}

export function setPins(view, pins) {
  view.pins = pins;
  send(view, view.several ? "pins" : "pin", view.several ? pins : (pins[0] ?? null));
  drawOver(view);
}

// A click pins, a second click releases; where only one may be pinned, the new one takes its place.
export function togglePin(view, at) {
  if (!at || at.j < 0) return;
  const same = ({ i, j }) => i === at.i && j === at.j;
  const kept = view.pins.filter(([i, j]) => !same({ i: cellOf(view, "rows", i), j: cellOf(view, "cols", j) }));
  if (kept.length < view.pins.length) return setPins(view, view.several ? kept : []);
  setPins(view, [...(view.several ? kept.slice(1 - MOST_PINS) : []), ownPair(view, at)]);
}
