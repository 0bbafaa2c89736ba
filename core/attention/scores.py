"""The other scores, and the entries of all: each maps q (B, H, T, D) and k (B, H, S, D) to (B, H, T, S)."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from core.attention.base import MAX_HIDDEN_CELLS, Product, Score, clip_rms, dot_product_scale
from core.entries import Area, Axis, Cost, Entry, LayerConfig, Param

MIN_TAU = 0.01  # Swin V2's bound
# a vector shorter than this is taken as being of this length: zero has no direction
SMALLEST_NORM = 1e-6


class Dot(Product):
    """qᵀk; the kernel multiplies it by `scale`: 1 for "dot" (Luong 2015), 1/√D for "scaled_dot" (Vaswani 2017)."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale


class General(Product):
    """qᵀWk with one W (D, D) a head. Luong 2015, section 3.1."""

    def __init__(self, num_heads: int, head_dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_heads, head_dim, head_dim))
        nn.init.uniform_(self.weight, -(head_dim**-0.5), head_dim**-0.5)

    def prepare(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return q @ self.weight, k


class Additive(Score):
    """vᵀtanh(W₁k + W₂q). Bahdanau 2014, appendix A.1.2; hidden size D, one set of weights a head."""

    def __init__(self, num_heads: int, head_dim: int) -> None:
        super().__init__()
        bound = head_dim**-0.5
        self.key, self.query = (
            nn.Parameter(torch.empty(num_heads, head_dim, head_dim).uniform_(-bound, bound))
            for _ in range(2)
        )
        self.vector = nn.Parameter(torch.empty(num_heads, head_dim).uniform_(-bound, bound))

    def forward(
        self, q: Float[Tensor, "B H T D"], k: Float[Tensor, "B H S D"]
    ) -> Float[Tensor, "B H T S"]:
        # W₂q (B, H, T, D) and W₁k (B, H, S, D)
        from_query, from_key = (q @ self.query.mT, k @ self.key.mT)
        if torch.is_grad_enabled():
            return self.meet(from_query, from_key)
        # (B, H, rows, S, D) is what costs memory
        parts = from_query.split(max(1, MAX_HIDDEN_CELLS // from_key.numel()), dim=2)
        return torch.cat([self.meet(part, from_key) for part in parts], dim=2)

    def meet(self, from_query: Tensor, from_key: Tensor) -> Tensor:
        hidden = torch.tanh(from_query.unsqueeze(3) + from_key.unsqueeze(2))  # (B, H, T, S, D)
        return torch.einsum("bhtsd,hd->bhts", hidden, self.vector)

    def factors(
        self, q: Float[Tensor, "B H 1 D"], k: Float[Tensor, "B H 1 D"]
    ) -> tuple[Tensor, Tensor]:
        hidden = torch.tanh(q @ self.query.mT + k @ self.key.mT)
        return self.vector[:, None].expand_as(hidden), hidden


class Concat(Additive):
    """vᵀtanh(W[q; k]). Luong 2015, section 3.1; W (D, 2D) is held as its two halves, for q and for k."""


class Cosine(Product):
    """q̂ᵀk̂ / τ with one τ a head, learned as log(1/τ) and kept from 0.01 up. Swin V2 (Liu 2021), section 3.3.

    The paper's clamp is on log(1/τ) ≤ log 100; where it holds τ, τ learns nothing, as there.
    """

    def __init__(self, num_heads: int, tau: float, learned: bool) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(
            torch.full((num_heads,), -math.log(tau)), requires_grad=learned
        )

    @property
    def scale(self) -> Tensor:  # type: ignore[override]
        """1/τ, (H, 1, 1)."""
        return self.log_scale.clamp(max=-math.log(MIN_TAU)).exp()[:, None, None]

    def prepare(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return F.normalize(q, dim=-1, eps=SMALLEST_NORM), F.normalize(k, dim=-1, eps=SMALLEST_NORM)


class QKNorm(Dot):
    """RMSNorm(q)ᵀRMSNorm(k)/√D, each norm with learned gains that the heads share. Qwen3 (2025), section 2.

    The norms come before the positions turn q and k, as in Qwen3 and Gemma 3: gains do not commute with a rotation.
    """

    def __init__(self, head_dim: int) -> None:
        super().__init__(dot_product_scale(head_dim))
        self.query = nn.RMSNorm(head_dim, eps=SMALLEST_NORM)
        self.key: nn.Module = nn.RMSNorm(head_dim, eps=SMALLEST_NORM)

    def qk_transform(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return self.query(q), self.key(k)

    def drop_keys(self) -> None:
        self.key = nn.Identity()


class Clipped(Dot):
    """clip(g ⊙ q)ᵀclip(k)/√D: vectors with a root mean square above `largest` are shortened to it. Inkling 2 (2026).

    g are learned gains, one for each dimension of a head. Vectors that are shorter keep their length, so it counts; no
    score passes largest² · √D.
    """

    def __init__(self, num_heads: int, head_dim: int, largest: float) -> None:
        super().__init__(dot_product_scale(head_dim))
        self.largest = largest
        self.gain = nn.Parameter(torch.ones(num_heads, 1, head_dim))

    def qk_transform(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return clip_rms(self.gain * q, self.largest), clip_rms(k, self.largest)


class UnitVectors(Product):
    """(g ⊙ q̂)ᵀ(g ⊙ k̂) · √D with one learned gain g for each dimension of a head. nGPT (Loshchilov 2024).

    The vectors have length 1 after the positions turned them, so √D replaces 1/√D: a product of two random ones has a
    variance of 1/D. The paper stores g times a constant, which only changes how fast it is learned.
    """

    def __init__(self, num_heads: int, head_dim: int) -> None:
        super().__init__()
        self.scale = head_dim**0.5
        self.gain = nn.Parameter(torch.ones(num_heads, 1, head_dim))

    def prepare(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return tuple(self.gain * F.normalize(x, dim=-1, eps=SMALLEST_NORM) for x in (q, k))  # type: ignore[return-value]


def _additive_cost(config: LayerConfig, area: Area) -> Cost:
    """Both maps, and a sum with v over T × S × D numbers, of which some rows are held at a time with their tanh."""
    vectors = config.score_heads * (area.queries + area.keys) * config.qk_dim
    row = config.score_heads * area.keys * config.qk_dim
    rows = min(area.queries, max(1, MAX_HIDDEN_CELLS // row))
    flops = 2.0 * vectors * config.qk_dim + 2.0 * row * area.queries
    return Cost(flops, 4 * (vectors + 2 * rows * row))


def _cosine_cost(config: LayerConfig, area: Area) -> Cost:
    return Cost(0.0, 4, 4) * (config.score_heads * (area.queries + area.keys) * config.qk_dim)


# build(config) -> Score.
SCORES = Axis(
    Entry(
        "additive",
        "Additive",
        build=lambda config: Additive(config.score_heads, config.qk_dim),
        latex=r"v^\top \tanh(W_1 k_j + W_2 q_i)",
        meaning="A small network with one hidden layer compares query and key.",
        paper="Bahdanau et al.",
        year=2014,
        url="https://arxiv.org/abs/1409.0473",
        short="v tanh(W₁k + W₂q)",
        cost=_additive_cost,
    ),
    Entry(
        "dot",
        "Dot product",
        build=lambda config: Dot(1.0),
        latex=r"q_i^\top k_j",
        meaning="The dot product of query and key. Nothing is learned here.",
        paper="Luong et al.",
        year=2015,
        url="https://arxiv.org/abs/1508.04025",
        short="q·k",
        traits=frozenset({"product"}),
    ),
    Entry(
        "general",
        "General",
        build=lambda config: General(config.score_heads, config.qk_dim),
        latex=r"q_i^\top W k_j",
        meaning="A learned matrix W weights each product of a query dimension and a key dimension.",
        paper="Luong et al.",
        year=2015,
        url="https://arxiv.org/abs/1508.04025",
        short="q W k",
        traits=frozenset({"product"}),
        cost=lambda config, area: (
            Cost(2.0 * config.qk_dim, 4, 4) * (config.score_heads * area.queries * config.qk_dim)
        ),
    ),
    Entry(
        "concat",
        "Concat",
        build=lambda config: Concat(config.score_heads, config.qk_dim),
        latex=r"v^\top \tanh(W [q_i; k_j])",
        meaning="Query and key are concatenated and put through a small network.",
        paper="Luong et al.",
        year=2015,
        url="https://arxiv.org/abs/1508.04025",
        short="v tanh W[q; k]",
        cost=_additive_cost,
    ),
    Entry(
        "scaled_dot",
        "Scaled dot product",
        build=lambda config: Dot(dot_product_scale(config.qk_dim)),
        latex=r"q_i^\top k_j / \sqrt{D}",
        meaning="The dot product divided by √D, so that its standard deviation does not grow with the head size D.",
        paper="Vaswani et al.",
        year=2017,
        url="https://arxiv.org/abs/1706.03762",
        short="q·k",
        traits=frozenset({"product"}),
    ),
    Entry(
        "cosine",
        "Cosine",
        build=lambda config: Cosine(config.score_heads, **config.score.kwargs),
        latex=r"\hat q_i^\top \hat k_j / \tau_h,\quad \hat x = x / \lVert x \rVert",
        meaning="The cosine of the angle between query and key, divided by τ. The lengths of the vectors have no effect, "
        "and each head has its τ. Query-key normalization (Henry 2020) is the same with one τ for all heads.",
        paper="Liu et al.",
        year=2021,
        url="https://arxiv.org/abs/2111.09883",
        params=(
            Param(
                "tau",
                "Initial τ",
                default=0.1,
                low=MIN_TAU,
                high=1.0,
                step=0.01,
                meaning="initial value of τ in every head",
            ),
            Param("learned", "Learned τ", default=True, meaning="whether training changes τ"),
        ),
        short="cos(q, k)",
        traits=frozenset({"product"}),
        cost=_cosine_cost,
    ),
    Entry(
        "qk_norm",
        "QK-norm",
        build=lambda config: QKNorm(config.qk_dim),
        latex=r"\mathrm{RMSNorm}(q_i)^\top\, \mathrm{RMSNorm}(k_j) / \sqrt{D}",
        meaning="Queries and keys are scaled to the same length and multiplied by learned gains, before a position rotates "
        "them. Scores cannot grow without limit in training.",
        paper="Qwen Team",
        year=2025,
        url="https://arxiv.org/abs/2505.09388",
        short="norm q · norm k",
        traits=frozenset({"product"}),
    ),
    Entry(
        "clipped",
        "Clipped lengths",
        build=lambda config: Clipped(config.score_heads, config.qk_dim, **config.score.kwargs),
        latex=r"\mathrm{clip}(g \odot q_i)^\top\, \mathrm{clip}(k_j) / \sqrt{D},\quad "
        r"\mathrm{clip}(x) = x \cdot \min\!\big(1,\ c\sqrt{D} / \lVert x \rVert\big)",
        meaning="Queries, after learned gains, and keys that are longer than a bound are shortened to it, so scores cannot "
        "grow without limit. A norm would give all vectors one length; here short ones stay short.",
        paper="Thinking Machines",
        year=2026,
        url="https://huggingface.co/docs/transformers/model_doc/inkling2",
        params=(
            Param(
                "largest",
                "Largest length",
                default=2.0,
                low=0.1,
                high=100.0,
                step=0.1,
                meaning="bound c of the root mean square of a query or key; 2 in Inkling 2",
            ),
        ),
        short="clip q · clip k",
        traits=frozenset({"product"}),
    ),
    Entry(
        "unit_vectors",
        "Unit vectors (nGPT)",
        build=lambda config: UnitVectors(config.score_heads, config.qk_dim),
        latex=r"(g \odot \hat q_i)^\top (g \odot \hat k_j) \sqrt{D},\quad \hat x = x / \lVert x \rVert",
        meaning="The cosine of query and key, in which each dimension of a head has a learned gain, times √D.",
        paper="Loshchilov et al.",
        year=2024,
        url="https://arxiv.org/abs/2410.01131",
        short="g q̂ · g k̂",
        traits=frozenset({"product"}),
        cost=_cosine_cost,
    ),
)
