"""Models by name, the same in links, cache keys and the picker; each is loaded once for every session.

Also uploaded arrays, which are a source like any model, a model and its inputs as Python, the roles of heads, and
downloads.
"""

import hashlib
import os
import re
import sys
import threading
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from core.files import hosted, runs_folder, sentence_of
from core.interpret.evidence import Baseline, Question, ask
from core.interpret.roles import (
    ROLES,
    Example,
    RoleInputs,
    RoleScores,
    clearest_example,
    read_all,
    role_inputs,
    score_roles,
)
from core.interpret.trace import Kind
from core.pretrained import (
    LAB_MODELS,
    MINILM,
    WRITER,
    ModelInputs,
    Pretrained,
    PretrainedError,
    Reading,
    foreign,
    hub,
    lab_models,
    load_folder,
    load_lab_model,
    load_minilm,
    minilm_folder,
    model_inputs,
    read,
    reject_if,
    sampling_rate,
    untrained,
    wrap_errors,
)
from dashboard.draw.components import Cell, source_of
from dashboard.server.cache import model, remembered, shared, store
from dashboard.server.calls import Call, recorded
from dashboard.server.limits import below_home, find_run
from dashboard.server.visitors import at_most, me
from dashboard.ui.runs import ROOT, is_of_lab, path_code, script_path

# Names of folders with a model: their paths, without what tells of the server or of a person.


EXAMPLES = Path(__file__).resolve().parents[1]
IN_THE_FOLDER = "./"  # begins a name of what came with the lab, and any on a public copy
_OF_RUN = re.compile(r"\./([0-9a-f-]+)/((?!\.)[\w.-]+)")


def folder_name(folder: Path) -> str:
    if hosted() or is_of_lab(folder):
        return f"{IN_THE_FOLDER}{script_path(folder)}"
    return str(below_home(folder))


def folder_of(name: str) -> Path:
    """The folder of that name; whoever has a run's id may open the model that was fine-tuned in it."""
    of_lab = name.startswith(IN_THE_FOLDER) and (hosted() or is_of_lab(ROOT / name))
    return _in_run(name) or (ROOT / name if of_lab else Path(os.path.expanduser(name)))


def is_open(name: str) -> bool:
    """Whether the lab itself made a folder, by a run or as an example: visitors may open no other."""
    with suppress(OSError, ValueError, RuntimeError):
        folder = folder_of(name).resolve()
        return any(
            folder.is_relative_to(home.resolve())
            for home in ((EXAMPLES,) if hosted() else (EXAMPLES, runs_folder()))
        ) or bool(_in_run(name))
    return False


def _in_run(name: str) -> Path | None:
    match = _OF_RUN.fullmatch(name) if hosted() else None
    run = find_run(match[1]) if match else None
    return None if match is None or run is None else run.path / match[2]


T = TypeVar("T")
Source = Literal["embedded", "lab", "hub", "folder", "array", "file"]
Lines = tuple[set[str], str]  # imports, and the code that needs them

# What the models of the list do, in a few words; what stands between that and the name
SAYS = " · "
ABOUT = {
    MINILM: "a small BERT",
    WRITER: "stories of 3,000 words",
    "numbers": "English to German",
    "induction": "repeats a passage",
    "only-attention": "no feed-forward",
    "names": "one of two names",
    "digits": "handwritten digits",
}
SMALL = 1e8  # parameters up to which one thread is the faster
UPLOAD_NAME = re.compile(r".*\(array ([0-9a-f]{12})\)", re.DOTALL)
SUGGESTED = hub.HOSTED_MODELS[:3]


@dataclass(frozen=True)
class ModelRef:
    """A model's source and name; `revision` is a hub branch, tag or commit, or a folder's modification time.

    Of arrays it is the place of those of one size. A file is one of Python, whose maps become arrays. With `seed` it is
    a copy of that model with random weights.
    """

    source: Source
    name: str
    revision: str = ""
    seed: int | None = None

    @property
    def written(self) -> str:
        """The name in the picker and in links; `parse_model` parses it."""
        return (
            f"{self.name}@{self.revision}" if self.source == "hub" and self.revision else self.name
        )


