// The elements around the canvases.

/** @import { Board, Cell, Tile } from "./types" */
import { buildFoot, buildLegend, buildReading, element, showTable, showTip, svgElement } from "../lib/dom.js";
import { MINUS, number, rounded } from "../lib/numbers.js";
import { cellText, cellValue, readCell, sortedRow, tipLines } from "../lib/reading.js";

/** @param {HTMLElement} root */
export function build(root) {
  /** @type {Record<string, any>} */
  const dom = { root };
  dom.head = element(root, "div", "head");
  dom.reads = element(dom.head, "span", "reads");
  dom.legend = buildLegend(dom.head);
  dom.otherLegend = buildLegend(dom.head);
  dom.chooser = element(root, "div", "chooser");
  dom.stage = element(root, "div", "stage", { tabindex: "0" });
  dom.maps = element(dom.stage, "div", "maps");
  dom.apart = element(dom.stage, "div", "maps apart");
  dom.tip = element(dom.stage, "div", "tip");
  dom.tip.hidden = true;
  dom.masked = element(root, "div", "masked");
  buildFoot(root, dom);
  buildReading(root, dom, ["[ ]", "P"]);
  return dom;
}

function drawMark(parent, board, marker) {
  const svg = svgElement(parent, "svg", { viewBox: "0 0 12 12", width: 12, height: 12, "aria-hidden": "true" });
  const { categories } = board.theme;
  svgElement(svg, "path", { d: board.marks[marker % board.marks.length], fill: categories[marker % categories.length] });
}

/** Heading, two canvases and the line of numbers of one map. @param {Board} board @param {Tile} tile @param {Element} parent */
export function buildTile(board, tile, parent) {
  const root = element(parent, "figure", "tile");
  const heading = element(root, "figcaption", "heading");
  const named = board.first != null && tile === board.tiles[board.first] ? "name mark" : "name";
  const name = element(heading, "b", named, { title: tile.name });
  if (tile.marker >= 0) drawMark(name, board, tile.marker);
  element(name, "span").textContent = tile.name;
  const note = element(heading, "span", "note");
  note.textContent = note.title = tile.operands ? board.reads : tile.note;
  const canvases = element(root, "div", "drawn");
  const base = element(canvases, "canvas", "base"), over = element(canvases, "canvas", "over");
  const foot = element(root, "div", "under");
  tile.dom = { root, heading, base, over, foot, pair: element(foot, "span", "pair"), value: element(foot, "b", "value") };
}

/** The numbers under a map: query → key on the left, what the cell holds on the right. @param {Tile} tile @param {Cell | null} picked */
export function showUnder(tile, picked) {
  const { pair, value } = tile.dom;
  pair.replaceChildren();
  value.textContent = "";
  if (!picked || picked.j < 0) return;
  element(pair, "b", "mark").textContent = tile.queries[picked.i];
  // of a board that is no map of queries and keys, a row does not take from a column
  element(pair, "span").textContent = `${tile.reads ? " → " : ", "}${tile.keys[picked.j]}`;
  const cell = readCell(tile, picked.i, picked.j);
  value.textContent = cell.masked ? (cell.visible ? "masked" : tile.absent ?? "sees no key") : valueText(tile, cell);
  value.classList.toggle("none", cell.masked);
}

/** The number of a cell; a difference is that of the two numbers as they are written, but where these are the same. @param {Tile} tile @param {Cell & { value: number }} cell */
export function valueText(tile, { i, j, value }) {
  if (!tile.operands) return cellText(tile, value);
  const [a, b] = tile.operands.map((each) => rounded(cellValue(each, i, j).value));
  return number(a - b || value);
}

/** @param {Board} board */
export function showCellTip(board) {
  const { over, hover, point } = board;
  const { tip, stage } = board.dom;
  tip.hidden = !hover || board.keyboard || !point || !over;
  if (tip.hidden) return;
  const lines = over.operands ? differenceLines(over, hover) : tipLines(over, hover.i, hover.j, board.noun);
  showTip(tip, lines, point, board.width, stage.clientHeight);
}

function differenceLines(tile, { i, j }) {
  const [a, b] = tile.operands.map(({ current }) => current.values[i * current.cols + j]);
  const title = `${tile.queries[i]} → ${tile.keys[j]}`;
  const cell = cellValue(tile, i, j);
  if (cell.masked) return [title, "masked in both", "", ""];
  return [title, `${number(a)} ${MINUS} ${b < 0 ? `(${number(b)})` : number(b)} = `, valueText(tile, cell), ""];
}

/** The row as a table: a line a key, a column a map, the first map's largest first. @param {Board} board @param {Cell | null} picked */
export function showRow(board, picked) {
  const { rows } = board.dom;
  rows.replaceChildren();
  if (rows.hidden) return;
  const i = picked?.i ?? 0;
  const texts = (j) => board.visible.map((tile) => {
    const cell = cellValue(tile, i, j);
    return cell.masked ? null : valueText(tile, cell);
  });
  const lines = sortedRow(board.visible[0], i).map(({ j }) => [board.keys[j], texts(j)]);
  showTable(rows, [`${board.queries[i]} → key`, ...board.visible.map(({ name }) => name)], lines);
}
