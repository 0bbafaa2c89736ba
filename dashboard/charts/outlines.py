"""The text of an SVG as paths, so that it looks the same where its font is missing, as in the editor of a journal."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping
from xml.etree import ElementTree

SVG = "http://www.w3.org/2000/svg"
XLINK = "http://www.w3.org/1999/xlink"
FONT = (
    "font-family",
    "font-size",
    "font-weight",
    "font-style",
    "text-anchor",
    "letter-spacing",
)  # what is inherited
PLACE = ("x", "y", "dx", "dy", "dominant-baseline", "lengthAdjust", "textLength", "style")
NAMES = {
    b"m": "M",
    b"l": "L",
    b"c": "C",
    b"h": "Z",
}  # of what a clip path of a PDF is drawn with, in a path's `d`
STEP = re.compile(rb"((?:-?[\d.]+\s+)*)([mlch])\s")


def outlined(svg: str, to_pdf: Callable[[str], bytes]) -> str:
    """An SVG in which every text is a path, drawn by `to_pdf`, which writes text that clips as its outlines."""
    ElementTree.register_namespace("", SVG)
    ElementTree.register_namespace("xlink", XLINK)
    root = ElementTree.fromstring(svg)
    texts: list[tuple[ElementTree.Element, str]] = []
    _find(root, {}, texts)
    paths = _paths(list(dict.fromkeys(clip for _, clip in texts)), to_pdf)
    for node, clip in texts:
        for child in list(node):
            node.remove(child)
        node.tag, node.text = f"{{{SVG}}}path", None
        for name in (*FONT, *PLACE):
            node.attrib.pop(name, None)
        node.set("d", paths[clip])
    return ElementTree.tostring(root, encoding="unicode")


def _find(
    node: ElementTree.Element, font: Mapping[str, str], texts: list[tuple[ElementTree.Element, str]]
) -> None:
    """Add each text with the SVG of it alone, as it is placed before its transform."""
    font = {**font, **{name: node.attrib[name] for name in FONT if name in node.attrib}}
    if node.tag == f"{{{SVG}}}text":
        alone = ElementTree.Element(
            f"{{{SVG}}}text",
            {**font, **{name: node.attrib[name] for name in PLACE if name in node.attrib}},
        )
        alone.text = node.text
        alone.extend(list(node))
        texts.append((node, ElementTree.tostring(alone, encoding="unicode")))
        return
    for child in node:
        _find(child, font, texts)


def _paths(clips: list[str], to_pdf: Callable[[str], bytes]) -> dict[str, str]:
    """The outline of each text as the `d` of a path; one without ink has none."""
    inked = [clip for clip in clips if "".join(ElementTree.fromstring(clip).itertext()).strip()]
    if not inked:
        return dict.fromkeys(clips, "")
    parts = "".join(
        f'<clipPath id="c{at}">{clip}</clipPath><rect x="-9999" y="-9999" width="19998" height="19998" '
        f'clip-path="url(#c{at})"/>'
        for at, clip in enumerate(inked)
    )
    pdf = to_pdf(f'<svg xmlns="{SVG}" width="100" height="100">{parts}</svg>')
    contents = (
        _inflated(match[1])
        for match in re.finditer(rb"stream\r?\n(.*?)\r?\nendstream", pdf, re.DOTALL)
    )
    drawn = next(content for content in contents if re.search(rb"\bW\*?\s+n", content))
    outlines = [
        _path(part.rpartition(b" cm\n")[2]) for part in re.split(rb"\bW\*?\s+n", drawn)[:-1]
    ]
    return dict.fromkeys(clips, "") | dict(zip(inked, outlines, strict=True))


def _inflated(stream: bytes) -> bytes:
    try:
        return zlib.decompress(stream)
    except zlib.error:
        return stream


def _path(steps: bytes) -> str:
    """The steps of a PDF's path as those of an SVG's, but for the empty one that a clip path begins with."""
    parts = [
        (NAMES[name], " ".join(f"{float(one):.6g}" for one in numbers.split()))
        for numbers, name in STEP.findall(steps)
    ]
    return "".join(
        name + numbers
        for at, (name, numbers) in enumerate(parts)
        if name != "M" or parts[at + 1 :] and parts[at + 1][0] != "M"
    )
