// Native controls that a picture follows in the browser, where its next pictures are before the server answers.

const keyed = (key, selector) => `.st-key-${key.replace(/[^a-zA-Z0-9_-]/g, "-")} ${selector}`;
const sliderOf = (key) => keyed(key, "input[type=range]");
const choiceOf = (key) => keyed(key, "[role=radio][aria-checked=true]");
const listOf = (key) => keyed(key, "input[role=combobox]");
const valueIndex = (input) => Math.round((Number(input.value) - Number(input.min)) / Number(input.step || 1));
const choiceIndex = (radio) => [...radio.closest("[role=radiogroup]").querySelectorAll("[role=radio]")].indexOf(radio);

const valueOf = (selector, read) => {
  const control = document.querySelector(selector);
  return control ? read(control) : null;
};

/** The index of the value that a slider shows, counted from its least; null where the page has none. @param {string} key of the widget */
export const sliderIndex = (key) => valueOf(sliderOf(key), valueIndex);

/** The index of the picked option of a segmented control; null where the page has none. @param {string} key of the widget */
export const pickedIndex = (key) => valueOf(choiceOf(key), choiceIndex);

/** The option that a list shows, as it is written; null where the page has none. @param {string} key of the widget */
export const listText = (key) => valueOf(listOf(key), (input) => input.value);

/** Call `show` with the index at each move, until the view's end. @param {() => string | null | undefined} key of the widget @param {(index: number) => void} show */
export const followSlider = (view, key, show) => follow(view, key, "aria-valuetext", sliderOf, valueIndex, show);

/** The same with the text of a list: an option, or what is typed to find one. @param {() => string | null | undefined} key @param {(text: string) => void} show */
export const followList = (view, key, show) => follow(view, key, "value", listOf, (input) => input.value, show);

/** The same for a segmented control. @param {() => string | null | undefined} key @param {(index: number) => void} show */
export const followChoice = (view, key, show) => follow(view, key, "aria-checked", choiceOf, choiceIndex, show);

function follow(view, key, attribute, selectorOf, read, show) {
  // Streamlit may draw its control anew, so that the whole page is watched, for an attribute that few elements have.
  const observer = new MutationObserver((records) => {
    const name = key(), moved = name && records.find(({ target }) => target instanceof Element && target.matches(selectorOf(name)));
    if (moved) show(read(moved.target));
  });
  observer.observe(document.body, { subtree: true, attributeFilter: [attribute] });
  view.ended.signal.addEventListener("abort", () => observer.disconnect());
}
