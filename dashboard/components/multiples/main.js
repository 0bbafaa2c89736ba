// One board of maps: its data, its size, its pointer and keys. Only a pin goes to Python.

import { clamp } from "../lib/layout.js";
import { cellAt } from "../lib/map.js";
import { number } from "../lib/numbers.js";
import { readCell } from "../lib/reading.js";
import { fontOf, readTheme } from "../lib/theme.js";
import { build, buildTile, legendIn, showTable } from "./dom.js";
import { drawAll, drawOver } from "./draw.js";
import { isZoomed, pickedCell, whole } from "./state.js";
import { differenceOf, tileOf } from "./tiles.js";
import { ZOOM, dragged, onDown, onUp, onZoom, pointIn, setWindow } from "./zoom.js";

const CROSS = "attention-view:cross"; // the attention view's own, so that both follow each other

function setPin(board, pin) {
  board.pin = pin;
  board.turn += 1;
  board.setStateValue("pin", { value: pin, turn: board.turn });
  drawOver(board);
}

function togglePin(board, at) {
  if (!at || at.j < 0) return;
  const same = board.pin && board.pin[0] === at.i && board.pin[1] === at.j;
  setPin(board, same ? null : [at.i, at.j]);
}

function setHover(board, hover, keyboard = false, tell = true) {
  board.hover = hover;
  board.keyboard = keyboard;
  if (tell) {
    const detail = { tokens: board.tokens, from: board, ...(hover ?? {}) };
    window.dispatchEvent(new CustomEvent(CROSS, { detail }));
  }
  cancelAnimationFrame(board.waiting);
  board.waiting = requestAnimationFrame(() => drawOver(board));
  if (hover && tell) {
    clearTimeout(board.speaking);
    // A moving pointer would flood the live region; keys are read at once.
    board.speaking = setTimeout(() => (board.dom.live.textContent = spokenAll(board, hover)), keyboard ? 0 : 150);
  }
}

function spokenAll(board, { i, j }) {
  const read = board.shown.map((tile) => {
    const cell = readCell(tile, i, j);
    return `${tile.name} ${cell.masked ? "masked" : number(cell.value)}`;
  });
  return `${board.queries[i]} to ${board.keys[j]}: ${read.join(", ")}`;
}

// Another view of the same tokens moved its crosshair: follow it, without a tooltip.
function onCross(board, event) {
  const { from, tokens, i, j } = event.detail;
  if (from === board || tokens !== board.tokens) return;
  board.point = null;
  setHover(board, i == null || j < 0 ? null : { i, j }, false, false);
}

function onMove(board, tile, event) {
  const stage = board.dom.stage.getBoundingClientRect(), at = pointIn(tile, event);
  board.point = { x: event.clientX - stage.left, y: event.clientY - stage.top };
  board.over = tile;
  dragged(board, tile, event);
  setHover(board, cellAt(tile, tile.box, at.x, at.y));
}

function onLeave(board) {
  if (board.press) return;
  board.point = board.over = null;
  setHover(board, null);
}

const ARROWS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

function onKey(board, event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const { r0, r1, c0, c1 } = board.window;
  const at = pickedCell(board) ?? { i: r0, j: c0 };
  const move = (i, j) => setHover(board, { i: clamp(i, r0, r1 - 1), j: clamp(j, c0, c1 - 1) }, true);
  const acts = {
    Home: () => move(at.i, c0),
    End: () => move(at.i, c1 - 1),
    Enter: () => togglePin(board, pickedCell(board)),
    Escape: () => release(board),
    t: () => toggleTable(board),
    T: () => toggleTable(board),
    "?": () => (board.dom.keys.hidden = !board.dom.keys.hidden),
  };
  if (event.key in ARROWS) {
    const [down, right] = ARROWS[event.key];
    const box = board.shown[0].box;
    const far = event.shiftKey ? [box.rowStep || 5, box.colStep || 5] : [1, 1];
    move(at.i + down * far[0], Math.max(0, at.j) + right * far[1]);
  } else if (event.key in acts) {
    acts[event.key]();
  } else {
    return;
  }
  event.preventDefault();
  event.stopPropagation();
}

