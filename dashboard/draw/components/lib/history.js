// Streamlit adds an entry to the browser's history at each change of the address: three where a page is opened with values.

let added = true; // an entry since the last press; the page as it was opened, or came back to, is one

function onNavigate(/** @type {any} */ event) {
  if (event.navigationType === "traverse") added = true;
  if (event.navigationType !== "push" || !event.destination.sameDocument) return;
  if (added) {
    event.preventDefault();
    history.replaceState({}, "", event.destination.url);
  }
  added = true;
}

/** Have a press add one entry at most, so that one Back undoes it; once for all pages. A browser without the Navigation API adds all. */
export function addOneEntryAPress() {
  const { navigation } = /** @type {any} */ (window);
  if (!navigation || "addsOneEntry" in document.documentElement.dataset) return;
  document.documentElement.dataset.addsOneEntry = "";
  for (const press of ["pointerdown", "keydown"]) window.addEventListener(press, () => { added = false; }, true);
  navigation.addEventListener("navigate", onNavigate);
}
