// What follows an element that is not drawn yet would jump when it is: it stays hidden until then, for 5 seconds at most.

const PENDING = "[data-testid=stSkeleton], [data-testid=stVegaLiteChart]:empty, " +
  "[data-testid=stBidiComponentIsolated]:not([data-drawn])";
const COLUMN = "[data-testid=stVerticalBlock]";
// Chromium counts as a jump what becomes visible with its parent, so that each descendant is named too.
const STYLE = "@keyframes waiting { from, to { visibility: hidden } }" +
  "[data-waiting], [data-waiting] * { animation: waiting 5s }";

/** What stands below an element that is not drawn yet, in each column that it is in. @returns {Set<Element>} */
function below() {
  const found = new Set();
  for (const pending of document.querySelectorAll(PENDING)) {
    for (let node = pending; node.parentElement; node = node.parentElement) {
      if (!node.parentElement.matches(COLUMN)) continue;
      for (let next = node.nextElementSibling; next && !found.has(next); next = next.nextElementSibling) found.add(next);
    }
  }
  return found;
}

let marked = new Set();

function mark() {
  const waiting = below();
  for (const node of marked) node.toggleAttribute("data-waiting", waiting.has(node));
  for (const node of waiting) node.toggleAttribute("data-waiting", true);
  marked = waiting;
}

/** Marks by script: a rule with :has() would match every element of the page again at each change, for seconds. */
export function hideWhatWaits() {
  if ("hidesWhatWaits" in document.documentElement.dataset) return;
  document.documentElement.dataset.hidesWhatWaits = "";
  document.head.append(Object.assign(document.createElement("style"), { textContent: STYLE }));
  new MutationObserver(mark).observe(document, { childList: true, subtree: true, attributeFilter: ["data-drawn"] });
}
