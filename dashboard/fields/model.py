"""The pages that look inside a model: the picker, its inputs, a question to it, a head, and the roles of all heads."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, replace
from difflib import get_close_matches
from functools import cache, cached_property, partial
from html import escape
from pathlib import Path
from typing import Any, ClassVar, Literal

import streamlit as st

from core import plugins
from core.entries import ConfigError
from core.files import hosted, without_paths
from core.interpret.evidence import Baseline, Cell, Question, telling_cell
from core.interpret.roles import ROLES
from core.interpret.trace import AttentionTrace, Head, Kind, head_name
from core.pretrained import (
    LAB_MODELS,
    WRITER,
    Array,
    Line,
    ModelInputs,
    Pretrained,
    PretrainedError,
    Reading,
    foreign,
    hub,
    mask_word,
    maskable_words,
    model_inputs,
    output_id,
    output_name,
    read,
    read_lines,
    reject_if,
    sampling_rate,
    top_candidates,
    wrap_errors,
)
from core.settings import settings
from core.tasks import grammar
from dashboard.draw.attention_view import Pair, settled, state_lines, stores
from dashboard.draw.components import describe
from dashboard.draw.figures import CATEGORIES, PICKED, Spec, text_on
from dashboard.draw.formats import byte_size, number, plain
from dashboard.draw.grids import effect_grid
from dashboard.draw.picture_files import trace_npz
from dashboard.fields.base import Field, Fields, Of, Options, Segmented, Select, guarded
from dashboard.fields.cell import CellField
from dashboard.fields.link import (
    bound,
    one_of,
    read_pair,
    take_link,
    write_link,
    write_pair,
)
from dashboard.navigation import step_of
from dashboard.server.cache import cached, shared
from dashboard.server.calls import recorded
from dashboard.server.limits import LimitReached, admit_upload
from dashboard.server.session import CURRENT, SessionValue
from dashboard.server.visitors import MB, at_most, is_local, me
from dashboard.ui.models import (
    EMBEDDED,
    SUGGESTED,
    WRITES,
    HeadRoles,
    ModelRef,
    baseline_of,
    downloads,
    folder_name,
    folder_of,
    is_loaded,
    is_open,
    load_model,
    local_models,
    model_label,
    name_in,
    parse_model,
    reading_of,
    start_download,
    store_file,
    store_upload,
    stored_bytes,
    study_of,
    upload,
)
from dashboard.ui.panels import caption, draw_chart, pressed_point, room, table, theme

MISSING = {
    "weights": "has no attention weights, which this page needs; When it decides and Generate do not.",
    "model": "is read for its attention alone; this page runs parts of a model, so it needs one of the list, of the hub "
    "or of a folder.",
    "qkv": "{}. So its queries, keys and values, which this page needs, are not read.",
    "head": "outputs an embedding; this page needs a model that outputs words or classes.",
    "tokens": "gives no probabilities to tokens; this page needs a model that fills masks or writes text.",
    "generate": "generates no text; this page needs a model that does.",
}

# the picker's key; whether a user or a link set it
MODEL, IS_PICKED = "inside:model", "inside:picked"
USUAL, BEFORE = "inside:usual", "inside:before"  # the page's own model; the name before the last
# A page and the name that it could not open; the last name that loaded, "" if nobody picked it
FAILED, LOADED = "inside:failed", "inside:loaded"
TYPED, LOOKUP = "inside:typed", "inside:looked"
FILE, TOKENS, WRONG = "inside:array-file", "inside:array-tokens", "inside:array-wrong"
OTHER, ARRAYS, OWN_MODEL = "Another model…", "Your own arrays…", "Your own model…"
OWN_FILE, MAPS = "inside:own-file", "inside:maps"
AGAIN = "inside:again-at"  # when a person last pressed Read again


@dataclass(frozen=True, eq=False)
class ModelChoice:
    """The model and its inputs; `pretrained` is None for an uploaded array."""

    ref: ModelRef
    inputs: ModelInputs
    pretrained: Pretrained | None

    @property
    def model(self) -> Pretrained:
        """The model, on a page that needs one."""
        assert self.pretrained is not None
        return self.pretrained

    def masked(self, word: int | None) -> ModelInputs:
        """The inputs with that word masked; as they are without one."""
        text = self.inputs.text if word is None else mask_word(self.model, self.inputs.text, word)
        return replace(self.inputs, text=text)

    @property
    def has_maps(self) -> bool:
        return self.pretrained is None or self.pretrained.has_weights

    @cached_property
    def _reading(self) -> Reading:
        key = self.ref, self.inputs
        return reading_of(*key) if self.has_maps else study_of(read_lines, *key)

    @property
    def reading(self) -> Reading:
        """The model's reading of the inputs, recorded; PretrainedError where it cannot read them."""
        return recorded(
            read if self.has_maps else read_lines, (self.ref, self.inputs), self._reading
        )


def choose_model(
    needs: tuple[str, ...] = (),
    at_once: bool = True,
    usual: ModelRef = EMBEDDED,
    has_inputs: bool = True,
    columns: Sequence[Any] | None = None,
    text: str = "",
    weights: bool = True,
) -> ModelChoice | None:
    """Draw the picker and the inputs, and read; None after a message on why there is nothing to show.

    `needs` are required features, of "qkv", "head", "tokens", "generate" and "model"; models without them are refused.
    If not `at_once`, the page itself calls `read_inputs`, for instance after a picture that needs no attention maps.
    The page begins with the model `usual`. Without `has_inputs` it is on the weights of a model alone, or on inputs of
    its own, and with `text` where the model is `usual`. Without `weights` a model may have no attention. `columns` are
    those of the picker and of what loading says.
    """
    with st.container():  # which keeps its place, whatever it says of the model
        left, right = columns or st.columns([1, 2])
        name = model_box(left, usual, tuple(PANELS) if has_inputs else (OTHER,))
        st.session_state[FAILED] = CURRENT.value, name  # until it opens
        with input_errors():
            if (opened := _open(name, (*needs, *("weights",) * weights), right)) is None:
                return None
            ref, pretrained = opened
            inputs = ModelInputs()
            with right:
                if pretrained is None:
                    ref, inputs = _own_maps(ref)
                elif has_inputs:
                    inputs = _inputs(ref, pretrained, text if ref == usual else "")
            if pretrained is not None:
                say_notes(pretrained, right)
            choice = ModelChoice(ref, inputs, pretrained)
            if at_once and has_inputs:
                read_inputs(choice)
            if inputs.text:
                describe(text=inputs.text)
            return choice
    return None


