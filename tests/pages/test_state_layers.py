"""Models with layers without softmax, a hybrid and one of nothing else, on every page that draws a model's maps."""

import re

import numpy as np
import pytest

from core.pretrained import ModelInputs, load_folder, read
from dashboard.draw.formats import share_text
from dashboard.fields.model import MODEL
from tests.cases import each
from tests.pages.app import assert_script, everything, open_at, page_html, pictures_of
from tests.tiny_architectures import save_small
from tests.tiny_models import SENTENCE

HYBRID, STATE = "qwen3_next", "mamba"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A folder with each of both models, whose weights are random."""
    root = tmp_path_factory.mktemp("state")
    for family in (HYBRID, STATE):
        save_small(family, root / family)
    return root


@pytest.fixture
def opened(folders, monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "1")
    return lambda page, family, **link: open_at(page, **{MODEL: str(folders / family)}, **link)


WHICH = {
    HYBRID: "(L0–1, 3: a gated delta rule)",
    STATE: "(L0–1: a selective state space (Mamba; H: groups of channels))",
}


@each("family", (HYBRID, STATE))
@each("page", ("pretrained", "evidence", "head_roles", "two_models", "generate"))
def test_a_page_says_which_layers_have_no_softmax(page, family, opened):
    text = everything(opened(page, family))
    assert WHICH[family] in text and "may be negative" in text and "|w| / Σ|w|" in text


@each("family", (HYBRID, STATE))
@each("page", ("corpus", "lens", "why"))
def test_a_page_opens(page, family, opened):
    assert everything(opened(page, family))


def test_both_pages_count_the_same_heads(folders, opened):
    save_small("lfm2", folders / "lfm2")  # three layers of 8 groups, two of 4 heads
    for page in ("pretrained", "head_roles"):
        app = opened(page, "lfm2")
        counts = re.findall(r"(?<=[a-z] )\d+(?=</span>)", everything(app))
        assert sum(map(int, counts)) == 32 and "a short convolution (H: groups" in everything(app)


def test_a_state_head_is_drawn_with_its_sign(opened, folders):
    whole = read(load_folder(folders / HYBRID, ""), ModelInputs(SENTENCE)).trace.map(0).weights
    weights, sizes = whole[1], np.abs(whole)
    row, key = np.unravel_index(weights.argmin(), weights.shape)
    app = opened("pretrained", HYBRID, head="0.1", pin=f"{row}.{key}")
    text, taken = everything(app), share_text(weights.min())
    assert taken[0] == "−" and f"takes {taken} from" in text
    own = np.mean([row[at] / row.sum() for one in sizes for at, row in enumerate(one)])
    assert f"Over all heads and rows, L0 reads {share_text(own)} of its weight, by size" in text
    assert "the mean size of the weights in its row is" in text
    assert (
        "L0 is a state layer, a gated delta rule, without softmax: a weight is how much of the"
        in text
    )
    sent = " ".join(one.proto.json for one in app.get("bidi_component"))
    assert "L0, L1, L3: a gated delta rule" in sent and '"bySize": true' in sent
    pictures = pictures_of(app)
    grid, one = (pictures[f"pretrained:{name}"].maps for name in ("grid", "head"))
    signs = [True, True, False, True, False]  # of five layers of four heads
    assert [item.signed for item in grid] == [sign for sign in signs for _ in range(4)]
    assert one[0].note == "a gated delta rule" and one[0].signed and one[0].low == -one[0].high
    assert b"a gated delta rule" in page_html(app, "pretrained")
    assert_script(app)


def test_a_state_head_stands_beside_shares_on_a_scale_of_its_own(opened):
    maps = {one.name: one for one in pictures_of(opened("evidence", HYBRID))["evidence:maps"].maps}
    weights = maps.pop("Weights")
    assert weights.signed and weights.high == -weights.low == abs(weights.values).max() < 1
    assert {one.high for one in maps.values()} == {1.0} and {"Rollout", "Flow"} < {*maps}
    said = (
        "Written and Gradient: not known of a selective state space (Mamba; H: groups of channels)."
    )
    captions = [one.value for one in opened("evidence", STATE).caption]
    assert captions.count(said) == 2, "of a head, and of the tokens"


def test_pages_of_queries_and_keys_name_what_they_leave_out(opened):
    for head, shown in (("0.1", "In head L"), ("2.0", "In head L2·H0")):
        app = opened("inside_weight", HYBRID, head=head)  # that of a state layer opens another
        text, heads = everything(app), app.selectbox(key="inside_weight:head").options
        assert (
            "Left out: state layers, which have no softmax of queries and keys: L0, L1, L3: a gated"
            in text
        )
        assert shown in text and {name[:2] for name in heads} == {"L2", "L4"}
    assert "Left out: L0, L1, L3, which have no softmax" in everything(opened("circuits", HYBRID))
    assert "Take a model with attention." in everything(opened("inside_weight", STATE))
    assert "has no attention whose matrices can be read" in everything(opened("circuits", STATE))


def test_generate_names_a_folder_as_other_pages_do(opened, folders):
    assert f"{STATE}, fp32" in (text := everything(opened("generate", STATE)))
    assert str(folders) not in text
