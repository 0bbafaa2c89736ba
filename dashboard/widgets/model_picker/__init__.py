"""What all pages of Look inside share: which model, what it is given, and its reading of that."""

from dashboard.widgets.model_picker.choose import ModelChoice, choose_model
from dashboard.widgets.model_picker.models import EMBEDDED, ModelRef, load_model, local_models, reading_of

__all__ = ["EMBEDDED", "ModelChoice", "ModelRef", "choose_model", "load_model", "local_models", "reading_of"]
