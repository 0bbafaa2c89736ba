// Tokens that are pieces of a picture: the picked row's weights lie on the picture itself.

/** @import { AttentionView, Cell, PictureBox } from "./types" */
import { fromBase64 } from "../lib/bytes.js";
import { pixels } from "../lib/dom.js";
import { write } from "../lib/layout.js";
import { outline, visibleValue } from "../lib/map.js";
import { number, scaleEnd } from "../lib/numbers.js";
import { largestOf } from "../lib/reading.js";
import { rgba } from "../lib/theme.js";
import { cellOf, ownOf } from "../lib/tokens.js";
import { lineColour } from "./lines.js";
import { pickedCell } from "./state.js";

const PICTURE_MOST = 420; // px

/** @param {AttentionView} view @returns {PictureBox} */
export function pictureBox(view, x, y, width, height) {
  const { wide, high } = view.patches;
  const scale = Math.min(width / wide, Math.min(height, PICTURE_MOST) / high);
  return { x, y, w: Math.floor(wide * scale), h: Math.floor(high * scale) };
}

/** The picture as a canvas, made once. @param {AttentionView} view */
function pictureImage(view) {
  const { wide, high, bytes } = view.patches;
  if (view.pictureBytes !== bytes) view.pictureCanvas = pixels(wide, high, fromBase64(bytes), (at) => at);
  view.pictureBytes = bytes;
  return view.pictureCanvas;
}

export function drawPicture(ctx, view, box) {
  ctx.imageSmoothingEnabled = view.patches.wide >= box.w;
  ctx.drawImage(pictureImage(view), box.x, box.y, box.w, box.h);
  outline(ctx, box.x, box.y, box.w + 1, box.h + 1, 1, view.theme.hairline);
}

/** Where a token's patch lies, or null for a token that is no patch. @param {AttentionView} view @param {PictureBox} box */
function patchBox(view, box, token) {
  const { rows, cols, first } = view.patches;
  const p = token - first;
  if (p < 0 || p >= rows * cols) return null;
  const w = box.w / cols, h = box.h / rows;
  return { x: box.x + (p % cols) * w, y: box.y + Math.floor(p / cols) * h, w, h };
}

/** Blue ink, stronger with the weight: of the picked row, or of its key where the patches are queries alone. */
export function drawPatches(ctx, /** @type {AttentionView} */ view, /** @type {PictureBox} */ box, picked) {
  const { theme, current, patches: { queries, first } } = view, { cols } = current;
  ctx.textAlign = "left";
  ctx.textBaseline = "middle";
  if (!picked) return write(ctx, theme, "Point at a row to see where it looks", box.x, box.y - 14);
  const column = picked.j >= 0 ? picked.j : largestOf(view, picked.i);
  const side = queries ? "rows" : "cols", count = queries ? current.rows : cols;
  const weight = (p) => current.values[queries ? p * cols + column : picked.i * cols + p];
  let most = 0, elsewhere = 0;
  for (let p = 0; p < count; p++) {
    if (patchBox(view, box, ownOf(view, side, p))) most = Math.max(most, Math.abs(weight(p)));
    else elsewhere += weight(p);
  }
  for (let p = 0; p < count; p++) {
    const at = patchBox(view, box, ownOf(view, side, p));
    if (!at) continue;
    const value = visibleValue(view, weight(p));
    ctx.globalAlpha = most ? (0.85 * Math.abs(value)) / most : 0;
    ctx.fillStyle = lineColour(view, value, rgba(theme.line, 1));
    ctx.fillRect(at.x, at.y, at.w, at.h);
  }
  ctx.globalAlpha = 1;
  const own = rowsArePatches(view) && patchBox(view, box, ownOf(view, "rows", picked.i));
  if (own) outline(ctx, own.x, own.y, own.w, own.h, 2.5, theme.pick);
  const key = !queries && picked.j >= 0 && patchBox(view, box, ownOf(view, "cols", picked.j));
  if (key) outline(ctx, key.x, key.y, key.w, key.h, 1.5, theme.text);
  const rest = first && !queries ? `; ${number(elsewhere)} goes to tokens outside the picture` : "";
  const what = queries ? `The weight of each patch on ${view.keys[column]}` : `${view.queries[picked.i]} attends to`;
  write(ctx, theme, `${what}: full ${view.signed ? "colour" : "blue"} is ${scaleEnd(most)}${rest}`, box.x, box.y - 14, { room: view.width - box.x });
}

/** Whether rows are patches: they alone, or as many as the columns that are. @param {AttentionView} view */
const rowsArePatches = ({ patches, current }) => patches.queries || current.rows === current.cols;

/** The pointer on the picture picks the patch as a query, read at its largest weight; else as a key of the picked row.
 * @param {AttentionView} view */
export function patchAt(view, box, x, y) {
  if (!box || x < box.x || y < box.y || x >= box.x + box.w || y >= box.y + box.h) return null;
  const { rows, cols, first } = view.patches;
  const p = Math.floor(((y - box.y) / box.h) * rows) * cols + Math.floor(((x - box.x) / box.w) * cols);
  if (!rowsArePatches(view)) {
    const j = cellOf(view, "cols", first + p);
    return j < 0 || j >= view.current.cols ? null : { i: pickedCell(view)?.i ?? 0, j };
  }
  const i = cellOf(view, "rows", first + p);
  return i < 0 || i >= view.current.rows ? null : { i, j: largestOf(view, i) };
}
