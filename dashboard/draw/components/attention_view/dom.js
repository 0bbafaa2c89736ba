// The elements around the canvas.

import { buildFoot, buildLegend, buildReading, element, tool } from "../lib/dom.js";

/** @param {HTMLElement} root */
export function build(root) {
  /** @type {Record<string, any>} */
  const dom = { root };
  dom.head = element(root, "div", "head");
  dom.title = element(dom.head, "b", "title");
  dom.step = element(dom.head, "b", "step");
  dom.reads = element(dom.head, "span", "reads");
  dom.stage = element(root, "div", "stage", { tabindex: "0" });
  dom.base = element(dom.stage, "canvas", "base");
  dom.over = element(dom.stage, "canvas", "over");
  dom.tip = element(dom.stage, "div", "tip");
  dom.tip.hidden = true;
  dom.readsUnder = element(root, "div", "reads under");
  dom.film = element(root, "div", "film");
  dom.strip = element(dom.film, "canvas", "strip", { "aria-hidden": "true" });
  const row = element(dom.film, "div", "play-row");
  dom.play = element(row, "button", "play", { type: "button", "aria-label": "Play the frames" });
  dom.play.textContent = "▶";
  dom.slider = element(row, "input", "slider", { type: "range", min: "0", step: "1", "aria-label": "Training step" });
  dom.legend = buildLegend(root);
  dom.masked = element(root, "div", "masked");
  buildFoot(root, dom);
  dom.save = tool(dom.help.parentElement, "PNG", "Save the picture as PNG (P)");
  dom.help.before(dom.save);
  dom.caption = element(root, "div", "caption");
  buildReading(root, dom);
  return dom;
}
