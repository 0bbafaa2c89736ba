"""Positions: how order enters. An encoding adds to x, rotates q and k, or changes the scores (and what they bring)."""

from core.entries import Axis
from core.positions.absolute import LEARNED, NONE, SINUSOIDAL
from core.positions.bias import ALIBI, T5_BUCKETS
from core.positions.contextual import COPE, FORGETTING
from core.positions.functional import FIRE, KERPLE
from core.positions.paired_rotary import LONG_ROPE, P_ROPE
from core.positions.relative import DEBERTA, SHAW, TRANSFORMER_XL
from core.positions.rotary import ROPE, Position
from core.positions.scaled_rotary import LINEAR_ROPE, LLAMA3_ROPE, NTK_ROPE, YARN
from core.positions.selective import SELECTIVE
from core.positions.temperature import POSITION_TEMPERATURE
from core.positions.typed import FORMULA

# build(config) -> Position. Traits: "longest" where a table ends at max_len; "adjusts" where scores are changed in a
# way that no bias can say; "values" where something is added to weights · v; "whole rows" where a cell depends on the
# other keys of its row; "other rows" where it depends on the rows of earlier queries; "reads x" where the tokens' own
# vectors decide; "reads length" where the angles of earlier tokens change as the text grows.
POSITIONS = Axis(
    NONE, SINUSOIDAL, LEARNED, SHAW, TRANSFORMER_XL, T5_BUCKETS, ROPE, P_ROPE, LINEAR_ROPE, NTK_ROPE, YARN, LONG_ROPE,
    LLAMA3_ROPE, DEBERTA, ALIBI, KERPLE, FIRE, COPE, FORGETTING, SELECTIVE, POSITION_TEMPERATURE,
    FORMULA)

__all__ = ["POSITIONS", "Position"]
