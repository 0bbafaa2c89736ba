// What the open block is, in words, numbers and pictures of the example that runs through the model.

import { fromBase64 } from "../lib/bytes.js";
import { element, pixels } from "../lib/dom.js";
import { lookup } from "../lib/theme.js";

/** @import { Theme } from "../lib/types" */
/** @import { BlockData } from "./types" */

/** @param {HTMLElement} panel @param {BlockData | undefined} block @param {Theme} theme */
export function showBlock(panel, block, theme) {
  panel.replaceChildren();
  if (!block) return;
  element(panel, "h2").textContent = block.title;
  element(panel, "p").textContent = block.about;
  if (block.maps) showMaps(panel, block.maps, theme);
  if (block.vectors) showVectors(panel, block.vectors, theme);
  for (const line of block.lines) element(panel, "p", "said").textContent = line;
  const list = element(panel, "dl");
  for (const [name, value] of block.numbers) {
    element(list, "dt").textContent = name;
    element(list, "dd").textContent = value;
  }
}

/** One row a token, one column a dimension; purple below zero, green above. */
function showVectors(panel, { rows, cols, largest, tokens, whole, bytes }, theme) {
  const table = lookup(theme.signed), raw = fromBase64(bytes);
  const box = element(panel, "div", "vectors");
  const names = element(box, "div", "tokens");
  for (let i = 0; i < rows; i++) element(names, "span").textContent = tokens[i] ?? String(i);
  const canvas = pixels(cols, rows, table, (at) => raw[at]);
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `${rows} vectors of ${whole[1]} numbers, from −${largest.toPrecision(3)} to ${largest.toPrecision(3)}`);
  canvas.style.height = `${16 * rows}px`;
  box.appendChild(canvas);
  const cut = whole[0] > rows || whole[1] > cols ? `; the first ${rows} × ${cols} of ${whole[0]} × ${whole[1]}` : "";
  element(panel, "p", "note").textContent =
    `A row is a token, a column one of its ${whole[1]} numbers: purple negative, green positive, up to ±${largest.toPrecision(2)}${cut}.`;
}

/** Each head's weights, query by row, key by column. */
function showMaps(panel, { heads, rows, cols, bytes }, theme) {
  const raw = fromBase64(bytes), box = element(panel, "div", "maps");
  for (let head = 0; head < heads; head++) {
    const canvas = pixels(cols, rows, theme.table, (at) => raw[head * rows * cols + at]);
    const figure = element(box, "figure");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `Weights of head ${head}`);
    figure.appendChild(canvas);
    element(figure, "figcaption").textContent = `head ${head}`;
  }
  element(panel, "p", "note").textContent = "A row is a query, a column a key; the stronger the color, the larger the weight.";
}
