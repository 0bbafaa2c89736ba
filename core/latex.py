"""Any text as LaTeX."""

# What LaTeX reads as something else, or does not read.
LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "√": r"$\surd$",
    "±": r"$\pm$",
    "−": "$-$",
    "×": r"$\times$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "→": r"$\to$",
    "²": "$^2$",
    "³": "$^3$",
    "·": r"$\cdot$",
    "…": r"\dots{}",
    "∞": r"$\infty$",
    "≈": r"$\approx$",
    "\u00a0": "~",
}


def latex(text: str) -> str:
    return "".join(LATEX.get(sign, sign) for sign in text)
