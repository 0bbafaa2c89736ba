"""A person's own model: a Python file is run and read, and what was read is a file of maps that opens as it was."""

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from core.pretrained import PretrainedError
from core.pretrained.foreign import ABOUT, read_maps, record
from core.pretrained.module_reader import read_module

HEAD = "import torch, numpy as np\nfrom torch import nn\nfrom torch.nn import functional as F\ntorch.manual_seed(0)\n"
BY_HAND = (
    HEAD
    + """
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 4)).unbind(2)
        scores = torch.einsum("bthd,bshd->bhts", q, k) / 2
        weights = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -torch.inf).softmax(-1)
        return x + self.out(torch.einsum("bhts,bshd->bthd", weights, v).flatten(2))

MODEL = nn.Sequential(nn.Embedding(9, 8), Attention(), Attention())
def build(): return MODEL
INPUTS, TOKENS = torch.tensor([[1, 2, 3, 4]]), "the cat sat down"
"""
)
TRANSFORMER = (
    HEAD
    + """
def build(): return nn.Transformer(8, 2, 1, 2, 8, batch_first=True)
def inputs():
    mask = nn.Transformer.generate_square_subsequent_mask(3)
    return {"src": torch.randn(1, 5, 8), "tgt": torch.randn(1, 3, 8), "tgt_mask": mask}
TOKENS, KEYS = "w x y", ["a", "b", "c", "d", "e"]
"""
)
UNET = (
    HEAD
    + """
class Cross(nn.Module):
    def __init__(self, context):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(8, 8), nn.Linear(context, 8), nn.Linear(context, 8)

    def forward(self, x, words):
        q, k, v = (one.unflatten(-1, (2, 4)).transpose(1, 2) for one in (self.q(x), self.k(words), self.v(words)))
        return x + F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)

class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.into, self.down = nn.Embedding(9, 6), nn.Conv2d(3, 8, 2, 2), nn.Conv2d(8, 8, 2, 2)
        self.own, self.first, self.second = Cross(8), Cross(6), Cross(6)

    def forward(self, picture, ids):
        words, x = self.words(ids), self.into(picture)
        tokens = x.flatten(2).mT
        tokens = self.first(self.own(tokens, tokens), words)
        return self.second(self.down(tokens.mT.reshape(x.shape)).flatten(2).mT, words)

def build(): return UNet()
IMAGE, KEYS = np.random.default_rng(0).random((12, 12, 3)), "a red house"
INPUTS = torch.tensor(IMAGE).float().permute(2, 0, 1)[None], torch.tensor([[1, 2, 3]])
"""
)


def write(folder: Path, code: str, name: str = "mine.py") -> Path:
    (folder / name).write_text(code, encoding="utf-8")
    return folder / name


def maps_of(folder: Path, code: str):
    return read_maps(record(write(folder, code), half=False), "mine.py")


def test_maps_are_those_of_the_model(tmp_path):
    path = write(tmp_path, BY_HAND)
    scope: dict = {}
    exec(BY_HAND, scope)
    expected = read_module(scope["MODEL"], scope["INPUTS"])
    for half, tolerance in ((False, 0), (True, 1e-3)):
        maps = read_maps(record(path, half), "maps.zip")
        (reading,) = maps.readings
        assert reading.trace.source == "Sequential" and reading.cut is None
        assert maps.labels == ("1. 4 × 4 tokens, 2 layers",)
        assert [name for name, *_ in maps.about.parts[0].modules] == ["1", "2"]
        for item, call in zip(reading.trace.maps, expected.calls, strict=True):
            assert (item.kind, item.keys) == ("causal", ("the", "cat", "sat", "down"))
            np.testing.assert_allclose(item.weights, call.weights, atol=tolerance)


def test_encoder_and_decoder_are_one_reading(tmp_path):
    (reading,) = maps_of(tmp_path, TRANSFORMER).readings
    assert reading.trace.kinds == ("self", "causal", "cross") and reading.trace.shape == (5, 2)
    assert reading.source.tokens == tuple("abcde")
    for kind, shape in (("self", "abcde"), ("causal", "wxy"), ("cross", "wxy")):
        assert reading.lines(kind)[0].tokens == tuple(shape)
        assert all(item.queries == tuple(shape) for item in reading.trace.of(kind).maps)


def test_patches_and_words_of_a_unet(tmp_path):
    maps = maps_of(tmp_path, UNET)
    found = [
        (item.kind, reading.lines(item.kind)[0].grid, reading.source.grid, item.keys[0])
        for reading in maps.readings
        for item in reading.trace.maps
    ]
    assert found == [
        ("self", (6, 6), (6, 6), "0,0"),
        ("cross", (6, 6), None, "a"),
        ("cross", (3, 3), None, "a"),
    ]
    assert maps.picture is not None and maps.picture.shape == (12, 12, 3)
    assert not maps.about.notes


