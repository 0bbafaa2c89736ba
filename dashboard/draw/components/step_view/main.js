// One query through six stages: draws what Python measured, and says what was pressed.

/** @import { Picture } from "./types" */
import { element, pixelRatio, resized, scaleOf, svgElement } from "../lib/dom.js";
import { nameStop } from "../lib/keys.js";
import { mount } from "../lib/mount.js";
import { rgba, rgbAt } from "../lib/theme.js";
import { LEGEND, drawDetail, isLast } from "./detail.js";
import { cut, drawRect, drawText, tablesOf, tintOf, widthOf } from "./paint.js";
import { drawProjection } from "./project.js";
import { TALLEST, drawThumbs } from "./thumbs.js";

const WIDEST = 2400, PHONE = 560; // px
const KEYS = "Left and right arrows change the step, up and down the query, brackets the key in the equation.";
const LEAST = 33, MOST = 44; // px of a number in a vector
const WIDER = 1.4; // how much wider the first and the last column are, which hold vectors
const MORE = 24; // px that say how many more numbers there are

/** @param {Picture} view @returns {Picture["layout"]} */
function layoutOf(view) {
  const { width, data, phone } = view;
  const labels = [...data.rows, ...data.keys.map((row) => row.label)];
  const longest = Math.max(0, ...labels.map((label) => widthOf(view, label, 13)));
  const gutter = phone ? 0 : Math.min(96, Math.max(62, Math.ceil(longest) + 14));
  const pitch = phone ? width / 6 : (width - gutter) / (4 + 2 * WIDER), wide = phone ? pitch : WIDER * pitch;
  const inRoom = (room) => Math.max(1, Math.min(data.q.length, Math.floor(room / LEAST)));
  const hides = inRoom(wide - 12) < Math.max(...data.sizes) ? MORE : 0;
  const twoVectors = phone && isLast(view), size = Math.max(...data.sizes); // values, and values times weights
  const dims = phone ? (width < 340 || (twoVectors && size > 4) ? 3 : 4) : inRoom(wide - 12 - hides);
  const dim = twoVectors ? (width - 120) / 2 / dims - (size > dims ? MORE / dims : 0)
    : phone ? Math.min(38, ((width - 62) * 0.58 - hides) / dims) : Math.min(MOST, (wide - 14 - hides) / dims);
  const number = phone ? Math.max(44, (width - 62) / 4 - 14) : Math.min(Math.max(60, pitch / 3), pitch - 16);
  const bar = phone ? (twoVectors ? 44 : (width - 62) * 0.25 - 4) : Math.min(pitch - 32, Math.max(110, pitch * 0.7));
  return { gutter, pitch, wide, dim, dims, number, bar, thumbs: phone ? 40 : 46, column: (at) => gutter + at * pitch + (at ? wide - pitch : 0) };
}

/** @param {Picture} view */
function drawHeads(view) {
  const { data, layout, phone } = view;
  data.stages.forEach((stage, at) => {
    const x = layout.column(at), active = at + 1 === data.stage ? "pick " : "";
    if (phone || layout.pitch < 118) {
      drawText(view, x, 14, active ? "pick head strong" : "faint head", String(at + 1));
      drawText(view, x, 30, active ? "pick head strong" : "muted head", cut(view, stage.short, layout.pitch - 4, 12.5));
    } else {
      drawText(view, x, 17, active ? "pick title" : "faint title", String(at + 1));
      drawText(view, x + 14, 17, `${active}title strong`, stage.title);
      drawRule(view, x, 35, cut(view, stage.rule, layout.pitch - 12, 12));
    }
    const press = drawRect(view, x - 8, 0, layout.pitch - 2, 40, { fill: "transparent", class: "press" });
    press.addEventListener("click", () => view.pick({ stage: at + 1 }));
  });
}

/** W_q stands as W with a small q below, as in the equation. @param {Picture} view @param {string} text */
function drawRule(view, x, y, text) {
  const line = drawText(view, x, y, "muted tick", "");
  text.split(/_(.)/).forEach((part, at) => {
    const shift = at % 2 ? { dy: 3, "font-size": 9 } : at ? { dy: -3 } : {};
    if (part) svgElement(line, "tspan", shift, part);
  });
}

/** A layer of its own, behind the canvas, so that it does not change the colour of a cell. @param {Picture} view */
function drawTint(view, bottom) {
  const { data, layout, theme, dom } = view;
  const box = { left: layout.column(data.stage - 1) - (view.phone ? 5 : 10), width: ([1, 6].includes(data.stage) ? layout.wide : layout.pitch) - 4, height: bottom };
  for (const [key, value] of Object.entries(box)) dom.tint.style[key] = `${value}px`;
  dom.tint.style.background = tintOf(theme);
}

