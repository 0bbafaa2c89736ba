// Pointer and keys on the board. The drawing goes to Python when the pointer is lifted, or the keys rest.

/** @import { Cell, MapView, Pointed } from "../lib/types" */
import { unpack } from "../lib/bytes.js";
import { broadcast, onCrosshair } from "../lib/crosshair.js";
import { element, growthOf, pixelRatio, resized, zoomOf } from "../lib/dom.js";
import { ARROWS, handleKey, nameStop } from "../lib/keys.js";
import { clamp, closeBox, gutterOf } from "../lib/layout.js";
import { cellAt, drawColNames, drawCrosshair, drawMap, drawRowNames } from "../lib/map.js";
import { mount, send } from "../lib/mount.js";
import { pointIn, whole } from "../lib/zoom.js";
import { readDrawing, writeDrawing } from "./drawing.js";

/** @typedef {Pointed & {cells: Uint8Array[], names: string[], weights: Float32Array, at: Cell | null, turn: number, ratio: number}} Board */

const INK = 0.55; // where on the weights' scale a cell that may be attended to lies
const HEIGHT = 420; // px, at most
const MARKS_FROM = 12; // px a cell: below it a tick and a cross look alike
const TICK = [[-1, 0], [-0.3, 0.8], [1, -0.8]], CROSS = [[-0.8, -0.8], [0.8, 0.8], [-0.8, 0.8], [0.8, -0.8]];
const REST = 350; // ms after the last key until the drawing is sent
const HINT = "✓ may attend, ✕ may not. Press to draw.";
const KEYS = "Click or drag to switch cells. Arrows move, Space switches, Home and End go along the row.";

/** @param {HTMLElement} root */
function build(root) {
  /** @type {Record<string, any>} */
  const dom = {};
  dom.hint = element(root, "div", "hint");
  dom.heading = element(root, "div", "heading");
  dom.title = element(dom.heading, "b", "name");
  dom.note = element(dom.heading, "span", "note");
  dom.stage = element(root, "div", "stage", { tabindex: "0" });
  dom.base = element(dom.stage, "canvas", "base");
  dom.over = element(dom.stage, "canvas", "over");
  dom.foot = element(root, "div", "under");
  dom.live = element(root, "div", "sr live", { "aria-live": "polite", role: "status" });
  return dom;
}

/** On a phone the maps of weights are below: there the board itself has their colours. */
const isPhone = () => matchMedia("(max-width: 640px)").matches;

/** The board as a view that map.js can draw. @param {Board} board @returns {MapView} */
function mapView(board) {
  const { names, theme, ratio, width } = board, size = board.cells.length;
  const mask = new Uint8Array(size * size);
  board.cells.forEach((row, i) => mask.set(row, i * size));
  const values = isPhone() ? board.weights : new Float32Array(size * size).fill(INK);
  const current = { rows: size, cols: size, values, mask };
  const window = whole({ queries: names, keys: names });
  return { current, range: [0, 1], window, pool: "mean", queries: names, keys: names, theme, ratio, width };
}

/** @param {Board} board */
function draw(board) {
  const { dom } = board;
  board.width = board.root.clientWidth;
  if (!board.width) return;
  board.ratio = pixelRatio(board.root);
  const view = mapView(board), measure = dom.over.getContext("2d"), gutter = gutterOf(measure, board.theme, board.names);
  board.box = closeBox(measure, view, { x: gutter, gutter, room: board.width - gutter - 3, cap: HEIGHT, cell: board.cell, zoom: zoomOf(board.root), growth: growthOf(board.root) });
  dom.hint.textContent = isPhone() ? `${HINT} Colour: weight.` : HINT;
  const width = board.box.x + board.box.w + 3, height = board.box.y + board.box.h + 4;
  const base = resized(dom.base, width, height, board.ratio);
  drawMap(base, view, board.box);
  drawMarks(base, board, view.current.values);
  const over = resized(dom.over, width, height, board.ratio);
  const picked = board.at ?? (board.query == null ? null : { i: board.query, j: -1 });
  drawRowNames(over, view, board.box, picked);
  drawColNames(over, view, board.box, picked);
  if (picked) drawCrosshair(over, view, board.box, picked);
  dom.heading.style.paddingLeft = dom.foot.style.paddingLeft = `${board.box.x}px`;
  showUnder(board);
  const { x, y, cw, ch } = board.box, at = board.at ? `${board.at.i},${board.at.j}` : "";
  Object.assign(board.root.dataset, { cells: writeDrawing(board.cells), map: [x, y, cw, ch], at });
}

/** A tick in each cell that may be attended to and a cross in the others. @param {CanvasRenderingContext2D} ctx @param {Board} board */
function drawMarks(ctx, { cells, box, theme }, values) {
  if (Math.min(box.cw, box.ch) < MARKS_FROM) return;
  const size = Math.min(box.cw, box.ch) * 0.2;
  ctx.lineWidth = 1.75;
  ctx.lineCap = "round";
  cells.forEach((row, i) => row.forEach((on, j) => {
    const x = box.x + (j + 0.5) * box.cw - box.gap / 2, y = box.y + (i + 0.5) * box.ch - box.gap / 2;
    ctx.strokeStyle = on && values[i * row.length + j] > 0.5 ? theme.ground : theme.secondary;
    ctx.beginPath();
    for (const [k, [dx, dy]] of (on ? TICK : CROSS).entries()) {
      ctx[k === 0 || (!on && k === 2) ? "moveTo" : "lineTo"](x + dx * size, y + dy * size);
    }
    ctx.stroke();
  }));
}

