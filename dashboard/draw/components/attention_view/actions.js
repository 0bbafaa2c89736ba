// Pointer and keys. Hover, zoom and play stay here; only a pick, a pin, a released frame and a pooled zoom go to Python.

/** @import { AttentionView, Cell, Head } from "./types" */
import { setHover } from "../lib/crosshair.js";
import { ARROWS, callAction, mapKey } from "../lib/keys.js";
import { clamp } from "../lib/layout.js";
import { cellAt } from "../lib/map.js";
import { send } from "../lib/mount.js";
import { ownPair, ownSpan } from "../lib/tokens.js";
import { dragTo, endDrag, isZoomed, pointIn, spanUnder, whole } from "../lib/zoom.js";
import { drawAll, drawOver } from "./draw.js";
import { headAt } from "./grid.js";
import { saveImage } from "./image.js";
import { lineAt } from "./lines.js";
import { patchAt } from "./patches.js";
import { otherPins, pickedCell, setCurrent } from "./state.js";
import { headText } from "./texts.js";

const MOST_PINS = 6; // more rows in the accent at once could not be told apart

/** @param {AttentionView} view @param {Head} head */
function pickHead(view, { layer, head }) {
  const here = view.layout === "grid" || (layer === view.layer && view.one?.heads.includes(head));
  if (here) {
    Object.assign(view, { layer, head });
    if (view.layout === "one") setCurrent(view);
    drawAll(view);
  }
  clearTimeout(view.picking);
  view.picking = setTimeout(() => send(view, "pick", { value: [layer, head] }), view.layout === "grid" ? 0 : 200);
}

/** @param {AttentionView} view */
function setPins(view, pins) {
  view.dom.live.textContent = pins.length < view.pins.length ? "Released" : `Pinned: ${view.dom.live.textContent}`;
  view.pins = pins;
  view.ahead = null; // a press is newer than a list
  send(view, view.several ? "pins" : "pin", { value: view.several ? pins : (pins[0] ?? null) });
  drawOver(view);
}

/** A click pins, a second one releases. @param {AttentionView} view @param {Cell | null} cell */
function togglePin(view, cell) {
  if (!cell || cell.j < 0) return;
  const others = otherPins(view, cell), several = view.several ? others : [];
  if (others.length < view.pins.length) setPins(view, several);
  else setPins(view, [...several.slice(1 - MOST_PINS), ownPair(view, cell)]);
}

/** A drag opens its part of the map: here what is exact already, through Python a pooled part. @param {AttentionView} view */
function zoomTo(view, drag) {
  const span = spanUnder(view, view.box.map, drag);
  if (!span) return drawOver(view);
  view.window = span;
  if (view.edges?.pooled) send(view, "window", { value: ownSpan(view, span) });
  drawAll(view);
}

/** Two fingers open a part of the map in the same way; closer together than a part that Python sent, the whole again. */
export function endPinch(view, closer) {
  if (isZoomed(view) && view.edges?.pooled) send(view, "window", { value: ownSpan(view, view.window) });
  else if (closer && !isZoomed(view)) resetZoom(view);
}

/** @param {AttentionView} view */
export function resetZoom(view) {
  if (view.layout === "grid" || !(view.part || isZoomed(view))) return;
  view.window = whole(view);
  if (view.part) send(view, "window", { value: null });
  drawAll(view);
}

/** The query and the key under a point of the map, the lines or the picture, or null. @param {AttentionView} view */
const pairAt = (view, { x, y }) =>
  cellAt(view, view.box.map, x, y) ?? lineAt(view, view.box.lines, x, y) ?? patchAt(view, view.box.picture, x, y);

/** @param {AttentionView} view @param {PointerEvent} event */
export function onMove(view, event) {
  if (view.pinching) return;
  const point = pointIn(view.dom.over, event);
  if (view.layout === "grid") {
    view.hoverHead = headAt(view, view.box, point.x, point.y);
    view.dom.over.style.cursor = view.hoverHead ? "pointer" : "default";
    return drawOver(view);
  }
  view.point = point;
  if (view.press && event.pointerType !== "touch") dragTo(view, point);
  setHover(view, pairAt(view, point));
}

/** @param {AttentionView} view */
export function onLeave(view) {
  if (view.press) return;
  view.hoverHead = view.point = null;
  if (view.layout === "grid") drawOver(view);
  else setHover(view, null);
}

/** @param {AttentionView} view @param {PointerEvent} event */
export function onDown(view, event) {
  if (event.button > 0) return;
  const point = pointIn(view.dom.over, event);
  view.touch = event.pointerType === "touch";
  if (view.layout === "grid" || !cellAt(view, view.box.map, point.x, point.y)) return;
  view.press = point;
  if (!view.touch) view.dom.over.setPointerCapture(event.pointerId);
}

/** @param {AttentionView} view */
export function onUp(view) {
  const drag = endDrag(view);
  if (drag) zoomTo(view, drag);
}

/** @param {AttentionView} view @param {MouseEvent} event */
export function onClick(view, event) {
  if (view.dragged) return;
  const point = pointIn(view.dom.over, event);
  if (view.layout === "grid") {
    const head = headAt(view, view.box, point.x, point.y);
    return void (head && pickHead(view, head));
  }
  const cell = pairAt(view, point);
  if (view.touch) view.point = point;
  if (cell) setHover(view, cell);
  togglePin(view, cell);
}

/** @param {AttentionView} view @param {KeyboardEvent} event @returns {boolean} whether the key did something */
export function onKey(view, event) {
  const keys = { "?": () => view.dom.help.click() };
  if (view.layout === "grid") return gridKey(view, event, keys);
  return mapKey(view, event, pickedCell(view), view.box.map, {
    ...keys,
    Enter: () => togglePin(view, pickedCell(view)),
    Escape: () => escape(view),
    "[": () => changeHead(view, -1),
    "]": () => changeHead(view, 1),
    t: () => view.dom.tableButton.click(),
    p: () => saveImage(view),
  });
}

function gridKey(view, event, keys) {
  const enter = view.hoverHead ? { Enter: () => pickHead(view, view.hoverHead) } : {};
  if (!(event.key in ARROWS)) return callAction(event, { ...keys, ...enter });
  const start = view.hoverHead ?? { row: view.grid.findIndex((one) => one.layer === view.layer), head: view.head };
  const [down, right] = ARROWS[event.key];
  const row = clamp(start.row + down, 0, view.grid.length - 1);
  const head = clamp(start.head + right, 0, view.grid[row].heads.length - 1);
  view.hoverHead = { row, head, layer: view.grid[row].layer };
  view.dom.live.textContent = headText(view, view.hoverHead);
  drawOver(view);
  return true;
}

// Counts from the head picked last, whose numbers may still be on their way.
function changeHead(view, by) {
  const head = (view.nextHead ?? view.head) + by;
  if (view.layout !== "one" || head < 0 || head >= view.heads) return;
  view.nextHead = head;
  pickHead(view, { layer: view.layer, head });
}

function escape(view) {
  view.dom.keys.hidden = true;
  if (view.pins.length) setPins(view, []);
  else resetZoom(view);
  setHover(view, null);
}
