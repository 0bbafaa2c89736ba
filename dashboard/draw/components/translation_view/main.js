// Two pictures of one translation, whole at first; they play on demand, and the reader picks an output word.

import { element } from "../lib/dom.js";
import { clamp } from "../lib/layout.js";
import { mount } from "../lib/mount.js";
import { number } from "../lib/numbers.js";
import { drawAttention, drawVector, rowAt, sizes } from "./pictures.js";

const READ = 320, HOLD = 600, WRITE = 520; // ms a word read, the pause at the vector, a word written
const REST = 400; // ms after the last key until the pick is sent

/** @param {HTMLElement} parent @param {string} title */
function buildPicture(parent, title) {
  const root = element(parent, "div", "picture"), heading = element(root, "div", "heading");
  element(heading, "b", "name").textContent = title;
  return { root, board: element(root, "div", "board") };
}

function start(view) {
  const pictures = element(view.root, "div", "pictures");
  view.left = buildPicture(pictures, "Without attention");
  view.right = buildPicture(pictures, "With attention");
  element(view.right.root, "span", "note").textContent = "Pick a German word";
  view.left.board.setAttribute("role", "img");
  for (const [name, value] of Object.entries({ role: "slider", tabindex: "0", "aria-orientation": "vertical", "aria-valuemin": "1" })) view.right.board.setAttribute(name, value);
  view.right.board.classList.add("pickable");
  view.again = element(view.left.root, "button", "play", { type: "button" });
  view.again.textContent = "▶ Play";
  view.again.onclick = () => play(view);
  listen(view, view.right.board);
}

function listen(view, board) {
  const under = (event) => rowAt(view, board, event.clientY);
  board.onpointermove = (event) => event.pointerType === "mouse" && hover(view, under(event));
  board.onpointerleave = () => view.hovered != null && hover(view, null);
  board.onclick = (event) => pick(view, under(event), 0);
  board.onkeydown = (event) => {
    const last = view.target.length - 1, step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    const at = step ? clamp(view.picked + step, 0, last) : { Home: 0, End: last }[event.key];
    if (at === undefined) return;
    event.preventDefault();
    pick(view, at, REST);
  };
}

function hover(view, row) {
  finish(view);
  view.hovered = row;
  show(view);
}

function pick(view, row, delay) {
  finish(view);
  view.hovered = null;
  view.picked = row;
  show(view);
  clearTimeout(view.sending);
  view.sending = setTimeout(() => view.setStateValue("word", row), delay);
}

/** Time is counted in words: the source read, one beat at the vector, the target written. */
const end = ({ source, target }) => source.length + 1 + target.length;

function play(view) {
  clearTimeout(view.timer);
  view.hovered = null;
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) return finish(view);
  view.time = 0;
  const tick = () => {
    show(view);
    if (view.time >= end(view)) return;
    const { length } = view.source;
    view.timer = setTimeout(tick, view.time < length ? READ : view.time === length ? HOLD : WRITE);
    view.time += 1;
  };
  return tick();
}

function finish(view) {
  clearTimeout(view.timer);
  if (view.time === end(view)) return;
  view.time = end(view);
  show(view);
}

function show(view) {
  if (!view.layout) return;
  const { source, target, weights, time } = view, done = time >= end(view);
  const written = clamp(time - source.length - 1, 0, target.length);
  const row = done ? view.hovered ?? view.picked : written - 1;
  view.showVector({ read: Math.min(time, source.length), vector: time > source.length, written });
  view.showAttention({ read: Math.min(time, source.length), written, row });
  if (row < 0 || !done) return;
  const best = weights[row].indexOf(Math.max(...weights[row]));
  sayPicked(view, `${target[row]} takes most from ${source[best]}: ${number(weights[row][best])}.`);
}

function sayPicked({ picked, target, right: { board } }, text) {
  const values = { "aria-valuenow": picked + 1, "aria-valuemax": target.length, "aria-valuetext": text };
  for (const [name, value] of Object.entries(values)) board.setAttribute(name, String(value));
}

function draw(view) {
  view.width = view.root.clientWidth;
  if (!view.width) return;
  view.layout = sizes(view, view.left.board.clientWidth);
  view.showVector = drawVector(view, view.left.board);
  view.showAttention = drawAttention(view, view.right.board);
  show(view);
}

function update(view, { source, target, weights, picked }) {
  const text = JSON.stringify([source, target]), other = view.text !== text;
  Object.assign(view, { source, target, weights, text });
  if (other || !view.sending) view.picked = picked;
  view.sending = null;
  const words = `${source.join(" ")} becomes ${target.join(" ")}`;
  view.left.board.setAttribute("aria-label", `A recurrent encoder and decoder with one vector between them: ${words}.`);
  view.right.board.setAttribute("aria-label",
    `The same with attention from each output word to every input word: ${words}. The picked output word`);
  if (!other) return show(view);
  clearTimeout(view.timer);
  view.time = end(view);
  return draw(view);
}

function stop(view) {
  clearTimeout(view.timer);
  clearTimeout(view.sending);
}

export default (component) => mount(component, { start, update, draw, stop });
