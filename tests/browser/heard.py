"""What is wrong for those who hear a page, or use it by keyboard or finger, and what axe-core does not look for."""

from playwright.sync_api import Page

# Our components live in shadow roots, Streamlit's elements outside of them.
CHECK = r"""() => {
  const MARKUP = /\*\*|`|:(primary|small|red|material)|\\[^\w\s]|\$[^\s$][^$]*\$|\]\(/;
  const NAMES = ["aria-label", "aria-description", "aria-valuetext", "aria-roledescription", "title", "alt"];
  const wrong = [];
  const report = (what, node) => wrong.push(`${what}: ${node.outerHTML.slice(0, 160)}`);
  const nameOf = (node) => node.ariaLabel || node.title || node.textContent.trim();
  const native = "a[href], button, input, select, textarea, summary";
  const check = (node) => {
    if (NAMES.some((name) => MARKUP.test(node.getAttribute(name) ?? ""))) report("markup in a name", node);
    if (!(node.getRootNode() instanceof ShadowRoot)) return;
    const style = getComputedStyle(node);
    if (parseFloat(style.transitionDuration) > 0 || style.animationName !== "none") report("moves", node);
    if (!node.checkVisibility()) return;
    if (node.tabIndex >= 0) {
      if (!node.role && !node.matches(native)) report("no role", node);
      if (!nameOf(node)) report("no name", node);
      if (node.role === "application" && !node.ariaDescription) report("keys are not said", node);
      if (node.role === "img") report("a stop of the Tab key that is an image", node);
    }
    const { width, height } = node.getBoundingClientRect();
    if (node.matches("button, input, a") && Math.min(width, height) < 23.9) report(`${width} × ${height} px`, node);
  };
  const walk = (root) => {
    for (const node of root.querySelectorAll("*")) {
      check(node);
      if (node.shadowRoot) walk(node.shadowRoot);
    }
  };
  walk(document);
  return wrong;
}"""


def assert_heard(page: Page, name: str) -> None:
    """A page of this name: the tab has it, every stop of the Tab key has role and name, no name has Markdown in it,
    buttons are 24 px or more, and nothing moves by itself where the reader wants none of it."""
    assert page.title() == f"{name} · Attention Lab"
    wrong = page.evaluate(CHECK)
    assert not wrong, wrong
