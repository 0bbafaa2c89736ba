// A model as stacks of blocks: a press opens a layer or a block, Next walks along the way that an example takes.

import { element, keepFocus, scaleOf, svgElement } from "../lib/dom.js";
import { mount, send } from "../lib/mount.js";
import { ARC, layoutOf, orderOf } from "./layout.js";
import { showBlock } from "./panel.js";

/** @import { Placed, StackLayout } from "./types" */

const WIDE = 700, PANEL = 320, TOP = 26, MOST = 250, INSET = 14, LABELS = 98, PLAY_MS = 1400;
const ABOVE = 400, LOWEST = 110, ROOMY = 1000; // px of the page above the diagram; its least height; both bars and tokens beside it

const layerOf = (path) => path.match(/^(.*?layers\.\d+)\./)?.[1];
const isLayer = (path) => /layers\.\d+$/.test(path);

function start(view) {
  const { root } = view;
  view.turn = 0;
  const above = element(root, "div", "above");
  const bar = element(above, "div", "bar");
  const button = (text, label, act) => {
    const made = element(bar, "button", "step", { type: "button", title: label });
    made.textContent = text;
    made.onclick = act;
    return made;
  };
  view.back = button("‹ Back", "", () => { stop(view); walk(view, -1); });
  view.next = button("Next step ›", "", () => { stop(view); walk(view, 1); });
  view.play = button("▶ Play", "Follow the example through the model", () => (view.timer ? stop(view) : play(view)));
  view.all = button("Every box", "Stop at every box of every layer", () => {
    view.all.setAttribute("aria-pressed", String(!isLong(view)));
    draw(view);
  });
  view.all.setAttribute("aria-pressed", "false");
  view.where = element(bar, "span", "where", { "aria-live": "polite" });
  view.about = element(above, "p", "about"); // beside Next, where the panel is below the diagram
  const body = element(root, "div", "body");
  view.window = element(body, "div", "window");
  view.svg = svgElement(view.window, "svg", { role: "group" });
  view.panel = element(body, "div", "panel");
}

function play(view) {
  view.play.textContent = "❚❚ Pause";
  view.timer = setInterval(() => { if (!walk(view, 1)) stop(view); }, PLAY_MS);
}

function stop(view) {
  clearInterval(view.timer);
  view.timer = null;
  view.play.textContent = "▶ Play";
}

/** Go on by so many steps, at the end to the first one; returns whether more follow. */
function walk(view, by) {
  const steps = stepsOf(view), at = stepOf(view), next = at === steps.length - 1 && by > 0 ? 0 : at + by;
  if (next < 0) return false;
  if (!isLong(view)) view.open = firstOpen(view);
  choose(view, steps[next]);
  reveal(view);
  return next < steps.length - 1;
}

const isLong = (view) => view.all.getAttribute("aria-pressed") === "true";

/** The blocks that each step lights: those that the page names, or every block alone. */
const stepsOf = (view) => (isLong(view) ? walkOrder(view).map((path) => [path]) : view.data.steps);

/** The step that lights the open block, or its layer, or the first block of an open layer. */
function stepOf(view) {
  const { chosen } = view, steps = stepsOf(view), at = steps.findIndex((paths) => paths.includes(chosen));
  const near = (path) => path === layerOf(chosen) || layerOf(path) === chosen;
  return at < 0 ? steps.findIndex((paths) => paths.some(near)) : at;
}

/** Scroll the diagram, where it is higher than its window, to the open block. */
function showChosen({ svg, chosen, window }) {
  const block = svg.querySelector(`[data-path="${CSS.escape(chosen)}"]`), rect = block?.querySelector("rect");
  if (rect) window.scrollTop = rect.y.baseVal.value + rect.height.baseVal.value / 2 - window.clientHeight / 2;
  return block;
}

/** Scroll also the page where the block is not in sight; on a phone Next and its text stay above it. */
function reveal(view) {
  const { root } = view, block = showChosen(view);
  if (!block) return;
  const lit = [...root.querySelectorAll(".chosen")].map((one) => one.getBoundingClientRect()), wide = root.classList.contains("wide");
  const top = Math.min(...lit.map((one) => one.top)), bottom = Math.max(...lit.map((one) => one.bottom));
  if (top >= root.querySelector(".above").getBoundingClientRect().bottom && bottom <= innerHeight) return;
  const behavior = matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth";
  if (wide) block.scrollIntoView({ block: "nearest", behavior });
  else root.scrollIntoView({ block: "start", behavior }); // all of a phone for buttons and picture
}

/** Every block, as if all layers were open. */
function walkOrder(view) {
  const { stacks, pre } = view.data;
  return stacks.flatMap((stack) => stack.nodes.flatMap((node) => (node.sublayers
    ? orderOf([layoutOf({ ...stack, nodes: [node] }, node.path, pre)]) : [node.path])));
}

