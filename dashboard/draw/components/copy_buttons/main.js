// Copies what Python makes: a press opens the clipboard with a promise, which the answer of the next run fulfils.

import { fromBase64 } from "../lib/bytes.js";
import { element } from "../lib/dom.js";
import { mount } from "../lib/mount.js";

const LONGEST = 60_000, SHOWN = 4000; // ms for Python's answer, and for which the line says what happened
const MISSING = "This browser copies only from https or localhost. Take a file instead.";

const canCopy = () => isSecureContext && Boolean(navigator.clipboard?.write) && typeof ClipboardItem !== "undefined";

function start(view) {
  view.turn = 0;
  view.row = element(view.root, "div", "row");
  view.status = element(view.root, "div", "status", { role: "status" });
}

function say(view, text, lasting = false) {
  clearTimeout(view.timer);
  view.status.textContent = text;
  if (!lasting) view.timer = setTimeout(() => (view.status.textContent = ""), SHOWN);
}

/** The answer as a blob; a promise, since a browser opens the clipboard only during the press. */
function answerTo(view, name, type) {
  view.turn += 1;
  const made = new Promise((resolve, reject) => {
    view.waiting = { turn: view.turn, resolve: (bytes) => resolve(new Blob([bytes], { type })) };
    setTimeout(() => reject(new Error("no answer")), LONGEST);
  });
  view.setTriggerValue("ask", { name, turn: view.turn });
  return made;
}

async function copy(view, { name, type }) {
  say(view, "Copying …", true);
  try {
    await navigator.clipboard.write([new ClipboardItem({ [type]: answerTo(view, name, type) })]);
    say(view, `Copied: ${name.replace("Copy as ", "")}.`);
  } catch {
    say(view, "The browser refused the clipboard. Take a file instead.", true);
  }
}

function update(view, { buttons, answer }) {
  const names = JSON.stringify(buttons);
  if (names !== view.names) {
    view.names = names;
    view.row.replaceChildren();
    for (const one of buttons) {
      const button = element(view.row, "button", "", { type: "button" });
      button.textContent = one.name;
      button.disabled = !canCopy();
      button.onclick = () => copy(view, one);
    }
    say(view, canCopy() ? "" : MISSING, true);
  }
  if (answer && answer.turn === view.waiting?.turn) {
    view.waiting.resolve(fromBase64(answer.bytes));
    view.waiting = null;
  }
}

const stop = (view) => clearTimeout(view.timer);

export default (component) => mount(component, { start, update, stop });