function release(board) {
  board.dom.keys.hidden = true;
  if (board.pin) setPin(board, null);
  else if (isZoomed(board)) setWindow(board, whole(board));
  setHover(board, null);
}

function toggleTable(board) {
  board.dom.rows.hidden = !board.dom.rows.hidden;
  showTable(board);
}

function update(board, data) {
  const first = board.turn === undefined;
  const kept = board.pin;
  if (first) board.turn = data.turn;
  const { tiles, turn, ...plain } = data;
  Object.assign(board, plain);
  // An answer to an earlier message must not undo what was done since.
  if (turn < board.turn) board.pin = kept;
  const tokens = JSON.stringify([board.queries, board.keys]);
  if (board.tokens !== tokens) board.window = whole(board);
  board.tokens = tokens;
  board.theme = readTheme(board.dom.root, board.palette);
  board.signedTheme = readTheme(board.dom.root, board.palette, true);
  board.tiles = tiles.map((sent) => tileOf(board, sent));
  const [a, b] = (board.difference ?? []).map((at) => board.tiles[at]);
  const apart = a ? [differenceOf(board, a, b, board.spread)] : [];
  board.shown = board.alone ? apart : [...board.tiles, ...apart];
  if (board.hover && (board.hover.i >= board.queries.length || board.hover.j >= board.keys.length)) board.hover = null;
  board.over = null;
  buildTiles(board);
  drawAll(board);
  showTable(board);
  // Canvas text waits for no font: draw again once both weights are there.
  if (first) fontsReady(board);
}

function buildTiles(board) {
  board.dom.maps.replaceChildren();
  board.dom.apart.replaceChildren();
  for (const tile of board.shown) {
    buildTile(board, tile, tile.of && !board.alone ? board.dom.apart : board.dom.maps);
    const { over } = tile.dom;
    over.onpointermove = (event) => onMove(board, tile, event);
    over.onpointerleave = () => onLeave(board);
    over.onpointerdown = (event) => onDown(board, tile, event);
    over.onpointerup = over.onpointercancel = () => onUp(board);
    over.onclick = (event) => board.zoomed || (onMove(board, tile, event), togglePin(board, board.hover));
    over.ondblclick = () => isZoomed(board) && setWindow(board, whole(board));
  }
  board.apartLegend = legendIn(board.dom.apart);
}

function fontsReady(board) {
  const loads = [400, 600].map((weight) => document.fonts.load(fontOf(board.theme, 13, weight)));
  Promise.allSettled(loads).then(() => board.shown && drawAll(board));
}

function start(root) {
  const board = { dom: build(root) };
  const { stage, help, tableButton, reset } = board.dom;
  stage.onkeydown = (event) => onKey(board, event);
  stage.onblur = () => board.keyboard && setHover(board, null);
  help.onclick = () => (board.dom.keys.hidden = !board.dom.keys.hidden);
  tableButton.onclick = () => toggleTable(board);
  reset.onclick = () => setWindow(board, whole(board));
  board.observer = new ResizeObserver(() => board.theme && root.clientWidth !== board.width && drawAll(board));
  board.observer.observe(root);
  board.follow = (event) => onCross(board, event);
  window.addEventListener(CROSS, board.follow);
  board.zoomToo = (event) => onZoom(board, event);
  window.addEventListener(ZOOM, board.zoomToo);
  return board;
}

const BOARDS = new WeakMap();

export default function (component) {
  const { data, parentElement, setStateValue } = component;
  const root = parentElement.querySelector(".mu");
  if (!root || !data) return;
  if (!BOARDS.has(root)) BOARDS.set(root, start(root));
  const board = BOARDS.get(root);
  board.setStateValue = setStateValue;
  update(board, data);
  return () => {
    board.observer.disconnect();
    window.removeEventListener(CROSS, board.follow);
    window.removeEventListener(ZOOM, board.zoomToo);
    clearTimeout(board.speaking);
    BOARDS.delete(root);
  };
}
