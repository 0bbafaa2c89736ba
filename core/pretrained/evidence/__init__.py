"""What stands beside a weight: what the head writes with it, its gradient, and what changes when something is gone."""

from core.pretrained.evidence.gone import Effect, every_head, greatest, hidden, looking_evenly, singles, switched_off
from core.pretrained.evidence.measures import Measured, measure, output_matrix, value_norms
from core.pretrained.evidence.outputs import output_id, output_name
from core.pretrained.evidence.question import Asked, Quantity, Question, ask, scale, usual_quantity
from core.pretrained.evidence.tokens import answering_rows, token_scores

__all__ = ["Asked", "Effect", "Measured", "Quantity", "Question", "answering_rows", "ask", "every_head", "greatest",
           "hidden", "looking_evenly", "measure", "output_id", "output_matrix", "output_name", "scale", "singles",
           "switched_off", "token_scores", "usual_quantity", "value_norms"]