@pytest.mark.parametrize(
    ("pixels", "grid", "high", "wide"), [(64, (16, 32), 2, 1), (128, (16, 32), 4, 2)]
)
def test_words_over_many_patches(tmp_path, pixels, grid, high, wide):
    """Few keys stay exact; the patches are blocks, as high and as wide as 512 of them need."""
    code = (
        UNET.replace("(12, 12, 3)", f"({pixels}, {pixels}, 3)")
        + f"\nHEADS = [1]\nIMAGE = IMAGE[:{pixels}]"
    )
    maps = maps_of(tmp_path, code)
    scope: dict = {}
    exec(code, scope)
    torch.manual_seed(0)
    model, (picture, ids) = scope["UNet"](), scope["INPUTS"]
    with torch.no_grad():
        tokens, words = model.into(picture).flatten(2).mT, model.words(ids)
        x = model.own(tokens, tokens)
        q, k = (
            one.unflatten(-1, (2, 4))[0, :, 1] for one in (model.first.q(x), model.first.k(words))
        )
        weights = (q @ k.mT / 2).softmax(-1).unflatten(0, (grid[0], high, grid[1], wide))
    reading = next(one for one in maps.readings if one.lines("cross")[0].grid == grid)
    item = reading.trace.of("cross").maps[0]
    assert item.keys == ("a", "red", "house") and len(item.queries) == grid[0] * grid[1]
    np.testing.assert_allclose(item.weights[0], weights.mean((1, 3)).flatten(0, 1), 1e-4, 1e-5)
    assert {line.grid for one in maps.readings for line in one.lines(one.trace.kinds[0])} > {
        grid,
        None,
    }
    assert all(" is a block of " in note for note in maps.about.notes) and maps.about.notes


@pytest.mark.parametrize(("code", "says"), [
    ("INPUTS = 1", "mine.py has no build()"),
    ("def build(): pass", "mine.py has no INPUTS or inputs()"),
    ("def build(): pass\nINPUTS = 1", "build() in mine.py returns NoneType; expected an nn.Module."),
    (BY_HAND + "\nINPUTS = torch.tensor([[99]])", "mine.py: IndexError: index out of range in self."),
    (BY_HAND.replace("/ 2", "/ two"), "mine.py, line 13: NameError: name 'two' is not defined."),
    ("import nothing_of_this_name", "mine.py, line 1: ModuleNotFoundError"),
    ("import sys\nsys.exit(3)", "mine.py, line 2: SystemExit: 3."),
    ("def build(:", "mine.py, line 1: SyntaxError"),
    ("BUILD, INPUTS = 1, 1", "mine.py has no build()"),
    (BY_HAND + "\ndef build(): raise ValueError", "mine.py, line 21: ValueError: no message."),
    (BY_HAND + "\ndef build(): raise KeyboardInterrupt", "mine.py, line 21: KeyboardInterrupt: no message."),
    *((BY_HAND + f"\nINPUTS = {inputs}", f"inputs in mine.py are of type {kind}; expected a tensor")
      for inputs, kind in (("None", "NoneType"), ("'hello'", "str"), ("np.ones((1, 4))", "ndarray"))),
    *((BY_HAND + f"\nTOKENS = {tokens}", f"TOKENS is {kind}; expected words")
      for tokens, kind in (("5", "int"), ("{'a': 1}", "dict"), ("build", "function"))),
    *((UNET + f"\n{line}", f"{line.replace(' =', ' is')}; expected ") for line in (
        "ROW = 'a'", "HEADS = 1", "HEADS = '01'", "GRID = 3", "GRID = 'a'", "GRID = (-6, -6)", "GRID = (6, 6, 1)")),
    (BY_HAND + "\nROW = 3", "No map of modules 1, 2: its batch has 1 sequence, and no row 3."),
    (BY_HAND + "\nfor one in MODEL.parameters(): nn.init.constant_(one, torch.nan)",
     "No map of modules 1, 2: its result is NaN or infinite, first in query 0."),
    (UNET + "\nIMAGE = np.full((4, 4, 3), 200.0)", "IMAGE runs from 200 to 200; expected"),
    (UNET + "\nIMAGE = np.full((4, 4, 3), np.nan)", "IMAGE runs from nan to nan; expected"),
    (UNET + "\nIMAGE = np.ones((0, 0, 3))", "IMAGE has the shape (0, 0, 3); expected"),
    (UNET + "\nIMAGE = np.ones((4, 4))", "IMAGE has the shape (4, 4); expected (height, width, 3)"),
    (UNET + "\nIMAGE = 'none.png'", "none.png"),
    (BY_HAND + "\nHEADS = [7]", "No layer has a head 7"),
    (HEAD + "def build(): return nn.Linear(2, 2)\nINPUTS = torch.ones(1, 2)",
     "No attention of Linear was read. No map of module Linear: no softmax"),
    (BY_HAND + "\nINPUTS = torch.tensor([1, 2])", " INPUTS is (2,); is the batch missing?"),
    (BY_HAND + "\nINPUTS = 'a text'", "mine.py are of type str; expected a tensor"),
    (BY_HAND + "\nINPUTS = {'x': 1, 'input': INPUTS}", " INPUTS are x int, input (1, 4)."),
    (BY_HAND + "\nINPUTS = (INPUTS, INPUTS, None)", " INPUTS are (1, 4), (1, 4), NoneType."),
    (BY_HAND + "\ndef build(): return torch.load('weights.pt')",
     "'weights.pt'. Paths count from the folder of the lab: name it by Path(__file__).parent."),
])  # fmt: skip
def test_what_is_wrong_is_one_sentence(tmp_path, code, says):
    with pytest.raises(PretrainedError) as error:
        record(write(tmp_path, code))
    assert says in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(("code", "says"), [
    (BY_HAND + "\nTOKENS = 'one two'", "TOKENS has 2 words; maps have 4 tokens."),
    (BY_HAND + "\nTOKENS = ['one']", "TOKENS has 1 word; maps have 4 tokens."),
    (BY_HAND + "\nKEYS = 'one two'", "KEYS has 2 words; maps have 4 tokens."),
    (BY_HAND + "\nIMAGE = np.ones((4, 4, 3))\nTOKENS = ''\nGRID = (3, 3)", "IMAGE is not drawn: none of 4 is"),
    (BY_HAND.replace("Attention())", "Attention(), LinearAttention())").replace("MODEL =", """
class LinearAttention(Attention):
    def forward(self, x):  # linear attention has no matrix
        q, k, v = self.qkv(x).chunk(3, -1)
        return (F.elu(q) + 1) @ ((F.elu(k) + 1).mT @ v)
MODEL ="""), "No map of module 3: "),
    (BY_HAND.replace("Attention())", "Signed())").replace("MODEL =", """
class Signed(Attention):
    def forward(self, x):
        q, k, v = (one[:, None] for one in self.qkv(x).chunk(3, -1))
        weights = 2 * (q @ k.mT).softmax(-1)
        return (weights @ v)[:, 0]
MODEL ="""), "No map of module 2: the map runs from "),
])  # fmt: skip
def test_what_is_left_out_is_said(tmp_path, code, says):
    assert says in " ".join(maps_of(tmp_path, code).about.notes)


