// The search field, and all pages in groups that fold; a press asks Python for a page or for what was found, and a link of its
// own opens a page in another tab.

import { element } from "../lib/dom.js";
import { addOneEntryAPress } from "../lib/history.js";
import { mount } from "../lib/mount.js";
import { hideWhatWaits } from "../lib/waiting.js";
import { search } from "./search.js";

function start(view) {
  hideWhatWaits();
  addOneEntryAPress();
  buildSearch(view);
  view.nav = element(view.root, "nav", "", { "aria-label": "Pages" });
  view.nav.onclick = (event) => {
    const link = event.target.closest("a");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    view.setTriggerValue("page", link.dataset.key);
  };
}

/** A combobox: what fits is listed in place of the pages, the first marked; arrows mark another, Enter opens it. */
function buildSearch(view) {
  const field = element(view.root, "input", "search", {
    type: "search", placeholder: "Search", "aria-label": "Search the lab", autocomplete: "off", spellcheck: "false",
    role: "combobox", "aria-expanded": "false", "aria-controls": "hits", "aria-autocomplete": "list",
  });
  const list = element(view.root, "ul", "hits", { id: "hits", role: "listbox", "aria-label": "What the lab has of it" });
  const none = element(view.root, "p", "none", { role: "status" });
  let marked = 0;
  const mark = (at) => {
    marked = at;
    [...list.children].forEach((row, index) => row.setAttribute("aria-selected", String(index === at)));
    field.setAttribute("aria-activedescendant", list.children.length ? `hit-${at}` : "");
    list.children[at]?.scrollIntoView({ block: "nearest" });
  };
  const show = () => {
    const typed = field.value.trim(), hits = typed ? search(typed) : [];
    list.replaceChildren();
    hits.forEach(([title, line], at) => {
      const row = element(list, "li", "", { role: "option", id: `hit-${at}`, "data-hit": `${title} · ${line}` });
      element(row, "b").textContent = title;
      element(row, "span").textContent = line;
    });
    view.nav.hidden = hits.length > 0;
    none.textContent = typed && !hits.length ? "Nothing fits. Try another word." : "";
    field.setAttribute("aria-expanded", String(hits.length > 0));
    mark(0);
  };
  const open = (row) => {
    field.value = "";
    show();
    view.setTriggerValue("hit", row.dataset.hit);
  };
  field.oninput = show;
  field.onkeydown = (event) => {
    const rows = list.children, step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && rows.length) mark((marked + step + rows.length) % rows.length);
    else if (event.key === "Enter" && rows.length) open(rows[marked]);
    else if (event.key === "Escape") field.value = "";
    else return;
    event.preventDefault();
    if (event.key === "Escape") show();
  };
  list.onclick = (event) => {
    const row = /** @type {Element} */ (event.target).closest("li");
    if (row) open(row);
  };
}

function build(view, groups, text) {
  view.nav.replaceChildren();
  Object.assign(view, { links: [], text });
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
  const text = JSON.stringify(groups); // Report joins them once something is in it
  if (view.text !== text) build(view, groups, text);
  for (const link of view.links) {
    const here = link.dataset.key === current;
    if (here && !link.hasAttribute("aria-current")) link.closest("details").open = true;
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

export default (component) => mount(component, { start, update });
