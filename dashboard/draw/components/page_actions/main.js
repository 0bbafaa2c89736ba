// The page for a projector; its link as it is now, copied by a press; and the page set back to its start.

import { element } from "../lib/dom.js";
import { restoreFocus } from "../lib/focus.js";
import { addOneEntryAPress } from "../lib/history.js";
import { mount } from "../lib/mount.js";
import { hideWhatWaits } from "../lib/waiting.js";

const SHOWN = 2000; // ms for which the button says what happened
const YEAR = 31_536_000; // s

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
  hideWhatWaits(); // an embedded page has no list of pages
  addOneEntryAPress();
  restoreFocus();
  view.present = button(view.root, "", "Hide the sidebar and enlarge everything by half, for a projector.");
  view.present.className = "present";
  view.present.onclick = () => view.setTriggerValue("present", true);
  const file = button(view.root, "Export", "Take the page's pictures and numbers away as files.");
  file.onclick = () => view.setTriggerValue("export", true);
  const link = (view.link = button(view.root, "", "Copy a link that opens this page with all its controls as they are now."));
  link.setAttribute("aria-live", "polite");
  link.onclick = async () => {
    link.textContent = (await copy(location.href)) ? "Copied" : "Not copied";
    clearTimeout(view.timer);
    view.timer = setTimeout(() => (link.textContent = view.label), SHOWN);
  };
  const reset = button(view.root, "Reset", "Set every control of this page back to its start.");
  reset.onclick = () => view.setTriggerValue("reset", true);
}

const stop = (view) => clearTimeout(view.timer);

const NARROW = 768; // px, up to which Streamlit lays the sidebar over the page

/** Show a page that has just been opened from its top, not as far down as the one before or under the sidebar. */
function openAtTop() {
  const { dataset } = document.documentElement, main = document.querySelector("[data-testid=stMain]");
  if (main && dataset.page && dataset.page !== location.pathname) {
    main.scrollTop = 0;
    closeSidebarOverPage();
    focusHeading(main);
  }
  dataset.page = location.pathname;
}

/** Streamlit leaves the focus where the link was, with the whole sidebar before the page that was opened. */
function focusHeading(main) {
  const heading = main.querySelector("h1");
  if (!heading) return;
  heading.tabIndex = -1;
  heading.style.outline = "none"; // it is no stop of the Tab key
  heading.focus({ preventScroll: true });
}

/** Streamlit closes it by itself only where the browser says that it is a phone's. */
function closeSidebarOverPage() {
  const close = document.querySelector("[data-testid=stSidebarCollapseButton] button");
  if (innerWidth <= NARROW && close instanceof HTMLElement && close.getBoundingClientRect().x > 0) close.click();
}

/** Streamlit runs no page for a new theme, and half of the colours come from Python. Asks once for each theme. */
function followTheme(view, drawn) {
  const now = view.theme.dark ? "dark" : "light";
  if (now !== drawn && now !== view.asked) view.setTriggerValue("theme", true);
  view.asked = now === drawn ? undefined : now;
}

/** @param {string} cookie NAME=VALUE */
function storeCookie(cookie) {
  document.cookie = `${cookie}; path=/; samesite=lax; max-age=${cookie.endsWith("=") ? 0 : YEAR}`;
}

function update(view, { presenting, theme, cookies, label }) {
  if (view.label !== label) view.link.textContent = view.label = label;
  cookies.forEach(storeCookie);
  openAtTop();
  followTheme(view, theme);
  view.present.textContent = presenting ? "End" : "Present";
  view.present.setAttribute("aria-pressed", String(presenting));
}

export default (component) => mount(component, { start, update, stop });