/** In each stack the layer that the steps take apart. */
const firstOpen = ({ data: { stacks, steps } }) => stacks.map(({ nodes }) => (
  nodes.find((node) => node.sublayers && steps.some(([path]) => layerOf(path) === node.path))?.path ?? ""));

/** Light blocks and tell the first, in its open layer. @param {string[]} paths */
function choose(view, paths) {
  const [path] = paths, layer = layerOf(path);
  view.open = view.open.map((open, i) => (
    layer && view.data.stacks[i].nodes.some((node) => node.path === layer) ? layer : open));
  Object.assign(view, { chosen: path, lit: paths });
  draw(view);
  if (view.data.blocks[path]?.maps) send(view, "pick", { path }); // the page draws its maps
}

const firstOf = (view, layer) => walkOrder(view).find((path) => path.startsWith(`${layer}.`)) ?? layer;

function update(view, data) {
  const shape = JSON.stringify([data.stacks, data.steps]);
  const same = view.shape === shape, opened = view.shape === undefined;
  Object.assign(view, { data, shape });
  view.panel.style.minHeight = data.pending ? `${view.panel.offsetHeight}px` : ""; // what is below does not jump
  if (!same) {
    stop(view);
    view.open = firstOpen(view);
    view.chosen = (opened && data.chosen) || data.steps[0][0]; // another model begins below
    view.lit = data.steps.find(([path]) => path === view.chosen) ?? [view.chosen];
    const layer = layerOf(view.chosen);
    view.open = view.open.map((open, i) => (data.stacks[i].nodes.some((node) => node.path === layer) ? layer : open));
  }
  draw(view);
  if (!same) showChosen(view);
}

/** Whether blocks say beside them what would be read there. */
const hasLabels = ({ data }) => Object.values(data.blocks).some(({ label }) => label);

const draw = (view) => keepFocus(view.svg, () => drawModel(view));

function drawModel(view) {
  const { root, data, svg, theme } = view;
  view.width = root.clientWidth;
  root.dataset.ready = "1";
  const wide = view.width >= WIDE, labels = hasLabels(view) ? LABELS : 0;
  const scale = wide ? scaleOf(view.width) : 1;
  for (const part of root.children) /** @type {HTMLElement} */ (part).style.zoom = String(scale);
  root.classList.toggle("wide", wide);
  const room = (wide ? view.width / scale - PANEL - 40 : view.width) - labels;
  const high = wide ? Math.max(LOWEST, (innerHeight - ABOVE) / scale) : Infinity; // a phone scrolls the page
  const layOut = (tight) => data.stacks.map((stack, i) => layoutOf(stack, view.open[i], data.pre, !isLong(view), tight));
  const [tight = 2] = wide ? [Number(labels > 0)].filter((size) => TOP + 6 + Math.max(...layOut(size).map((one) => one.height)) <= high) : [];
  const layouts = layOut(tight);
  view.window.style.maxHeight = wide ? `${high}px` : "";
  const gap = layouts.length > 1 ? 44 : 0;
  const width = Math.min(MOST, (room - gap * (layouts.length - 1)) / layouts.length - ARC);
  const height = TOP + Math.max(...layouts.map((one) => one.height)) + 6;
  svg.replaceChildren();
  svg.setAttribute("width", String(layouts.length * (width + ARC) + gap * (layouts.length - 1) + labels));
  svg.setAttribute("height", String(height));
  svg.setAttribute("aria-label", data.label);
  const defs = svgElement(svgElement(svg, "defs"), "marker", { id: "tip", viewBox: "0 0 8 8", refX: 7, refY: 4, markerUnits: "userSpaceOnUse", markerWidth: 8.4, markerHeight: 8.4, orient: "auto-start-reverse" });
  svgElement(defs, "path", { d: "M0 0L8 4L0 8z", fill: theme.secondary });
  const lefts = layouts.map((_, i) => i * (width + ARC + gap));
  if (layouts.length > 1) drawMemory(view, layouts, lefts, width, height);
  layouts.forEach((layout, i) => drawStack(view, data.stacks[i].name, layout, lefts[i], width, height));
  const steps = stepsOf(view), block = data.blocks[view.chosen], at = stepOf(view), end = at === steps.length - 1;
  view.where.textContent = `${at + 1} of ${steps.length}${wide ? "" : ` · ${block?.title ?? ""}`}`;
  view.next.textContent = end ? "Start again" : "Next step ›";
  view.next.title = end ? "This was the last step" : "The boxes above";
  view.back.title = at ? "The boxes below" : "This is the first step";
  view.back.setAttribute("aria-disabled", String(!at));
  view.about.textContent = block?.about ?? "";
  showBlock(view.panel, block, theme, wide, view.width / scale >= ROOMY);
}

