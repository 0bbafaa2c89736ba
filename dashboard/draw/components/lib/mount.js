// The life of a component: Streamlit calls its default export at each rerun, and what that returns at its end.

/** @import { Component, Parts } from "./types" */
import { fontOf, readTheme } from "./theme.js";

const VIEWS = new WeakMap();

/** Start a view at its first data, update it at all, draw it for a new width. @param {Component} component @param {Parts<any>} parts */
export function mount({ data, parentElement, setStateValue, setTriggerValue }, parts) {
  const root = /** @type {HTMLElement} */ (parentElement.querySelector(".view"));
  if (!root || !data) return undefined;
  const first = !VIEWS.has(root), view = VIEWS.get(root) ?? { root, ended: new AbortController() };
  VIEWS.set(root, view);
  Object.assign(view, { setStateValue, setTriggerValue, theme: readTheme(root, data.palette, data.signed) });
  root.dataset.theme = view.theme.dark ? "dark" : "light";
  root.style.setProperty("--pick", view.theme.pick);
  if (first) {
    root.replaceChildren();
    parts.start(view);
  }
  parts.update(view, data);
  const outside = root.getRootNode();
  if (outside instanceof ShadowRoot) outside.host.setAttribute("data-drawn", ""); // what follows it is shown now
  if (first && parts.draw) drawLater(view, parts.draw);
  return () => {
    view.ended.abort();
    parts.stop?.(view);
    VIEWS.delete(root);
  };
}

function drawLater(view, draw) {
  const observer = new ResizeObserver(() => view.root.clientWidth !== view.width && draw(view));
  observer.observe(view.root);
  const { signal } = view.ended;
  signal.addEventListener("abort", () => observer.disconnect());
  // Canvas text waits for no font: draw again once both weights are there.
  const loads = [400, 600].map((weight) => document.fonts.load(fontOf(view.theme, 13, weight)));
  Promise.allSettled(loads).then(() => signal.aborted || draw(view));
}

/** Send a value to Python under the view's next turn, which its answer repeats. @param {string} field @param {object} message */
export function send(view, field, message) {
  view.turn += 1;
  view.setStateValue(field, { ...message, turn: view.turn });
}
