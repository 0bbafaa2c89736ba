// What the open block is, in words, numbers and pictures of the example that runs through the model.

import { fromBase64 } from "../lib/bytes.js";
import { element, pixels } from "../lib/dom.js";
import { number } from "../lib/numbers.js";
import { lookup } from "../lib/theme.js";

/** @import { Theme } from "../lib/types" */
/** @import { Bars, BlockData, Maps } from "./types" */

const MAP = 200; // px of a head's map

/** @param {HTMLElement} panel @param {BlockData | undefined} block @param {Theme} theme @param {boolean} wide @param {boolean} roomy */
export function showBlock(panel, block, theme, wide, roomy) {
  panel.replaceChildren();
  if (!block) return;
  element(panel, "h2").textContent = block.title;
  element(panel, "p").textContent = block.about;
  const box = element(panel, "div", "pair");
  if (block.cell && block.maps) showMap(box, block.maps, block.tokens, theme, block.cell);
  for (const bars of block.bars) showBars(box, bars);
  if (roomy && block.table.length) showTokens(box, block);
  const open = wide && !block.bars.length; // the vectors are the picture
  if (open && block.vectors) showVectors(panel, block.vectors, block.tokens, theme);
  const more = element(panel, "details"), inside = !roomy && block.table.length > 0;
  element(more, "summary").textContent = "Its numbers";
  const fill = () => {
    if (inside) showTokens(more, block);
    if (block.maps) showMaps(more, block.maps, theme);
    if (!open && block.vectors) showVectors(more, block.vectors, block.tokens, theme);
    const list = element(more, "dl");
    for (const [name, value] of block.numbers) {
      element(list, "dt").textContent = name;
      element(list, "dd").textContent = value;
    }
  };
  more.open = !block.bars.length || panel.dataset.more === "1";
  if (more.open) fill();
  more.ontoggle = () => { // also of one that was made open
    if (more.open && more.childElementCount === 1) fill();
    if (block.bars.length) panel.dataset.more = more.open ? "1" : "";
  };
  more.hidden = !block.maps && !block.numbers.length && !inside && (open || !block.vectors);
}

/** Names with a bar each; with changes, what each was before; with temperatures, a slider. @param {HTMLElement} box @param {Bars} bars */
function showBars(box, { heading, names, shares, changes, temperatures, picked }) {
  const table = element(box, "table", "bars");
  element(table, "caption").textContent = heading;
  if (changes.length) {
    const header = element(table, "tr");
    for (const name of ["token", "before", "change", "after"]) element(header, "th", "", { scope: "col" }).textContent = name;
  }
  const rows = names.map((name, at) => {
    const line = element(table, "tr", picked && at === 0 ? "picked" : "");
    element(line, "th", "", { scope: "row" }).textContent = name;
    for (const text of changes[at] ?? []) element(line, "td").textContent = text;
    const cell = element(line, "td", "share");
    return { bar: element(element(cell, "span", "room"), "span", "bar"), text: element(cell, "span") };
  });
  const draw = (all) => all.forEach(([share, text], at) => {
    rows[at].bar.style.width = `${100 * share}%`;
    rows[at].text.textContent = text;
  });
  draw(shares);
  if (!temperatures.length) return;
  const label = element(box, "label", "temperature"), name = element(label, "span");
  const middle = temperatures.findIndex(([one]) => one === 1);
  const slider = element(label, "input", "", {
    type: "range", "aria-label": "Temperature", min: "0", max: String(temperatures.length - 1), value: String(middle),
  });
  const move = () => {
    const [temperature, all] = temperatures[Number(slider.value)];
    name.textContent = `Temperature ${temperature}`;
    slider.setAttribute("aria-valuetext", String(temperature));
    draw(all);
  };
  slider.oninput = move;
  move();
  element(label, "span", "note").textContent = "Below 1 the likeliest token gets more, above 1 less.";
}

