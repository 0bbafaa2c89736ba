// One query through six stages: draws what Python measured, and says what was pressed.

import { NS, add, css, fit, themeOf, widthOf } from "./colour.js";
import { drawDetail } from "./detail.js";
import { drawThumbs } from "./thumbs.js";

function placement(width, data, font, phone) {
  const labels = [...data.rows, ...data.keys.map((row) => row.label)]
  const longest = Math.max(0, ...labels.map((label) => widthOf(label, 13, font)))
  const gutter = phone ? 0 : Math.min(96, Math.max(62, Math.ceil(longest) + 14))
  const pitch = (width - gutter) / 6
  const dim = phone ? 33 : 29.25
  const dims = phone ? (width < 340 ? 3 : 4) : Math.max(1, Math.min(6, Math.floor((pitch - 12) / dim)))
  const number = phone ? Math.max(44, (width - 62) / 4 - 14) : Math.min(60, pitch - 16)
  const bar = phone ? (width - 62) * (data.stage === 6 ? 0.34 : 0.25) - 4 : Math.min(pitch - 32, 110)
  return { gutter, pitch, dim, dims, number, bar, thumbs: phone ? 40 : 46, column: (at) => gutter + at * pitch }
}

function drawHeads(view) {
  const { svg, data, place, phone, font } = view
  data.stages.forEach((stage, at) => {
    const x = place.column(at)
    const active = at + 1 === data.stage
    const narrow = phone || place.pitch < 118
    if (narrow) {
      add(svg, "text", { x, y: 14, class: active ? "pick head strong" : "faint head" }, String(at + 1))
      add(svg, "text", { x, y: 30, class: active ? "pick head strong" : "muted head" }, fit(stage.short, place.pitch - 4, 12.5, font))
    } else {
      add(svg, "text", { x, y: 17, class: active ? "pick title" : "faint title" }, String(at + 1))
      add(svg, "text", { x: x + 14, y: 17, class: active ? "pick title strong" : "title strong" }, stage.title)
      rule(svg, x, 35, fit(stage.rule, place.pitch - 12, 12, font))
    }
    const press = add(svg, "rect", { x: x - 8, y: 0, width: place.pitch - 2, height: 40, fill: "transparent", class: "press" })
    press.addEventListener("click", () => view.pick({ stage: at + 1 }))
  })
}

function rule(svg, x, y, text) {
  // W_q stands as W with a small q below, as in the equation.
  const line = add(svg, "text", { x, y, class: "muted tick" })
  text.split(/_(.)/).forEach((part, at) => part && add(line, "tspan", at % 2 ? { dy: 3, "font-size": 9 } : at ? { dy: -3 } : {}, part))
}

function drawTint(view, root, bottom) {
  // A layer of its own, behind the canvas, so that it does not change the colour of a cell.
  const { data, place, theme } = view
  const box = { left: place.column(data.stage - 1) - (view.phone ? 5 : 10), width: place.pitch - 4, height: bottom }
  const layer = root.querySelector(".tint")
  for (const [key, value] of Object.entries(box)) layer.style[key] = value + "px"
  layer.style.background = theme.tint
}

function readable(root, data) {
  // The same numbers as a table, for those who do not see the picture.
  const table = root.querySelector("table")
  table.replaceChildren()
  const line = (cells, name) => {
    const row = table.insertRow()
    for (const text of cells) row.appendChild(document.createElement(name)).textContent = text
  }
  line(["key", "score", "scaled", "masked", "weight"], "th")
  for (const row of data.keys) line([row.label, row.raw.text, row.scores.text, row.masked ? row.masked.text : "−∞", row.weight.text], "td")
}

function say(root, data) {
  const fact = root.querySelector(".fact")
  fact.replaceChildren()
  for (const [text, style] of data.parts) {
    const span = fact.appendChild(document.createElement("span"))
    span.textContent = text
    span.className = style
  }
  fact.classList.toggle("long", data.fact.length > 110)
  root.querySelector(".caption").textContent = data.caption
  sayMore(root.querySelector(".more"), data.more)
}

