// The tree of candidates: drawn by Python; here it is scrolled to what is picked, and presses and arrow keys pick.

import { element } from "../lib/dom.js";
import { nameStop } from "../lib/keys.js";
import { mount } from "../lib/mount.js";

const KEYS = "Left and right arrows go to the step before and after, up and down to the other candidates of a step.";

/** @returns {any[]} */
const nodesOf = (root) => [...root.querySelectorAll("g[data-place]")];

function nearest(root, step, rank) {
  const nodes = nodesOf(root).filter((node) => Number(node.dataset.step) === step);
  return nodes.sort((a, b) => Math.abs(a.dataset.rank - rank) - Math.abs(b.dataset.rank - rank))[0];
}

function neighbour(root, picked, key) {
  const step = Number(picked.dataset.step), rank = Number(picked.dataset.rank);
  if (key === "ArrowLeft") return nodesOf(root).find((node) => node.dataset.place === picked.dataset.parent);
  if (key === "ArrowRight") return nodesOf(root).find((node) => node.dataset.parent === picked.dataset.place);
  if (key === "ArrowUp") return rank > 0 ? nearest(root, step, rank - 1) : null;
  if (key === "ArrowDown") return nearest(root, step, rank + 1);
  return key === "Home" ? nearest(root, 0, rank) : null;
}

// Only sideways: the page itself must not jump.
function scrollToPicked(root) {
  const picked = root.querySelector("g.picked");
  if (!picked) return;
  const { x, width } = picked.getBBox();
  if (x < root.scrollLeft || x + width > root.scrollLeft + root.clientWidth) {
    root.scrollLeft = Math.max(0, x + width - root.clientWidth + 24);
  }
}

function start(view) {
  const { root } = view;
  view.art = element(root, "div");
  view.live = element(root, "div", "sr live", { "aria-live": "polite", role: "status" });
  const pick = (node) => node && view.setTriggerValue("pick", Number(node.dataset.place));
  root.tabIndex = 0;
  root.onclick = (event) => pick(event.target.closest("g[data-place]"));
  root.onkeydown = (event) => {
    const picked = root.querySelector("g.picked");
    const next = picked && neighbour(root, picked, event.key);
    if (!next) return;
    event.preventDefault();
    pick(next);
  };
}

function update(view, { svg, fact, follow }) {
  const { root } = view;
  if (view.svg !== svg) {
    const before = root.scrollLeft;
    view.art.innerHTML = view.svg = svg;
    view.art.firstElementChild?.setAttribute("aria-hidden", "true");
    root.scrollLeft = follow ? before : 0;
    if (follow) scrollToPicked(root);
    draw(view);
  }
  const picked = [...root.querySelectorAll("g.picked text")].map((text) => text.textContent).join(" ");
  if (root.matches(":focus")) view.live.textContent = picked;
  nameStop(root, "tree", [fact, picked && `Picked: ${picked}`], KEYS);
}

// After the last step stands a gap of 20 px, which hides nothing.
const draw = ({ root }) => root.classList.toggle("wide", root.scrollWidth - root.clientWidth > 20);

export default (component) => mount(component, { start, update, draw });
