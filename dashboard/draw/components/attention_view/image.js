// The picture as a PNG of twice its size, with its words and its legend: what is on the screen, to take away.

/** @import { AttentionView } from "./types" */
import { resized } from "../lib/dom.js";
import { write } from "../lib/layout.js";
import { drawBase, drawTop } from "./draw.js";
import { layerNumber } from "./texts.js";

const IMAGE = { scale: 2, pad: 16, head: 30, foot: 26 };

/** @param {AttentionView} view */
export function saveImage(view) {
  if (!view.box) return;
  imageOf(view).toBlob((blob) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    const head = `L${layerNumber(view, view.layer)}H${view.head}`;
    link.download = view.layout === "grid" ? "attention-all-heads.png" : `attention-${head}.png`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }, "image/png");
}

function imageOf(view) {
  const { pad, head, foot, scale } = IMAGE;
  const canvas = document.createElement("canvas");
  const grid = view.layout === "grid";
  const wide = Math.ceil(grid ? view.box.right : view.width) + 2 * pad;
  const high = Math.ceil(view.box.height) + 2 * pad + head + (grid ? 0 : foot);
  const ctx = resized(canvas, wide, high, scale);
  ctx.fillStyle = view.theme.ground;
  ctx.fillRect(0, 0, wide, high);
  ctx.translate(pad, pad);
  imageHead(ctx, view, wide - 2 * pad);
  ctx.translate(0, head);
  drawBase(ctx, view);
  drawTop(ctx, view);
  if (!grid) imageLegend(ctx, view, view.box.left, view.box.height + 8);
  return canvas;
}

function imageHead(ctx, view, room) {
  ctx.textAlign = "left";
  ctx.textBaseline = "middle";
  const title = view.dom.title.textContent || view.fact;
  write(ctx, view.theme, title, 0, 8, { weight: 600, colour: view.theme.text, room });
  const from = ctx.measureText(title).width + 10;
  if (from < room - 40) write(ctx, view.theme, view.dom.reads.textContent, from, 8, { room: room - from });
}

function imageLegend(ctx, view, x, y) {
  const { theme } = view;
  const ramp = ctx.createLinearGradient(x + 50, 0, x + 202, 0);
  theme.stops.forEach((stop, k) => ramp.addColorStop(k / (theme.stops.length - 1), stop));
  ctx.fillStyle = ramp;
  ctx.fillRect(x + 50, y, 152, 8);
  ctx.textBaseline = "middle";
  for (const [part, align, dx, dy] of [["noun", "left", 0, 4], ["low", "left", 50, 17], ["high", "right", 202, 17]]) {
    ctx.textAlign = align;
    write(ctx, theme, view.dom.legend[part].textContent, x + dx, y + dy, { size: 12 });
  }
}
