// A line that the reader draws: a stroke of the pointer or a finger, or the arrow keys on each point. Show me sends it.

import { element, svgElement } from "../lib/dom.js";
import { handleKey } from "../lib/keys.js";
import { mount } from "../lib/mount.js";
import { number } from "../lib/numbers.js";
import { pointIn } from "../lib/zoom.js";
import { filled, nearest, shareOf, stroke, valueAt } from "./points.js";

const HEIGHT = 260, LEFT = 60, RIGHT = 16, TOP = 12, BOTTOM = 44; // px
const TICKS = 5, CLOSEST = 28; // of the vertical axis; px between the names of two x
const STEP = 0.02, FAR = 0.1; // of the height, an arrow and with Shift

const write = (board, value) => (board.share ? `${Math.round(100 * value)} %` : number(value));
const valueOf = (board, at) => valueAt(board.y, filled(board.shares)[at]);
const toY = (board, share) => board.box.top + (1 - share) * board.box.height;

function draw(board) {
  board.width = board.root.clientWidth;
  if (!board.width) return;
  board.box = { left: LEFT, top: TOP, width: board.width - LEFT - RIGHT, height: HEIGHT - TOP - BOTTOM };
  const { box, xs, stage } = board;
  const across = { low: Math.min(...xs), high: Math.max(...xs), log: board.logX };
  board.places = xs.map((x) => box.left + shareOf(across, x) * box.width);
  stage.replaceChildren();
  board.svg = svgElement(stage, "svg", { width: board.width, height: HEIGHT, viewBox: `0 0 ${board.width} ${HEIGHT}` });
  drawAxes(board);
  board.path = svgElement(board.svg, "polyline", { class: "drawn" });
  board.dots = xs.map((x, at) => dot(board, x, at));
  show(board);
}

function drawAxes({ svg, box, places, xs, y, xTitle, ...board }) {
  for (let tick = 0; tick <= TICKS; tick++) {
    const share = tick / TICKS, at = toY({ box }, share);
    svgElement(svg, "line", { class: "grid", x1: box.left, x2: box.left + box.width, y1: at, y2: at });
    svgElement(svg, "text", { x: box.left - 14, y: at + 4, "text-anchor": "end" }, write(board, valueAt(y, share)));
  }
  let last = -Infinity;
  places.forEach((place, at) => {
    if (place - last < CLOSEST) return;
    last = place;
    svgElement(svg, "text", { x: place, y: HEIGHT - BOTTOM + 18, "text-anchor": "middle" }, String(xs[at]));
  });
  svgElement(svg, "text", { x: box.left + box.width, y: HEIGHT - 8, "text-anchor": "end" }, xTitle);
}

/** A point of the line, which the Tab key reaches and the arrows move. */
function dot(board, x, at) {
  const node = svgElement(board.svg, "circle", { r: 7, cx: board.places[at], tabindex: "0", role: "slider",
    "aria-label": `${board.xTitle} ${x}`, "aria-orientation": "vertical", "aria-valuemin": board.y.low, "aria-valuemax": board.y.high });
  node.addEventListener("keydown", (event) => handleKey(/** @type {KeyboardEvent} */ (event), (key) => onKey(board, at, key)));
  node.addEventListener("focus", () => say(board, at));
  return node;
}

function onKey(board, at, event) {
  const by = event.shiftKey ? FAR : STEP, now = filled(board.shares)[at];
  const moves = { ArrowUp: now + by, ArrowDown: now - by, Home: 0, End: 1 };
  const other = { ArrowLeft: at - 1, ArrowRight: at + 1 }[event.key];
  if (other !== undefined) board.dots[other]?.focus();
  else if (event.key in moves) set(board, at, moves[event.key]);
  else return false;
  return true;
}

function set(board, at, share) {
  board.shares = stroke(board.shares, board.places, { x: board.places[at], share }, { x: board.places[at], share });
  show(board);
  say(board, at);
}

function show(board) {
  const shares = filled(board.shares), started = board.shares.some((share) => share !== null);
  board.path.setAttribute("points", shares.map((share, at) => `${board.places[at]},${toY(board, share)}`).join(" "));
  board.path.classList.toggle("waiting", !started);
  board.dots.forEach((node, at) => {
    node.setAttribute("cy", toY(board, shares[at]));
    node.setAttribute("aria-valuenow", valueOf(board, at).toPrecision(3));
    node.setAttribute("aria-valuetext", write(board, valueOf(board, at)));
    node.classList.toggle("waiting", board.shares[at] === null);
  });
  board.button.textContent = started ? "Show me" : "Show me without a guess";
}

function say(board, at) {
  board.line.textContent = `${board.xTitle} ${board.xs[at]}: ${write(board, valueOf(board, at))}`;
}

function onPointer(board, event) {
  const { x, y } = pointIn(board.stage, event), to = { x, share: 1 - (y - board.box.top) / board.box.height };
  board.shares = stroke(board.shares, board.places, board.pen ?? to, to);
  board.pen = to;
  show(board);
  say(board, nearest(board.places, x));
}

function start(board) {
  const stage = board.stage = element(board.root, "div", "paper");
  const foot = element(board.root, "div", "end");
  board.line = element(foot, "span", "line", { "aria-live": "polite" });
  board.button = element(foot, "button", "show", { type: "button" });
  stage.onpointerdown = (event) => {
    if (event.button !== 0) return;
    event.preventDefault(); // no text is marked
    stage.setPointerCapture(event.pointerId);
    onPointer(board, event);
  };
  stage.onpointermove = (event) => board.pen && onPointer(board, event);
  stage.onpointerup = stage.onpointercancel = () => (board.pen = null);
  board.button.onclick = () => {
    const drawn = board.shares.some((share) => share !== null);
    board.setTriggerValue("guess", drawn ? board.xs.map((_, at) => Number(valueOf(board, at).toPrecision(3))) : "none");
  };
}

function update(board, data) {
  const same = board.xs && data.xs.join() === board.xs.join();
  Object.assign(board, data);
  if (!same) board.shares = data.xs.map(() => null);
  board.line.textContent ||= "Draw with the pointer or a finger; Tab goes to the next point, ↑ and ↓ move it.";
  draw(board);
}

export default (component) => mount(component, { start, update, draw });