// The same numbers as a table, for those who do not see the picture.
function showNumbers({ dom, data }) {
  dom.numbers.replaceChildren();
  if (data.stage === 1) return; // no key has a number yet
  const line = (cells, tag) => {
    const row = dom.numbers.insertRow();
    for (const text of cells) element(row, tag).textContent = text;
  };
  const shown = (cells) => cells.slice(0, data.stage); // the key, and what the steps so far have computed
  line(shown(["key", "score", "scaled", "masked", "weight"]), "th");
  for (const { label, raw, scores, masked, weight } of data.keys) {
    line(shown([label, raw.text, scores.text, masked ? masked.text : "−∞", weight.text]), "td");
  }
}

function showTexts({ root, dom, data }) {
  const { stage, stages, query, fact, keys } = data;
  const key = keys.find((row) => row.focus)?.label;
  nameStop(root, "picture of the steps", [`Step ${stage} of ${stages.length}, ${stages[stage - 1].title}`,
    `The query is ${query}`, key && `The key in the equation is ${key}`], KEYS);
  if (dom.fact.textContent !== fact) dom.fact.replaceChildren(); // the same words are not read out again
  if (!dom.fact.childNodes.length) for (const [text, style] of data.parts) element(dom.fact, "span", style).textContent = text;
  dom.fact.classList.toggle("long", data.fact.length > 110);
  dom.caption.textContent = data.caption;
}

/** @param {Picture} view */
function definePatterns({ svg, theme, tables }) {
  const defs = svgElement(svg, "defs");
  const pattern = svgElement(defs, "pattern",
    { id: "step-hatch", width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
  svgElement(pattern, "rect", { width: 5, height: 5, fill: theme.zero });
  for (const scale of ["signed", "weight"]) {
    const gradient = svgElement(defs, "linearGradient", { id: `step-${scale}` });
    for (let n = 0; n <= 20; n++) {
      const colour = rgbAt(tables[scale], Math.round((n / 20) * 254));
      svgElement(gradient, "stop", { offset: n / 20, "stop-color": rgba(colour) });
    }
  }
  svgElement(pattern, "line", { x1: 0, x2: 0, y1: 0, y2: 5, stroke: theme.text, "stroke-opacity": 0.3, "stroke-width": 1 });
}

function draw(view) {
  const { root, dom, data } = view;
  view.width = root.clientWidth;
  if (!view.width) return;
  const scale = scaleOf(view.width), width = Math.floor(Math.min(WIDEST, view.width) / scale);
  for (const part of [dom.tint, dom.canvas, dom.art]) part.style.zoom = String(scale);
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const picture = { ...view, svg, width, phone: width < PHONE, pen: dom.canvas.getContext("2d") };
  picture.layout = layoutOf(picture);
  picture.board = resized(dom.canvas, width, picture.layout.thumbs + TALLEST + 10, pixelRatio(dom.canvas));
  definePatterns(picture);
  dom.tint.hidden = Boolean(data.projection); // of step 1 alone there is one column
  const bottom = data.projection ? drawProjection(picture, 0) : drawAllSteps(picture);
  const size = { width, height: bottom, viewBox: `0 0 ${width} ${bottom}`, "aria-hidden": "true" };
  for (const [name, value] of Object.entries(size)) svg.setAttribute(name, String(value));
  dom.art.replaceChildren(svg);
}

/** @param {Picture} picture */
function drawAllSteps(picture) {
  drawHeads(picture);
  const below = drawThumbs(picture);
  const bottom = drawDetail(picture, below);
  drawTint(picture, picture.phone ? below + 6 : bottom - LEGEND - 8);
  return bottom;
}

function start(view) {
  const { root } = view;
  root.tabIndex = 0;
  view.dom = { tint: element(root, "div", "tint"), canvas: element(root, "canvas"), art: element(root, "div", "art"),
    fact: element(root, "p", "fact", { "aria-live": "polite" }), caption: element(root, "p", "caption"),
    numbers: element(root, "table") };
  view.pick = (message) => view.setTriggerValue("pick", message);
  root.onkeydown = (event) => {
    const { picked, stage, keys } = view.data, at = keys.findIndex((row) => row.focus);
    const message = { ArrowUp: { query: picked - 1 }, ArrowDown: { query: picked + 1 },
      ArrowLeft: { stage: stage - 1 }, ArrowRight: { stage: stage + 1 },
      "[": { key: keys[at - 1]?.index }, "]": { key: keys[at + 1]?.index } }[event.key];
    if (!message || Object.values(message)[0] === undefined) return;
    event.preventDefault();
    view.pick(message);
  };
}

function update(view, data) {
  const moved = view.data && view.data.stage !== data.stage;
  Object.assign(view, { data, tables: tablesOf(data.palette, view.theme) });
  draw(view);
  showNumbers(view);
  showTexts(view);
  if (moved && view.root.clientWidth < PHONE) view.dom.fact.scrollIntoView({ block: "nearest" }); // what the press changed
}

export default (component) => mount(component, { start, update, draw });
