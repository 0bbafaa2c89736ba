// Step 1: a word's vector x times three matrices gives its query, key and value; with them those of every word.

/** @import { Cell, Picture } from "./types" */
import { svgElement } from "../lib/dom.js";
import { rgba, textOn } from "../lib/theme.js";
import { cut, drawLegend, drawRect, drawText, signedRgb, widthOf } from "./paint.js";

const LEAST = 33, MOST = 150; // px of a cell's width
const END = { "text-anchor": "end" }, MIDDLE = { "text-anchor": "middle" };
const X_WIDTH = 44; // px of x with its gap

/** @param {Picture} view @param {Cell} cell */
function drawCell(view, cell, x, y, w, h) {
  const colour = signedRgb(view, cell.level);
  drawRect(view, x, y, w - 1, h - 1, { fill: rgba(colour) });
  const attributes = { ...MIDDLE, fill: textOn(view.theme, colour) };
  drawText(view, x + (w - 1) / 2, y + h / 2 + 3.5, w > 44 ? "cell" : "cell small", cell.text, attributes);
}

/** A name with a small letter below it, as W with Q. @param {Picture} view */
function drawMatrixName(view, x, y, letter, colour) {
  const name = drawText(view, x, y, "name", "W", { fill: colour });
  svgElement(name, "tspan", { dy: 3, "font-size": 10 }, letter);
}

/** Where x, the matrix and the rows of one part are. @param {Picture} view @param {number} at 0 to 2 @param {number} top */
function placePart(view, at, top) {
  const { data: { projection: made }, phone, width } = view;
  const names = Math.min(80, Math.max(...made.rows.map((name) => widthOf(view, name, 13)))) + 10;
  if (phone) {
    const room = (width - X_WIDTH - names - 6) / 2, dims = Math.max(1, Math.min(made.dims, Math.floor(room / 30)));
    const cell = Math.min(LEAST, Math.floor(room / dims)), matrix = { x: X_WIDTH, y: top + 60 };
    return { left: 0, x: 0, matrix, rows: { x: width - dims * cell - 3, y: matrix.y }, dims, cell, height: 25 };
  }
  const pitch = width / 3, left = at * pitch, gutter = Math.max(names, X_WIDTH);
  const room = pitch - gutter - 22, dims = Math.max(1, Math.min(made.dims, Math.floor(room / LEAST)));
  const cell = Math.min(MOST, Math.floor(room / dims)), height = cell > 80 ? 32 : 30;
  const matrix = { x: left + gutter, y: top + 68 };
  const rows = { x: matrix.x, y: matrix.y + made.x.length * height + 34 };
  return { left, x: matrix.x - X_WIDTH, matrix, rows, dims, cell, height };
}

/** One of query, key and value; where it ends. @param {Picture} view @param {number} at @param {number} top */
function drawPart(view, at, top) {
  const { data: { projection: made, query }, theme, width, phone } = view;
  const part = made.parts[at], place = placePart(view, at, top);
  const { left, matrix, rows, dims, cell, height } = place;
  const colour = [theme.pick, theme.categories[0], theme.categories[2]][at];
  const room = phone ? width : width / 3 - 16;
  const title = drawText(view, left, top + 16, "lead strong", part.name, { fill: colour });
  svgElement(title, "tspan", { dx: 6, class: "muted", fill: theme.text }, part.sign);
  drawText(view, left, top + 36, "muted tick", cut(view, part.meaning.replace("this word", query), room, 12));
  drawText(view, place.x + 18, matrix.y - 6, "name", "x", MIDDLE);
  drawMatrixName(view, matrix.x, matrix.y - 8, part.sign, colour);
  made.x.forEach((value, c) => {
    drawCell(view, value, place.x, matrix.y + c * height, X_WIDTH - 8, height);
    part.w[c].slice(0, dims).forEach((w, d) => drawCell(view, w, matrix.x + d * cell, matrix.y + c * height, cell, height));
  });
  drawText(view, rows.x, rows.y - 6, "name", part.sign.toUpperCase(), { fill: colour });
  const note = dims < made.dims ? `first ${dims} of ${made.dims} numbers` : at ? "" : "one row for each word";
  if (!phone) drawText(view, rows.x + 18, rows.y - 6, "faint tick", cut(view, note, dims * cell - 18, 12));
  made.rows.forEach((name, r) => drawRow(view, part, r, name, place));
  const ring = { rx: 2, fill: "none", stroke: colour, "stroke-width": 2, "pointer-events": "none" };
  drawRect(view, rows.x - 2, rows.y + made.picked * height - 2, dims * cell + 3, height + 3, ring); // over all rows
  return Math.max(matrix.y + made.x.length * height, rows.y + made.rows.length * height);
}

/** @param {Picture} view */
function drawRow(view, part, r, name, { rows, dims, cell, height }) {
  const { projection: made } = view.data, picked = r === made.picked, y = rows.y + r * height;
  const label = cut(view, name, 80, 13);
  drawText(view, rows.x - 8, y + height / 2 + 4, picked ? "token key strong" : "token key", label, END);
  part.rows[r].slice(0, dims).forEach((value, d) => drawCell(view, value, rows.x + d * cell, y, cell, height));
  const press = drawRect(view, rows.x - 60, y, dims * cell + 60, height, { fill: "transparent", class: "press row" });
  press.addEventListener("click", () => view.pick({ query: made.first + r }));
  svgElement(press, "title", {}, `Make ${name} the query`);
}

/** Draw from some height down; where it ends. @param {Picture} view @param {number} top */
export function drawProjection(view, top) {
  const { data: { projection: made }, phone } = view;
  let bottom = top;
  [0, 1, 2].forEach((at) => {
    const end = drawPart(view, at, phone ? bottom : top);
    bottom = phone ? end + 14 : Math.max(bottom, end);
  });
  drawLegend(view, 0, bottom + 16, "signed", `numbers ${made.legend}`, ["−", "0", "+"], 90);
  if (made.size > made.x.length) {
    const note = `The first ${made.x.length} of the ${made.size} numbers of x are drawn; all of them are added up.`;
    drawText(view, 0, bottom + 56, "muted tick", note);
    return bottom + 64;
  }
  return bottom + 42;
}
