// The keyboard: arrows walk, Enter pins, brackets change the head.

import { clamp } from "../lib/layout.js";
import { layerNumber } from "../lib/reading.js";
import { pickHead, setHover, setPins, togglePin } from "./actions.js";
import { drawOver } from "./draw.js";
import { saveImage } from "./image.js";
import { pickedCell } from "./pins.js";
import { isZoomed } from "./state.js";
import { showTable } from "./words.js";
import { resetZoom } from "./zoom.js";

const ARROWS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

export function onKey(view, event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const done = view.layout === "grid" ? gridKey(view, event) : mapKey(view, event);
  const shared = done || sharedKey(view, event);
  if (!shared) return;
  event.preventDefault();
  event.stopPropagation();
}

function sharedKey(view, event) {
  if (event.key !== "?") return false;
  view.dom.keys.hidden = !view.dom.keys.hidden;
  return true;
}

function gridKey(view, event) {
  const start = view.hoverHead ?? { row: view.grid.findIndex((one) => one.layer === view.layer), head: view.head };
  if (event.key in ARROWS) {
    const [down, right] = ARROWS[event.key];
    const row = clamp(start.row + down, 0, view.grid.length - 1);
    const head = clamp(start.head + right, 0, view.grid[row].heads.length - 1);
    view.hoverHead = { row, head, layer: view.grid[row].layer };
    view.dom.live.textContent = `layer ${layerNumber(view, view.hoverHead.layer)}, head ${head}`;
    drawOver(view);
    return true;
  }
  if (event.key !== "Enter" || !view.hoverHead) return false;
  pickHead(view, view.hoverHead.layer, view.hoverHead.head);
  return true;
}

function mapKey(view, event) {
  const { r0, r1, c0, c1 } = view.window;
  const at = view.hover ?? pickedCell(view) ?? { i: r0, j: c0 };
  const from = { i: clamp(at.i, r0, r1 - 1), j: clamp(at.j, c0, c1 - 1) };
  const move = (i, j) => setHover(view, { i: clamp(i, r0, r1 - 1), j: clamp(j, c0, c1 - 1) }, true);
  if (event.key in ARROWS) {
    const [down, right] = ARROWS[event.key];
    const box = view.box.map;
    const rows = event.shiftKey ? box?.rowStep || 5 : 1, cols = event.shiftKey ? box?.colStep || 5 : 1;
    move(from.i + down * rows, from.j + right * cols);
    return true;
  }
  const acts = {
    Home: () => move(from.i, c0),
    End: () => move(from.i, c1 - 1),
    Enter: () => togglePin(view, view.hover ?? pickedCell(view)),
    Escape: () => escape(view),
    "[": () => stepHead(view, -1),
    "]": () => stepHead(view, 1),
    t: () => toggleTable(view),
    T: () => toggleTable(view),
    p: () => saveImage(view),
    P: () => saveImage(view),
  };
  acts[event.key]?.();
  return event.key in acts;
}

// Counts from the head asked for last, whose numbers may still be on their way.
function stepHead(view, by) {
  const next = (view.wanted ?? view.head) + by;
  if (view.layout !== "one" || next < 0 || next >= view.heads) return;
  view.wanted = next;
  pickHead(view, view.layer, next);
}

function escape(view) {
  view.dom.keys.hidden = true;
  if (view.pins.length) setPins(view, []);
  else if (isZoomed(view)) resetZoom(view);
  setHover(view, null);
}

export function toggleTable(view) {
  view.dom.rows.hidden = !view.dom.rows.hidden;
  showTable(view);
}
