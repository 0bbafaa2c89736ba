// The link of the page as it is now, copied by a press; and the page set back to its start.

import { element } from "../lib/dom.js";
import { mount } from "../lib/mount.js";

const LABEL = "Copy link", SHOWN = 2000; // ms for which the button says what happened

/** Copy a text; without https a browser offers only the older way. @param {string} text @returns {Promise<boolean>} */
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = element(document.body, "textarea");
    field.value = text;
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    return done;
  }
}

function button(root, label, title) {
  const made = element(root, "button", "", { type: "button", title });
  made.textContent = label;
  return made;
}

function start(view) {
  const link = button(view.root, LABEL, "Copy a link that opens this page with all its controls as they are now.");
  link.setAttribute("aria-live", "polite");
  link.onclick = async () => {
    link.textContent = (await copy(location.href)) ? "Copied" : "Not copied";
    clearTimeout(view.timer);
    view.timer = setTimeout(() => (link.textContent = LABEL), SHOWN);
  };
  const reset = button(view.root, "Reset", "Set every control of this page back to its start.");
  reset.onclick = () => view.setTriggerValue("reset", true);
}

const stop = (view) => clearTimeout(view.timer);

export default (component) => mount(component, { start, update: () => undefined, stop });
