"""Kernels that approximate: random features (Performer), fewer keys (Linformer, Nyströmformer), some blocks (NSA)."""

import torch
from torch import Tensor, nn

from core.attention.basics import ScoreBlock, Softmax
from core.attention.kernels.costs import features_cost, linformer_cost, nystrom_cost, summed
from core.attention.kernels.exact import AttentionInputs, Steps, spans, to_float32
from core.attention.kernels.implied import (
    CAUSAL,
    CHUNK,
    PADDING_ONLY,
    Features,
    full_precision,
    needs_plain_rows,
    real_keys,
    scaled_qk,
    split_scale,
    steps,
)
from core.attention.masks.content import block_means, top_cells
from core.entries import Area, ConfigError, Cost, Entry, LayerConfig, Param

# Random features of the softmax kernel: e^(qᵀk) = E_w[φ_w(q) φ_w(k)]. Choromanski et al. 2021 (FAVOR+).


EPSILON = 1e-6  # keeps every weight above zero, as in the authors' TensorFlow code


def orthogonal_gaussian(rows: int, dim: int, seed: int) -> Tensor:
    """(rows, dim): each row as long as a Gaussian one, rows orthogonal within each stretch of `dim`. Section 2.4."""
    generator = torch.Generator().manual_seed(seed)
    normal = torch.randn(-(-rows // dim), dim, dim, generator=generator, dtype=torch.float64)
    basis, triangle = torch.linalg.qr(normal)
    basis = basis * triangle.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(
        -2
    )  # else each first number is negative
    lengths = torch.randn(rows, dim, generator=generator, dtype=torch.float64).norm(
        dim=1, keepdim=True
    )
    return (basis.mT.flatten(0, 1)[:rows] * lengths).float()


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
        top = (
            products
            if hidden is None
            else products.masked_fill(hidden, torch.finfo(products.dtype).min)
        )
        exponent = exponent - top.amax((-1, -2), keepdim=True)
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
        v = to_float32(inputs.v)
        to_key, to_value = (
            self.to_key[:length].to(q.dtype),
            self.to_value[:length].to(q.dtype),
        )  # (S, r)
        if real is not None:
            to_key, to_value = (
                to_key.masked_fill(~real.mT, 0.0),
                to_value.masked_fill(~real.mT, 0.0),
            )
        weights = (q @ (scale * (to_key.mT @ k)).mT).softmax(-1)  # (B, H, T, r)
        return steps(inputs, weights @ (to_value.mT @ v), lambda: weights @ to_value.mT)


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


masked_softmax = (
    Softmax()
)  # of the allowed cells of each row; zeros elsewhere, and in a row without any


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
        few = (
            real.sum(-1, keepdim=True) <= self.landmarks
        )  # a landmark a key, whatever the padding: the softmax itself
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
        filled = (
            None if real is None else of_k.any(-1).unsqueeze(-2)
        )  # (B, 1, 1, m): fewer tokens leave some empty
        left = masked_softmax(q @ (scale * few_k).mT, filled)
        right = masked_softmax(scale * few_q @ k.mT, real)
        middle = masked_softmax(few_q @ (scale * few_k).mT, filled)
        if real is not None:
            middle = middle.masked_fill(~of_q.any(-1, keepdim=True), 0.0)
        return left, inverse(middle, self.rounds), right


ROWS = 256  # queries at once


class NativeSparse(nn.Module):
    """g₁ · (attention to the means of blocks) + g₂ · (to the keys of the best blocks) + g₃ · (to a window).

    Yuan 2025, sections 3.2 and 3.3, in its smallest form: a mean stands for the learned compression of a block, the
    three branches share their keys and values, and every cell is computed and then masked. Blocks are selected as they
    are compressed, so a block's weight in the first branch is its importance in the second; heads that share keys add
    theirs up and select together. The choice has no gradient; the first branch trains what it is made by.
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
        v, gates, rows = (
            to_float32(inputs.v),
            self.gates(block.require("x", "kernel = nsa", kernel="exact")),
            None if real is None else real[:, 0, 0],
        )
        (keys, counts), (values, _) = (
            block_means(k, rows, self.size),
            block_means(v, rows, self.size),
        )

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

        return steps(
            inputs, torch.cat([output(part) for part in spans(q.shape[2], ROWS)], dim=2), weights
        )

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
        whole = (
            numbers * self.size + self.size - 1 <= block.i
        )  # (T, N): the block ends with the query, or before it
        seen = whole & (counts > 0)
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

    def select(self, block_scores: Tensor, seen: Tensor, own: Tensor, numbers: Tensor) -> Tensor:
        """Each query's own block and its most important earlier ones, bool (B, H, T, N).

        Importance is a sum of weights; logarithms rank those too that would all be 0 in fp32.
        """
        logs = (
            block_scores.detach()
            .masked_fill(~seen, torch.finfo(block_scores.dtype).min)
            .log_softmax(-1)
        )
        importance = logs.unflatten(1, (-1, self.shared)).logsumexp(2)  # (B, G, T, N)
        best = top_cells(importance, (numbers < own) & seen, self.blocks - 1)
        return (best | (numbers == own)).repeat_interleave(self.shared, dim=1)


def _cost(config: LayerConfig, area: Area) -> Cost:
    """The gates; queries with the means and with all keys; the branches as two weighted sums, ROWS queries at once."""
    queries, keys, dim, value = area.queries, area.keys, config.qk_dim, config.v_dim
    blocks, rows = -(-keys // int(config.kernel["size"])), min(queries, ROWS)
    flops = 6.0 * queries * config.d_model + 2.0 * queries * (blocks + keys) * (dim + value)
    ranks = rows * (keys + blocks * (3 + 7 * config.kv_heads / config.score_heads))
    branches = rows * (
        2.25 * blocks + keys * (4 + 0.75 / config.score_heads)
    )  # three masks of a byte a cell
    held = blocks * (dim + value) + queries * value + rows * dim + max(ranks, branches)
    return summed(config, area, flops, max(held, 2 * queries * value), prepared=False)


ENTRIES: tuple[Entry, ...] = (
    Entry(
        "performer",
        "Performer",
        Performer,
        r"e^{q^\top k} \approx \phi(q)^\top \phi(k),\quad \phi(x) = \tfrac{1}{\sqrt R}\, e^{W x - |x|^2 / 2}",
        "Random orthogonal directions W give features whose dot product equals the exponential of softmax on average. "
        "More directions give a smaller error.",
        "Choromanski et al.",
        2021,
        "https://arxiv.org/abs/2009.14794",
        (
            Param(
                "features",
                "Random features",
                128,
                1,
                4096,
                1,
                meaning="number R of random directions; the error falls as 1/√R",
            ),
            Param("seed", "Seed", 0, 0, 9999, 1, meaning="seed of the random directions"),
            CHUNK,
        ),
        short="{features} random features",
        traits=frozenset({"implied", "state", "layer only"}),
        cost=features_cost,
        refuse=needs_plain_rows("performer", *CAUSAL),
    ),
    Entry(
        "linformer",
        "Linformer",
        Linformer,
        r"\text{softmax}\!\left(q\,(E^\top K)^\top\right) F^\top V",
        "Learned matrices E and F project all keys and values to r keys and r values before the scores are computed.",
        "Wang et al.",
        2020,
        "https://arxiv.org/abs/2006.04768",
        (
            Param("rank", "Rank", 32, 1, 1024, 1, meaning="number r of projected keys and values"),
            Param(
                "max_len",
                "Longest length",
                512,
                1,
                16384,
                1,
                meaning="largest number of keys that E and F can project",
            ),
        ),
        short="{rank} projected keys",
        traits=frozenset({"implied", "own positions", "layer only"}),
        cost=linformer_cost,
        refuse=needs_plain_rows("linformer", *PADDING_ONLY),
    ),
    Entry(
        "nystrom",
        "Nyström",
        Nystrom,
        r"\text{softmax}(q \tilde k^\top)\ \text{softmax}(\tilde q \tilde k^\top)^{+}\ \text{softmax}(\tilde q k^\top)",
        "Queries are compared with landmarks, and landmarks with keys. A landmark is the mean of neighbouring tokens.",
        "Xiong et al.",
        2021,
        "https://arxiv.org/abs/2102.03902",
        (
            Param(
                "landmarks",
                "Landmarks",
                32,
                1,
                1024,
                1,
                meaning="number m of landmarks, each the mean of neighbouring queries or keys",
            ),
            Param(
                "rounds",
                "Rounds",
                6,
                1,
                50,
                1,
                meaning="iterations that compute the inverse of the landmarks' weights",
            ),
        ),
        short="{landmarks} landmarks",
        traits=frozenset({"implied", "own positions"}),
        cost=nystrom_cost,
        refuse=needs_plain_rows("nystrom", *PADDING_ONLY),
    ),
    Entry(
        "nsa",
        "Native sparse (NSA)",
        NativeSparse,
        r"\sum_{c} g^c_i\, \text{softmax}(q_i K_c^\top)\, V_c,\quad c \in \{\text{block means},\ \text{best blocks},\ "
        r"\text{window}\}",
        "Each query attends three times to itself and earlier tokens: to the means of blocks, to the keys of the blocks "
        "whose means weigh most, and to a window; gates of its own mix the three. Here a mean replaces the learned "
        "compression, the branches share keys and values, and all cells are computed and then masked, so it is no faster.",
        "Yuan et al.",
        2025,
        "https://arxiv.org/abs/2502.11089",
        (
            Param(
                "size",
                "Block",
                4,
                1,
                512,
                1,
                meaning="tokens in a block, which are compressed and selected together",
            ),
            Param(
                "blocks",
                "Blocks",
                2,
                1,
                64,
                1,
                meaning="number of blocks that a query selects, its own included",
            ),
            Param(
                "window",
                "Window",
                4,
                1,
                4096,
                1,
                meaning="number of keys in the window, the query's own included",
            ),
        ),
        short="means + best blocks + window",
        traits=frozenset({"implied", "own positions", "layer only"}),
        cost=_cost,
        refuse=needs_plain_rows("nsa", *CAUSAL),
    ),
)
