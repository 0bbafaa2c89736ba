"""Kernels that approximate: random features (Performer), fewer keys (Linformer, Nyströmformer), some blocks (NSA)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from core.attention.base import ScoreBlock, Steps, to_float32
from core.attention.kernels.costs import features_cost, linformer_cost, nystrom_cost, summed
from core.attention.kernels.exact import AttentionInputs, refuse_when, spans
from core.attention.kernels.implied import (
    CAUSAL_ROWS,
    CHUNK,
    PADDED_ROWS,
    Features,
    full_precision,
    pad_tokens,
    real_keys,
    scaled_qk,
    split_scale,
    steps,
)
from core.attention.masks.content import block_means, top_cells
from core.attention.normalizers import Softmax
from core.entries import Area, ConfigError, Cost, Entry, LayerConfig, Param

# Random features of the softmax kernel: e^(qᵀk) = E_w[φ_w(q) φ_w(k)]. Choromanski et al. 2021 (FAVOR+).


EPSILON = 1e-6  # keeps every weight above zero, as in the authors' TensorFlow code


def orthogonal_gaussian(rows: int, dim: int, seed: int) -> Tensor:
    """(rows, dim): each row as long as a Gaussian one, rows orthogonal within each stretch of `dim`. Section 2.4."""
    generator = torch.Generator().manual_seed(seed)
    normal = torch.randn(-(-rows // dim), dim, dim, generator=generator, dtype=torch.float64)
    basis, triangle = torch.linalg.qr(normal)
    # else each first number is negative
    basis = basis * triangle.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)
    lengths = torch.randn(rows, dim, generator=generator, dtype=torch.float64).norm(dim=1)
    return (basis.mT.flatten(0, 1)[:rows] * lengths[:, None]).float()


def exponents(x: Tensor, products: Tensor) -> Tensor:
    """wᵀx − |x|²/2 of each direction w, (…, R), from the products wᵀx."""
    return products - 0.5 * x.square().sum(-1, keepdim=True)


def softmax_features(exponent: Tensor) -> Tensor:
    """φ(x) = (e^(wᵀx − |x|²/2 − a stabiliser that cancels out but for ε) + ε) / √R. Lemma 1."""
    return exponent.shape[-1] ** -0.5 * (exponent.exp() + EPSILON)


def query_features(q: Tensor, directions: Tensor) -> Tensor:
    """Each query has its own stabiliser, which divides out row by row but for ε: so it has its gradient too."""
    products = q @ directions.T
    return softmax_features(exponents(q, products) - products.amax(-1, keepdim=True))


def key_features(k: Tensor, directions: Tensor, real: Tensor | None, causal: bool) -> Tensor:
    """The keys of a head share a stabiliser; causal ones have none, as later keys would change earlier outputs by it.

    Padding keys do not count for it, and get exponent 0: theirs could overflow, and 0 · ∞ is a NaN gradient.
    """
    products = k @ directions.T
    exponent, hidden = exponents(k, products), None if real is None else ~real.mT
    if not causal:
        lowest = torch.finfo(products.dtype).min
        real_products = products if hidden is None else products.masked_fill(hidden, lowest)
        exponent = exponent - real_products.amax((-1, -2), keepdim=True)
    return softmax_features(exponent if hidden is None else exponent.masked_fill(hidden, 0.0))


class Performer(nn.Module):
    directions: Tensor

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        self.features = Features(config)
        self.register_buffer(
            "directions",
            orthogonal_gaussian(
                int(config.kernel["features"]), config.qk_dim, int(config.kernel["seed"])
            ),
        )

    @full_precision
    def forward(self, inputs: AttentionInputs) -> Steps:
        real = real_keys(inputs, "performer")
        q, k = split_scale(inputs)
        directions = self.directions.to(q.dtype)
        return self.features.summed(
            inputs,
            query_features(q, directions),
            key_features(k, directions, real, self.features.causal),
            real,
        )


# Attention of low rank: r keys stand in for all S. Linformer (Wang 2020) and Nyströmformer (Xiong 2021).


class Linformer(nn.Module):
    """Learned E and F, (max_len, r), mix the S keys and values into r. Wang 2020, equation 7."""

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        self.max_len, rank = int(config.kernel["max_len"]), int(config.kernel["rank"])
        self.to_key, self.to_value = (
            nn.Parameter(torch.empty(self.max_len, rank).uniform_(-(rank**-0.5), rank**-0.5))
            for _ in range(2)
        )

    @full_precision
    def forward(self, inputs: AttentionInputs) -> Steps:
        length = inputs.k.shape[2]
        if length > self.max_len:
            raise ConfigError(
                f"kernel = linformer has max_len = {self.max_len}, but there are {length} keys",
                f"max_len ≥ {length}",
                kernel="nystrom",
            )
        real = real_keys(inputs, "linformer")
        q, k, scale = scaled_qk(inputs)
        mixes = [table[:length].to(q.dtype) for table in (self.to_key, self.to_value)]  # (S, r)
        to_key, to_value = mixes if real is None else (x.masked_fill(~real.mT, 0.0) for x in mixes)
        weights = (q @ (scale * (to_key.mT @ k)).mT).softmax(-1)  # (B, H, T, r)
        values = to_value.mT @ to_float32(inputs.v)
        return steps(inputs, weights @ values, lambda: weights @ to_value.mT)


def averages(length: int, count: int, real: Tensor | None, like: Tensor) -> Tensor:
    """(B, 1, count, length): row n averages the n-th of `count` stretches of the real tokens; zeros if it is empty."""
    real = (
        torch.ones(1, 1, 1, length, dtype=torch.bool, device=like.device) if real is None else real
    )
    rank, number = real.cumsum(-1) - 1, real.sum(-1, keepdim=True)
    stretch = torch.div(rank * count, number.clamp(min=1), rounding_mode="floor")
    inside = ((stretch == torch.arange(count, device=like.device)[:, None]) & real).to(like.dtype)
    return inside / inside.sum(-1, keepdim=True).clamp(min=1.0)


def inverse(matrix: Tensor, rounds: int) -> Tensor:
    """The Moore–Penrose inverse of a matrix of weights, by iteration. Xiong 2021, equation 11.

    Rows sum to at most one, so dividing by the largest column sum makes the first estimate small enough.
    """
    identity = torch.eye(matrix.shape[-2], dtype=matrix.dtype, device=matrix.device)
    largest = matrix.sum(-2, keepdim=True).amax(-1, keepdim=True)
    estimate = matrix.mT / largest.clamp(min=torch.finfo(matrix.dtype).tiny)
    for _ in range(rounds):
        both = matrix @ estimate
        estimate = (
            0.25
            * estimate
            @ (13 * identity - both @ (15 * identity - both @ (7 * identity - both)))
        )
    return estimate


# of the allowed cells of each row; zeros elsewhere, and in a row without any
masked_softmax = Softmax()


class Nystrom:
    """softmax(q k̃ᵀ) · softmax(q̃ k̃ᵀ)⁺ · softmax(q̃ kᵀ), where q̃ and k̃ are landmarks: means of stretches.

    Xiong 2021, equation 13, without the convolution over v. With as many landmarks as keys it is the softmax itself.
    """

    def __init__(self, config: LayerConfig) -> None:
        self.landmarks, self.rounds = (int(config.kernel[name]) for name in ("landmarks", "rounds"))

    @full_precision
    def __call__(self, inputs: AttentionInputs) -> Steps:
        real = real_keys(inputs, "nystrom")
        q, k, scale = scaled_qk(inputs)
        v = to_float32(inputs.v)
        if k.shape[2] <= self.landmarks:
            weights = masked_softmax(scale * q @ k.mT, real)
            return steps(inputs, weights @ v, lambda: weights)
        of_k = averages(k.shape[2], self.landmarks, real, k)
        left, middle, right = self.factors(q, k, of_k, scale, real, inputs.block.owns_queries)
        if real is None:
            return steps(inputs, left @ (middle @ (right @ v)), lambda: left @ (middle @ right))
        # a landmark a key, whatever the padding: the softmax itself
        few = real.sum(-1, keepdim=True) <= self.landmarks
        return steps(
            inputs,
            left @ torch.where(few, of_k @ v, middle @ (right @ v)),
            lambda: left @ torch.where(few, of_k, middle @ right),
        )

    def factors(
        self,
        q: Tensor,
        k: Tensor,
        of_k: Tensor,
        scale: float | Tensor,
        real: Tensor | None,
        own: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The three matrices, (B, H, T, m), (B, H, m, m), (B, H, m, S); `own` says that the queries are padded too."""
        of_q = averages(q.shape[2], min(self.landmarks, q.shape[2]), real if own else None, q)
        few_q, few_k = of_q @ q, of_k @ k
        # (B, 1, 1, m): fewer tokens leave some empty
        filled = None if real is None else of_k.any(-1).unsqueeze(-2)
        left = masked_softmax(q @ (scale * few_k).mT, filled)
        right = masked_softmax(scale * few_q @ k.mT, real)
        middle = masked_softmax(few_q @ (scale * few_k).mT, filled)
        if real is not None:
            middle = middle.masked_fill(~of_q.any(-1, keepdim=True), 0.0)
        return left, inverse(middle, self.rounds), right


