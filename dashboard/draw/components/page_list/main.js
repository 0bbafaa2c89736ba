// All pages in groups that fold; a press asks Python for a page, and a link of its own opens one in another tab.

import { element } from "../lib/dom.js";
import { mount } from "../lib/mount.js";
import { hideWhatWaits } from "../lib/waiting.js";

function start(view) {
  hideWhatWaits();
  view.nav = element(view.root, "nav", "", { "aria-label": "Pages" });
  view.nav.onclick = (event) => {
    const link = event.target.closest("a");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    view.setTriggerValue("page", link.dataset.key);
  };
}

function build(view, groups) {
  view.links = [];
  for (const { name, pages } of groups) {
    const group = element(view.nav, "details");
    group.open = !view.links.length; // the first group, the path
    element(group, "summary").textContent = name;
    const list = element(group, "ul");
    for (const { key, path, title, icon } of pages) {
      const link = element(element(list, "li"), "a", "", { href: `./${path}`, "data-key": key });
      element(link, "span", "icon", { "aria-hidden": "true" }).textContent = icon;
      element(link, "span").textContent = title;
      view.links.push(link);
    }
  }
}

function update(view, { groups, current }) {
  if (!view.links) build(view, groups);
  for (const link of view.links) {
    const here = link.dataset.key === current;
    if (here && !link.hasAttribute("aria-current")) link.closest("details").open = true;
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

export default (component) => mount(component, { start, update });
