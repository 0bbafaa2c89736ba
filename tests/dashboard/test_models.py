"""Models by name: the code that loads them and reads what the page reads, and small tensors on one thread."""

import io
import wave
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from core.interpret.evidence import Question
from core.interpret.map_transform import compare
from core.pretrained import ModelInputs, Reading, model_inputs, read, sampling_rate
from core.pretrained.hub import model_folder
from core.pretrained.model_inputs import read_arrays
from core.threads import CORES, num_threads
from dashboard.export.recorded import _script
from dashboard.server.calls import Call, recorded_calls, recording
from dashboard.ui.models import (
    ModelRef,
    import_block,
    inputs_lines,
    load_model,
    question_code,
    reading_of,
    store_upload,
    study_of,
    upload,
)
from tests.cases import instance
from tests.close import assert_close
from tests.tiny_models import save

# The model of the picker and its inputs as Python, which makes the page's own reading again.


TYPED = 'the "old" king\'s \\ """ \'\'\' {x}\nsaid\u2028é世'
COMMIT = "0" * 40


def run(code: str) -> dict[str, object]:
    names: dict[str, object] = {}
    exec(code, names)
    return names


def assert_read_again(ref: ModelRef, inputs: ModelInputs) -> None:
    with recording():
        expected = reading_of(ref, inputs)
        script = _script(recorded_calls()[::-1], {"reading": expected}, {}, (), {})
    reading = instance(run(script.text(""))["reading"], Reading)
    assert reading.source.tokens == expected.source.tokens
    assert_close(reading.trace, expected.trace, rel=1e-5, floor=1e-6)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """The code runs in a folder of its own, with its own models of the hub."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))


def test_what_a_reader_typed_stays_text():
    lab = ModelRef("lab", "induction")
    assert_read_again(lab, ModelInputs(TYPED))
    for inputs in (
        ModelInputs("the king", second=TYPED),
        ModelInputs(TYPED, target="ModelInputs(text='a')"),
    ):
        imports, made = inputs_lines(lab, inputs)
        assert run(f"{import_block(imports)}\ninputs = {made}")["inputs"] == inputs
    question = Question(
        ModelInputs(TYPED), position=2, against=TYPED, output=7, quantity="difference", contrast=0
    )
    names = {"Question": Question, "inputs": question.inputs}
    assert eval(question_code(question), names) == question and eval(
        question_code(Question(question.inputs)), names
    ) == Question(question.inputs)


def test_a_folder_and_a_model_of_the_hub_are_loaded(tmp_path):
    folder = tmp_path / 'it\'s "a" model'
    folder.mkdir()
    assert_read_again(
        ModelRef("folder", str(save("bert", folder)), "1"), ModelInputs("A small dog.")
    )
    stored = model_folder("lab/bert", COMMIT)
    stored.mkdir(parents=True)
    save("bert", stored)
    assert_read_again(ModelRef("hub", "lab/bert", COMMIT), ModelInputs("A small dog."))


def test_an_uploaded_array_is_read_from_its_file():
    weights = np.full((2, 3, 4, 4), 0.25, np.float32)
    for name, tokens in (("it's.npz", 'a "b" c\' \\d'), ("plain.npz", "")):
        out = io.BytesIO()
        np.savez(out, weights)
        Path(name).write_bytes(out.getvalue())
        ref = ModelRef("array", store_upload(out.getvalue(), name, tokens))
        assert_read_again(ref, ModelInputs())
        assert (
            upload(ref.name).maps.readings[0].source
            == read_arrays(out.getvalue(), name, tokens).source
        )


def test_pictures_and_sounds_are_examples(tmp_path):
    digits = ModelRef("lab", "digits")
    assert_read_again(digits, ModelInputs(picture=model_inputs.picture("Digit 4")))
    Image.fromarray(np.arange(48, dtype=np.uint8).reshape(4, 4, 3)).save("your picture.png")
    assert_read_again(
        digits,
        ModelInputs(picture=model_inputs.decode_picture(Path("your picture.png").read_bytes())),
    )

    folder = tmp_path / "ears"
    folder.mkdir()
    ears = ModelRef("folder", str(save("whisper", folder)), "1")
    rate = sampling_rate(load_model(ears))
    assert_read_again(
        ears, ModelInputs(sound=model_inputs.sound("Three beeps", rate), target="nine")
    )
    with wave.open("your sound.wav", "wb") as file:
        file.setparams((1, 2, rate, 0, "NONE", ""))
        file.writeframes(np.arange(-4000, 4000, dtype="<i2").tobytes())
    own = model_inputs.decode_wav(Path("your sound.wav").read_bytes(), rate)
    assert_read_again(ears, ModelInputs(sound=own, target=TYPED))


def test_a_study_of_two_readings_is_made_once_and_recorded():
    ref = ModelRef("lab", "induction")
    first, second = (Call(read, (ref, ModelInputs(text))) for text in ("the king", "the queen"))
    with recording():
        made = [study_of(compare, first, second, "causal", False, True) for _ in range(2)]
        calls = [call for call in recorded_calls() if call.function is compare]
    assert made[0] is made[1] and [call.args[:2] for call in calls] == [(first, second)] * 2
    pair = made[0].pair
    assert [trace.map(0).keys[-1] for trace in (pair.first, pair.second)] == ["king", "queen"]


def test_imports_are_sorted_and_each_module_stands_once():
    lines = {
        "from core.pretrained import read",
        "from pathlib import Path",
        "import numpy as np",
        "from core.pretrained import ModelInputs",
        "from core.interpret.trace import flow",
    }
    assert import_block(lines) == (
        "from pathlib import Path\n\nimport numpy as np\n\nfrom core.interpret.trace import flow\n"
        "from core.pretrained import ModelInputs, read"
    )


def test_number_of_threads_is_put_back_even_after_error():
    before = torch.get_num_threads()
    with pytest.raises(ValueError, match="broken"), num_threads(1):
        assert torch.get_num_threads() == 1
        with num_threads(CORES, after=3):
            assert torch.get_num_threads() == CORES
        assert torch.get_num_threads() == 3, "whatever there was before"
        raise ValueError("broken")
    assert torch.get_num_threads() == before