ROWS = 256  # queries at once
GATHERED_ROWS = 128  # where each has keys of its own
SPARSE = 16  # selected keys are gathered where they are at most one of so many


def worth_gathering(selected: int, keys: int) -> bool:
    """Whether to gather the selected keys of a query; a product with all of them is faster than many copies."""
    return SPARSE * selected <= keys


def in_blocks(x: Tensor, size: int) -> Tensor:
    """Keys (B, H, S, D) as a table with a row for each of N blocks of each head, (B · H · N, size · D), 0 after the end."""
    return pad_tokens(x, 0, -x.shape[2] % size).unflatten(2, (-1, size)).flatten(0, 2).flatten(1)


class NativeSparse(nn.Module):
    """g₁ · (attention to the means of blocks) + g₂ · (to the keys of the best blocks) + g₃ · (to a window).

    Yuan 2025, sections 3.2 and 3.3, in its smallest form: a mean stands for the learned compression of a block, and the
    three branches share their keys and values. Blocks are selected as they are compressed, so a block's weight in the
    first branch is its importance in the second; heads that share keys add theirs up and select together. The choice
    has no gradient; the first branch trains what it is made by. Selected keys are gathered where they are few; where
    they are not, and for a picture, every cell is computed and then masked.
    """

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        self.size, self.blocks, self.window = (
            int(config.kernel[name]) for name in ("size", "blocks", "window")
        )
        self.shared = config.score_heads // config.kv_heads
        self.gate = nn.Linear(config.d_model, 3 * config.score_heads)

    @full_precision
    def forward(self, inputs: AttentionInputs) -> Steps:
        real, block = real_keys(inputs, "nsa"), inputs.block
        q, k, scale = scaled_qk(inputs)
        v, rows = to_float32(inputs.v), None if real is None else real[:, 0, 0]
        gates = self.gates(block.require("x", "kernel = nsa", kernel="exact"))
        (keys, counts), (values, _) = (block_means(x, rows, self.size) for x in (k, v))

        def branches(part: slice) -> tuple[Tensor, Tensor]:
            query = q[:, :, part] * scale
            return self.branches(
                query @ keys.mT, query @ k.mT, gates[:, :, part], block.part(part), counts, real
            )

        def output(part: slice) -> Tensor:
            coarse, fine = branches(part)
            return coarse @ values + fine @ v

        def weights() -> Tensor:
            """A block's weight is spread evenly over its real keys."""
            coarse, fine = branches(slice(0, q.shape[2]))
            inside = block.j // self.size == torch.arange(keys.shape[2], device=k.device)[:, None]
            return (
                coarse @ ((inside if real is None else inside & real) / counts.mT.clamp(min=1))
                + fine
            )

        if not inputs.record and worth_gathering(self.blocks * self.size, k.shape[2]):
            out = self.gathered(q * scale, k, v, keys, values, counts, gates, block, real)
        else:
            out = torch.cat([output(part) for part in spans(q.shape[2], ROWS)], dim=2)
        return steps(inputs, out, weights)

    def gathered(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        keys: Tensor,
        values: Tensor,
        counts: Tensor,
        gates: Tensor,
        block: ScoreBlock,
        real: Tensor | None,
    ) -> Tensor:
        """The output, (B, H, T, E), from the cells alone that queries can see.

        q is scaled; `keys` and `values` are the means of blocks, and `counts` says of how many keys.
        """
        length, total = k.shape[2], keys.shape[2]
        real = k.new_ones(1, 1, 1, length, dtype=torch.bool) if real is None else real
        heads = real.mT.expand(*k.shape[:2], -1, -1)
        of_k, of_v, of_real = (in_blocks(x, self.size) for x in (k, v, heads))
        starts = torch.arange(0, len(of_real), total, device=k.device).view(*k.shape[:2], 1, 1)
        within = torch.arange(self.size, device=k.device)

        def output(part: slice) -> Tensor:
            first, last = (min(at + block.offset, length) for at in (part.start, part.stop))
            near, reached = slice(max(0, first - self.window + 1), last), -(-last // self.size)
            compress, select, slide = gates[:, :, part].split(1, dim=-1)
            query, rows = q[:, :, part], block.part(part, near)
            scores, seen = (
                query @ keys[:, :, :reached].mT,
                self.seen(rows.i, counts[..., :reached]),
            )
            out = compress * (shared_softmax(scores, seen) @ values[:, :, :reached])
            visible = (rows.j <= rows.i) & (rows.j > rows.i - self.window) & real[..., near]
            out = out + slide * (shared_softmax(query @ k[:, :, near].mT, visible) @ v[:, :, near])
            chosen, there = self.choose(scores, seen, rows.i // self.size)  # (B, H, T, n)
            tokens, places = chosen[..., None] * self.size + within, chosen + starts
            visible = there[..., None] & (tokens <= rows.i[..., None]) & of_real[places]
            fine = shared_softmax(
                query[..., None, :] @ block_keys(of_k, places, k.shape[3]).mT,
                visible.flatten(3)[..., None, :],
            )
            return out + select * (fine @ block_keys(of_v, places, v.shape[3])).squeeze(3)

        return torch.cat([output(part) for part in spans(q.shape[2], GATHERED_ROWS)], dim=2)

    def branches(
        self,
        block_scores: Tensor,
        scores: Tensor,
        gates: Tensor,
        block: ScoreBlock,
        counts: Tensor,
        real: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """The gated weights of block means (B, H, T, N), and of keys in the two other branches (B, H, T, S)."""
        compress, select, slide = gates.split(1, dim=-1)
        numbers = torch.arange(block_scores.shape[-1], device=scores.device)
        seen = self.seen(block.i, counts)
        coarse = masked_softmax(block_scores, seen)
        selected = self.select(block_scores, seen, block.i // self.size, numbers)[
            ..., block.j[0] // self.size
        ]
        visible = block.j <= block.i if real is None else (block.j <= block.i) & real
        fine = select * masked_softmax(scores, visible & selected)
        fine = fine + slide * masked_softmax(scores, visible & (block.j > block.i - self.window))
        return compress * coarse, fine

    def gates(self, x: Tensor) -> Tensor:
        """The three gates of each query and head, (B, H, T, 3), between 0 and 1."""
        return (
            to_float32(self.gate(x.to(self.gate.weight.dtype)))
            .sigmoid()
            .unflatten(-1, (3, -1))
            .permute(0, 3, 1, 2)
        )

    def seen(self, i: Tensor, counts: Tensor) -> Tensor:
        """The blocks with real keys that end with the query or before it, bool (B, 1, T, N)."""
        last = torch.arange(1, counts.shape[-1] + 1, device=i.device) * self.size - 1
        return (last <= i) & (counts > 0)

    def select(self, block_scores: Tensor, seen: Tensor, own: Tensor, numbers: Tensor) -> Tensor:
        """Each query's own block and its most important earlier ones, bool (B, H, T, N)."""
        importance = self.importance(block_scores, seen)
        best = top_cells(importance, (numbers < own) & seen, self.blocks - 1)
        return (best | (numbers == own)).repeat_interleave(self.shared, dim=1)

    def choose(self, block_scores: Tensor, seen: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
        """The numbers of the blocks that `select` would choose, (B, H, T, n), and which of them there are."""
        count = block_scores.shape[-1]
        earlier = (torch.arange(count, device=own.device) < own) & seen
        importance = self.importance(block_scores, seen).masked_fill(~earlier, -torch.inf)
        own = own.expand(*importance.shape[:2], -1, -1)
        chosen, there = [own.clamp(max=count - 1)], [own < count]
        for _ in range(self.blocks - 1):
            highest, number = importance.max(-1, keepdim=True)  # of equal ones the first
            importance.scatter_(-1, number, -torch.inf)
            chosen.append(number)
            there.append(highest > -torch.inf)
        return (
            torch.cat(chosen, -1).repeat_interleave(self.shared, dim=1),
            torch.cat(there, -1).repeat_interleave(self.shared, dim=1),
        )

    def importance(self, block_scores: Tensor, seen: Tensor) -> Tensor:
        """What ranks blocks, (B, G, T, N): the sum of their weights in the heads that share keys, where those are seen.

        A head alone ranks by its scores. Logarithms rank those too that would all be 0 in fp32.
        """
        if self.shared == 1:
            return block_scores.detach()
        logs = (
            block_scores.detach()
            .masked_fill(~seen, torch.finfo(block_scores.dtype).min)
            .log_softmax(-1)
        )
        return logs.unflatten(1, (-1, self.shared)).logsumexp(2)


def shared_softmax(scores: Tensor, visible: Tensor) -> Tensor:
    """As masked_softmax: a sum is faster than to fill the hidden cells of each head that shares a mask."""
    hidden = torch.zeros_like(visible, dtype=scores.dtype)
    hidden = hidden.masked_fill(~visible, torch.finfo(scores.dtype).min)
    return (scores + hidden).softmax(-1) * visible.any(-1, keepdim=True)


def block_keys(table: Tensor, places: Tensor, dim: int) -> Tensor:
    """The keys of the blocks at these places of a table, (B, H, T, n · size, D)."""
    return F.embedding(places, table).flatten(3).unflatten(3, (-1, dim))


def _cost(config: LayerConfig, area: Area) -> Cost:
    """The gates; then queries with the means and with all keys, and the branches as two weighted sums, ROWS queries at
    once; or with the keys that are gathered."""
    queries, keys, dim, value = area.queries, area.keys, config.qk_dim, config.v_dim
    size, number = (int(config.kernel[name]) for name in ("size", "blocks"))
    selected = size * number
    blocks, rows = -(-keys // size), min(queries, ROWS)
    stored = float(blocks * (dim + value) + queries * value)
    gathers = worth_gathering(selected, keys)
    if gathers:
        cells, largest = _gathered_cells(config, area, selected)
        copied = keys % size > 0 or config.kv_heads == 1 < config.score_heads  # into tables
        stored += (dim + 3) * queries + blocks * size * (0.25 + (dim + value) * copied)
        means = blocks * (dim + 2 * value) + area.copied_keys * value
        numbers = max(stored + largest, means + 2 * keys / config.score_heads)
    else:
        cells = float(queries * (blocks + keys))
        ranks = rows * (keys + blocks * (3 + 7 * config.kv_heads / config.score_heads))
        # three masks of a byte a cell
        branches = rows * (2.25 * blocks + keys * (4 + 0.75 / config.score_heads))
        numbers = stored + rows * dim + max(ranks, branches)
    flops = 6.0 * queries * config.d_model + 2.0 * cells * (dim + value)
    return summed(config, area, flops, max(numbers, 2 * queries * value), prepared=gathers)


def _gathered_cells(config: LayerConfig, area: Area, selected: int) -> tuple[float, float]:
    """The cells of a head that meet, and the most numbers that GATHERED_ROWS queries hold at once."""
    size, window = int(config.kernel["size"]), int(config.kernel["window"])
    offset, cells, largest = area.low + area.keys - 1, 0.0, 0.0
    for part in spans(area.queries, GATHERED_ROWS):
        rows = part.stop - part.start
        first, last = (min(at + offset, area.keys) for at in (part.start, part.stop))
        reached, near = -(-last // size), last - max(0, first - window + 1)
        cells += rows * (reached + near + selected)
        branches = max(
            3 * reached,
            reached + 3 * near,
            reached + near + selected * (max(config.qk_dim, config.v_dim) + 4),
        )
        largest = max(largest, rows * (config.v_dim + branches))
    return cells, largest


ENTRIES: tuple[Entry, ...] = (
    Entry(
        "performer",
        "Performer",
        build=Performer,
        latex=r"e^{q^\top k} \approx \phi(q)^\top \phi(k),\quad \phi(x) = \tfrac{1}{\sqrt R}\, e^{W x - |x|^2 / 2}",
        meaning="Random orthogonal directions W give features whose dot product equals the exponential of softmax on "
        "average. More directions give a smaller error.",
        paper="Choromanski et al.",
        year=2021,
        url="https://arxiv.org/abs/2009.14794",
        params=(
            Param(
                "features",
                "Random features",
                default=128,
                low=1,
                high=4096,
                step=1,
                meaning="number R of random directions; the error falls as 1/√R",
            ),
            Param(
                "seed",
                "Seed",
                default=0,
                low=0,
                high=9999,
                step=1,
                meaning="seed of the random directions",
            ),
            CHUNK,
        ),
        short="{features} random features",
        traits=frozenset({"implied", "state", "layer only"}),
        cost=features_cost,
        refuse=refuse_when("performer", *CAUSAL_ROWS),
    ),
    Entry(
        "linformer",
        "Linformer",
        build=Linformer,
        latex=r"\text{softmax}\!\left(q\,(E^\top K)^\top\right) F^\top V",
        meaning="Learned matrices E and F project all keys and values to r keys and r values before the scores are computed.",
        paper="Wang et al.",
        year=2020,
        url="https://arxiv.org/abs/2006.04768",
        params=(
            Param(
                "rank",
                "Rank",
                default=32,
                low=1,
                high=1024,
                step=1,
                meaning="number r of projected keys and values",
            ),
            Param(
                "max_len",
                "Longest length",
                default=512,
                low=1,
                high=16384,
                step=1,
                meaning="largest number of keys that E and F can project",
            ),
        ),
        short="{rank} projected keys",
        traits=frozenset({"implied", "own positions", "layer only"}),
        cost=linformer_cost,
        refuse=refuse_when("linformer", *PADDED_ROWS),
    ),
    Entry(
        "nystrom",
        "Nyström",
        build=Nystrom,
        latex=r"\text{softmax}(q \tilde k^\top)\ \text{softmax}(\tilde q \tilde k^\top)^{+}\ \text{softmax}(\tilde q k^\top)",
        meaning="Queries are compared with landmarks, and landmarks with keys. A landmark is the mean of neighbouring "
        "tokens.",
        paper="Xiong et al.",
        year=2021,
        url="https://arxiv.org/abs/2102.03902",
        params=(
            Param(
                "landmarks",
                "Landmarks",
                default=32,
                low=1,
                high=1024,
                step=1,
                meaning="number m of landmarks, each the mean of neighbouring queries or keys",
            ),
            Param(
                "rounds",
                "Rounds",
                default=6,
                low=1,
                high=50,
                step=1,
                meaning="iterations that compute the inverse of the landmarks' weights",
            ),
        ),
        short="{landmarks} landmarks",
        traits=frozenset({"implied", "own positions"}),
        cost=nystrom_cost,
        refuse=refuse_when("nystrom", *PADDED_ROWS),
    ),
    Entry(
        "nsa",
        "Native sparse (NSA)",
        build=NativeSparse,
        latex=r"\sum_{c} g^c_i\, \text{softmax}(q_i K_c^\top)\, V_c,\quad c \in \{\text{block means},\ \text{best blocks},\ "
        r"\text{window}\}",
        meaning="Each query attends three times to itself and earlier tokens: to the means of blocks, to the keys of the "
        "blocks whose means weigh most, and to a window; gates of its own mix the three. Here a mean replaces the learned "
        "compression, and the branches share keys and values.",
        paper="Yuan et al.",
        year=2025,
        url="https://arxiv.org/abs/2502.11089",
        params=(
            Param(
                "size",
                "Block",
                default=4,
                low=1,
                high=512,
                step=1,
                meaning="tokens in a block, which are compressed and selected together",
            ),
            Param(
                "blocks",
                "Blocks",
                default=2,
                low=1,
                high=64,
                step=1,
                meaning="number of blocks that a query selects, its own included",
            ),
            Param(
                "window",
                "Window",
                default=4,
                low=1,
                high=4096,
                step=1,
                meaning="number of keys in the window, the query's own included",
            ),
        ),
        short="means + best blocks + window",
        traits=frozenset({"implied", "own positions", "layer only"}),
        cost=_cost,
        refuse=refuse_when("nsa", *CAUSAL_ROWS),
    ),
)
