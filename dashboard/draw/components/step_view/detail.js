// The lower half: one line a key, the same six columns.

/** @import { Cell, Picture } from "./types" */
import { svgElement } from "../lib/dom.js";
import { rgba, textOn } from "../lib/theme.js";
import { cut, drawLegend, drawRect, drawText, signedRgb, tintOf, widthOf } from "./paint.js";

const HEIGHT = 24; // px of a cell
const COLUMNS = ["project", "score", "scale", "mask", "normalize", "combine"];
const NORMALIZE = 5; // the step that makes the weights
const PHONE_GUTTER = 62; // px
export const LEGEND = 32; // px of the scales below the table on a wide screen
const END = { "text-anchor": "end" };

/** @param {Picture} view @param {Cell} cell */
function drawNumber(view, x, y, w, cell, { small = false, mute = false } = {}) {
  const colour = signedRgb(view, cell.level);
  drawRect(view, x, y, w - 1, HEIGHT, { fill: rgba(colour) });
  const attributes = { "text-anchor": "middle", fill: textOn(view.theme, colour), ...(mute ? { "fill-opacity": 0.5 } : {}) };
  drawText(view, x + (w - 1) / 2, y + HEIGHT / 2 + 4, small ? `cell small${widthOf(view, cell.text, 11) > w - 4 ? " tight" : ""}` : "cell", cell.text, attributes);
}

/** Draw as many cells as there is room for, and how many more there are; their width. @param {Picture} view @param {Cell[]} cells */
function drawVector(view, x, y, cells, size, mute = false) {
  const { dim, dims } = view.layout;
  const visible = cells.slice(0, dims), wide = visible.length * dim;
  visible.forEach((cell, d) => drawNumber(view, x + d * dim, y, dim, cell, { small: true, mute }));
  if (size > visible.length) drawText(view, x + wide + 4, y + 16, "faint tick", `+${size - visible.length}`);
  return wide;
}

/** A vector in a ring, its name on its left. @param {Picture} view @param {Cell[]} cells */
function drawRinged(view, x, y, cells, size) {
  const wide = drawVector(view, x, y, cells, size);
  drawRect(view, x - 2, y - 2, wide + 3, HEIGHT + 4, { rx: 2, fill: "none", class: "ring" });
}

/** @param {Picture} view */
function drawHatched(view, x, y, w) {
  drawRect(view, x, y, w, HEIGHT, { fill: "url(#step-hatch)" });
  drawRect(view, x + w / 2 - 15, y + 4, 30, 16, { fill: view.theme.ground, opacity: 0.85 });
  drawText(view, x + w / 2, y + 16, "cell", "−∞", { "text-anchor": "middle" });
}

/** A bar from the left edge, or from the middle where weights may be below zero. @param {Picture} view */
function drawBar(view, x, y, w, weight, strong) {
  const { theme, data: { weights: { signed } } } = view;
  const room = Math.max(12, w - 34);
  drawRect(view, x, y + 4, room, 16, { fill: theme.zero });
  const whole = signed ? room / 2 : room, zero = signed ? x + room / 2 : x;
  const wide = Math.max(1, whole * Math.min(1, Math.abs(weight.value)));
  const fill = signed ? rgba(signedRgb(view, weight.value < 0 ? -0.7 : 0.7)) : theme.bar;
  if (weight.value) drawRect(view, weight.value < 0 ? zero - wide : zero, y + 4, wide, 16, { fill });
  const style = weight.value ? (strong ? "number strong" : "number") : "number faint";
  drawText(view, x + w, y + 16, style, weight.text, END);
}

/** The last step multiplies values: they stand where the keys were. @param {Picture} view */
export const isLast = ({ data }) => data.stage === COLUMNS.length;

/** @type {Record<string, (view: Picture, row: any, x: number, y: number) => void>} */
const DRAW_COLUMN = {
  project: (view, row, x, y) => drawVector(view, x, y, isLast(view) ? row.v : row.k, view.data.sizes[isLast(view) ? 1 : 0]),
  score: (view, row, x, y) => drawNumber(view, x, y, view.layout.number, row.raw),
  scale: (view, row, x, y) => {
    const { pitch, number } = view.layout;
    drawNumber(view, x, y, number, row.scores);
    if (row.bias && pitch - number > 44) drawText(view, x + number + 7, y + 16, "faint tick", row.bias);
  },
  mask: (view, row, x, y) => {
    const { pitch, number } = view.layout, room = pitch - number - 8;
    if (row.masked) drawNumber(view, x, y, number, row.masked);
    else drawHatched(view, x, y, number - 1);
    if (row.why && widthOf(view, row.why, 12) < room - 6) drawText(view, x + number + 6, y + 16, "faint tick", row.why);
  },
  normalize: (view, row, x, y) => drawBar(view, x, y, view.layout.bar, row.weight, row.best),
  combine: (view, row, x, y) => drawVector(view, x, y, row.wv, view.data.sizes[1], row.weight.value === 0),
};

// On a phone the table shows the columns that the active stage needs; four numbers are what fits.
function phoneColumns(stage, width) {
  const name = COLUMNS[stage - 1], room = width - PHONE_GUTTER;
  if (name === "project") return [["project", PHONE_GUTTER], ["score", width - 68]];
  if (name === "combine") return [["project", PHONE_GUTTER], ["normalize", PHONE_GUTTER + room / 2 - 26], ["combine", PHONE_GUTTER + room / 2 + 29]];
  return ["score", "scale", "mask", "normalize"].map((key, at) => [key, PHONE_GUTTER + (at * room) / 4]);
}