EMBEDDED, WRITES = ModelRef("embedded", MINILM), ModelRef("lab", WRITER)


def local_models() -> tuple[ModelRef, ...]:
    return (EMBEDDED, *(ModelRef("lab", name) for name in lab_models()))


def model_label(name: str) -> str:
    """A model's name with what it does, as the list shows it and links hold it."""
    return f"{name}{SAYS}{ABOUT[name]}" if name in ABOUT else name


def name_in(label: str) -> str:
    return label.partition(SAYS)[0]


def parse_model(text: str) -> ModelRef:
    """The model that a typed name or a link refers to; PretrainedError when it is none."""
    text = text.strip()
    for ref in local_models():
        if name_in(text) == ref.name:
            return ref
    if UPLOAD_NAME.fullmatch(text):
        return ModelRef("array", text)
    reject_if(
        re.match(r"[/\\]{2}", text),  # Windows would log in there because of a link
        f"{text[:80]} is on another computer; copy its folder here, and type that path.",
    )
    if text.endswith(".py"):
        return ModelRef("file", text)
    if re.match(r"[/~.\\]|[A-Za-z]:\\", text):
        return ModelRef("folder", text)
    repo, revision = hub.parse(text)
    return ModelRef("hub", repo, "" if revision == "main" else revision)


def stored_bytes(ref: ModelRef) -> int:
    folders: dict[str, Callable[[], Path]] = {
        "embedded": minilm_folder,
        "lab": lambda: LAB_MODELS / ref.name,
        "folder": lambda: folder_of(ref.name),
        "hub": lambda: hub.model_folder(ref.name, ref.revision),
    }
    return sum(file.stat().st_size for file in folders[ref.source]().glob("*.safetensors"))


# Uploaded arrays, in memory by a hash of their content, so that every page and links of this session find them.


@dataclass(frozen=True, eq=False)
class Upload:
    file: str
    tokens: str
    maps: foreign.OwnMaps


def store_upload(data: bytes, name: str, tokens: str) -> str:
    """Read an uploaded file and store its maps; returns its name for `upload`. PretrainedError if it is invalid."""
    return _stored_maps(
        b"\0".join((data, name.encode(), tokens.encode())),
        lambda: Upload(name, tokens, foreign.read_maps(data, name, tokens)),
    )


def store_file(path: Path, since: int = 0) -> str:
    """Run a person's Python file and store its maps as an upload, unless it and those beside it are as they were.

    `since` is when the person last pressed for another run.
    """
    beside = [(str(one), one.stat().st_mtime_ns) for one in sorted(path.parent.glob("*.py"))]
    return _stored_maps(
        repr((str(path), beside, since)).encode(),
        lambda: Upload(
            path.name, "", foreign.read_maps(foreign.record(path, half=False), path.name)
        ),
    )


def _stored_maps(of: bytes, make: Callable[[], Upload]) -> str:
    digest = hashlib.sha256(of).hexdigest()[:12]
    # The uploads of each person of a public copy are their own.
    stored = store().get("uploads", (str(runs_folder()), digest), make)
    return f"{stored.file} (array {digest})"


def upload(name: str) -> Upload:
    """What was uploaded; PretrainedError after it was evicted or the server restarted."""

    def missing() -> Upload:
        raise PretrainedError(f"The upload {name} is no longer in memory; upload the file again.")

    match = UPLOAD_NAME.fullmatch(name)
    return store().get("uploads", (str(runs_folder()), match[1] if match else name), missing)


# Models and what is computed of them, shared by all sessions.


def load_model(ref: ModelRef) -> Pretrained:
    """The model, cached; PretrainedError when it cannot be loaded."""
    return model(_load, ref)


def is_loaded(ref: ModelRef) -> bool:
    return remembered(_load, ref)


def _load(ref: ModelRef) -> Pretrained:
    pretrained = _stored(ref)
    # one thread reads a sentence with a small model sooner than two, which on busy cores wait for each other
    weights = sum(weight.numel() for weight in pretrained.model.parameters())
    return replace(pretrained, all_cores=weights >= SMALL)


