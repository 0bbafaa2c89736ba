"""Positions that change scores by what tokens say, or by a rule: CoPE, forget gates, PaTH, multi-token, selective, a
formula."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from core.attention.base import (
    MAX_HIDDEN_CELLS,
    Position,
    ScoreBlock,
    convolve,
    dot_product_scale,
    linear,
    repeat_heads,
    split_heads,
    to_float32,
)
from core.attention.formula import Formula, parse
from core.attention.positions.relative import bias_cost
from core.entries import Area, Cost, Entry, LayerConfig, Param, refuse_if

# Positions that are read from the content itself: CoPE (Golovneva 2024), the forgetting gate (Lin 2025), Wall (2026).


# scores that are scale · q · k as a position sees them
PLAIN_PRODUCTS = ("dot", "scaled_dot", "qk_norm")


class Cope(Position):
    """qᵢᵀ e[pᵢⱼ], pᵢⱼ = Σ σ(sᵢₘ) over m from j to i: a position counted in gated keys. Golovneva 2024, section 4.

    p is fractional, so e is interpolated between its two neighbours; a key after the query, or padding, counts 0.
    """

    def __init__(self, qk_dim: int, places: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(places, qk_dim).normal_(std=0.02))

    def adjust(
        self, scores: Float[Tensor, "B H T S"], block: ScoreBlock
    ) -> Float[Tensor, "B H T S"]:
        q = block.require("q", "position = cope", position="alibi")
        counted = block.j <= block.i
        if block.key_mask is not None:
            counted = counted & block.key_mask
        gates = to_float32(scores).sigmoid().masked_fill(~counted, 0.0)
        # (B, H, T, S), from j to the end
        position = gates.flip(-1).cumsum(-1).flip(-1).clamp(max=len(self.table) - 1)
        share = position.frac()
        products = q @ self.table.mT  # (B, H, T, places)
        return scores + (
            products.gather(-1, position.long()) * (1 - share)
            + products.gather(-1, position.ceil().long()) * share
        ).to(scores.dtype)


class Forgetting(Position):
    """Σ log fₗ over l from j + 1 to i, fₗ = σ(wᵀxₗ + b) a head. Lin 2025, section 3.

    For a key after its query the gates between them count likewise (a causal mask hides it). There are gates for keys
    only, so queries past the last key add none, and decoding with a cache agrees with the whole run. Padding keys have
    no gate.
    """

    name = "position = forgetting"

    def __init__(self, d_model: int, num_gates: int, start: float) -> None:
        super().__init__()
        self.gate = nn.Linear(d_model, num_gates)
        nn.init.constant_(self.gate.bias, start)

    def tables(self, block: ScoreBlock) -> tuple[Tensor, ...]:
        """The cumulative log of the forget gates up to each key, (B, H, Sx)."""
        gates = self.gate(block.require("context", self.name, position="alibi")).mT
        logs = F.logsigmoid(to_float32(gates))
        if block.real is not None:
            logs = logs.masked_fill(~block.real[:, None], 0.0)
        return (logs.cumsum(-1),)

    def bias(self, block: ScoreBlock) -> Float[Tensor, "B H T S"]:
        context = block.require("context", self.name, position="alibi")
        (total,) = block.tables or self.tables(block)
        at_query = total[..., block.i.clamp(max=context.shape[1] - 1)]  # (B, H, T, 1)
        return -(at_query - total[..., block.j]).abs().to(context.dtype)


class Wall(Forgetting):
    """scale · Σ_n q_in k_jn (e^(P_in − P_jn) − 1), P the sum of log σ(W x + b) up to a token: what the products forget.

    Added to q · k it leaves scale · Σ_n q_in k_jn e^(P_in − P_jn): each of the D products of a score fades by the gates
    of its own between key and query. Averbuch 2026. For a key after its query they fade likewise, and padding keys
    have no gates, as in Forgetting.
    """

    name = "position = wall"

    def __init__(
        self, d_model: int, num_heads: int, qk_dim: int, scale: float, start: float
    ) -> None:
        super().__init__(d_model, num_heads * qk_dim, start)
        self.num_heads, self.scale = num_heads, scale

    def tables(self, block: ScoreBlock) -> tuple[Tensor, ...]:
        """P, (B, H, Sx, D)."""
        (total,) = super().tables(block)
        return (total.unflatten(1, (self.num_heads, -1)).mT.contiguous(),)

    def bias(self, block: ScoreBlock) -> Float[Tensor, "B H T S"]:
        q, k = (block.require(one, self.name, position="alibi") for one in "qk")
        (total,) = block.tables or self.tables(block)
        at_query = total[:, :, block.i.flatten().clamp(max=total.shape[2] - 1)]
        at_key = total[:, :, block.j.flatten()]
        if torch.is_grad_enabled():
            return self.forgotten(q, k, at_query, at_key)
        rows = max(1, MAX_HIDDEN_CELLS // at_key.numel())  # (B, H, rows, S, D) is what costs memory
        parts = zip(q.split(rows, dim=2), at_query.split(rows, dim=2), strict=True)
        return torch.cat([self.forgotten(one, k, at, at_key) for one, at in parts], dim=2)

    def forgotten(self, q: Tensor, k: Tensor, at_query: Tensor, at_key: Tensor) -> Tensor:
        """The bias of some rows: the products times e^−|…| − 1, (B, H, T, S, D), and summed."""
        fades = torch.expm1(-(at_query.unsqueeze(3) - at_key.unsqueeze(2)).abs())
        products = (fades * k.unsqueeze(2)) @ (q * self.scale).unsqueeze(-1).to(fades.dtype)
        return products.squeeze(-1).to(q.dtype)


def _wall_cost(config: LayerConfig, area: Area) -> Cost:
    """D decays a cell, of some rows at a time, which the keys and then the query multiply."""
    row = config.score_heads * area.keys * config.qk_dim
    rows = min(area.queries, max(1, MAX_HIDDEN_CELLS // row))
    sums = 4 * config.score_heads * (area.queries + area.keys) * config.qk_dim
    bias = 4.0 * config.score_heads * area.cells
    return Cost(2.0 * row * area.queries, sums + 8 * rows * row + bias, bias)


def plain_products(why: str) -> Callable[[LayerConfig], None]:
    """The `refuse` of a position that needs a dot product of the query and the key; in `why`, {} is another score."""
    return lambda config: refuse_if(
        config.score.key not in PLAIN_PRODUCTS,
        why.format(config.score.key),
        axes=("position", "score"),
        score=PLAIN_PRODUCTS,
        position="forgetting",
    )


def _cope_cost(config: LayerConfig, area: Area) -> Cost:
    """The products of queries and table; then gates, positions, their two neighbours and a share, each a matrix."""
    products = config.score_heads * area.queries * int(config.position["places"])
    matrices = 36 * config.score_heads * area.cells
    return Cost(2.0 * products * config.qk_dim, matrices + 4 * products)


# PaTH (Yang 2025): between key and query stands a product of reflections, one for each token.


class Path(Position):
    """qᵢᵀ (Hᵢ ⋯ Hⱼ₊₁) kⱼ, H = I − β w wᵀ of each token between key and query. Yang 2025, section 2 (PaTH).

    w is a unit vector in each of G heads of keys: SiLU of a short convolution of x W₁ W₂, over its length. β = 2σ(uᵀx + b)
    lies from 0, which changes nothing, to 2, which is a reflection. Returned is what this adds to qᵢᵀkⱼ / √D. With
    u_l = β_l (w_lᵀk − Σ w_lᵀw_m u_m) over m from j + 1 to l − 1, as in the paper's UT transform, the score is
    qᵢᵀkⱼ − Σ qᵢᵀw_l u_l over l from j + 1 to i, so that one triangular system gives all keys of a query. A key that is
    not before its query, and padding, has no reflection; nor have queries past the last key.
    """

    def __init__(
        self,
        d_model: int,
        groups: int,
        head_dim: int,
        scale: float,
        rank: int,
        width: int,
    ) -> None:
        super().__init__()
        self.groups, self.scale = groups, scale
        self.down, self.up = linear(d_model, rank), linear(rank, groups * head_dim)
        bound = width**-0.5  # as nn.Conv1d's
        self.taps = nn.Parameter(torch.empty(width, groups * head_dim).uniform_(-bound, bound))
        self.strength = linear(d_model, groups, bias=True)

    def reflections(
        self, block: ScoreBlock
    ) -> tuple[Float[Tensor, "B G S D"], Float[Tensor, "B G S 1"]]:
        """w and β of every token of the context."""
        context = block.require("context", "position = path", position="alibi")
        rows, strength = self.up(self.down(context)), 2 * self.strength(context).sigmoid()
        if block.real is not None:
            hidden = ~block.real[..., None]
            rows, strength = rows.masked_fill(hidden, 0.0), strength.masked_fill(hidden, 0.0)
        mixed = F.silu(convolve(F.pad(rows, (0, 0, len(self.taps) - 1, 0)), self.taps))
        return F.normalize(split_heads(mixed, self.groups), dim=-1), strength.mT[..., None]

    def bias(self, block: ScoreBlock) -> Float[Tensor, "B H T S"]:
        q, k = (
            to_float32(block.require(name, "position = path", position="alibi")) for name in "qk"
        )
        w, strength = (to_float32(repeat_heads(x, q.shape[1])) for x in self.reflections(block))
        each = torch.arange(w.shape[2], device=w.device)
        system = ((strength * w) @ w.mT).tril(-1)  # of u_l and u_m, with 1 on the diagonal
        met = (q @ w.mT).masked_fill(each > block.i, 0.0)  # qᵢᵀw_l, l up to i
        of_query = torch.linalg.solve_triangular(
            to_float32(system), to_float32(met), upper=False, left=False, unitriangular=True
        )
        of_key = ((strength * w) @ k.mT).masked_fill(each[:, None] <= block.j, 0.0)
        return (of_query @ of_key * -self.scale).to(block.dtype)


def _path_cost(config: LayerConfig, area: Area) -> Cost:
    """w and β; products of w with itself, queries and keys; the system, and the product of what it gives with u."""
    heads, keys, rank = config.score_heads, area.keys, int(config.position["rank"])
    wide, matrix, cells = config.kv_heads * config.qk_dim, heads * keys**2, heads * area.cells
    flops = 2.0 * keys * (config.d_model * (rank + config.kv_heads) + rank * wide)
    flops += 2.0 * heads * keys * config.qk_dim * (2 * keys + area.queries)
    flops += 3.0 * area.queries * matrix  # the system
    held = 3 * heads * keys * config.qk_dim + 2 * matrix + 2 * cells + max(matrix, 2 * cells)
    return Cost(flops, 4 * held, 4 * cells)


# Selective attention (Leviathan 2024): a token may say that later tokens no longer need an earlier one.


class Selective(Position):
    """sᵢⱼ − Σ max(0, s¹ₘⱼ) over the queries m with j < m < i, s¹ the scores of the first head. Leviathan 2024.

    A token never says it of itself, of a later token or, with `keep_first`, of the first one. A padding query says
    nothing; between two texts every query speaks, as only keys have a mask. A query may say it of a key that a mask
    hides from it, which matters only under masks that show the key to a later query. All earlier queries are needed: a
    layer with a cache computes the whole text again.
    """

    def __init__(self, keep_first: bool) -> None:
        super().__init__()
        self.keep_first = keep_first

    def adjust(
        self, scores: Float[Tensor, "B H T S"], block: ScoreBlock
    ) -> Float[Tensor, "B H T S"]:
        cells = block.j < block.i  # in which a query may say that a key is no longer needed
        if self.keep_first:
            cells = cells & (block.j > 0)
        cells = of_real_rows(cells, scores, block, "selective")

        selected = to_float32(scores[:, 0]).relu().masked_fill(~cells, 0.0)  # a sum of many queries
        # (B, T, S): of the rows before each
        return scores - F.pad(selected, (0, 0, 1, -1)).cumsum(-2)[:, None].to(scores.dtype)


def of_real_rows(
    cells: Bool[Tensor, "T S"], scores: Tensor, block: ScoreBlock, owner: str
) -> Bool[Tensor, "*B T S"]:
    """The cells of queries that are no padding, where these are the tokens that the key mask speaks of.

    ConfigError unless the scores are of all queries, from the first on.
    """
    refuse_if(
        scores.shape[2] != block.num_queries,
        f"position = {owner} reads the scores of all earlier queries, which are not given here",
        "the whole text",
        position="forgetting",
    )
    return (
        cells & block.real[:, block.i] if block.real is not None and block.owns_queries else cells
    )


def needs_all_rows(config: LayerConfig) -> None:
    """The `refuse` of a position that reads earlier rows: only the exact kernel holds them together."""
    refuse_if(
        config.kernel.key != "exact",
        f"position = {config.position.key} reads the scores of all earlier queries, and kernel = "
        f"{config.kernel.key} never holds them together",
        axes=("position", "kernel"),
        kernel="exact",
        position="forgetting",
    )


# Multi-token attention (Golovneva 2025): a score is mixed with those of neighbouring queries and keys.


class MultiToken(Position):
    """Σ θ_ab s of query i − a and key j + b, over a from 0 to c_q − 1 and |b| ≤ c_k / 2. Golovneva 2025, section 3.1.

    Each head has its own θ, a convolution of the score matrix. Before it a score of a key after its query counts 0, as
    in the authors' code, so no token sees a later one; so does any score of padding (of a padding key alone between two
    texts, as only keys have a mask). All earlier queries are needed: a
    layer with a cache computes the whole text again.
    """

    def __init__(self, num_heads: int, queries: int, keys: int, mix: float) -> None:
        """θ starts with a share `mix` spread over all its cells, and the rest on the score itself."""
        super().__init__()
        theta = torch.full((num_heads, 1, queries, keys), mix / (queries * keys))
        theta[:, :, -1, keys // 2] += 1.0 - mix  # the last row is that of the query itself
        self.theta = nn.Parameter(theta)

    def adjust(
        self, scores: Float[Tensor, "B H T S"], block: ScoreBlock
    ) -> Float[Tensor, "B H T S"]:
        # cells count whose key is not after its query, and neither is padding
        cells = of_real_rows(block.j <= block.i, scores, block, "multi_token")
        cells = cells if cells.dim() == 2 else cells[:, None]
        cells = cells if block.key_mask is None else cells & block.key_mask
        queries, keys = self.theta.shape[2:]
        padded = F.pad(
            to_float32(scores).masked_fill(~cells, 0.0), (keys // 2, keys // 2, queries - 1, 0)
        )
        mixed = F.conv2d(padded, self.theta.to(padded.dtype), groups=len(self.theta))
        return mixed.to(scores.dtype)


def _refuse(config: LayerConfig) -> None:
    keys = int(config.position["keys"])
    refuse_if(
        keys % 2 == 0,
        f"position = multi_token mixes a key with as many before as after it, and keys = {keys} is even",
        axes=("position",),
        keys=(keys - 1, keys + 1),
    )
    needs_all_rows(config)


def _multi_token_cost(config: LayerConfig, area: Area) -> Cost:
    """A convolution a head, from a copy of the scores with zeros around it."""
    queries, keys = int(config.position["queries"]), int(config.position["keys"])
    around = (area.queries + queries - 1) * (area.keys + keys - 1)
    heads = config.score_heads
    return Cost(2.0 * queries * keys * heads * area.cells, 4 * heads * (area.cells + around))


# A temperature that falls with the position of the query, as in the layers of Llama 4 without rotation.


class PositionTemperature(Position):
    """sᵢⱼ · (1 + a·log(1 + ⌊(i + 1)/n⌋)): scores grow with the query's position, in steps of n positions. Llama 4.

    The rule "smooth" is 1 + a·log(max(1, (i + 1)/n)): nothing up to position n, then without steps. Inkling.

    Without it a softmax becomes flatter as a query sees more keys (Nakanishi 2025). The model multiplies the query,
    which gives the same scores.
    """

    def __init__(self, growth: float, step: int, rule: str) -> None:
        super().__init__()
        self.growth, self.step, self.smooth = growth, step, rule == "smooth"

    def adjust(
        self, scores: Float[Tensor, "B H T S"], block: ScoreBlock
    ) -> Float[Tensor, "B H T S"]:
        steps = (block.i + 1).to(torch.promote_types(scores.dtype, torch.float32)) / self.step
        grown = steps.clamp(min=1.0).log() if self.smooth else steps.floor().log1p()  # (T, 1)
        return scores * (1.0 + self.growth * grown).to(scores.dtype)


class Typed(Position):
    """New scores by a formula over score, i, j, h, T and S, after scale and before the mask."""

    def __init__(self, formula: str) -> None:
        super().__init__()
        self.formula: Formula = parse(formula, "score")

    def adjust(
        self, scores: Float[Tensor, "B H T S"], block: ScoreBlock
    ) -> Float[Tensor, "B H T S"]:
        return self.formula(block, scores)

    def latex(self) -> str:
        """The typed formula as an equation, which pages show instead of the entry's."""
        return r"s_{ij} \leftarrow " + self.formula.latex()


