// Elements that the components are put together from. Tokens and texts only ever enter through textContent.

const SVG = "http://www.w3.org/2000/svg";

/**
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Element} parent @param {Tag} tag @param {string} [name] its classes @param {Record<string, string>} [attributes]
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function element(parent, tag, name = "", attributes = {}) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  parent.appendChild(made);
  return made;
}

/** @param {Element} parent @param {string} tag @param {Record<string, string | number>} [attributes] @param {string} [text] */
export function svgElement(parent, tag, attributes = {}, text = undefined) {
  const made = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  if (text !== undefined) made.textContent = text;
  parent.appendChild(made);
  return made;
}

/** Keys reach every tool, so that a picture stays one stop of the Tab key. @param {Element} parent */
export function tool(parent, text, label) {
  const button = element(parent, "button", "tool", { type: "button", tabindex: "-1", title: label, "aria-label": label });
  button.textContent = text;
  return button;
}

/** The line under a picture: what it says of itself, and the tools. @param {Element} root */
export function buildFoot(root, dom) {
  dom.foot = element(root, "div", "foot");
  dom.status = element(dom.foot, "span", "status");
  const tools = element(dom.foot, "span", "tools");
  dom.reset = tool(tools, "Reset zoom", "Reset zoom");
  dom.tableButton = tool(tools, "Table", "Read the row as a table (T)");
  dom.help = tool(tools, "?", "Keys (?)");
}

const KEYS = [
  ["← → ↑ ↓", "move one cell"], ["Shift + arrow", "move one tick"], ["Home End", "first, last key of the row"],
  ["[ ]", "previous, next head"], ["Enter", "pin or release"], ["Esc", "release, reset the zoom"],
  ["T", "read the row as a table"], ["P", "save the picture as PNG"], ["?", "show these keys"],
];

/** What is read aloud; the keys and the table, hidden. @param {Element} root @param {Record<string, any>} dom @param {string[]} without keys */
export function buildReading(root, dom, without = []) {
  dom.live = element(root, "div", "sr live", { "aria-live": "polite", role: "status" });
  dom.keys = element(root, "dl", "keys");
  for (const [key, meaning] of KEYS) {
    if (without.includes(key)) continue;
    element(dom.keys, "dt").textContent = key;
    element(dom.keys, "dd").textContent = meaning;
  }
  dom.rows = element(root, "div", "rows");
  dom.keys.hidden = dom.rows.hidden = dom.reset.hidden = true;
  dom.help.onclick = () => (dom.keys.hidden = !dom.keys.hidden);
}

/** A title over a colour ramp from its low to its high end. @param {Element} parent @returns {import("./types").Legend} */
export function buildLegend(parent) {
  const root = element(parent, "span", "legend");
  const noun = element(root, "span", "noun"), scale = element(root, "span", "scale");
  const [ramp, low, middle, high] = ["ramp", "low", "middle", "high"].map((name) => element(scale, "span", name));
  return { root, noun, ramp, low, middle, high };
}

/** @param {import("./types").Legend} legend @param {string[]} stops */
export function showLegend(legend, stops, noun, low, middle, high) {
  legend.ramp.style.background = `linear-gradient(to right, ${stops.join(", ")})`;
  for (const [name, text] of Object.entries({ noun, low, middle, high })) legend[name].textContent = text;
}

/** The tooltip beside a point: a title, a lead and what follows it, a last line. @param {HTMLElement} tip @param {string[]} lines */
export function showTip(tip, [title, lead, rest, last], point, width, height) {
  tip.replaceChildren();
  element(tip, "b").textContent = title;
  const line = element(tip, "div");
  element(line, "span", "lead").textContent = lead;
  element(line, "span").textContent = rest;
  if (last) element(tip, "div").textContent = last;
  tip.hidden = false;
  const { offsetWidth: wide, offsetHeight: high } = tip;
  const left = point.x + 18 + wide > width ? point.x - 18 - wide : point.x + 18;
  const top = point.y + 18 + high > height + 24 ? point.y - 14 - high : point.y + 18;
  const inside = Math.max(0, Math.min(left, width - wide));
  tip.style.transform = `translate(${Math.round(inside)}px, ${Math.round(Math.max(-high, top))}px)`;
}

/** A table of numbers: `lines` are [name, texts], a text null where the key is masked. @param {Element} parent */
export function showTable(parent, [first, ...columns], lines) {
  const table = element(parent, "table");
  const head = element(element(table, "thead"), "tr");
  element(head, "th").textContent = first;
  for (const column of columns) element(head, "th", "number").textContent = column;
  const body = element(table, "tbody");
  for (const [name, texts] of lines) {
    const line = element(body, "tr", texts.every((text) => text === null) ? "hidden-key" : "");
    element(line, "td").textContent = name;
    for (const text of texts) element(line, "td", text === null ? "number hidden-key" : "number").textContent = text ?? "masked";
  }
}

/** Draw anew, and give the focus back to the element with the same data-path. @param {Element} root @param {() => void} draw */
export function keepFocus(root, draw) {
  const { activeElement } = /** @type {ShadowRoot} */ (root.getRootNode());
  const path = activeElement instanceof HTMLElement || activeElement instanceof SVGElement ? activeElement.dataset.path : undefined;
  draw();
  if (path === undefined) return;
  /** @type {HTMLElement | null} */ (root.querySelector(`[data-path="${CSS.escape(path)}"]`))?.focus({ preventScroll: true });
}

/** How much larger than its own CSS pixels an element is on the screen: while presenting. @param {Element} node */
export const zoomOf = (node) => node.currentCSSZoom ?? 1;

/** How much larger than on a laptop a map may be drawn in a wide window. @param {Element} node */
export const growthOf = (node) => Math.min(1.6, Math.max(1, innerWidth / zoomOf(node) / 1700));

/** How far a large window enlarges a whole picture, of 1050 × 620 px at its own size. @param {number} width */
export const scaleOf = (width) => Math.max(1, Math.min(1.6, width / 1050, innerHeight / 620));

/** The screen's own pixels in a CSS pixel of an element. @param {Element} node */
export const pixelRatio = (node) => (window.devicePixelRatio || 1) * zoomOf(node);

/** The context of a canvas set to a size in CSS pixels, cleared, in the screen's own pixels. @param {HTMLCanvasElement} canvas */
export function resized(canvas, width, height, ratio) {
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const ctx = canvas.getContext("2d");
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  return ctx;
}

/** A canvas of a pixel a cell, coloured by an index into `colours` (RGB), none below 0. @param {(at: number) => number} indexOf */
export function pixels(cols, rows, colours, indexOf) {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [cols, rows];
  const ctx = canvas.getContext("2d"), image = ctx.createImageData(cols, rows);
  for (let at = 0; at < cols * rows; at++) {
    const k = 3 * indexOf(at);
    if (k < 0) continue;
    for (let c = 0; c < 3; c++) image.data[4 * at + c] = colours[k + c];
    image.data[4 * at + 3] = 255;
  }
  ctx.putImageData(image, 0, 0);
  return canvas;
}

/** Whether a finger was the last pointer; before the first, whether the device has no other. @param {{ touch?: boolean }} view */
export const isTouch = ({ touch }) => touch ?? matchMedia("(hover: none)").matches;
