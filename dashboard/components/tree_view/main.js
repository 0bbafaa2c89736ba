// The tree of candidates: drawn by Python; here it is scrolled to what is picked, and presses and arrow keys pick.

function nodes(root) {
  return [...root.querySelectorAll("g[data-place]")]
}

function at(root, step, rank) {
  const there = nodes(root).filter((node) => Number(node.dataset.step) === step)
  return there.sort((a, b) => Math.abs(a.dataset.rank - rank) - Math.abs(b.dataset.rank - rank))[0]
}

function beside(root, picked, key) {
  const step = Number(picked.dataset.step), rank = Number(picked.dataset.rank)
  if (key === "ArrowLeft") return nodes(root).find((node) => node.dataset.place === picked.dataset.parent)
  if (key === "ArrowRight") return nodes(root).find((node) => node.dataset.parent === picked.dataset.place)
  if (key === "ArrowUp") return rank > 0 ? at(root, step, rank - 1) : null
  if (key === "ArrowDown") return at(root, step, rank + 1)
  if (key === "Home") return at(root, 0, rank)
  return null
}

function show(root) {
  // Only sideways: the page itself must not jump.
  const picked = root.querySelector("g.picked")
  if (!picked) return
  const box = picked.getBBox(), seen = root.clientWidth
  if (box.x < root.scrollLeft || box.x + box.width > root.scrollLeft + seen) {
    root.scrollLeft = Math.max(0, box.x + box.width - seen + 24)
  }
}

export default function (component) {
  const { data, parentElement, setTriggerValue } = component
  const root = parentElement.querySelector(".tv")
  root.tabIndex = 0
  root.setAttribute("role", "group")
  root.setAttribute("aria-label", data.fact + " Arrow keys go through the tree.")
  if (root.drawn !== data.svg) {
    const before = root.scrollLeft
    root.innerHTML = data.svg
    root.drawn = data.svg
    root.scrollLeft = data.follow ? before : 0
    if (data.follow) show(root)
  }
  root.onclick = (event) => {
    const node = event.target.closest("g[data-place]")
    if (node) setTriggerValue("pick", Number(node.dataset.place))
  }
  root.onkeydown = (event) => {
    const picked = root.querySelector("g.picked")
    const next = picked && beside(root, picked, event.key)
    if (!next) return
    event.preventDefault()
    setTriggerValue("pick", Number(next.dataset.place))
  }
}
