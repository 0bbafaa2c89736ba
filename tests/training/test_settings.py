"""What a page offers for a model and its training is what their configs take."""

from importlib import import_module
from typing import Any

import pytest

from core.models import ModelConfig
from core.models.decoding import Sampling
from core.pretrained.finetune import FineTuneConfig
from core.serialization import convert, field_types
from core.training import RunConfig
from core.training.settings import SETTINGS
from dashboard.fields.base import Field, Number, Options
from dashboard.ui.decoding import Search

CONFIGS: dict[
    str, tuple[type, ...]
] = {  # of the controls that a page declares, by the names of fields
    "fine_tune": (FineTuneConfig,),
    "runs": (RunConfig,),
    "sweeps": (RunConfig,),
    "train": (RunConfig, ModelConfig),
    "transformer": (ModelConfig,),
}


@pytest.mark.parametrize("key", SETTINGS)
def test_each_end_and_choice_of_a_setting_is_taken(key):
    param = SETTINGS[key]
    ends = [value for value in (param.low, param.high, param.default) if value is not None]
    for value in param.choices or ends:
        assert (
            convert(value, ModelConfig if key in field_types(ModelConfig) else RunConfig, key)
            == value
        )


def on_offer(field: Field) -> list[Any]:
    """The ends or the options of a declared control, as far as they are constant."""
    values = [field.low, field.high] if isinstance(field, Number) else []
    if isinstance(field, Options) and not callable(field.options):
        values = [*field.options]
    return [value for value in values if not callable(value)]


def test_each_end_and_option_of_a_control_is_taken():
    controls = {page: import_module(f"pages.{page}").Controls.declared for page in CONFIGS}
    pairs = [(controls[page], kind) for page, kinds in CONFIGS.items() for kind in kinds]
    offered = [
        (value, kind, name)
        for fields, kind in [*pairs, (Search.declared, Sampling)]
        for name in (fields.keys() & field_types(kind).keys()) - {"task", "kind"}
        for value in on_offer(fields[name])
    ]
    assert len(offered) > 30
    for value, kind, name in offered:
        assert convert(value, kind, name) == value, (kind, name)
