// A native slider that a picture follows in the browser, where its next pictures are before the server answers.

const selectorOf = (slider) => `.st-key-${slider.replace(/[^a-zA-Z0-9_-]/g, "-")} input[type=range]`;
const indexOf = (input) => Math.round((Number(input.value) - Number(input.min)) / Number(input.step || 1));

/** The index of the value that a widget of that key shows, counted from its least; null where the page has none. @param {string} slider */
export function sliderIndex(slider) {
  const input = document.querySelector(selectorOf(slider));
  return input ? indexOf(input) : null;
}

/** Call `show` with the index at each move, until the view's end. @param {() => string | null | undefined} slider the widget's key @param {(index: number) => void} show */
export function followSlider(view, slider, show) {
  // Streamlit may draw its slider anew, so that the whole page is watched, for an attribute that sliders alone have.
  const observer = new MutationObserver((records) => {
    const key = slider(), moved = key && records.find(({ target }) => target instanceof Element && target.matches(selectorOf(key)));
    if (moved) show(indexOf(moved.target));
  });
  observer.observe(document.body, { subtree: true, attributeFilter: ["aria-valuetext"] });
  view.ended.signal.addEventListener("abort", () => observer.disconnect());
}