def say_notes(pretrained: Pretrained, into: Any) -> None:
    """What of a model's files is not used, and that it runs without the kernels which are installed, where it does."""
    for note in pretrained.notes:
        into.caption(f"{plain(pretrained.name)}: {plain(note)}")
    if pretrained.kernels:
        into.caption(
            f"On the CPU {plain(pretrained.name)} runs the PyTorch functions of transformers: the kernels of "
            f"{' and '.join(pretrained.kernels)}, which are installed here, need a GPU."
        )


@contextmanager
def input_errors() -> Iterator[None]:
    """Show a PretrainedError, ConfigError or LimitReached as a note, and go on after the block."""
    try:
        yield
    except (PretrainedError, ConfigError, LimitReached) as error:
        st.info(plain(without_paths(str(error))), icon=":material/edit:")


def model_box(container: Any, usual: ModelRef, panels: tuple[str, ...] = (OTHER,)) -> str:
    """A select box of the local models that takes any other name; returns the name, or one of `panels`."""
    state, names = st.session_state, [ref.name for ref in local_models()]
    page, failed = state.get(FAILED, (None, ""))
    if page != CURRENT.value and failed == state.get(MODEL) and MODEL not in st.query_params:
        # what another page could not open gives way
        state[MODEL] = state.get(LOADED) or usual.name
        state[IS_PICKED] = bool(state.get(LOADED))
    state[IS_PICKED] = state.get(IS_PICKED, False) or MODEL in st.query_params
    if not state[IS_PICKED] and state.get(MODEL) and state[MODEL] == state.get(USUAL):
        state[MODEL] = usual.name  # another page's default, not the user's choice
    state[USUAL] = usual.name

    def changed() -> None:
        state[IS_PICKED] = True
        if typed := state.get(MODEL):
            state[MODEL] = listed_name(full_name(state.get(BEFORE, ""), typed), options)

    own = plugins.files_with("build") if code_allowed() else []
    current = filter(None, [state.get(MODEL) or name_in(st.query_params.get(MODEL, ""))])
    python = ", or the path of a Python file with a model of your own" if code_allowed() else ""
    some = f"one of these models of the Hugging Face hub: {', '.join(hub.allowed_models())}."
    more = some if hosted() else "any BERT, GPT-2, T5 … of the Hugging Face hub, as owner/name."
    options = list(dict.fromkeys([OTHER, *names, *downloaded_models(), *own, *panels, *current]))
    choice = container.selectbox(
        "Model",
        options,
        options.index(usual.name),
        format_func=model_label,
        accept_new_options=True,
        **bound(MODEL, usual.name, model_label),
        on_change=guarded(MODEL, changed),
        help=f"The models of the list are on this computer. You can also type {more.rstrip('.')}{python}.",
    )
    state[BEFORE] = name = str(choice or usual.name)
    if name not in panels:
        describe(model=name.rstrip("/").rpartition("/")[2])
    return name


def model_state(name: str, text: str) -> dict[str, Any]:
    """What the session has where a model of the lab reads a text: for something to try."""
    return {MODEL: name, GROUP: _group(name), TEXT: text}


def select_model(name: str) -> None:
    st.session_state[MODEL], st.session_state[IS_PICKED] = name, True


def full_name(before: str, typed: str) -> str:
    """What was typed, with the previous name that the field drops from its beginning."""
    # no name starts with @ or -
    longer = typed[0] in "@-" or (
        typed[0] == "/"
        and folders_allowed()
        and not Path(typed).is_dir()
        and Path(before + typed).is_dir()
    )
    return before + typed if longer else typed


def near_names(typed: str, options: Sequence[str]) -> list[str]:
    """The options that a typed name is, whatever its case, with or without owner and commit.

    Where there is none: those of the lab that it begins, else that it is part of.
    """
    low = name_in(typed).casefold().replace(" ", "-").removeprefix("sentence-transformers/")
    names = {option: option.casefold().replace(" ", "-") for option in options}
    repos = {option: name.partition("@")[0] for option, name in names.items()}
    parts = [one for one, name in names.items() if low in name and not {*"/@\\"} & {*name}]
    whole = [
        one for one, repo in repos.items() if low in (names[one], repo, repo.rpartition("/")[2])
    ]
    return whole or [one for one in parts if names[one].startswith(low)] or parts


def listed_name(typed: str, options: Sequence[str]) -> str:
    """The one option that a typed name means, else the name: the browser's field hands over what was typed, not what its
    list shows for that."""
    text = typed.strip().strip("'\"")
    near = near_names(text, options)
    return near[0] if len(near) == 1 else text


def _use_buttons(names: Iterable[str]) -> None:
    """Buttons that open these models."""
    for name in names:
        st.button(f"Use {name}", key=f"inside:use:{name}", on_click=select_model, args=(name,))


def _open(
    name: str, needs: tuple[str, ...], container: Any
) -> tuple[ModelRef, Pretrained | None] | None:
    """The model of a name, loaded (None for arrays); None after drawing a panel, a download, or what it lacks."""
    if name in PANELS:
        PANELS[name](container)
        return None
    if (ref := resolve_model(name)) is None:
        return None
    pretrained = None
    if ref.source != "array":
        place = container.empty()
        if not is_loaded(ref):
            place.skeleton(height=240)  # where a model that loads will show its controls
        with (
            container,
            st.spinner(
                f"Loading {without_paths(ref.name)}, {hub.format_bytes(stored_bytes(ref))}, only the first time"
            ),
        ):
            pretrained = load_model(ref)
        place.empty()
    state = st.session_state
    state.pop(FAILED, None)
    state[LOADED] = name if state.get(IS_PICKED) else ""
    if not (missing := missing_feature(pretrained, needs)):
        return ref, pretrained
    # What the model lacks, and up to three models that have it.
    name = upload(ref.name).file if pretrained is None else pretrained.name
    st.info(plain(f"{name} {missing}"), icon=":material/block:")
    with st.container(horizontal=True):
        _use_buttons(other.name for other in suitable_models(needs, local_models())[:3])
    return None