NAN = """
class Broken(Attention):
    def forward(self, x):  # a padding mask that leaves a row without a key
        row = torch.arange(4)[:, None] == at
        scores = (x @ x.mT).masked_fill(torch.ones(4, 4).triu(1).bool() | row, -torch.inf)
        return scores.softmax(-1) @ x
class Blocks(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.blocks = nn.Embedding(9, 8), nn.ModuleList([Attention(), KIND(), Attention()])
    def forward(self, x):
        x = self.words(x)
        for block in self.blocks:
            x = block(x)
        return x
MODEL = Blocks()
"""


def test_what_gives_nan_is_named_with_its_query(tmp_path):
    code = BY_HAND.replace("MODEL = nn", NAN.replace("KIND", "Broken") + "OLD = nn")
    maps = maps_of(tmp_path, code + "at = 2\n")
    _, item = maps.readings[0].trace.maps
    assert not item.weights[:, 2].any() and not item.visible[:, 2].any()
    np.testing.assert_allclose(item.weights[:, [0, 1, 3]].sum(-1), 1, atol=1e-3)
    assert maps.about.notes == (
        "In module blocks.1: its result is NaN or infinite, first in query 2.",
        "No map of module blocks.2: its result is NaN or infinite, first in query 0.",
    )
    assert maps.about.parts[0].modules[1][2] < 1e-5


def test_layers_have_the_numbers_of_their_modules(tmp_path):
    without = """
class KernelAttention(Attention):
    def forward(self, x):
        return x.sigmoid()
"""
    code = without + NAN.replace("KIND", "KernelAttention")
    maps = maps_of(tmp_path, BY_HAND.replace("MODEL = nn", code + "OLD = nn"))
    assert maps.readings[0].trace.numbers == (0, 2)
    (note,) = maps.about.notes
    assert note.startswith("No map of module blocks.1: ") and "scaled_dot_product_attention" in note