ENTRIES: tuple[Entry, ...] = (
    Entry(
        "cope",
        "CoPE",
        build=lambda config: Cope(config.qk_dim, **config.position.kwargs),
        latex=r"q_i^\top e\!\left[\textstyle\sum_{m=j}^{i} \sigma(s_{im})\right]",
        meaning="The position of a key is a count of the keys that the query finds relevant, not of all tokens.",
        paper="Golovneva et al.",
        year=2024,
        url="https://arxiv.org/abs/2405.18719",
        params=(
            Param(
                "places",
                "Places",
                default=64,
                low=2,
                high=4096,
                step=1,
                meaning="number of vectors in the table; larger positions share the last one",
            ),
        ),
        short="+ q·e[Σσ(s)]",
        enters="scores",
        traits=frozenset({"adjusts", "whole rows", "reads q"}),
        cost=_cope_cost,
    ),
    Entry(
        "forgetting",
        "Forgetting gate",
        build=lambda config: Forgetting(
            config.d_model, config.score_heads, **config.position.kwargs
        ),
        latex=r"\sum_{l=j+1}^{i} \log f_l,\quad f_l = \sigma(w_h^\top x_l + b_h)",
        meaning="Each token has a forget gate from 0 to 1. The logarithms of the gates between key and query are added to "
        "the score.",
        paper="Lin et al.",
        year=2025,
        url="https://arxiv.org/abs/2503.02130",
        params=(
            Param(
                "start",
                "Initial bias",
                default=0.0,
                low=-5.0,
                high=8.0,
                step=0.5,
                meaning="bias of the gate before training: with 0 the gate is σ(0) = 0.5, with 5 it is σ(5) = 0.993",
            ),
        ),
        short="Σ log f",
        enters="scores",
        traits=frozenset({"reads x"}),
        cost=lambda config, area: bias_cost(config, area, 0.0, 0.0, 3),
        tables=lambda config, area: (
            Cost(2.0 * config.d_model, 12, 4) * (config.score_heads * area.keys)
        ),
    ),
    Entry(
        "wall",
        "Wall",
        build=lambda config: Wall(
            config.d_model,
            config.score_heads,
            config.qk_dim,
            1.0 if config.score.key == "dot" else dot_product_scale(config.qk_dim),
            **config.position.kwargs,
        ),
        latex=r"\sum_n \frac{q_{in} k_{jn}}{\sqrt{D}} \left(\textstyle\prod_{l=j+1}^{i} f_{ln} - 1\right),"
        r"\quad f_l = \sigma(W_h x_l + b_h)",
        meaning="A score is a sum of D products, and each of them fades by forget gates of its own, which the tokens between "
        "key and query set. So a head can hold on to some features of a token while it forgets others.",
        paper="Averbuch et al.",
        year=2026,
        url="https://blog.tilderesearch.com/blog/wall-attn",
        params=(
            Param(
                "start",
                "Initial bias",
                default=8.0,
                low=-5.0,
                high=12.0,
                step=0.5,
                meaning="bias of the gates before training: with 8 a gate is σ(8) = 0.9997 and forgets almost nothing",
            ),
        ),
        short="Σ q k (Π f − 1)",
        enters="scores",
        traits=frozenset({"reads q", "reads x"}),
        cost=_wall_cost,
        tables=lambda config, area: (
            Cost(2.0 * config.d_model, 12, 4) * (config.score_heads * config.qk_dim * area.keys)
        ),
        refuse=plain_products(
            "position = wall fades each product of numbers of a query and a key, and score = {} is no plain sum of "
            "these"
        ),
    ),
    Entry(
        "path",
        "PaTH",
        build=lambda config: Path(
            config.d_model,
            config.kv_heads,
            config.qk_dim,
            1.0 if config.score.key == "dot" else dot_product_scale(config.qk_dim),
            **config.position.kwargs,
        ),
        latex=r"q_i^\top \Big(\textstyle\prod_{l=i}^{j+1} H_l - I\Big)\, k_j / \sqrt{D},\quad "
        r"H_l = I - \beta_l\, w_l w_l^\top",
        meaning="Each token between key and query reflects, in part, the key along a direction of its own. RoPE turns by "
        "how many tokens lie between, PaTH by which, so a layer can follow a state that tokens change.",
        paper="Yang et al.",
        year=2025,
        url="https://arxiv.org/abs/2505.16381",
        params=(
            Param(
                "rank",
                "Rank",
                default=32,
                low=1,
                high=1024,
                step=1,
                meaning="size of the vector of a token from which its direction w is computed",
            ),
            Param(
                "width",
                "Convolution",
                default=3,
                low=1,
                high=16,
                step=1,
                meaning="number of tokens that a short convolution mixes into w: a token and those before it",
            ),
        ),
        short="+ q·(ΠH − I) k",
        enters="scores",
        traits=frozenset({"reads x", "reads q", "whole rows"}),
        cost=_path_cost,
        refuse=plain_products(
            "position = path sets reflections between the query and the key of a dot product, not of score = {}"
        ),
    ),
    Entry(
        "selective",
        "Selective",
        build=lambda config: Selective(**config.position.kwargs),
        latex=r"s_{ij} - \sum_{m:\,j<m<i} \max(0,\ s^{1}_{mj})",
        meaning="A token can tell all later tokens that they need an earlier token less: a positive score of the first "
        "head is subtracted from the scores of all later queries.",
        paper="Leviathan et al.",
        year=2024,
        url="https://arxiv.org/abs/2410.02703",
        params=(
            Param(
                "keep_first",
                "Keep the first token",
                default=True,
                meaning="whether the first token can never be selected",
            ),
        ),
        short="− Σ max(0, s¹)",
        enters="scores",
        traits=frozenset({"adjusts", "other rows"}),
        # the first head's scores, masked and summed, then the sums and all scores again
        cost=lambda config, area: Cost(
            0.0, 4 * area.cells * max(3, 1 + config.score_heads) + area.cells
        ),
        refuse=needs_all_rows,
    ),
    Entry(
        "multi_token",
        "Multi-token",
        build=lambda config: MultiToken(config.score_heads, **config.position.kwargs),
        latex=r"\sum_{0 \le a < c_q,\ |b| \le c_k/2} \theta^{h}_{ab}\, s_{i-a,\,j+b}",
        meaning="Each score is mixed with those of neighbouring keys and of the queries just before, so a token can be "
        "found by several words that stand together.",
        paper="Golovneva et al.",
        year=2025,
        url="https://arxiv.org/abs/2504.00927",
        params=(
            Param(
                "queries",
                "Queries",
                default=6,
                low=1,
                high=64,
                step=1,
                meaning="number of queries that are mixed: a token and those before it",
            ),
            Param(
                "keys",
                "Keys",
                default=11,
                low=1,
                high=127,
                step=2,
                meaning="number of neighbouring keys that are mixed, an odd number",
            ),
            Param(
                "mix",
                "Initial mixing",
                default=0.25,
                low=0.0,
                high=1.0,
                step=0.05,
                meaning="share of the mean of all neighbours in each score before training; with 0, as in the paper, each "
                "score begins alone",
            ),
        ),
        short="Σ θ·s around (i, j)",
        enters="scores",
        traits=frozenset({"adjusts", "other rows", "whole rows"}),
        cost=_multi_token_cost,
        refuse=_refuse,
    ),
    Entry(
        "position_temperature",
        "Temperature by position",
        build=lambda config: PositionTemperature(**config.position.kwargs),
        latex=r"s_{ij} \cdot \left(1 + a \log\left(1 + \left\lfloor \tfrac{i + 1}{n} \right\rfloor\right)\right)",
        meaning="Scores grow with the logarithm of the query's position, so a query that sees many keys still has large "
        "weights. The positions of the keys have no effect.",
        paper="Meta",
        year=2025,
        url="https://ai.meta.com/blog/llama-4-multimodal-intelligence/",
        params=(
            Param(
                "growth",
                "Growth a",
                default=0.1,
                low=0.0,
                high=2.0,
                step=0.05,
                meaning="growth a of the scores with the logarithm of the position; 0.1 in Llama 4",
            ),
            Param(
                "step",
                "Step n",
                default=1,
                low=1,
                high=2**20,
                step=1,
                meaning="number of positions n with the same factor; 8,192 in Llama 4, 128,000 in Inkling 2",
            ),
            Param(
                "rule",
                "Rule",
                default="steps",
                choices=("steps", "smooth"),
                labels=("in steps of n (Llama 4)", "from position n on (Inkling)"),
                meaning="whether the factor grows after each n positions, or only the first n share one",
            ),
        ),
        short="s·(1 + a·log(1 + i / {step}))",
        enters="scores",
        traits=frozenset({"adjusts"}),
        cost=lambda config, area: Cost(0.0, 4 * config.score_heads * area.cells),
    ),
    Entry(
        "formula",
        "Formula",
        build=lambda config: Typed(**config.position.kwargs),
        latex=r"s_{ij} \leftarrow f(s_{ij}, i, j, h, T, S)",
        meaning="A rule that you type: it computes the new score from the score, the positions i and j, the head h and the "
        "sizes T and S.",
        paper="",
        year=2024,
        url="",
        params=(
            Param(
                "formula",
                "Formula",
                default="score - 0.5*abs(i-j)",
                parse=lambda text: parse(text, "score"),
                meaning="formula of score, i, j, h, T and S with + − * / % **, comparisons, where, abs, min, max, exp, "
                "log, sqrt and others",
            ),
        ),
        short="{formula}",
        enters="scores",
        traits=frozenset({"adjusts"}),
        # about three matrices at once
        cost=lambda config, area: Cost(0.0, 4 * config.score_heads * area.cells * 3),
    ),
)