/** One row a token: what the model says after it, and how far its vector moves. @param {HTMLElement} box @param {BlockData} block */
function showTokens(box, { table, tokens }) {
  const figure = element(box, "figure", "says"), lines = element(figure, "table"), header = element(lines, "tr");
  const shown = tokens.slice(-table[0].names.length), last = shown.length - 1;
  element(header, "th", "", { scope: "col" }).textContent = shown.length < tokens.length ? `last ${shown.length} tokens` : "token";
  for (const { heading } of table) element(header, "th", "", { scope: "col" }).textContent = heading;
  for (const [at, token] of shown.entries()) {
    const line = element(lines, "tr", at === last ? "picked" : "");
    element(line, "th", "", { scope: "row" }).textContent = token;
    for (const { names, shares } of table) {
      const cell = element(line, "td");
      element(cell, "span").textContent = names[at];
      element(cell, "i").style.width = `${100 * shares[at][0]}%`;
    }
  }
}

/** One row a token, one column a dimension; purple below zero, green above. */
function showVectors(panel, { rows, cols, largest, whole, bytes }, tokens, theme) {
  const table = lookup(theme.signed), raw = fromBase64(bytes);
  element(panel, "h3").textContent = `The ${whole[1]} numbers of each token`;
  const box = element(panel, "div", "vectors");
  const names = element(box, "div", "tokens");
  for (let i = 0; i < rows; i++) element(names, "span").textContent = tokens[i] ?? String(i);
  const canvas = pixels(cols, rows, table, (at) => raw[at]);
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `${rows} vectors of ${whole[1]} numbers, up to ±${number(largest)}`);
  canvas.style.height = `${16 * rows}px`;
  box.appendChild(canvas);
  const cut = whole[0] > rows || whole[1] > cols ? `; the first ${rows} × ${cols} of ${whole[0]} × ${whole[1]}` : "";
  element(panel, "p", "note").textContent =
    `Purple is below 0, green above, up to ±${number(largest)}${cut}.`;
}

/** One head's weights with a row framed, and the cell of a key in it. */
function showMap(parent, /** @type {Maps} */ { rows, cols, heads, bytes }, tokens, theme, [head, row, col]) {
  const raw = fromBase64(bytes), figure = element(parent, "figure", "one"), cell = Math.max(1, Math.min(14, Math.floor(MAP / rows)));
  const line = element(figure, "div", "vectors"), names = element(line, "div", "tokens"), side = element(line, "div");
  const columns = element(side, "div", "columns"), box = element(side, "div", "map");
  line.style.setProperty("--row", `${cell}px`);
  for (const part of cell > 11 ? [names, columns] : []) for (const token of tokens) element(part, "span").textContent = token;
  const canvas = pixels(cols, rows, theme.table, (at) => raw[head * rows * cols + at]);
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `Weights of head ${head} of ${heads}`);
  Object.assign(canvas.style, { width: `${cell * cols}px`, height: `${cell * rows}px` });
  box.appendChild(canvas);
  const frame = (name, left, width) => Object.assign(element(box, "i", name).style,
    { left: `${left}px`, top: `${cell * row}px`, width: `${width}px`, height: `${cell}px` });
  frame("row", 0, cell * cols);
  frame("cell", cell * col, cell);
  element(figure, "figcaption", "note").textContent = "A row is a query, a column a key.";
}

/** Each head's weights, query by row, key by column. */
function showMaps(panel, /** @type {Maps} */ { heads, rows, cols, bytes }, theme) {
  const raw = fromBase64(bytes), box = element(panel, "div", "maps");
  for (let head = 0; head < heads; head++) {
    const canvas = pixels(cols, rows, theme.table, (at) => raw[head * rows * cols + at]);
    const figure = element(box, "figure");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `Weights of head ${head}`);
    figure.appendChild(canvas);
    element(figure, "figcaption").textContent = `head ${head}`;
  }
  element(panel, "p", "note").textContent = "A row is a query, a column a key; the stronger the colour, the larger the weight.";
}