def read_inputs(choice: ModelChoice) -> None:
    with st.spinner("Running the model"):
        reading = choice.reading
    if reading.cut:
        st.warning(plain(reading.cut), icon=":material/content_cut:")


def missing_feature(pretrained: Pretrained | None, needs: tuple[str, ...]) -> str:
    """The first missing feature of a model (None for arrays), as the end of a sentence; empty where none is missing."""
    if pretrained is None:
        return MISSING["model"] if {*needs} - {"weights"} else ""
    answers = pretrained.head in ("next", "seq2seq")
    has = {
        "model": True,
        "weights": pretrained.has_weights,
        "qkv": pretrained.recordable,
        "head": pretrained.head != "none",
        "tokens": answers or pretrained.head == "masked",
        "generate": answers,
    }
    lacks = next((MISSING[need] for need in needs if not has[need]), "")
    return lacks.format(pretrained.not_recorded)


def suitable_models(needs: tuple[str, ...], among: Sequence[ModelRef]) -> list[ModelRef]:
    """The models that have all features, those that read text first."""
    suitable: dict[ModelRef, bool] = {}
    for ref in among:
        with suppress(PretrainedError):
            pretrained = load_model(ref)
            if not missing_feature(pretrained, needs):
                suitable[ref] = pretrained.reads != "text"
    return sorted(suitable, key=suitable.__getitem__)


# From a model's name to a model that can be loaded: hub models are looked up, checked for size and downloaded.


def resolve_model(name: str) -> ModelRef | None:
    """The model of that name if it is on this computer; None after drawing the next step (download, progress, error).

    PretrainedError when the name is invalid, or the folder may not be opened.
    """
    ref = parse_model(name)
    if ref.source == "hub":
        return _hub_model(ref)
    if ref.source == "file":
        return _own_model(ref.name)
    if ref.source != "folder":
        return ref
    reject_if(
        not folders_allowed() and not is_open(ref.name),
        "Folders of this computer are not open to visitors. Name a model of the hub, or run the "
        "lab on your own computer.",
    )
    folder = hub.check_folder(str(folder_of(ref.name)), 1_600_000_000)
    return ModelRef(
        "folder",
        folder_name(folder),
        str(max(path.stat().st_mtime_ns for path in folder.iterdir())),
    )


def other_panel(container: Any) -> None:

    def typed() -> None:
        if (st.session_state.get(TYPED) or "").strip():
            names = [*(ref.name for ref in local_models()), *downloaded_models()]
            select_model(listed_name(st.session_state.pop(TYPED), names))

    container.text_input(
        f"Name on the hub{', or the path of a folder or of a .py file' if folders_allowed() else ''}",
        key=TYPED,
        placeholder="owner/name",
        on_change=guarded(TYPED, typed),
        help="The name in the address of the model's page on huggingface.co.",
    )
    all_of = f"One of {', '.join(hub.allowed_models())}; one at a time is downloaded"
    examples = all_of if hosted() else f"For example {', '.join(SUGGESTED)}"
    st.caption(
        f"{plain(examples)}. The lab looks the model up and shows "
        f"its size before it downloads anything: at most {hub.format_bytes(hub.max_bytes())}, only safetensors "
        "files. It runs no code from the hub."
    )


