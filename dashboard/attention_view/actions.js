// Pointer and keys. Hover, zoom and play stay here; only a pick, a pin and a released frame go to Python.

const DRAG_FROM = 5; // px before a press becomes a zoom
const CROSS = "attention-view:cross";

// The turn tells Python's answer to this message from answers to earlier ones.
function send(view, field, value) {
  view.turn += 1;
  view.setStateValue(field, { value, turn: view.turn });
}

function setPin(view, pin) {
  view.pin = pin;
  view.dom.root.dataset.pin = pin ? pin.join(",") : "";
  send(view, "pin", pin);
  drawOver(view);
}

function togglePin(view, at) {
  if (!at || at.j < 0) return;
  const same = view.pin && view.pin[0] === at.i && view.pin[1] === at.j;
  setPin(view, same ? null : [at.i, at.j]);
}

function pickHead(view, layer, head) {
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

function setHover(view, hover, keyboard = false, tell = true) {
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
function onCross(view, event) {
  const { from, tokens, i, j } = event.detail;
  if (from === view || view.layout === "grid" || tokens !== view.tokens) return;
  view.point = null;
  setHover(view, i == null ? null : { i, j }, false, false);
}

function pointOf(view, event) {
  const box = view.dom.over.getBoundingClientRect();
  return { x: event.clientX - box.left, y: event.clientY - box.top };
}

function onMove(view, event) {
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
  setHover(view, cellAt(view, view.box.map, x, y) ?? lineAt(view, view.box.lines, x, y));
}

function onLeave(view) {
  if (view.press) return;
  view.hoverHead = null;
  view.point = null;
  if (view.layout === "grid") drawOver(view);
  else setHover(view, null);
}

function onDown(view, event) {
  if (event.button > 0) return;
  const point = pointOf(view, event);
  view.touch = event.pointerType === "touch";
  if (view.layout !== "grid" && cellAt(view, view.box.map, point.x, point.y)) {
    view.press = point;
    if (!view.touch) view.dom.over.setPointerCapture(event.pointerId);
  }
}

function onUp(view, event) {
  const drag = view.drag;
  view.press = view.drag = null;
  if (drag) {
    zoomTo(view, drag);
    view.zoomed = true; // the click that follows a drag pins nothing
    setTimeout(() => (view.zoomed = false), 0);
  }
}

function onClick(view, event) {
  if (view.zoomed) return;
  const { x, y } = pointOf(view, event);
  if (view.layout === "grid") {
    const at = headAt(view, view.box, x, y);
    if (at) pickHead(view, at.layer, at.head);
    return;
  }
  const at = cellAt(view, view.box.map, x, y) ?? lineAt(view, view.box.lines, x, y);
  if (view.touch) view.point = { x, y };
  if (at) setHover(view, at);
  togglePin(view, at);
}

function zoomTo(view, drag) {
  const box = view.box.map;
  const inX = (x) => clamp(x, box.x, box.x + box.w - 0.01), inY = (y) => clamp(y, box.y, box.y + box.h - 0.01);
  const a = cellAt(view, box, inX(Math.min(drag.x0, drag.x1)), inY(Math.min(drag.y0, drag.y1)));
  const b = cellAt(view, box, inX(Math.max(drag.x0, drag.x1)), inY(Math.max(drag.y0, drag.y1)));
  if (!a || !b || b.i - a.i < 1 || b.j - a.j < 1) return drawOver(view);
  view.window = { r0: a.i, r1: b.i + 1, c0: a.j, c1: b.j + 1 };
  drawAll(view);
}

function resetZoom(view) {
  view.window = { r0: 0, r1: view.current.rows, c0: 0, c1: view.current.cols };
  drawAll(view);
}

const isZoomed = ({ window: w, current }) => w && (w.r0 || w.c0 || w.r1 < current.rows || w.c1 < current.cols);

const ARROWS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

function onKey(view, event) {
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
    view.dom.live.textContent = `layer ${view.hoverHead.layer}, head ${head}`;
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
  if (view.pin) setPin(view, null);
  else if (isZoomed(view)) resetZoom(view);
  setHover(view, null);
}

function toggleTable(view) {
  view.dom.rows.hidden = !view.dom.rows.hidden;
  showTable(view);
}