function sayMore(place, [heading, ...lines]) {
  place.replaceChildren()
  if (!heading) return
  place.appendChild(document.createElement("p")).textContent = heading
  const list = place.appendChild(document.createElement("ul"))
  for (const line of lines) list.appendChild(document.createElement("li")).textContent = line
}

function definePatterns(svg, theme) {
  const pattern = add(add(svg, "defs"), "pattern", { id: "step-hatch", width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" })
  add(pattern, "rect", { width: 5, height: 5, fill: theme.zero })
  for (const kind of ["signed", "weight"]) {
    const gradient = add(svg.firstChild, "linearGradient", { id: `step-${kind}` })
    for (let n = 0; n <= 20; n++) add(gradient, "stop", { offset: n / 20, "stop-color": css(theme.tables[kind][Math.round((n / 20) * 254)]) })
  }
  add(pattern, "line", { x1: 0, x2: 0, y1: 0, y2: 5, stroke: theme.text, "stroke-opacity": 0.3, "stroke-width": 1 })
}

function draw(root, data, pick) {
  const width = Math.min(1120, Math.floor(root.clientWidth))
  if (!width || !data) return
  const theme = themeOf(root)
  const font = getComputedStyle(root).fontFamily
  const phone = width < 560
  const svg = document.createElementNS(NS, "svg")
  const canvas = root.querySelector("canvas")
  const ratio = window.devicePixelRatio || 1
  const place = placement(width, data, font, phone)
  const deep = place.thumbs + 100
  canvas.width = width * ratio
  canvas.height = deep * ratio
  canvas.style.width = width + "px"
  canvas.style.height = deep + "px"
  const board = canvas.getContext("2d")
  board.scale(ratio, ratio)
  const view = { svg, board, theme, data, place, font, phone, width, pick }
  definePatterns(svg, theme)
  drawHeads(view)
  const below = drawThumbs(view)
  const bottom = drawDetail(view, below)
  drawTint(view, root, phone ? below + 6 : bottom)
  for (const [key, value] of Object.entries({ width, height: bottom, viewBox: `0 0 ${width} ${bottom}`, role: "img", "aria-label": data.fact })) svg.setAttribute(key, value)
  if (root.style.getPropertyValue("--pick") !== theme.pick) root.style.setProperty("--pick", theme.pick)
  if (root.style.getPropertyValue("--ink") !== theme.text) root.style.setProperty("--ink", theme.text)
  root.querySelector(".art").replaceChildren(svg)
  readable(root, data)
  say(root, data)
}

function build(root) {
  root.tabIndex = 0
  const parts = { tint: "div", "": "canvas", art: "div", fact: "p", caption: "p", more: "div", numbers: "table" }
  for (const [name, tag] of Object.entries(parts)) root.appendChild(document.createElement(tag)).className = name
}

const views = new WeakMap()

export default function (component) {
  const { data, parentElement, setTriggerValue } = component
  const root = parentElement.querySelector(".step-view")
  if (!views.has(root)) build(root)
  const kept = views.get(root) ?? { frame: 0 }
  views.set(root, kept)
  kept.draw = () => draw(root, data, (what) => setTriggerValue("pick", what))
  kept.draw()
  if (!kept.watch) {
    document.fonts?.ready.then(() => kept.draw()) // the first picture may have been measured in another font
    kept.watch = new ResizeObserver(() => {
      cancelAnimationFrame(kept.frame)
      kept.frame = requestAnimationFrame(() => root.clientWidth !== kept.width && ((kept.width = root.clientWidth), kept.draw()))
    })
    kept.watch.observe(root)
  }
  root.onkeydown = (event) => {
    const turn = { ArrowUp: { query: data.picked - 1 }, ArrowDown: { query: data.picked + 1 },
      ArrowLeft: { stage: data.stage - 1 }, ArrowRight: { stage: data.stage + 1 } }[event.key]
    if (!turn) return
    event.preventDefault()
    setTriggerValue("pick", turn)
  }
  return () => (kept.watch.disconnect(), views.delete(root))
}
