// What every component that draws maps is put together from. Tokens and words only ever enter through textContent.

export function element(parent, tag, name, attributes = {}) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  parent.appendChild(made);
  return made;
}

// Keys reach every tool, so that a picture stays one stop of the Tab key.
export function tool(parent, words, label) {
  const button = element(parent, "button", "tool", { type: "button", tabindex: "-1", title: label, "aria-label": label });
  button.textContent = words;
  return button;
}

// The line under a picture: what it says of itself, and the tools.
export function footOf(root, dom, name) {
  dom.foot = element(root, "div", name);
  dom.status = element(dom.foot, "span", "status");
  const tools = element(dom.foot, "span", "tools");
  dom.reset = tool(tools, "Reset zoom", "Reset zoom");
  dom.tableButton = tool(tools, "Table", "Read the row as a table (T)");
  dom.help = tool(tools, "?", "Keys (?)");
}

// What is read aloud, the list of keys, and the row as a table; the last two wait until they are asked for.
export function readingOf(root, dom, keys) {
  dom.live = element(root, "div", "sr live", { "aria-live": "polite", role: "status" });
  dom.keys = element(root, "dl", "keys");
  for (const [key, meaning] of keys) {
    element(dom.keys, "dt").textContent = key;
    element(dom.keys, "dd").textContent = meaning;
  }
  dom.rows = element(root, "div", "rows");
  dom.keys.hidden = dom.rows.hidden = dom.reset.hidden = true;
}

// A canvas of some CSS size with the screen's own pixels, cleared.
export function sized(canvas, width, height, ratio) {
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const ctx = canvas.getContext("2d");
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  return ctx;
}