def array_panel(container: Any) -> None:
    """Draw the limits, the file and token fields of weights computed elsewhere, and an example to download."""

    def uploaded() -> None:
        state = st.session_state
        state.pop(WRONG, None)
        if (file := state.get(FILE)) is not None:
            try:
                admit_upload(file)
                select_model(store_upload(file.getvalue(), file.name, state.get(TOKENS) or ""))
            except (PretrainedError, LimitReached) as error:
                state[WRONG] = str(error)

    container.caption(
        f"{model_inputs.LIMITS} Expected: {model_inputs.SHAPES}. Name the tokens `tokens`, or `queries` and `keys`: "
        "an array of text in an NPZ, a JSON list in the metadata of safetensors; so `layer_0_state` says what `layer_0` "
        "is without softmax, whose weights may be negative. Or a zip that "
        "`attention-lab record my_model.py -o maps.zip` wrote of your own model."
    )
    file, tokens = st.columns([1, 1])
    file.file_uploader(
        "Weights",
        ["npz", "safetensors", "zip"],
        key=FILE,
        on_change=guarded(FILE, uploaded),
        max_upload_size=at_most("upload_megabytes", model_inputs.MAX_BYTES // 10**6),
        help="A file with the attention weights of one or more layers.",
    )
    tokens.text_input(
        "Tokens, if the file has none",
        key=TOKENS,
        placeholder="the cat sat",
        on_change=guarded(TOKENS, uploaded),
        help="One word per token, separated by spaces.",
    )
    tokens.download_button(
        "Example file, NPZ",
        lambda: cached(example_arrays),
        "attention.npz",
        icon=":material/download:",
        on_click="ignore",
        help="The weights of the embedded model on its example sentence.",
    )
    if wrong := st.session_state.get(WRONG):
        st.error(plain(wrong), icon=":material/error:")


def example_arrays() -> bytes:
    return trace_npz(reading_of(EMBEDDED, ModelInputs(model_inputs.TEXT)).trace)


# A person's own model: a Python file, which runs only for who sits at this computer, and only once it was asked for.


allowed_files: set[str] = set()  # that a person of this computer has let run since the server began

EXAMPLE = """\
import torch
from my_code import MyModel  # a file beside this one, or any package

def build():
    return MyModel()         # any nn.Module

INPUTS = torch.tensor([[5, 9, 2]])  # or a tuple, or a dict of arguments
TOKENS = "the cat sat"              # optional: the words of the rows
"""


def code_allowed() -> bool:
    """Whether a visitor may run Python files: only on this computer, where folders may be opened."""
    return folders_allowed() and is_local(st.context.ip_address, st.context.headers)


def allow_file(name: str) -> None:
    allowed_files.add(name)
    select_model(name)


def own_model_panel(container: Any) -> None:
    """Draw the field of a Python file with a model, and what to write in it; where no code runs, what does."""
    if not code_allowed():
        container.caption(f"{NO_CODE} That file opens here, under *{ARRAYS}*")
        return

    def typed() -> None:
        if (name := (st.session_state.get(OWN_FILE) or "").strip().strip("'\"")).endswith(".py"):
            allow_file(name)

    name = container.text_input(
        "Path of a Python file",
        key=OWN_FILE,
        placeholder="~/my_model.py",
        on_change=guarded(OWN_FILE, typed),
        help="It runs in the lab's process, with all your rights, and again after each change.",
    )
    if name:  # else it became the model
        container.error(f"{plain(name)} does not end with .py.", icon=":material/error:")
    st.caption(
        "Any PyTorch model, without an adapter: the file builds it and names an example input, the lab runs it once "
        "and reads each attention that it computes. Also KEYS (words of the keys of cross-attention), ROW, HEADS, IMAGE."
    )
    st.code(EXAMPLE, "python")


NO_CODE = (
    "No code of visitors runs here. On the computer with your model, “attention-lab record my_model.py -o maps.zip” "
    "writes its attention into a file without code."
)


def _own_model(name: str) -> ModelRef | None:
    """The maps of the model in a Python file; None after asking whether it may run, as a link could name any file."""
    reject_if(not code_allowed(), f"{NO_CODE} Open that file under {ARRAYS}")
    with wrap_errors(f"{name} cannot be opened"):  # another's home, or a name that no file can have
        path = Path(name).expanduser().absolute()
        reject_if(not path.is_file(), f"There is no file {path}.")
    if name not in allowed_files and plugins.folder() != path.resolve().parent:
        st.info(
            f"{plain(str(path))} is Python. It runs with all your rights, so run it only if you know it.",
            icon=":material/code:",
        )
        st.button(f"Run {plain(path.name)}", key="inside:run", on_click=allow_file, args=(name,))
        return None
    with input_errors(), st.spinner(f"Running {plain(path.name)}"):
        return ModelRef("array", store_file(path, st.session_state.get(AGAIN, 0)))
    read_again()
    return None


def read_again() -> None:
    """Draw the button that runs a person's file anew; figures that rerun alone do not look at the file."""

    def pressed() -> None:
        st.session_state[AGAIN] = time.time_ns()

    st.button(
        "Read again",
        icon=":material/refresh:",
        key="inside:read-again",
        on_click=pressed,
        help="Runs the file anew, after a change of it or of its weights.",
    )


def _own_maps(ref: ModelRef) -> tuple[ModelRef, ModelInputs]:
    """Say which maps there are, and what was not read; draw the choice among maps of several sizes."""
    maps, part = upload(ref.name).maps, 0
    if len(maps.readings) > 1:
        labels = maps.labels
        label = st.selectbox(
            "Maps",
            labels,
            **bound(MAPS, labels[0]),
            help="Maps are drawn together where they are between the same tokens.",
        )
        part = labels.index(str(label))
    for note in maps.about.notes:
        st.caption(plain(note))
    trace = maps.readings[part].trace
    counts = sorted({len(item.weights) for item in trace.maps})
    layers, heads = len(trace.maps), " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(
            f"{plain(trace.source)}: {layers} layer{'s' * (layers > 1)} of {heads} head{'s' * (counts[-1] > 1)}, "
            "maps of {1} × {2}.".format(*trace.maps[-1].weights.shape),
            width="content",
        )
        if maps.about.parts:
            with st.popover("What was read", icon=":material/list:"):
                _modules(trace, maps.about.parts[part])
        if upload(ref.name).file.endswith(".py"):
            read_again()
    return replace(ref, revision=str(part)), ModelInputs(picture=maps.picture)


def _modules(trace: AttentionTrace, part: foreign.Part) -> None:
    table(
        ("layer", "module", "attends by", "map", "heads", "off by"),
        [
            (
                f"{KINDS[item.kind]} {item.layer_name}",
                name,
                function,
                "{1} × {2}".format(*item.weights.shape),
                str(len(item.weights)),
                number(error),
            )
            for item, (name, function, error) in zip(trace.maps, part.modules, strict=True)
        ],
        caption="The modules whose attention was read",
        left=3,
        markers=False,
    )
    caption(
        "Off by: how far weights × values are from what the module returned, as a share of the largest value."
    )


PANELS = {OTHER: other_panel, ARRAYS: array_panel, OWN_MODEL: own_model_panel}


def folders_allowed() -> bool:
    """Whether a visitor may open folders: by ATTENTION_LAB_FOLDERS (1, 0), else only from the same computer."""
    if hosted():
        return False
    setting = settings().folders or secret("ATTENTION_LAB_FOLDERS")
    if setting:
        return str(setting).lower() not in ("0", "false", "no")
    return is_local(st.context.ip_address, st.context.headers)


def secret(name: str) -> str | None:
    with suppress(FileNotFoundError, KeyError):
        return str(st.secrets[name]) or None
    return None


def _hub_model(ref: ModelRef) -> ModelRef | None:
    hub.refuse_model(ref.name, ref.revision)
    commits = hub.downloaded_commits(ref.name)
    if (revision := ref.revision or next(iter(commits), "")) in commits:
        return replace(ref, revision=revision)
    on_way = downloads.get(ref.name)
    if on_way is not None and not on_way.ended:
        st.session_state.pop(FAILED, None)  # every page waits for it
        _poll_download(ref.name)
        return None
    plan: hub.DownloadPlan | str | None = None if on_way is None else on_way.error
    if not plan:  # the hub is asked once for each name
        known, plan = st.session_state.get(LOOKUP) or (None, "")
        if known != ref:
            with st.spinner(f"Looking up {ref.name} on the hub"):
                try:
                    plan = hub.plan(ref.name, ref.revision or "main", token=secret("HF_TOKEN"))
                except PretrainedError as error:
                    plan = str(error)
            st.session_state[LOOKUP] = ref, plan
    if isinstance(plan, hub.DownloadPlan):
        if plan.is_downloaded:
            return ModelRef("hub", plan.repo, plan.commit)
        _offer(plan)
        return None

    def again() -> None:
        downloads.pop(ref.name, None)
        st.session_state.pop(LOOKUP, None)

    st.error(plain(without_paths(str(plan))), icon=":material/error:")
    with st.container(horizontal=True):
        st.button("Try again", icon=":material/refresh:", key="inside:again", on_click=again)
        names = [one.name for one in local_models()]
        close = get_close_matches(ref.name, names, 1) or [EMBEDDED.name]
        _use_buttons(near_names(ref.name, names)[:3] or close)
    return None


