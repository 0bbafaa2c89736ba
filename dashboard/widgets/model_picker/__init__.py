"""The model of the pages of Look inside, its inputs, and its reading of them."""

from dashboard.widgets.model_picker.choose import (
    ModelChoice,
    choose_model,
    choose_weights,
    input_errors,
    read_inputs,
)
from dashboard.widgets.model_picker.models import (
    EMBEDDED,
    ModelRef,
    load_model,
    local_models,
    reading_of,
    study_of,
)

__all__ = [
    "EMBEDDED",
    "ModelChoice",
    "ModelRef",
    "choose_model",
    "choose_weights",
    "input_errors",
    "load_model",
    "local_models",
    "read_inputs",
    "reading_of",
    "study_of",
]
