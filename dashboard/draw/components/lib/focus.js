// A press may take its own button away, and a rerun may draw a control anew: the focus then goes to what is in its place.

const MAIN = "[data-testid=stMain]", BLOCK = "[data-testid=stVerticalBlock], [data-testid=stHorizontalBlock]";
// not a term, which would open its explanation
const STOPS = "button:not(:disabled), input:not(:disabled), textarea, a[href], summary, [tabindex='0']:not(abbr)";
const WAIT = 250; // ms for the rerun to draw it

/** What had the focus, the key of its element and what it was in. @type {{node: Element, key: string | undefined, around: Element[]} | null} */
let place = null;

function placeOf(/** @type {Element} */ node) {
  const around = [];
  for (let outer = node; outer; outer = outer.parentElement) around.push(outer);
  const keyed = around.find((one) => one.className.includes?.("st-key-"));
  return { node, around, key: keyed && [...keyed.classList].find((name) => name.startsWith("st-key-")) };
}

const isLost = () => place && !place.node.isConnected && document.activeElement === document.body;

function restore() {
  if (!isLost()) return;
  const same = place.key && document.querySelector(`${MAIN} .${CSS.escape(place.key)}`);
  const block = same ?? place.around.find((one) => one.isConnected && one.matches(BLOCK));
  const stop = [...(block?.querySelectorAll(STOPS) ?? [])].find((one) => one.checkVisibility());
  if (stop instanceof HTMLElement) stop.focus({ preventScroll: true });
}

/** Watch the page for a focus that is lost; once for all pages. */
export function restoreFocus() {
  if ("restoresFocus" in document.documentElement.dataset) return;
  document.documentElement.dataset.restoresFocus = "";
  document.addEventListener("focusin", ({ target }) => {
    place = target instanceof Element && target.closest(MAIN) ? placeOf(target) : null;
  });
  let timer = 0;
  new MutationObserver(() => {
    if (!timer && isLost()) timer = window.setTimeout(() => { timer = 0; restore(); }, WAIT);
  }).observe(document.body, { childList: true, subtree: true });
}