def _offer(plan: hub.DownloadPlan) -> None:
    def start() -> None:
        try:
            hub.make_room(plan.size)
            start_download(plan, secret("HF_TOKEN"))
            select_model(f"{plan.repo}@{plan.commit}")
        except PretrainedError as error:
            st.session_state[LOOKUP] = parse_model(st.session_state[MODEL]), str(error)

    text, button = st.columns([3, 1], vertical_alignment="center")
    text.markdown(
        f"**{plain(plan.repo)}** is a {plain(plan.family)} model: {hub.format_bytes(plan.size)} to download in "
        f"{len(plan.files)} files, {hub.format_bytes(plan.memory)} in memory, pinned to commit "
        f"{plan.commit[:7]}."
    )
    button.button(
        f"Load {hub.format_bytes(plan.size)}",
        type="primary",
        icon=":material/download:",
        width="stretch",
        on_click=start,
    )


@st.fragment(run_every=0.5)
def _poll_download(repo: str) -> None:
    on_way = downloads.get(repo)
    if on_way is None or on_way.ended:
        st.rerun()
    size = on_way.plan.size
    bar, button = st.columns([4, 1], vertical_alignment="center")
    bar.progress(
        min(on_way.done / size, 1.0) if size else 1.0,
        f"Downloading {plain(repo)}: {hub.format_bytes(on_way.done)} of {hub.format_bytes(size)}",
    )
    if on_way.person == me():
        button.button(
            "Stop", icon=":material/stop:", width="stretch", key="inside:stop", on_click=on_way.stop
        )


def downloaded_models() -> list[str]:
    return [
        f"{repo}@{path.name}"
        for path in sorted(hub.storage_folder().glob("*/*"))
        if hub.COMMIT.fullmatch(path.name) and hub.is_allowed(repo := hub.repo_of(path))
    ]


# A model's inputs: a text, two sentences, a source and its target, a picture, or a sound.


TEXT, SECOND, TARGET = "inside:text", "inside:second", "inside:target"
USUAL_TEXT = "inside:usual-text"  # with which the page opens
GROUP, TEXTS, BACK = "inside:language", "inside:texts", "inside:back"
OWN = "Your own…"


def _group(model: str) -> str:
    return model if model in model_inputs.OWN_TEXTS else ""


def pictures_for(pretrained: Pretrained) -> tuple[str, ...]:
    """The names of example pictures with as many channels as a model reads."""
    return tuple(model_inputs.pictures(int(getattr(pretrained.model.config, "num_channels", 3))))


def _inputs(ref: ModelRef, pretrained: Pretrained, own: str) -> ModelInputs:
    if pretrained.reads == "picture":
        return ModelInputs(
            picture=_upload_field(
                "picture",
                pictures_for(pretrained),
                "PNG or JPEG",
                ["png", "jpg", "jpeg", "webp", "gif"],
                model_inputs.decode_picture,
                model_inputs.picture,
            )
        )
    if pretrained.reads == "sound":
        rate = sampling_rate(pretrained)
        return ModelInputs(
            sound=_upload_field(
                "sound",
                model_inputs.SOUNDS,
                "WAV",
                ["wav"],
                partial(model_inputs.decode_wav, rate=rate),
                partial(model_inputs.sound, rate=rate),
            )
        )
    state, usual = st.session_state, own or model_inputs.text_of(ref.name)
    # A model of its own vocabulary gets that vocabulary's last text.
    language, group = state.get(GROUP), _group(ref.name)
    if language is not None and language != group:
        texts = state.setdefault(TEXTS, {})
        texts[language] = state.get(TEXT)
        state[TEXT] = texts.get(group) or usual
        state.pop(TARGET, None)
    state[GROUP] = group
    if state.get(TEXT) and state[TEXT] == state.get(USUAL_TEXT) and TEXT not in st.query_params:
        state[TEXT] = usual  # another page's text, not the user's
    state[USUAL_TEXT] = usual
    if put_back := state.pop(BACK, None):
        state[TEXT] = put_back
    before = state.get(TEXT)
    is_pair = pretrained.reads == "pair"
    first, other = st.columns([2 if is_pair else 2.6, 1], vertical_alignment="bottom")
    text = (
        first.text_input(
            "Text",
            usual,
            **bound(TEXT, usual),
            help=f"What the model reads: at most 20,000 characters and {pretrained.max_tokens} tokens.",
        )
        or ""
    )
    if before and text != before and not put_back and TEXT not in st.query_params:
        # the browser's Back to an address without a text has reset the field
        state[BACK] = before
        st.rerun()
    if is_pair:
        return ModelInputs(
            text,
            target=other.text_input(
                "Target",
                placeholder="generated by the model",
                **bound(TARGET, ""),
                help="The text that the decoder reads. Left empty, the model generates it, greedily.",
            )
            or None,
        )
    if ref == WRITES:
        note_unknown_words(text)
    if pretrained.head == "next":
        return ModelInputs(text)
    with other.popover(
        "Sentence B: on" if (state.get(SECOND) or "").strip() else "Sentence B",
        width="stretch",
        help="A second sentence, read together with the first.",
    ):
        second = st.text_input(
            "Sentence B", **bound(SECOND, ""), help="Left empty, the model reads the text alone."
        )
    return ModelInputs(text, second=second or None)