const toggle = ({ cells }, { i, j }) => (cells[i][j] = 1 - cells[i][j]);
const stateText = (board, { i, j }) => (board.cells[i][j] ? "may attend to" : "may not attend to");
const cellText = (board, at) => `${board.names[at.i]} ${stateText(board, at)} ${board.names[at.j]}`;

function showUnder(board) {
  const { foot } = board.dom, { at, names } = board;
  foot.replaceChildren();
  if (!at) return;
  element(foot, "b", "mark").textContent = names[at.i];
  element(foot, "span").textContent = ` ${stateText(board, at)} ${names[at.j]}`;
}

function moveTo(board, at, aloud = false) {
  board.at = at;
  broadcast(board, at);
  draw(board);
  if (aloud && at) board.dom.live.textContent = cellText(board, at);
}

function paint({ cells, painting }, at) {
  if (!at || cells[at.i][at.j] === painting.ink) return;
  cells[at.i][at.j] = painting.ink;
  painting.changed = true;
}

function sendCells(board) {
  clearTimeout(board.waiting);
  board.waiting = null;
  send(board, "cells", { text: writeDrawing(board.cells) });
}

function cellUnder(board, event) {
  const { x, y } = pointIn(board.dom.over, event);
  return cellAt(mapView(board), board.box, x, y);
}

function onDown(board, event) {
  const at = cellUnder(board, event);
  board.touch = event.pointerType === "touch"; // a finger may be about to scroll: it draws by tapping
  if (!at || event.button !== 0 || board.touch) return;
  board.dom.over.setPointerCapture(event.pointerId);
  board.painting = { ink: 1 - board.cells[at.i][at.j], changed: false };
  paint(board, at);
  moveTo(board, at);
}

function onMove(board, event) {
  const at = cellUnder(board, event);
  if (board.painting) paint(board, at);
  if (at?.i !== board.at?.i || at?.j !== board.at?.j || board.painting) moveTo(board, at);
}

function onUp(board) {
  const changed = board.painting?.changed;
  board.painting = null;
  if (changed) sendCells(board);
}

function onClick(board, event) {
  const at = cellUnder(board, event);
  if (!board.touch || !at) return;
  toggle(board, at);
  moveTo(board, at);
  sendCells(board);
}

/** @param {Board} board @param {KeyboardEvent} event @returns {boolean} whether the key did something */
function onKey(board, event) {
  const last = board.cells.length - 1;
  const at = board.at ?? { i: board.query ?? 0, j: 0 };
  const move = (i, j) => moveTo(board, { i: clamp(i, 0, last), j: clamp(j, 0, last) }, true);
  const [down, right] = ARROWS[event.key] ?? [0, 0], far = board.at ? (event.shiftKey ? 5 : 1) : 0;
  if (event.key in ARROWS) move(at.i + down * far, at.j + right * far);
  else if (event.key === "Home") move(at.i, 0);
  else if (event.key === "End") move(at.i, last);
  else if (event.key === "Escape") moveTo(board, null);
  else if (event.key === " " || event.key === "Enter") {
    toggle(board, at);
    move(at.i, at.j);
    clearTimeout(board.waiting);
    board.waiting = setTimeout(() => sendCells(board), REST);
  } else return false;
  return true;
}

/** @param {Board} board */
function start(board) {
  const { stage, over } = board.dom = build(board.root);
  over.onpointerdown = (event) => onDown(board, event);
  over.onpointermove = (event) => onMove(board, event);
  over.onpointerup = over.onpointercancel = () => onUp(board);
  over.onclick = (event) => onClick(board, event);
  over.onpointerleave = () => board.painting || moveTo(board, null);
  stage.onkeydown = (event) => handleKey(event, () => onKey(board, event));
  stage.onblur = () => (board.waiting ? sendCells(board) : null);
  onCrosshair(board, (cell) => {
    if (board.painting) return;
    board.at = cell && cell.j >= 0 ? cell : null;
    draw(board);
  });
}

/** @param {Board} board */
function update(board, { cells: text, weights, turn, ...rest }) {
  Object.assign(board, rest, { weights: unpack(weights) });
  board.turn ??= turn;
  // An answer to an earlier message must not undo what was drawn since.
  const late = turn < board.turn || board.waiting || board.painting;
  if (!late || board.cells?.length !== board.names.length) {
    // The cell that was pressed is of the drawing before: the page speaks of another one now.
    if (board.cells && writeDrawing(board.cells) !== text) board.at = null;
    board.cells = readDrawing(text);
  }
  board.tokens = JSON.stringify([board.names, board.names]);
  if (board.at && Math.max(board.at.i, board.at.j) >= board.names.length) board.at = null;
  const { title, note, stage } = board.dom;
  title.textContent = title.title = board.title;
  note.textContent = note.title = board.note;
  nameStop(stage, "drawing board", [board.fact, board.at ? cellText(board, board.at) : ""], KEYS);
  stage.title = KEYS;
  draw(board);
}

export default (component) => mount(component, { start, update, draw, stop: (board) => clearTimeout(board.waiting) });
