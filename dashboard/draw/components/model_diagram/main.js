// A tree of parts: every row is a button in a grid of columns; what is open stays open while the model stays one.

import { element, keepFocus } from "../lib/dom.js";
import { mount, send } from "../lib/mount.js";

const OPEN_FIRST = 2; // levels that are open at first, and the first layer of each stack

function rowOf(view, part, depth, parent) {
  const box = element(parent, "div", `part depth${Math.min(depth, 5)}`);
  const line = element(box, "button", "line", { type: "button" });
  line.dataset.path = part.path;
  const name = element(line, "span", "name");
  name.style.paddingLeft = `${depth * 14}px`;
  element(name, "span", "turn", { "aria-hidden": "true" });
  if (part.parts.length) line.classList.add("opens");
  element(name, "span", "title").textContent = part.title;
  if (part.map) element(name, "span", "see").textContent = "maps";
  part.cells.forEach((text, i) => {
    const cell = element(line, "span", `cell c${i}`, { "data-head": view.heads[i] });
    cell.textContent = text;
    const share = part.shares[i - 1];
    if (share > 0) cell.style.setProperty("--share", `${(100 * share).toFixed(1)}%`);
  });
  if (part.parts.length) {
    const inner = element(box, "div", "inner");
    part.parts.forEach((child) => rowOf(view, child, depth + 1, inner));
    const show = (open) => {
      inner.hidden = !open;
      box.classList.toggle("open", open);
      line.setAttribute("aria-expanded", String(open));
    };
    show(view.open.has(part.path));
    line.addEventListener("click", () => {
      const open = inner.hidden;
      view.open[open ? "add" : "delete"](part.path);
      show(open);
    });
  }
  if (part.map) line.addEventListener("click", () => pick(view, part.path));
}

function pick(view, path) {
  if (view.picked === path) return;
  view.picked = path;
  markPicked(view);
  send(view, "pick", { path });
}

function markPicked(view) {
  view.root.querySelectorAll(".line").forEach((line) => {
    line.classList.toggle("chosen", line.dataset.path === view.picked);
  });
}

// The model itself, its stacks, and the first layer of each.
function openAtFirst(part, depth, open) {
  const layer = /(^|\.)\d+$/.test(part.path);
  if (depth < OPEN_FIRST && (!layer || /(^|\.)0$/.test(part.path))) open.add(part.path);
  if (layer && part.path.endsWith(".0")) open.add(part.path);
  part.parts.forEach((child) => openAtFirst(child, depth + 1, open));
}

const shapeOf = (part) => part.path + part.parts.map(shapeOf).join("|");

function update(view, data) {
  const shape = shapeOf(data.tree), same = view.shape === shape;
  view.turn ??= 0;
  Object.assign(view, { shape, heads: data.heads, picked: data.chosen });
  view.root.style.setProperty("--bar", data.palette.light.weights[4]);
  if (!same) {
    view.open = new Set();
    openAtFirst(data.tree, 0, view.open);
  }
  const { root } = view;
  root.setAttribute("role", "group");
  root.setAttribute("aria-label", data.fact);
  keepFocus(root, () => drawRows(view, data));
  markPicked(view);
  root.dataset.ready = "1";
}

function drawRows(view, data) {
  const { root } = view;
  root.replaceChildren();
  const head = element(root, "div", "line head");
  element(head, "span", "name").textContent = "Part";
  data.heads.forEach((text, i) => (element(head, "span", `cell c${i}`).textContent = text));
  rowOf(view, data.tree, 0, root);
}

export default (component) => mount(component, { start: () => {}, update });