/** Draw from some height down; where it ends. @param {Picture} view @param {number} top */
export function drawDetail(view, top) {
  const { svg, data, layout, phone } = view;
  /** @type {any[]} */
  const all = phone ? phoneColumns(data.stage, view.width) : COLUMNS.map((key, at) => [key, layout.column(at)]);
  const columns = all.filter(([key]) => COLUMNS.indexOf(key) < data.stage); // a later step is not shown before its turn
  const title = svgElement(svg, "text", { x: 0, y: top + 30, class: "lead" });
  svgElement(title, "tspan", { class: "pick strong" }, cut(view, data.query, 220, 14));
  svgElement(title, "tspan", { class: "muted", dx: 5 }, `against ${data.against}`);
  const heads = top + (phone || isLast(view) ? 63 : 92);
  if (!phone && !isLast(view)) drawQuery(view, columns[0][1], top + 46);
  for (const [key, x] of columns) drawHeading(view, key, x, heads);
  const from = heads + 11, pitch = phone ? 32 : 26.5;
  const rule = (y) => svgElement(svg, "line", { x1: 0, x2: view.width, y1: y, y2: y, class: "hair" });
  rule(from);
  data.keys.forEach((row, at) => drawKey(view, row, columns, from + 4 + at * pitch, pitch));
  const end = from + 6 + data.keys.length * pitch;
  if (phone) drawColumnTint(view, all, heads - 18, end);
  rule(end);
  return drawFooter(view, columns, end + 4);
}

/** @param {Picture} view */
function drawKey(view, row, columns, y, pitch) {
  const { data, layout, phone, theme } = view;
  const room = (phone ? PHONE_GUTTER : layout.gutter) - 12;
  const label = cut(view, row.label, room, 13);
  drawText(view, phone ? 0 : room, y + 16, row.best && data.stage >= NORMALIZE ? "token key strong" : "token key", label, phone ? {} : END);
  for (const [key, x] of columns) DRAW_COLUMN[key](view, row, x, y);
  const press = drawRect(view, 0, y - 1, view.width, pitch, { fill: "transparent", class: "press row" });
  if (row.focus && !row.best) drawRect(view, phone ? -6 : layout.gutter - 8, y, 3, HEIGHT, { rx: 1.5, fill: theme.pick });
  press.addEventListener("click", () => view.pick({ key: row.index }));
  svgElement(press, "title", {}, `Put ${row.label} in the equation`);
}

/** The phone's table has columns of its own, so the active one carries the tint here too. @param {Picture} view */
function drawColumnTint(view, columns, from, to) {
  const at = columns.findIndex(([key]) => key === COLUMNS[view.data.stage - 1]);
  const x = columns[at][1] - 6, end = at + 1 < columns.length ? columns[at + 1][1] - 10 : view.width;
  view.svg.prepend(drawRect(view, x, from, end - x, to - from, { rx: 5, fill: tintOf(view.theme) }));
}

/** @param {Picture} view */
function drawQuery(view, x, y) {
  const { data, layout } = view;
  drawText(view, layout.gutter - 12, y + 17, "pick name", "q", END);
  drawRinged(view, x, y, data.q, data.sizes[0]);
}

/** @param {Picture} view */
function drawHeading(view, key, x, baseline) {
  const { data, layout, phone, theme } = view;
  const at = COLUMNS.indexOf(key);
  if (at === 0 && !phone) {
    const [sign, name, colour] = isLast(view) ? ["v", "value", 2] : ["k", "key", 0];
    drawText(view, layout.gutter - 12, baseline, "name", sign, { ...END, fill: theme.categories[colour] });
    drawText(view, x, baseline, "muted head", `a ${name} in each row`);
    return;
  }
  const room = (phone ? Math.max(60, layout.number + 12) : layout.pitch) - 8;
  const short = phone && key !== "normalize" && key !== "combine";
  const name = at === 0 ? (isLast(view) ? "v" : "k") : short ? data.stages[at].short : data.heads[at];
  drawText(view, x, baseline, at + 1 === data.stage && phone ? "pick head strong" : "muted head", cut(view, name, room, 12.5));
}

/** @param {Picture} view */
function drawFooter(view, columns, y) {
  const { data, layout, phone } = view;
  for (const [key, x] of columns) {
    const beside = phone && data.stage > NORMALIZE ? 24 : 0; // the name of the output is there
    if (key === "normalize") drawText(view, x + layout.bar - beside, y + 17, "muted number", (phone ? "Σ " : "") + data.sum, END);
    if (key !== "combine") continue;
    drawRinged(view, x, y, data.out, data.sizes[1]);
    drawText(view, x - 7, y + 17, "pick name", "out", END);
  }
  const { signed, words: title, ends } = data.weights;
  const scale = signed ? "signed" : "weight", signs = ["−", "0", "+"];
  if (phone) {
    const top = data.stage === 1 ? y - 32 : y; // no sum and no output in this table
    drawLegend(view, 0, top + 40, "signed", data.legend, signs, 70);
    if (data.stage >= NORMALIZE) drawLegend(view, 0, top + 74, scale, title, ends, 70);
    return top + (data.stage >= NORMALIZE ? 100 : 66);
  }
  const weighs = data.stage >= NORMALIZE, top = weighs ? y + 44 : y + 12;
  if (weighs) drawText(view, layout.gutter - 12, y + 17, "muted head", "Σ", END);
  drawLegend(view, layout.column(0), top, "signed", data.legend, signs, 103);
  const second = Math.max(layout.column(2) + layout.pitch * 0.5, layout.column(0) + 141 + widthOf(view, data.legend, 12));
  if (weighs) drawLegend(view, second, top, scale, title, ends, 86);
  return top + LEGEND;
}