@cache
def _writer_pieces() -> frozenset[str]:
    """The pieces of words that the lab's writer reads whole."""
    stored = json.loads((LAB_MODELS / WRITER / "tokenizer.json").read_text("utf-8"))
    return frozenset(piece.removeprefix("Ġ") for piece in stored["model"]["vocab"])


def note_unknown_words(text: str) -> None:
    """Say which words of a text the lab's writer has never read, but for those that it reads whole, from other words."""
    if words := [word for word in grammar.unknown_words(text) if word not in _writer_pieces()]:
        caption(
            f"This model has read nothing but stories of {len(grammar.VOCABULARY):,} words. It never saw "
            f"{', '.join(f'“{plain(word)}”' for word in words[:3])}{' …' if len(words) > 3 else ''}: it reads such words "
            "in pieces, and guesses."
        )


def _upload_field(
    noun: str,
    names: Sequence[str],
    formats: str,
    types: list[str],
    decode: Callable[[bytes], Array],
    example: Callable[[str], Array],
) -> Array:
    """An example, or the person's own file, stored in the session; PretrainedError without one, LimitReached for too many."""
    choice, upload = st.columns([1, 1.4], vertical_alignment="bottom")
    name = choice.selectbox(
        noun.capitalize(),
        [*names, OWN],
        **bound(f"inside:{noun}", names[0]),
        help=f"An example, or “{OWN}” to upload a {noun}.",
    )
    if name != OWN:
        return example(name)
    most, key = at_most("upload_megabytes", 10), f"inside:own-{noun}"
    file = upload.file_uploader(
        f"{formats}, at most {byte_size(most * MB)}",
        types,
        max_upload_size=most,
        key=f"inside:{noun}-file",
        help="It stays in this session and is not part of the link.",
    )
    if file is not None:
        admit_upload(file)
        st.session_state[key] = decode(file.getvalue())
    reject_if(key not in st.session_state, f"Upload a {noun}, or choose one from the list.")
    return st.session_state[key]


# A question to a model: the masked word, the position that answers, and the output that is followed.


LIKELIEST, NOTHING = "the most likely", "nothing"


@dataclass(frozen=True)
class TokenField(Segmented[int]):
    """A token or a word of a line by its number, from a list or, of at most `max_options`, from buttons in sight.

    Its key is of the line: with another line the link's number is forgotten.
    """

    _: KW_ONLY
    hidden: bool = True
    max_options: int | None = 0
    also: Mapping[str, Any] | Of = lambda controls: {"width": room(170)}

    def value_of(self, text: str, controls: Any) -> int:
        return int(one_of(self.texts(controls))(text))

    def take_link(self, key: str, start: int, controls: Any) -> None:
        line = SessionValue(key, f"{controls.page_key}:{self.link}:line")
        if line.value != key:
            write_link(str(self.link), None)
        line.value = key
        st.session_state[key] = st.session_state.get(key, start)  # of another page's widget, too
        super().take_link(key, start, controls)


def _words(c: Any) -> dict[int, str]:
    return maskable_words(c.choice.reading.source)


def masked_word(link: str) -> Field[int | None]:
    """The word of `choice` that is masked, at first the longest; None where its inputs hold a mask."""
    return TokenField(
        "Masked word",
        _words,
        lambda c: max((len(word), at) for at, word in _words(c).items())[1],
        help="The page measures the model's prediction for this word.",
        key=lambda c: f"word:{hash(c.choice.reading.source.ids)}",
        link=link,
        page="inside",
    ).optional(
        lambda c: (
            getattr(c.choice.model.tokenizer, "mask_token_id", None)
            not in c.choice.reading.source.ids
        )
    )


def _line(c: Any) -> Line:
    return c.reading.target or c.reading.source


def answer_position() -> Field[int]:
    """The position of `reading` whose next token is measured; of a model that fills masks or labels, `masked` at first."""
    return TokenField(
        "Answer at position",
        lambda c: {
            at: f"{at} · {'after ' if c.masked is None else ''}{token}"
            for at, token in enumerate(_line(c).tokens)
        },
        # A target's first and last positions are its easiest ones; one past the middle has context on both sides.
        lambda c: (
            round((1 if c.reading.target is None else 0.55) * (len(_line(c)) - 1))
            if c.masked is None
            else c.masked
        ),
        help=lambda c: (
            "The page measures the prediction of the token "
            f"{'after ' if c.masked is None else 'at '}this one."
        ),
        key=lambda c: f"place:{hash(_line(c).ids)}",
        link="at",
        page="inside",
    )


@dataclass(frozen=True)
class OutputField(Options[int | None, str]):
    """An output that a person names, of the model `ref` and its answer `baseline`; the same on each page.

    None for the `first`, and after an error, which is written below it. A `contrast` is another one than is measured.
    """

    _: KW_ONLY
    options: Mapping[str, str] | Iterable[str] | Of = ()  # those of `names`
    typed: bool | Of = True
    page: str = "inside"
    key: str | Of | None = lambda c: c.ref.name
    help: str | Of | None = lambda c: (
        f"The list holds the most likely; you can type any other {c.baseline.answer.output}."
    )
    part: str = "output"
    first: str = LIKELIEST

    def key_of(self, controls: Any) -> str:
        return f"{self.page}:{self.part}:{controls.ref.name}"

    def names(self, controls: Any) -> dict[str, int]:
        left_out = [controls.baseline.id] if self.part == "contrast" else []
        names = output_names(controls.ref, controls.baseline.question)
        return {name: one for name, one in names.items() if one not in left_out}

    def texts(self, controls: Any) -> dict[str, str]:
        return {name: name for name in (self.first, *self.names(controls))}

    def allowed(self, value: Any, controls: Any) -> bool:
        return value == self.first or value not in (LIKELIEST, NOTHING)  # another page's first

    def draw_widget(self, controls: Any) -> int | None:
        for page in ("evidence", "lens", "two_models"):  # as older links write it
            old = f"{page}:{self.part}:{controls.ref.name}"
            take_link(self.key_of(controls), str, name=old)
            write_link(old, None)
        with st.container(width=room(170)):
            typed, names = super().draw_widget(controls), self.names(controls)
            if typed == self.first or typed in names:
                return names.get(typed)
            try:
                return self._typed(typed, controls.baseline)
            except PretrainedError as error:
                until = f"the most likely, {plain(controls.baseline.word or '')}, is measured"
                if self.part == "contrast":
                    other = "the most likely other one is used"
                    until = other if self.first == LIKELIEST else "nothing is subtracted"
                st.markdown(f":small[:red[{plain(str(error))}] Until then, {until}.]")
                return None

    def _typed(self, text: str, baseline: Baseline) -> int:
        output = output_id(baseline.pretrained, baseline.answer, text)
        reject_if(
            self.part == "contrast" and output == baseline.id,
            f"“{text[:40]}” is measured already, and its difference from itself is always 0.",
        )
        return output


