// The lower half: one line a key, the same six columns.

import { svgElement } from "../lib/dom.js";
import { rgba } from "../lib/theme.js";
import { cut, signedRgb, textOn } from "./paint.js";

function numberCell(view, x, y, w, h, cell, options = {}) {
  const { svg, theme } = view;
  const colour = signedRgb(view, cell.level);
  svgElement(svg, "rect", { x, y, width: w - 1, height: h, fill: rgba(colour) });
  const attributes = { x: x + (w - 1) / 2, y: y + h / 2 + 4, "text-anchor": "middle", class: options.small ? "cell small" : "cell", fill: textOn(theme, colour) };
  if (options.mute) attributes["fill-opacity"] = 0.5;
  svgElement(svg, "text", attributes, cell.text);
}

function vector(view, x, y, cells, options = {}) {
  const count = Math.min(cells.length, view.place.dims);
  const wide = view.place.dim;
  for (let d = 0; d < count; d++) numberCell(view, x + d * wide, y, wide, 24, cells[d], { ...options, small: true });
  return count * wide;
}

function hatchedCell(view, x, y, w) {
  const { svg, theme } = view;
  svgElement(svg, "rect", { x, y, width: w, height: 24, fill: "url(#step-hatch)" });
  svgElement(svg, "rect", { x: x + w / 2 - 15, y: y + 4, width: 30, height: 16, fill: theme.ground, opacity: 0.85 });
  svgElement(svg, "text", { x: x + w / 2, y: y + 16, "text-anchor": "middle", class: "cell" }, "−∞");
}

function bar(view, x, y, w, weight, strong) {
  // From the left edge, or from the middle where weights may be below zero.
  const { svg, theme, data } = view;
  const room = Math.max(12, w - 34);
  svgElement(svg, "rect", { x, y: y + 4, width: room, height: 16, fill: theme.zero });
  const whole = data.weights.signed ? room / 2 : room;
  const zero = data.weights.signed ? x + room / 2 : x;
  const wide = Math.max(1, whole * Math.min(1, Math.abs(weight.value)));
  const fill = data.weights.signed ? rgba(signedRgb(view, weight.value < 0 ? -0.7 : 0.7)) : theme.bar;
  if (weight.value) svgElement(svg, "rect", { x: weight.value < 0 ? zero - wide : zero, y: y + 4, width: wide, height: 16, fill });
  const style = weight.value ? (strong ? "number strong" : "number") : "number faint";
  svgElement(svg, "text", { x: x + w, y: y + 16, "text-anchor": "end", class: style }, weight.text);
}

const DRAW_COLUMN = {
  project: (view, row, x, y) => vector(view, x, y, row.k),
  score: (view, row, x, y) => numberCell(view, x, y, view.place.number, 24, row.raw),
  scale: (view, row, x, y) => {
    numberCell(view, x, y, view.place.number, 24, row.scores);
    const room = view.place.pitch - view.place.number - 10;
    if (row.bias && room > 34) svgElement(view.svg, "text", { x: x + view.place.number + 7, y: y + 16, class: "faint tick" }, row.bias);
  },
  mask: (view, row, x, y) => {
    if (row.masked) numberCell(view, x, y, view.place.number, 24, row.masked);
    else hatchedCell(view, x, y, view.place.number - 1);
    const room = view.place.pitch - view.place.number - 8;
    if (row.why && room > 30) svgElement(view.svg, "text", { x: x + view.place.number + 6, y: y + 16, class: "faint tick" }, cut(view, row.why, room - 4, 11.5));
  },
  normalize: (view, row, x, y) => bar(view, x, y, view.place.bar, row.weight, row.best),
  combine: (view, row, x, y) => vector(view, x, y, row.wv, { mute: row.weight.value === 0 }),
};

const COLUMNS = ["project", "score", "scale", "mask", "normalize", "combine"];

function phoneColumns(stage, width) {
  // On a phone the table shows the columns that the active stage needs; four numbers are what fits.
  const name = COLUMNS[stage - 1];
  if (name === "project") return [["project", 62], ["score", width - 68]];
  if (name === "combine") return [["normalize", 62], ["combine", 62 + (width - 62) * 0.42]];
  const step = (width - 62) / 4;
  return ["score", "scale", "mask", "normalize"].map((key, at) => [key, 62 + at * step]);
}

