"""The parts of a deep model from those of a shallow one, before the deep one is built."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from core.models.model_summary import Part
from core.models.titles import layer_title


def with_layers(tree: Part, layers: int, names: tuple[str, ...] = ()) -> Part:
    """The tree of a model of `layers` layers, from that of one whose layers are the whole pattern, which repeats.

    `names` are the `layer_names` of the deep model's config. Shapes, parameters and flops are those of the deep
    model; what only a pass through it tells (mean, std and gradient, and the bytes that layers store) is None or 0.
    """
    children = tuple(_repeated(tree, layers, names))
    part = replace(tree, mean=None, std=None, gradient=None, bytes=0, children=children)
    return (
        part
        if not children
        else replace(
            part,
            parameters=sum(child.parameters for child in children),
            flops=sum(child.flops for child in children),
        )
    )


def _repeated(tree: Part, layers: int, names: tuple[str, ...]) -> Iterator[Part]:
    """The children of a part; where they are layers, as many as the deep model has."""
    pattern = [with_layers(part, layers, names) for part in tree.children if _is_layer(part)]
    for child in tree.children:
        if not _is_layer(child):
            yield with_layers(child, layers, names)
        elif child.path == pattern[0].path:
            stack = child.path.rpartition(".")[0]
            for index in range(layers):
                like = pattern[index % len(pattern)]
                yield replace(
                    _moved(like, f"{stack}.{index}", len(like.path)),
                    title=layer_title(stack, index, names),
                )


def _is_layer(part: Part) -> bool:
    stack, _, last = part.path.rpartition(".")
    return stack.endswith("layers") and last.isdecimal()


def _moved(part: Part, path: str, cut: int) -> Part:
    """A layer and its parts under another path."""
    return replace(
        part,
        path=path + part.path[cut:],
        children=tuple(_moved(child, path, cut) for child in part.children),
    )
