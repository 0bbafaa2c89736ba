// Palettes and the small helpers that put text and boxes on the page. Everything typed goes through textContent.

const INK = {
  light: { text: "#1B2330", pick: "#B8430F", page: "#FFFFFF", zero: "#F4F5F5", tint: "rgba(184,67,15,.05)", band: "rgba(184,67,15,.10)",
    signed: "#552571 #8143A0 #A66DBE #C29BCF #DCC9E1 #F4F5F5 #C1D6BC #8BB686 #58955A #316E3D #144927",
    weight: "#F4F5F5 #C7DEDF #95C9CF #64B2C5 #399AC2 #257FC2 #3461BD #4141AD #412389 #2E1357", bar: "#2A6FC4" },
  dark: { text: "#E6E8EB", pick: "#FF9A66", page: "#12151B", zero: "#1E2128", tint: "rgba(255,154,102,.08)", band: "rgba(208,80,26,.22)",
    signed: "#E5D0E8 #C89ED7 #A56DBD #784B8D #483656 #1E2128 #2D4236 #386842 #519459 #84BE80 #C6E1BB",
    weight: "#1E2128 #2B2F4F #3C3F85 #4259B3 #357ACC #269AD2 #43B5D0 #77CCCD #B1E1D5 #E6F6EB", bar: "#2FA6D3" },
}

function rgb(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16))
}

function table(stops) {
  const colours = stops.split(" ").map(rgb)
  return Array.from({ length: 255 }, (_, n) => {
    const at = (n / 254) * (colours.length - 1)
    const low = Math.min(Math.floor(at), colours.length - 2)
    return colours[low].map((c, i) => Math.round(c + (colours[low + 1][i] - c) * (at - low)))
  })
}

function luminance([r, g, b]) {
  const [x, y, z] = [r, g, b].map((c) => ((c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
  return 0.2126 * x + 0.7152 * y + 0.0722 * z
}

const themes = new Map()

export function themeOf(host) {
  // The page's own background decides, so that a theme switch inside Streamlit is followed.
  const style = getComputedStyle(host)
  const raw = style.getPropertyValue("--st-background-color").trim() || "#ffffff"
  const dark = raw.startsWith("#") && raw.length === 7 && luminance(rgb(raw)) < 0.2
  const ink = INK[dark ? "dark" : "light"]
  if (!themes.has(dark)) themes.set(dark, { ...ink, dark, tables: { signed: table(ink.signed), weight: table(ink.weight) } })
  return themes.get(dark)
}

export const css = ([r, g, b]) => `rgb(${r},${g},${b})`
export const signedColour = (theme, level) => theme.tables.signed[Math.round((Math.max(-1, Math.min(1, level)) + 1) * 127)]
export const onColour = (colour) => (luminance(colour) > 0.21 ? "#1B2330" : "#FFFFFF")
export const NS = "http://www.w3.org/2000/svg"

export function add(parent, name, attributes, text) {
  const node = document.createElementNS(NS, name)
  for (const [key, value] of Object.entries(attributes ?? {})) node.setAttribute(key, value)
  if (text !== undefined) node.textContent = text
  parent.appendChild(node)
  return node
}

const pen = document.createElement("canvas").getContext("2d")
const widths = new Map()
const MOST_WIDTHS = 2000
document.fonts?.ready.then(() => widths.clear()) // what was measured before was another font

export function widthOf(text, size, font) {
  const key = `${size}px ${font}|${text}`
  if (!widths.has(key)) {
    if (widths.size >= MOST_WIDTHS) widths.clear()
    pen.font = `${size}px ${font}`
    widths.set(key, pen.measureText(text).width)
  }
  return widths.get(key)
}

export function fit(text, room, size, font) {
  if (widthOf(text, size, font) <= room) return text
  const letters = Array.from(text)
  while (letters.length > 1 && widthOf(letters.join("") + "…", size, font) > room) letters.pop()
  return letters.join("") + "…"
}