def _stored(ref: ModelRef) -> Pretrained:
    if ref.seed is not None:
        return untrained(load_model(replace(ref, seed=None)), ref.seed)
    if ref.source == "embedded":
        return load_minilm()
    if ref.source == "lab":
        return load_lab_model(ref.name)
    reject_if(
        ref.source == "array",
        "These are arrays without a model; choose a model for what needs one.",
    )
    with wrap_errors(f"{ref.name} cannot be loaded"):
        return (
            load_folder(folder_of(ref.name), Path(ref.name).name)
            if ref.source == "folder"
            else hub.load(ref.name, ref.revision)
        )


def study_of(function: Callable[..., T], *args: Any, given: Sequence[Callable[..., Any]] = ()) -> T:
    """function(*args), cached, shared and recorded; never change it.

    The model takes the place of its reference; the reading, the answer or the study of a model that of a `Call` of
    `read`, `ask` or the study. Studies of the same model in `given` come after it, such as the matrices of its heads.
    """
    args = (*args[:1], *(Call(one, args[:1]) for one in given), *args[1:])
    return recorded(function, args, shared(_study, function, args))


def _study(function: Callable[..., T], args: tuple[Any, ...]) -> T:
    return function(*map(_made, args))


def _made(arg: Any) -> Any:
    if isinstance(arg, Call):
        makers: dict[Callable[..., Any], Callable[..., Any]] = {read: reading_of, ask: baseline_of}
        return makers.get(arg.function, partial(study_of, arg.function))(*arg.args)
    return load_model(arg) if isinstance(arg, ModelRef) else arg


def reading_of(ref: ModelRef, inputs: ModelInputs) -> Reading:
    """The model's reading of its inputs, shared by all sessions; never change it."""
    reading = (
        upload(ref.name).maps.readings[int(ref.revision or 0)]
        if ref.source == "array"
        else shared(_read, ref, inputs)
    )
    return recorded(read, (ref, inputs), reading)


def _read(ref: ModelRef, inputs: ModelInputs) -> Reading:
    with wrap_errors(f"{ref.name} cannot read this"):
        return read(load_model(ref), inputs)


def baseline_of(ref: ModelRef, question: Question) -> Baseline:
    """The model's answer, with the model attached for reruns; PretrainedError as in `ask`."""
    baseline = replace(shared(_baseline, ref, question), pretrained=load_model(ref))
    return recorded(ask, (ref, question), baseline)


def _baseline(ref: ModelRef, question: Question) -> Baseline:
    # without its model, so that a cached result does not keep the model in memory
    return replace(ask(load_model(ref), question), pretrained=None)  # type: ignore[arg-type]


def answer_study(
    function: Callable[..., T], ref: ModelRef, question: Question, *args: Hashable
) -> T:
    """function(baseline, *args) with the model's answer to a question, cached and shared; never change it."""
    return study_of(function, Call(ask, (ref, question)), *args)


# A model and its inputs as Python.


def model_cell(ref: ModelRef, name: str = "model") -> Cell:
    """Python that loads the model by that name; of an uploaded array, the `reading` of its file."""
    words = f"The model {ref.name.rstrip('/').rpartition('/')[2]}."
    if ref.source == "array":
        array = upload(ref.name)
        more = f", {array.tokens!r}" if array.tokens.strip() else ""
        is_code = array.file.endswith(".py")
        data = "record(file, half=False)" if is_code else "file.read_bytes()"
        return Cell(
            words,
            f"""
from pathlib import Path

from core.pretrained.foreign import {"read_maps, record" if is_code else "read_maps"}

file = Path({array.file!r})  # your own file
reading = read_maps({data}, file.name{more}).readings[{ref.revision or 0}]
""",
        )
    imports, line = model_lines(ref, name)
    return Cell(words, f"{import_block(imports)}\n\n{line}\n")