export function drawDetail(view, top) {
  const { svg, data, place, phone, theme } = view;
  const columns = phone ? phoneColumns(data.stage, view.width) : COLUMNS.map((key, at) => [key, place.column(at)]);
  let y = top + 30;
  const title = svgElement(svg, "text", { x: 0, y, class: "lead" });
  svgElement(title, "tspan", { class: "pick strong" }, cut(view, data.query, 220, 14));
  svgElement(title, "tspan", { class: "muted", dx: 5 }, "against " + data.against);
  y += 16;
  const heads = y + 17;
  columns.forEach(([key, x]) => drawHeading(view, key, x, heads, y));
  y += phone ? 28 : 30;
  svgElement(svg, "line", { x1: 0, x2: view.width, y1: y, y2: y, class: "hair" });
  y += 4;
  const pitch = phone ? 32 : 26.5;
  data.keys.forEach((row, at) => {
    const line = y + at * pitch;
    const tokenRoom = (phone ? 62 : place.gutter) - 12;
    const anchor = phone ? { x: 0 } : { x: place.gutter - 12, "text-anchor": "end" };
    svgElement(svg, "text", { ...anchor, y: line + 16, class: row.best ? "token key strong" : "token key" }, cut(view, row.label, tokenRoom, 13));
    columns.forEach(([key, x]) => DRAW_COLUMN[key](view, row, x, line));
    const press = svgElement(svg, "rect", { x: 0, y: line - 1, width: view.width, height: pitch, fill: "transparent", class: "press row" });
    if (row.focus && !row.best) svgElement(svg, "rect", { x: phone ? -6 : place.gutter - 8, y: line, width: 3, height: 24, rx: 1.5, fill: theme.pick });
    press.addEventListener("click", () => view.pick({ key: row.index }));
    svgElement(press, "title", {}, `Put ${row.label} in the equation`);
  });
  y += data.keys.length * pitch + 2;
  if (phone) tintColumn(view, columns, heads - 18, y);
  svgElement(svg, "line", { x1: 0, x2: view.width, y1: y, y2: y, class: "hair" });
  return drawFooter(view, columns, y + 4);
}

function tintColumn(view, columns, from, to) {
  // The phone's table has columns of its own, so the active one carries the tint here too.
  const at = columns.findIndex(([key]) => key === COLUMNS[view.data.stage - 1]);
  const [, x] = columns[at];
  const end = at + 1 < columns.length ? columns[at + 1][1] - 10 : view.width;
  view.svg.insertBefore(svgElement(view.svg, "rect", { x: x - 6, y: from, width: end - x + 6, height: to - from, rx: 5, fill: view.theme.tint }), view.svg.firstChild);
}

function drawHeading(view, key, x, baseline, y) {
  const { svg, data, place, phone } = view;
  const at = COLUMNS.indexOf(key);
  if (at === 0 && !phone) {
    svgElement(svg, "text", { x: place.gutter - 12, y: baseline, "text-anchor": "end", class: "pick name" }, "q");
    const wide = vector(view, x, y, data.q);
    svgElement(svg, "rect", { x: x - 2, y: y - 2, width: wide + 3, height: 28, rx: 2, fill: "none", class: "ring" });
    return;
  }
  const active = at + 1 === data.stage;
  const room = (phone ? Math.max(60, place.number + 12) : place.pitch) - 8;
  const name = at === 0 ? "k" : phone && key !== "normalize" && key !== "combine" ? data.stages[at].short : data.heads[at];
  svgElement(svg, "text", { x, y: baseline, class: active && phone ? "pick head strong" : "muted head" }, cut(view, name, room, 12.5));
}

function drawFooter(view, columns, y) {
  const { svg, data, place, phone } = view;
  for (const [key, x] of columns) {
    if (key === "normalize") {
      const wide = place.bar;
      svgElement(svg, "text", { x: x + wide, y: y + 17, "text-anchor": "end", class: "muted number" }, (phone ? "Σ " : "") + data.sum);
    }
    if (key === "combine") {
      const wide = vector(view, x, y, data.out);
      svgElement(svg, "rect", { x: x - 2, y: y - 2, width: wide + 3, height: 28, rx: 2, fill: "none", class: "ring" });
      svgElement(svg, "text", { x: x - 7, y: y + 17, "text-anchor": "end", class: "pick name" }, "out");
    }
  }
  if (phone) {
    if (data.stage === 1) y -= 32; // no sum and no output in this table
    drawLegend(view, 0, y + 40, "signed", data.legend, ["−", "0", "+"], 70);
    drawLegend(view, 0, y + 74, data.weights.signed ? "signed" : "weight", data.weights.words, data.weights.ends, 70);
    return y + 100;
  }
  svgElement(svg, "text", { x: place.gutter - 12, y: y + 17, "text-anchor": "end", class: "muted head" }, "Σ");
  drawLegend(view, place.column(0), y + 9, "signed", data.legend, ["−", "0", "+"], 103);
  drawLegend(view, place.column(2) + place.pitch * 0.5, y + 9, data.weights.signed ? "signed" : "weight", data.weights.words, data.weights.ends, 86);
  return y + 38;
}

function drawLegend(view, x, y, scale, title, ends, wide) {
  const { svg } = view;
  svgElement(svg, "rect", { x, y, width: wide, height: 8, fill: `url(#step-${scale})` });
  svgElement(svg, "text", { x: x + wide + 8, y: y + 8, class: "muted tick" }, title);
  ends.forEach((text, at) => svgElement(svg, "text", { x: x + (at * wide) / 2, y: y + 21, "text-anchor": ["start", "middle", "end"][at], class: "faint tick" }, text));
}