def output_names(
    ref: ModelRef, question: Question, outputs: tuple[int, ...] | None = None
) -> dict[str, int]:
    """Tokens or classes by their names; the most likely answers to the question unless others are given."""
    return shared(_output_names, ref, question, outputs)


def _output_names(
    ref: ModelRef, question: Question, outputs: tuple[int, ...] | None
) -> dict[str, int]:
    pretrained, answer = load_model(ref), baseline_of(ref, question).answer
    if outputs is None:
        outputs = tuple(one.id for one in top_candidates(pretrained, answer, 10))
    return {output_name(pretrained, answer, one): one for one in outputs}


# The head that a user chose, with which every page starts until another model is chosen.


# The kinds of attention, as pages and links write them.
KINDS: dict[Kind, str] = {"self": "Encoder", "causal": "Decoder", "cross": "Cross"}
KIND_HELP = (
    "Encoder: self-attention of the encoder. Decoder: causal self-attention of the decoder. Cross: the "
    "decoder's attention to the encoder."
)
HEAD = SessionValue[tuple[ModelRef, Kind, Head] | None](None, "inside:head")


def choose_head(ref: ModelRef, kind: Kind, head: Head) -> None:
    """Store the user's choice, as (layer, head) among the maps of its kind; not a page's default."""
    HEAD.value = ref, kind, head


def current_head(ref: ModelRef) -> tuple[Kind, Head] | None:
    choice = HEAD.value
    return choice[1:] if choice and choice[0] == ref else None


def current_head_of(ref: ModelRef, kind: Kind, shape: tuple[int, int]) -> Head | None:
    chosen, head = current_head(ref) or (None, (0, 0))
    return head if chosen == kind and head[0] < shape[0] and head[1] < shape[1] else None


# The marks of roles in tables, and the line with the number of heads that have each role.


STYLE = (
    "<style>.role-line{display:flex;flex-wrap:wrap;gap:4px 16px;font-size:14px}"
    ".role-line span{display:flex;gap:6px;align-items:center;white-space:nowrap}"
    ".role-line .quiet{opacity:.62;white-space:normal}</style>"
)


def swatch(index: int) -> str:
    return (
        f'<span style="display:inline-block;width:10px;height:10px;border-radius:2px;'
        f'background:{CATEGORIES[theme()][index]}"></span>'
    )


SQUARE = "height:14px;padding:0 3px;border-radius:2px;font-size:11px;line-height:14px;background:{};color:"
HEAD_MARKS = {  # of heads: the text, the mark in a colour, and that of a head without a role
    "corner": (
        "A corner names a head’s role. Over {}, so many heads have it:",
        "width:0;height:0;border-left:12px solid transparent;border-bottom:12px solid {}",
        "",
    ),
    "square": ("Roles over {}:", SQUARE, ""),
    "dot": (
        "Roles over {}:",
        "width:10px;height:10px;border-radius:5px;background:{}",
        '<div style="width:7px;height:7px;border-radius:5px;border:1.5px solid"></div>',
    ),
}


def role_line(
    roles: HeadRoles, heads: int, texts: str, mark: Literal["corner", "dot", "square"] = "corner"
) -> None:
    """How many of all heads have each role over these texts, after the mark that the roles carry in a figure."""
    count = Counter(roles.values())
    about, style, bare = HEAD_MARKS[mark]
    fills, square = CATEGORIES[theme()], mark == "square"  # which has the role's short name
    items = [
        f'<span title="{escape(role.meaning, quote=True)}"><div style="{style.format(fills[index])}'
        f'{text_on(fills[index], theme()) if square else ""}">{role.mark if square else ""}</div>'
        f"{escape(role.name)} {count[index]}</span>"
        for index, role in enumerate(ROLES)
        if count[index]
    ]
    st.html(
        f'{STYLE}<div class="role-line"><span class="quiet">{about.format(texts)}</span>{"".join(items)}'
        f'<span class="quiet">{bare}No role {heads - len(roles)}</span></div>'
    )


# The head that a page shows.


Named = Mapping[Pair, tuple[Kind, Pair]]  # the pair in the link → the kind, and (layer, head) in it


class HeadField(SessionValue[object]):
    """The head of the link, else the one picked on another page; its value is what it belonged to.

    To pick a head is to write its pair into the link.
    """

    @property
    def key(self) -> str:
        return f"{self.owner.page_key}:of"

    def shown(self, of: object, ref: ModelRef, heads: Named, default: Pair) -> Pair:
        """The pair of the head, or the default. The link's is forgotten once `of`, what the heads belong to, has changed."""
        if self.value not in (None, of):
            write_pair("head", None)
        self.value = of
        first, second = (1 + max(part) for part in zip(*heads, strict=True))
        linked, error = read_pair("head", (first, second))
        if error:
            st.warning(error)
        if linked is not None and linked in heads:
            choose_head(ref, *heads[linked])
            return linked
        elsewhere = next((pair for pair, head in heads.items() if head == current_head(ref)), None)
        if elsewhere is not None:
            write_pair("head", elsewhere)
        return elsewhere or default

    def draw(
        self, heads: Mapping[str, Pair], shown: Pair | None, key: str, order: str = ""
    ) -> None:
        """Draw a list that picks a head by its name, for those without a pointer; a press in a figure picks one, too.

        It has `shown`, which is None where that is no head.
        """
        name = st.session_state[key] = next(
            (name for name, head in heads.items() if head == shown), None
        )

        def changed() -> None:
            name = st.session_state[key]
            if name in heads:  # a browser may still name a head of the model before
                write_pair("head", heads[name])

        st.selectbox(
            "Head",
            list(heads),
            None if name is None else 0,
            key=key,
            width=room(140),
            on_change=guarded(key, changed),
            help=f"Layer and head, counted from 0{order}. A click in the figure picks one, too.",
        )