def model_lines(ref: ModelRef, name: str = "model") -> Lines:
    """The imports of a model, and the lines that load it by that name."""
    folder = folder_of(ref.name)
    call = {
        "embedded": "load_minilm()",
        "lab": f"load_lab_model({ref.name!r})",
        "hub": f"hub.open_model({ref.name!r}, {ref.revision or 'main'!r})  # downloads it where it is missing",
        "folder": f"load_folder(Path({path_code(folder)}), {folder.name!r})",
    }[ref.source]
    imports = {f"from core.pretrained import {re.split('[.(]', call)[0]}"}
    if ref.source == "folder":
        imports |= {"from pathlib import Path"}
    line = f"{name} = {call}"
    if ref.seed is not None:
        imports |= {"from core.pretrained.load import untrained"}
        line += f"\n{name} = untrained({name}, seed={ref.seed})"
    return imports, line


def inputs_lines(ref: ModelRef, inputs: ModelInputs) -> Lines:
    """The imports of inputs, and the expression that makes them: an example by its call, or the reader's own file."""
    imports = {"from core.pretrained import ModelInputs"}
    if inputs.picture is not None:
        noun, own, names, more = (
            "picture",
            "picture.png",
            model_inputs.pictures(int(getattr(load_model(ref).model.config, "num_channels", 3))),
            "",
        )
        decode, value = "decode_picture", inputs.picture
        examples = [model_inputs.picture(name) for name in names]
    elif inputs.sound is not None:
        rate = sampling_rate(load_model(ref))
        noun, own, names, more = "sound", "sound.wav", model_inputs.SOUNDS, f", {rate}"
        decode, value = "decode_wav", inputs.sound
        examples = [model_inputs.sound(name, rate) for name in names]
    else:
        return imports, re.sub(r"\AModelInputs\(text=", "ModelInputs(", source_of(inputs))
    name = next((name for name, one in zip(names, examples, strict=True) if one == value), None)
    function, call = noun, f"{noun}({name!r}{more})"
    if name is None:
        imports |= {"from pathlib import Path"}
        function, call = decode, f"{decode}(Path('your {own}').read_bytes(){more})"
    imports |= {f"from core.pretrained.model_inputs import {function}"}
    target = "" if inputs.target is None else f", target={inputs.target!r}"
    return imports, f"ModelInputs({noun}={call}{target})"


def question_code(question: Question) -> str:
    values = {item.name: getattr(question, item.name) for item in fields(question)[1:]}
    changed = [f", {name}={value!r}" for name, value in values.items() if value not in (None, "")]
    return f"Question(inputs{''.join(changed)})"


def import_block(imports: set[str]) -> str:
    """Imports in order, one line for each module: the standard library, then others, then core."""
    names: dict[str, set[str]] = {}
    for line in imports:
        module, _, name = line.removeprefix("from ").partition(" import ")
        names.setdefault(module, set()).add(name)
    groups: tuple[list[str], ...] = ([], [], [])
    for module, each in sorted(names.items()):
        ordered = sorted(each, key=lambda name: (not name.isupper(), not name[:1].isupper(), name))
        line = module if "" in each else f"from {module} import {', '.join(ordered)}"
        top = line.split()[1].partition(".")[0]
        groups[2 if top == "core" else 0 if top in sys.stdlib_module_names else 1].append(line)
    return "\n\n".join("\n".join(group) for group in groups if group)


# The roles of a model's heads, measured once and shared by every page and session.

HeadRoles = dict[tuple[int, int], int]
ABOVE = "input above"  # where there is no set of inputs


def inputs_of(
    ref: ModelRef, page_inputs: ModelInputs, kind: Kind, own: tuple[str, ...] = ()
) -> RoleInputs:
    """The inputs on which roles are measured; the page's own alone where there is no set (sound, arrays)."""
    inputs = RoleInputs((), "") if ref.source == "array" else study_of(role_inputs, ref, own, kind)
    return inputs if inputs.givens else RoleInputs((page_inputs,), ABOVE)


def role_scores_of(
    ref: ModelRef, page_inputs: ModelInputs, kind: Kind, own: tuple[str, ...] = ()
) -> RoleScores:
    return _scores_of(ref, inputs_of(ref, page_inputs, kind, own), kind)


