// Pointer and keys on the board. What is drawn goes to Python when the pointer is lifted, or the keys rest.

import { element } from "../lib/dom.js";
import { clamp } from "../lib/layout.js";
import { cellAt } from "../lib/map.js";
import { fontOf, readTheme } from "../lib/theme.js";
import { asView, drawBoard, readCells, writeCells } from "./cells.js";

const CROSS = "attention-view:cross"; // the maps beside it follow the same crosshair
const REST = 350; // ms after the last key until the drawing is sent
const KEYS = "Click or drag to switch cells. Arrows move, Space switches, Home and End go along the row.";

function build(root) {
  root.replaceChildren();
  const dom = { root };
  dom.hint = element(root, "div", "hint");
  dom.hint.textContent = "Click a cell to draw your own.";
  dom.heading = element(root, "div", "heading");
  dom.title = element(dom.heading, "b", "name");
  dom.note = element(dom.heading, "span", "note");
  dom.stage = element(root, "div", "stage", { role: "application", tabindex: "0", "aria-roledescription": "drawing board" });
  dom.base = element(dom.stage, "canvas", "base");
  dom.over = element(dom.stage, "canvas", "over");
  dom.foot = element(root, "div", "under");
  dom.pair = element(dom.foot, "span", "pair");
  dom.tools = element(dom.foot, "span", "tools");
  dom.live = element(root, "div", "sr live", { "aria-live": "polite", role: "status" });
  return dom;
}

const stateOf = (board, { i, j }) => (board.cells[i][j] ? "may see" : "may not see");

function showUnder(board) {
  const { pair } = board.dom;
  pair.replaceChildren();
  if (!board.at) return;
  element(pair, "b", "mark").textContent = board.names[board.at.i];
  element(pair, "span").textContent = ` ${stateOf(board, board.at)} ${board.names[board.at.j]}`;
}

function moveTo(board, at, spoken = false) {
  board.at = at;
  const detail = { tokens: board.tokens, from: board, ...(at ?? {}) };
  window.dispatchEvent(new CustomEvent(CROSS, { detail }));
  drawBoard(board);
  showUnder(board);
  if (spoken && at) say(board);
}

function say(board) {
  const { i, j } = board.at;
  board.dom.live.textContent = `${board.names[i]} ${stateOf(board, board.at)} ${board.names[j]}`;
}

function onCross(board, event) {
  const { from, tokens, i, j } = event.detail;
  if (from === board || tokens !== board.tokens || board.painting) return;
  board.at = i == null || j < 0 ? null : { i, j };
  drawBoard(board);
  showUnder(board);
}

function paint(board, at) {
  if (!at || board.cells[at.i][at.j] === board.painting.ink) return;
  board.cells[at.i][at.j] = board.painting.ink;
  board.painting.changed = true;
}

function send(board) {
  clearTimeout(board.waiting);
  board.waiting = null;
  board.turn += 1;
  board.setStateValue("cells", { text: writeCells(board.cells), turn: board.turn });
}

function pointed(board, event) {
  const own = board.dom.over.getBoundingClientRect();
  return cellAt(asView(board), board.box, event.clientX - own.left, event.clientY - own.top);
}

function onDown(board, event) {
  const at = pointed(board, event);
  board.touch = event.pointerType === "touch"; // a finger may be about to scroll: it draws by tapping
  if (!at || event.button !== 0 || board.touch) return;
  board.dom.over.setPointerCapture(event.pointerId);
  board.painting = { ink: board.cells[at.i][at.j] ? 0 : 1, changed: false };
  paint(board, at);
  moveTo(board, at);
}

function onMove(board, event) {
  const at = pointed(board, event);
  if (board.painting) paint(board, at);
  if (at?.i !== board.at?.i || at?.j !== board.at?.j || board.painting) moveTo(board, at);
}

function onUp(board) {
  const { changed } = board.painting ?? {};
  board.painting = null;
  if (changed) send(board);
}

function onClick(board, event) {
  const at = pointed(board, event);
  if (!board.touch || !at) return;
  board.cells[at.i][at.j] = 1 - board.cells[at.i][at.j];
  moveTo(board, at);
  send(board);
}

const ARROWS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

function onKey(board, event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const last = board.cells.length - 1;
  const at = board.at ?? { i: board.query ?? 0, j: 0 };
  const move = (i, j) => moveTo(board, { i: clamp(i, 0, last), j: clamp(j, 0, last) }, true);
  if (event.key in ARROWS) {
    const [down, right] = ARROWS[event.key];
    const far = event.shiftKey ? 5 : 1;
    if (board.at) move(at.i + down * far, at.j + right * far);
    else move(at.i, at.j);
  } else if (event.key === "Home") move(at.i, 0);
  else if (event.key === "End") move(at.i, last);
  else if (event.key === " " || event.key === "Enter") {
    board.cells[at.i][at.j] = 1 - board.cells[at.i][at.j];
    move(at.i, at.j);
    clearTimeout(board.waiting);
    board.waiting = setTimeout(() => send(board), REST);
  } else if (event.key === "Escape") moveTo(board, null);
  else return;
  event.preventDefault();
  event.stopPropagation();
}

function update(board, data) {
  const first = board.turn === undefined;
  const { cells: text, turn, ...plain } = data;
  Object.assign(board, plain);
  if (first) board.turn = turn;
  // An answer to an earlier message must not undo what was drawn since.
  const behind = turn < board.turn || board.waiting || board.painting;
  if (!behind || board.cells?.length !== board.names.length) board.cells = readCells(text);
  board.tokens = JSON.stringify([board.names, board.names]);
  board.theme = readTheme(board.dom.root, board.palette);
  if (board.at && Math.max(board.at.i, board.at.j) >= board.names.length) board.at = null;
  board.dom.title.textContent = board.title;
  board.dom.note.textContent = board.note;
  board.dom.title.title = board.title;
  board.dom.note.title = board.note;
  board.dom.stage.setAttribute("aria-label", `${board.fact} ${KEYS}`);
  board.dom.stage.title = KEYS;
  drawBoard(board);
  showUnder(board);
  if (first) {
    const loads = [400, 600].map((weight) => document.fonts.load(fontOf(board.theme, 13, weight)));
    Promise.allSettled(loads).then(() => board.cells && drawBoard(board));
  }
}

function start(root) {
  const board = { dom: build(root) };
  const { stage, over } = board.dom;
  over.onpointerdown = (event) => onDown(board, event);
  over.onpointermove = (event) => onMove(board, event);
  over.onpointerup = over.onpointercancel = () => onUp(board);
  over.onclick = (event) => onClick(board, event);
  over.onpointerleave = () => board.painting || moveTo(board, null);
  stage.onkeydown = (event) => onKey(board, event);
  stage.onblur = () => (board.waiting ? send(board) : null);
  board.observer = new ResizeObserver(() => board.theme && root.clientWidth !== board.width && drawBoard(board));
  board.observer.observe(root);
  board.follow = (event) => onCross(board, event);
  window.addEventListener(CROSS, board.follow);
  return board;
}

const BOARDS = new WeakMap();

export default function (component) {
  const { data, parentElement, setStateValue } = component;
  const root = parentElement.querySelector(".mb");
  if (!root || !data) return;
  if (!BOARDS.has(root)) BOARDS.set(root, start(root));
  const board = BOARDS.get(root);
  board.setStateValue = setStateValue;
  update(board, data);
  return () => {
    board.observer.disconnect();
    window.removeEventListener(CROSS, board.follow);
    clearTimeout(board.waiting);
    BOARDS.delete(root);
  };
}