def effect_chart(
    key: str,
    alt: str,
    pick: Callable[[str, int], object] | None,
    rows: Sequence[Spec],
    layers: Sequence[str],
    columns: Sequence[str],
    picked: tuple[str, str],
    **options: Any,
) -> None:
    """Draw layers × columns as `effect_grid`; a press of a head's cell calls `pick` with its layer's name and number."""

    def press() -> None:
        point = pressed_point(key)
        if pick and point and point["head"].isdecimal():
            pick(point["layer"], int(point["head"]))

    selects: Any = {"selection_mode": [PICKED], "on_select": press} if pick else {}
    draw_chart(
        st,
        effect_grid(rows, layers, columns, picked, theme(), **options),
        key=key,
        alt=alt,
        **selects,
    )


def _numbered(tokens: tuple[str, ...]) -> dict[int, str]:
    return {index: f"{index} · {token}" for index, token in enumerate(tokens)}


class WeightFields(Fields):
    """A head, a query and a key of a model: three lists that show the link's head and cell, and change these.

    A page's class has `cell` and `shown` of its own, and a map that picks a cell the key `<page>:map`.
    """

    reading: Reading
    cell: ClassVar[CellField]
    shown: ClassVar["HeadField"]
    kind = Select[Kind](
        "Attention",
        lambda c: {kind: KINDS[kind] for kind in KINDS if kind in c.reading.trace.kinds},
        lambda c: "cross" if "cross" in c.reading.trace.kinds else c.reading.trace.kinds[0],
        help=KIND_HELP,
    ).when(lambda c: len(c.reading.trace.kinds) > 1)
    head = Select[str](
        "Head",
        lambda c: {name: c.trace.name(head) for name, head in c.heads.items()},
        help="Layer and head, counted from 0.",
        also=lambda c: c._in_no_link,
    )
    query = Select[int](
        "Query",
        lambda c: _numbered(c.trace.maps[0].queries),
        help="The token that attends.",
        also=lambda c: c._in_no_link,
    )
    key = Select[int](
        "Key",
        lambda c: _numbered(c.trace.maps[0].keys),
        help="The token that is attended to.",
        also=lambda c: c._in_no_link,
    )

    @property
    def trace(self) -> AttentionTrace:
        return self.reading.trace.of(self.kind)

    @property
    def heads(self) -> dict[str, Head]:
        return {
            head_name(layer, head): (layer, head)
            for layer, item in enumerate(self.trace.maps)
            if not item.state  # which has no queries and keys
            for head in range(len(item.weights))
        }

    @property
    def _in_no_link(self) -> dict[str, object]:
        return {"bind": None, "on_change": self._changed}

    def _changed(self) -> None:
        """Write what the three lists say into the link."""
        now = self.read("head", "query", "key", **vars(self))
        write_pair("head", now.heads[now.head])
        write_pair("cell", (now.query, now.key))

    def pick(self, chosen: ModelChoice, into: Any) -> Cell | None:
        """The cell of the link, of a press in the page's map, which wins, or the most telling one; draw the lists.

        Layers without softmax are named and left out; None where there is no other.
        """
        ref, kind, trace = chosen.ref, self.kind, self.trace
        left_out = f"Left out: state layers, which have no softmax of queries and keys: {'; '.join(state_lines(trace))}."
        if not self.heads:
            st.info(plain(f"{left_out} Take a model with attention."))
            return None
        shape, key = trace.maps[0].weights.shape[1:], f"{self.page_key}:map"
        head = current_head_of(ref, kind, trace.shape)
        usual = telling_cell(self.reading, kind, head if head in self.heads.values() else None)
        heads = {head: (kind, head) for head in self.heads.values()}
        linked = self.shown.shown((ref, kind), ref, heads, usual.at[0])
        pair = self.cell.pinned((shape[0], shape[1]), (ref, chosen.inputs, kind)) or usual.at[1]
        own, _ = stores(key, None)
        view = settled(trace, key, own, own, linked, pair)
        cell = Cell(view.layer, view.head, *(view.pin or pair))
        if cell.at[0] != linked:
            choose_head(ref, kind, cell.at[0])
            write_pair("head", cell.at[0])
        self.cell.pin(cell.at[1])
        self.set(head=head_name(*cell.at[0]), query=cell.query, key=cell.key)
        self.draw_more("head", "query", "key", into=into)
        if any(item.state for item in trace.maps):
            st.caption(plain(left_out))
        return cell


def weight_link(
    chosen: ModelChoice,
    kind: Kind,
    head: tuple[int, int],
    cell: tuple[int, int],
    pages: Sequence[str] = ("inside_weight", "why_key"),
) -> None:
    """Draw links to this weight on the pages of one weight.

    None for a sink, for arrays, and for families that cannot be recorded. Of a layer without softmax it says what such
    a weight is, and why there is no link.
    """
    rows, columns = chosen.reading.lines(kind)
    item = chosen.reading.trace.of(kind).map(head[0])
    if item.state:
        st.caption(
            plain(
                f"{item.layer_name} is a state layer, {item.state}, without softmax: a weight is how much of the key's value "
                f"the layer's state gives to the query, with its sign. It has no queries and keys to take apart."
            )
        )
        return
    if chosen.pretrained is None or not chosen.pretrained.recordable or cell[1] >= len(columns):
        return
    for step in map(step_of, pages):
        st.page_link(
            step.page(),
            label=f"{step.title}: {plain(rows.tokens[cell[0]])} → {plain(columns.tokens[cell[1]])}",
            icon=step.icon,
            query_params={
                "head": f"{head[0]}.{head[1]}",
                "cell": f"{cell[0]}.{cell[1]}",
                f"{step.key}:kind": KINDS[kind],
            },
        )