def _scores_of(ref: ModelRef, inputs: RoleInputs, kind: Kind) -> RoleScores:
    """The score of every head in every role, recorded with the readings of these inputs."""
    scores = shared(_role_scores, ref, inputs, kind)
    above = inputs.what == ABOVE
    readings = (reading_of(ref, *inputs.givens),) if above else Call(read_all, (ref, inputs, kind))
    return recorded(score_roles, (readings, kind), scores)


def roles_of(ref: ModelRef, page_inputs: ModelInputs, kind: Kind) -> HeadRoles:
    """The role (an index of ROLES) of each head (layer, head), for a grid's marks; none for cross-attention."""
    return {} if kind == "cross" else role_scores_of(ref, page_inputs, kind).head_roles


def roles_are_cached(ref: ModelRef, page_inputs: ModelInputs, kind: Kind) -> bool:
    return (
        kind == "cross"
        or ref.source == "array"
        or remembered(_study, role_inputs, ref, (), ((), kind))
        and remembered(_role_scores, ref, inputs_of(ref, page_inputs, kind), kind)
    )


def readings_of(ref: ModelRef, inputs: RoleInputs, kind: Kind) -> tuple[Reading, ...]:
    return (
        (reading_of(ref, inputs.givens[0]),)
        if ref.source == "array"
        else study_of(read_all, ref, inputs, kind)
    )


def examples_of(
    ref: ModelRef, inputs: RoleInputs, kind: Kind
) -> dict[int, tuple[Reading, Example]]:
    """For each role that can be measured: the clearest example of its best head, and its reading."""
    return shared(_examples, ref, inputs, kind)


def _examples(ref: ModelRef, inputs: RoleInputs, kind: Kind) -> dict[int, tuple[Reading, Example]]:
    readings, scores = readings_of(ref, inputs, kind), _scores_of(ref, inputs, kind)
    clearest = {
        index: clearest_example(readings, kind, role, *best)
        for index, role in enumerate(ROLES)
        if (best := scores.best(index)) is not None
    }
    return {index: (readings[one.reading], one) for index, one in clearest.items() if one}


def _role_scores(ref: ModelRef, inputs: RoleInputs, kind: Kind) -> RoleScores:
    return score_roles(readings_of(ref, inputs, kind), kind)


# Downloads that outlive the page that started them: one thread a model, shared by all sessions.


class Download:
    """A running download for `person`: `done` bytes of `plan.size`; once it has `ended`, `error` is why it failed."""

    def __init__(self, plan: hub.DownloadPlan, token: str | None) -> None:
        self.plan, self.done, self.person = plan, 0, me()
        self.error: str | None = None
        self.ended = False
        self._stop = threading.Event()
        threading.Thread(
            target=self._run, args=(token,), name=f"download {plan.repo}", daemon=True
        ).start()

    def stop(self) -> None:  # at the next bytes; the page does not wait for it
        self._stop.set()
        downloads.pop(self.plan.repo, None)

    def _run(self, token: str | None) -> None:
        try:
            with suppress(hub.DownloadStopped):
                hub.download(
                    self.plan,
                    token=token,
                    progress=partial(setattr, self, "done"),
                    stopped=self._stop.is_set,
                )
        except (
            Exception
        ) as error:  # whatever the disk or the network did must end in words, not in a thread
            from huggingface_hub.constants import HF_HUB_CACHE  # which the download has imported

            why = sentence_of(error, folder=Path(HF_HUB_CACHE))
            known = isinstance(error, PretrainedError)
            self.error = str(error) if known else f"{self.plan.repo} cannot be downloaded: {why}"
        finally:
            self.ended = True


_lock = threading.Lock()
downloads: dict[str, Download] = {}


def start_download(plan: hub.DownloadPlan, token: str | None) -> None:
    """Download this model, unless that runs already; PretrainedError when too many run."""
    with _lock:
        running = [one.plan.repo for one in downloads.values() if not one.ended]
        if plan.repo in running:
            return
        if len(running) >= at_most("downloads", 2):
            names, are = " and ".join(running), "is" if len(running) == 1 else "are"
            then = "wait for its end" if hosted() else "wait for one of them, or stop it"
            raise PretrainedError(f"{names} {are} being downloaded; {then}.")
        downloads[plan.repo] = Download(plan, token)
