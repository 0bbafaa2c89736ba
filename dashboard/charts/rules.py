"""A choice's rule as plain text."""

from __future__ import annotations

from core.attention import Choice, entry


def rule(axis: str, choice: Choice) -> str:
    """The rule with its parameters, joined from the parts of a composed choice; other changed parameters follow it."""
    item = entry(axis, choice.key)
    if choice.key == "not":
        return f"not ({rule(axis, choice.parts[0])})"
    if choice.parts:
        return f" {choice.key} ".join(
            rule(axis, part) for part in choice.parts if part.key != "none"
        )
    params = dict(choice.params)
    try:
        text = item.short.format(**params)
    except KeyError:
        text = item.name.lower()
    others = [
        f"{param.name.lower()} {params[param.key]}"
        for param in item.params
        if params.get(param.key) != param.default and f"{{{param.key}}}" not in item.short
    ]
    return ", ".join(filter(None, [text, *others]))
