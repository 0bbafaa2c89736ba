"""Saved results of pretrained models: recomputed, used for exactly their calls, and enough to open a page without."""

import subprocess
import sys
from dataclasses import replace

from core.pretrained import ModelInputs
from dashboard.first_sights import PAGES, record
from dashboard.runtime import saved_results
from dashboard.runtime.cache import remembered
from dashboard.runtime.saved_results import encode, is_saved, saved_result
from dashboard.widgets.model_picker import EMBEDDED, load_model, models
from tests.cases import each
from tests.close import assert_close

OPEN = """
import sys
from tests.pages.app import open_at
for page in sys.argv[1:]:
    assert not open_at(page).exception, page
    assert not {"transformers", "accelerate", "sklearn", "scipy.stats", "sympy"} & sys.modules.keys(), page
"""


@each("page", PAGES)
def test_saved_results_are_what_a_page_computes(page):
    results = {key: value for key, value in record(page).items() if encode(value) is not None}
    assert results
    for key, value in results.items():
        assert is_saved(key), f"{key[0]} is not saved; run make sights"
        assert_close(saved_result(key), value, rel=1e-3, floor=1e-4, where=page)


def test_pages_open_without_the_library():
    subprocess.run([sys.executable, "-c", OPEN, "transformer", *PAGES], check=True, timeout=120)


def test_a_result_stands_in_for_its_own_call_only(monkeypatch):
    inputs = ModelInputs("The animal didn't cross the street because it was too tired.")
    key = (f"{models.__name__}._read", repr((EMBEDDED, inputs)))
    assert is_saved(key) and remembered(models._read, EMBEDDED, inputs)
    assert not is_saved((key[0], repr((EMBEDDED, replace(inputs, text="The animal")))))
    assert not is_saved((f"{models.__name__}._baseline", key[1]))
    monkeypatch.setattr(saved_results, "weights_digests", lambda: {"all-MiniLM-L6-v2": "0"})
    saved_results._index.cache_clear()
    try:
        assert not is_saved(key)
    finally:
        saved_results._index.cache_clear()


def test_a_local_model_loads_when_its_weights_are_used():
    model = load_model(EMBEDDED)
    assert model is load_model(EMBEDDED) and "model" not in vars(model)
    assert model.model.config.hidden_size == 384 and model.tokenizer.mask_token_id is not None
    assert replace(model, max_tokens=9).model is model.model
    assert not hasattr(model, "weights")
