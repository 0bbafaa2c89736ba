"""The controls of Cost and speed: the kernels, their conditions, and the mechanisms that are measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import streamlit as st
import torch

from core.attention import AXES, AttentionConfig, Choice, ConfigError, Entry
from core.attention.cost import CPU, CUDA, Limits, devices
from core.entries import complete
from dashboard.draw.formats import byte_size
from dashboard.widgets.panels import plain
from dashboard.widgets.params import BOUND, params_of

HEADS, SIZE = 4, 64
SHORTEST = 128
LONGEST = (512, 1024, 2048, 4096, 8192)
WINDOWS = (16, 32, 64, 128, 256)
ROUNDS = 5
MOST = 6  # curves in one figure
USUAL = ("exact", "fused", "chunked", "local", "linear", "performer")
LIMITS = Limits(seconds=2.0, bytes=256e6)  # a server of 1 GB holds this beside everything else
ENTRIES: dict[str, Entry] = {item.key: item for item in AXES["kernel"]}
TABLE = "max_len"  # a parameter that follows the longest text
VISIBLE = {False: "every key", True: "keys before"}
PASSES = {False: "forward", True: "and backward"}
BANDED = ("local", "block_sparse")  # measured on a window; all other kernels see every key

key = "efficient:{}".format  # a widget's key, which is also its name in the link


def limits(device: str) -> Limits:
    """Seconds and bytes that a call may take on that device: on a graphics card, half of its free memory."""
    return replace(LIMITS, bytes=torch.cuda.mem_get_info()[0] / 2) if device == CUDA else LIMITS


def limits_help(device: str) -> str:
    """The limits of a call on that device, as a sentence."""
    most = limits(device)
    return (
        f"A length is not measured where a call would need more than {byte_size(most.bytes)} of memory or take "
        f"longer than {most.seconds:g} s."
    )


def _complete(choice: Choice) -> Choice:
    """The choice with every parameter written out, so that a missing one equals its default."""
    return complete(choice, AXES["kernel"], "kernel")


@dataclass(frozen=True)
class Controls:
    """Which kernels race, and on what."""

    kernels: tuple[Choice, ...] = tuple(Choice(key) for key in USUAL)
    longest: int = 2048
    causal: bool = False
    backward: bool = False
    window: int = 32
    device: str = CPU

    @classmethod
    def of(cls, keys: Iterable[str], *rest: Any) -> Controls:
        """Those kernels with their usual parameters."""
        return cls(tuple(Choice(key) for key in keys), *rest)

    @property
    def keys(self) -> list[str]:
        return [choice.key for choice in self.kernels]

    def covers(self, other: Controls) -> bool:
        """Whether a result for these controls also answers the other ones; their lengths may differ."""
        return {*map(_complete, other.kernels)} <= {*map(_complete, self.kernels)} and (
            replace(self, kernels=(), longest=0) == replace(other, kernels=(), longest=0)
        )

    def configs(self) -> tuple[dict[str, AttentionConfig], list[str]]:
        """The mechanism of each kernel by its key, and the error of each kernel that is impossible."""
        configs: dict[str, AttentionConfig] = {}
        errors = []
        for kernel in self.keys:
            try:
                configs[kernel] = self.config(kernel)
            except ConfigError as error:
                errors.append(str(error))
        return configs, errors

    def config(self, kernel: str) -> AttentionConfig:
        """The mechanism of a kernel; tables are as long as the longest text. ConfigError for an impossible mask."""
        choice = next((choice for choice in self.kernels if choice.key == kernel), Choice(kernel))
        params = dict(choice.params)
        if any(param.key == TABLE for param in ENTRIES[kernel].params):
            params[TABLE] = max(self.longest, SHORTEST)
        return AttentionConfig(
            HEADS * SIZE, HEADS, mask=self.mask(kernel), kernel=Choice.of(kernel, **params)
        )

    def mask(self, kernel: str) -> Choice:
        """The mask that a kernel is measured with."""
        if kernel not in BANDED:
            return Choice("causal" if self.causal else "none")
        if self.causal:
            return Choice.of("causal_local", lookback=self.window)
        return Choice.of("local", window=self.window)


def draw_controls(button: Callable[[Controls], None]) -> Controls:
    """Draw the controls, with `button` in the last cell."""
    grid = st.grid(6, min_column_width=120, vertical_alignment="bottom")
    with grid.cell(column_span=2), st.popover("Kernels", icon=":material/speed:", width="stretch"):
        kernels = st.multiselect(
            f"Up to {MOST} kernels",
            list(ENTRIES),
            list(USUAL),
            key=key("kernels"),
            format_func=lambda name: ENTRIES[name].name,
            max_selections=MOST,
            **BOUND,
            help="A kernel is a way to compute attention. Each is one line of both figures.",
        )
        window = st.select_slider(
            "Window of local and block-sparse",
            WINDOWS,
            Controls.window,
            key=key("window"),
            **BOUND,
            help="How many keys a query sees on each side.",
        )
        choices = tuple(_kernel_choice(ENTRIES[kernel]) for kernel in kernels)
    with grid:
        longest = st.selectbox(
            "Longest text",
            LONGEST,
            LONGEST.index(Controls.longest),
            format_func=lambda length: f"{length:,} tokens",
            key=key("longest"),
            **BOUND,
            help=limits_help(devices()[0]),
        )
        causal = st.selectbox(
            "A query sees",
            list(VISIBLE),
            format_func=VISIBLE.__getitem__,
            key=key("causal"),
            help="Every key, or only its own and those before it (a causal mask).",
            **BOUND,
        )
        backward = st.selectbox(
            "Pass",
            list(PASSES),
            format_func=PASSES.__getitem__,
            key=key("backward"),
            **BOUND,
            help="Training also runs a backward pass, which computes gradients.",
        )
        device = (
            CPU
            if len(devices()) == 1
            else st.selectbox(
                "Device",
                devices(),
                key=key("device"),
                **BOUND,
                help="Where the kernels run.",
                format_func=lambda name: torch.cuda.get_device_name() if name == CUDA else "CPU",
            )
        )
        controls = Controls(choices, longest, bool(causal), bool(backward), window, device)
        button(controls)
    with st.container():
        for sentence in controls.configs()[1]:
            st.info(plain(sentence), icon=":material/block:")
    return controls


def _kernel_choice(item: Entry) -> Choice:
    """The kernel with its parameters' widgets, except a table's length, which follows the longest text."""
    if any(param.key != TABLE for param in item.params):
        st.markdown(f"**{item.name}**")
    return Choice.of(item.key, **params_of(item, key=key("params"), exclude=(TABLE,)))
