"""What all pages of Look inside share: which model, what it is given, and its reading of that."""

from dashboard.widgets.model_picker.choose import Chosen, choose
from dashboard.widgets.model_picker.models import EMBEDDED, ModelRef, loaded, readable_models, reading_of

__all__ = ["EMBEDDED", "Chosen", "ModelRef", "choose", "loaded", "readable_models", "reading_of"]
