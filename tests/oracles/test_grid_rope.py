"""RoPE in a grid against the vision tower of Qwen2-VL, and by hand."""

import math

import torch
from transformers.models.qwen2_vl import modeling_qwen2_vl as qwen
from transformers.models.qwen2_vl.configuration_qwen2_vl import Qwen2VLVisionConfig

from core.attention.positions.rotary import GridRotary, Rotary
from tests.cases import each
from tests.oracles.places import agree

B, H, ROWS, COLUMNS = 2, 3, 5, 7
T = ROWS * COLUMNS


@each("dims", [4, 12, 64])
def test_queries_and_keys_are_qwens(dims):
    """Their tables of rows and columns (halves layout); scores and gradients."""
    q, k = torch.randn(2, B, H, T, dims, requires_grad=True)
    row, column = torch.meshgrid(torch.arange(ROWS), torch.arange(COLUMNS), indexing="ij")
    config = Qwen2VLVisionConfig(embed_dim=H * dims, num_heads=H)
    cos, sin = qwen.Qwen2VLVisionRotaryEmbedding(config)(
        q, torch.stack((row.flatten(), column.flatten()), -1)
    )
    theirs = [
        qwen.apply_rotary_pos_emb_vision(x.transpose(1, 2), x.transpose(1, 2), cos, sin)[
            0
        ].transpose(1, 2)
        for x in (q, k)
    ]
    position = GridRotary(dims, 10000.0, "halves", COLUMNS)
    ours = [position.rotate(x) for x in (q, k)]
    agree(ours[0] @ ours[1].mT, theirs[0] @ theirs[1].mT, (q, q), (k, k))


@each("layout", ["halves", "interleaved"])
@each("dims", [2, 6, 8])
def test_a_score_sees_the_rows_and_columns_between_two_patches_alone(layout, dims):
    """Moved down by two rows and right by one column; across the edge of a row the distance is another."""
    turn = GridRotary(dims, 10.0, layout, COLUMNS).rotate
    q, k = torch.randn(2, 1, 1, 1, dims, dtype=torch.float64)
    score = lambda i, j: (turn(q, i) * turn(k, j)).sum()  # noqa: E731
    moved = 2 * COLUMNS + 1
    torch.testing.assert_close(score(9, 3), score(9 + moved, 3 + moved))
    assert (score(6, 5) - score(7, 6)).abs() > 1e-3


def test_by_hand():
    """D = 4, three columns: token 5 has row 1 and column 2, so its pairs turn by 1 and by 2."""
    turned = (
        GridRotary(4, 10000.0, "interleaved", 3).rotate(torch.ones(1, 1, 1, 4), offset=5).flatten()
    )
    waves = [(math.cos(angle), math.sin(angle)) for angle in (1, 2)]
    torch.testing.assert_close(
        turned, torch.tensor([value for cos, sin in waves for value in (cos - sin, cos + sin)])
    )


def test_rows_are_plain_rope_of_half_the_size_where_a_picture_is_one_column_wide():
    q = torch.randn(1, H, T, 8)
    ours = GridRotary(8, 10000.0, "halves", 1).rotate(q)
    by_row = [0, 1, 4, 5]
    torch.testing.assert_close(
        ours[..., by_row], Rotary(4, 10000.0, "halves").rotate(q[..., by_row])
    )
    torch.testing.assert_close(ours[..., 2:4], q[..., 2:4])