function drawStack(view, name, layout, left, width, height) {
  const { svg } = view, base = height - 2, middle = left + width / 2;
  svgElement(svg, "text", { x: middle, y: 14, class: "stack" }, name);
  if (hasLabels(view)) svgElement(svg, "text", { x: left + width + ARC + 8, y: 14, class: "label" }, "it would say");
  svgElement(svg, "line", { x1: middle, x2: middle, y1: base, y2: base - layout.height, class: "flow" });
  for (const frame of layout.frames) {
    svgElement(svg, "rect", { x: left + 0.5, y: base - frame.high, width: width - 1 + ARC, height: frame.high - frame.low, rx: 8, class: "frame" });
    svgElement(svg, "text", { x: left + width + ARC - 6, y: base - frame.high + 12, class: "layer-name" }, frame.title);
    markKind(view, svg, frame.kind, left, base - frame.high, frame.high - frame.low);
  }
  for (const arc of layout.arcs) {
    const right = left + width - INSET, out = right + ARC;
    svgElement(svg, "path", { class: view.lit[0] === arc.path ? "residual at" : "residual", "marker-end": "url(#tip)",
      d: `M${middle} ${base - arc.low}H${out}V${base - arc.high}H${right + 2}` });
  }
  const order = walkOrder(view);
  for (const block of layout.placed) drawBlock(view, block, left, width, base, order);
}

/** @param {Placed} block */
function drawBlock(view, block, left, width, base, order) {
  const inset = block.inset * INSET, chosen = view.lit.includes(block.path);
  const group = svgElement(view.svg, "g", { class: `block ${block.type}${chosen ? " chosen" : ""}`, tabindex: 0,
    role: "button", "aria-pressed": String(chosen), "data-path": block.path });
  const at = order.indexOf(block.path), place = at < 0 ? "a layer that opens" : `block ${at + 1} of ${order.length}`;
  group.setAttribute("aria-label", `${block.title}, ${place}`); // several have the same title
  const height = block.high - block.low, wide = width - 2 * inset;
  svgElement(group, "rect", { x: left + inset, y: base - block.high, width: wide, height, rx: 6 });
  markKind(view, group, block.kind, left + inset, base - block.high, height);
  drawTitle(group, block.title, left + width / 2, base - block.low - height / 2 + 4.5, wide);
  const label = view.data.blocks[block.last]?.label;
  if (label) {
    const y = base - block.low - height / 2;
    svgElement(view.svg, "path", { class: "lead", d: `M${left + width - inset} ${y}H${left + width + ARC + 4}` });
    svgElement(view.svg, "text", { x: left + width + ARC + 8, y: y + 4.5, class: `label${chosen ? " at" : ""}` }, label);
  }
  const press = () => { stop(view); choose(view, [isLayer(block.path) ? firstOf(view, block.path) : block.path]); };
  group.onclick = press;
  group.onkeydown = (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    press();
    view.svg.querySelector(`[data-path="${CSS.escape(view.chosen)}"]`)?.focus();
  };
}

/** A title in one line, or in two where it is too long for its block. */
function drawTitle(group, title, x, y, wide) {
  const words = title.split(" "), long = title.length * 6.6 > wide && words.length > 1;
  const first = long ? words.slice(0, Math.floor(words.length / 2)).join(" ") : "", last = title.slice(first.length).trim();
  const text = svgElement(group, "text", { x, y: long ? y - 6 : y, class: long ? "two" : "" });
  for (const [at, line] of (long ? [`${first} `, last] : [title]).entries()) {
    const room = Math.floor(wide / (long ? 5.8 : 6.6));
    svgElement(text, "tspan", { x, dy: at ? 12 : 0 }, line.length > room ? `${line.slice(0, room - 1)}…` : line);
  }
}

/** A bar in the colour of a layer's kind of attention, in a stack of unlike layers. */
function markKind(view, parent, kind, x, y, height) {
  if (kind === undefined) return;
  const { categories } = view.theme;
  svgElement(parent, "rect", { x, y, width: 6, height, rx: 3, class: "kind", style: `fill: ${categories[Math.min(kind, categories.length - 1)]}` });
}

/** The encoder's output, which every cross-attention reads as its keys and values. */
function drawMemory(view, layouts, [first, second], width, height) {
  const base = height - 2, top = base - layouts[0].height, middle = first + width / 2, aisle = first + width + ARC + 20;
  const targets = layouts[1].placed.filter((block) => block.type === "cross" || block.type === "layer");
  for (const block of targets) {
    const y = base - (block.low + block.high) / 2;
    svgElement(view.svg, "path", { class: "memory", "marker-end": "url(#tip)",
      d: `M${middle} ${top}V${top - 8}H${aisle}V${y}H${second + (block.inset ? INSET : 0) - 1}` });
  }
}

export default (component) => mount(component, { start, update, draw, stop });