def test_maps_of_blocks_and_of_one_query(tmp_path):
    """Many tokens are pooled with their words, and one query of its own, a size of its own, is no decoder."""
    pooled = """
class Pool(nn.Module):
    def forward(self, x):
        return (x[:, -1:] @ x.mT).softmax(-1) @ x
class NoMask(Attention):
    def forward(self, x):
        return x + (x @ x.mT).softmax(-1) @ x
MODEL ="""
    code = BY_HAND.replace("Attention())", "NoMask(), Pool())").replace("MODEL =", pooled)
    maps = maps_of(tmp_path, code)
    assert maps.labels == ("1. 4 × 4 tokens, 2 layers", "2. 1 × 4 tokens, 1 layer")
    assert maps.readings[0].trace.kinds == ("self", "causal")
    maps = maps_of(
        tmp_path, code + "INPUTS = torch.ones(1, 1030).long()\nTOKENS = ['a', 'b'] * 515\n"
    )
    blocks = "Of 1,030 tokens each row or column is a block of 4; a side has at most 512."
    assert maps.about.notes == (blocks,)
    assert maps.readings[0].source.tokens[0] == "a–b"
    maps = maps_of(tmp_path, BY_HAND + "INPUTS = torch.ones(1, 1030).long()")
    assert maps.about.notes == (blocks, "TOKENS has 4 words; maps have 1,030 tokens.")
    assert maps.readings[0].source.tokens[:2] == ("0–3", "4–7")


def test_pixels_are_whole_numbers_or_fractions(tmp_path):
    """Whole numbers of any type are 0 to 255: they were cut at 1, and the picture was white."""
    maps = maps_of(
        tmp_path, UNET + "\nIMAGE = np.full((4, 4, 3), 100)\nTOKENS = None\nROW = None\n"
    )
    assert maps.picture is not None and set(maps.picture.numpy().ravel()) == {100}


def test_only_python_is_run(tmp_path):
    for name, says in (("mine.txt", "is no Python file"), ("none.py", "FileNotFoundError")):
        with pytest.raises(PretrainedError, match=f"{name}.*{says}"):
            record(tmp_path / name)


def test_a_file_beside_it_is_imported_anew(tmp_path):
    write(tmp_path, BY_HAND, "layers_of_mine.py")
    path = write(tmp_path, "from layers_of_mine import *\n")
    assert read_maps(record(path), "a").readings[0].trace.shape == (2, 2)
    write(tmp_path, BY_HAND.replace("Attention(), Attention()", "Attention()"), "layers_of_mine.py")
    assert read_maps(record(path), "a").readings[0].trace.shape == (1, 2)
    write(tmp_path, BY_HAND.replace("/ 2", "/ two"), "layers_of_mine.py")
    with pytest.raises(PretrainedError, match="^layers_of_mine.py, line 13: NameError"):
        record(path)


def rewritten(data: bytes, **members: bytes | None) -> bytes:
    """The zip with other members by their names, or without them."""
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out := io.BytesIO(), "w") as new:
        for name in old.namelist():
            if (content := members.get(name, old.read(name))) is not None:
                new.writestr(name, content)
    return out.getvalue()


def test_a_spoiled_file_gets_its_sentence(tmp_path):
    data = record(write(tmp_path, UNET))
    about = json.loads(zipfile.ZipFile(io.BytesIO(data)).read(ABOUT))
    few = about | {"parts": about["parts"][:1] + [about["parts"][1] | {"modules": []}]}
    spoiled = [data[: len(data) // 2], data[:-30], data.replace(b"safetensors", b"safetensorz")]
    spoiled += [
        rewritten(data, **{name: content})
        for name, content in (
            ("1.safetensors", None),
            ("1.safetensors", b"nothing"),
            ("picture.png", b"no picture"),
            (ABOUT, b"{}"),
            (ABOUT, b'{"source": "a", "parts": []}'),
            (ABOUT, json.dumps(few).encode()),
            (ABOUT, b"[" * 100_000),
        )
    ]
    for one in spoiled:
        with pytest.raises(PretrainedError, match="maps.zip|picture"):
            read_maps(one, "maps.zip")
    with pytest.raises(PretrainedError, match="names its own tokens"):
        read_maps(data, "maps.zip", "a b")


def test_a_grid_beyond_its_line_is_not_taken(tmp_path):
    data = record(write(tmp_path, UNET))
    about = json.loads(zipfile.ZipFile(io.BytesIO(data)).read(ABOUT))
    about["parts"][0] |= {"keys": [7, 7], "queries": [-1, -1]}
    (first, *_) = read_maps(
        rewritten(data, **{ABOUT: json.dumps(about).encode()}), "maps.zip"
    ).readings
    assert first.source.grid is None
