"""Contrast pairs: what the answer owes to each head, as the mean over many pairs of texts with its 95 % interval.

A pair is a clean text, a corrupted one that differs in what decides, the answer to the clean text and another one. Each
is measured by `head_effects`, and the pairs are the sample: Student's t over them. The measurement is a run: a worker
appends a line a pair, so that it can be stopped, killed and continued. `attention-lab pairs FILE` measures a file.
Wang et al. 2022 (IOI), section 3; Zhang and Nanda 2024.
"""

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import numpy as np
import torch
import typer
from jaxtyping import Float

from core import command_line
from core.entries import ConfigError, quote, refuse_if
from core.files import append_line, read_lines, with_checksum
from core.interpret.corpus import AnyMeasurement, MeasurementConfig, half_interval
from core.interpret.evidence import Baseline, Question, ask
from core.interpret.interventions import (
    BY_KEY,
    HeadKey,
    head_effects,
    mean_outputs,
    outputs_of,
)
from core.interpret.patching import rerun_rows
from core.interpret.trace import layer_names
from core.pretrained import (
    ModelInputs,
    Pretrained,
    PretrainedError,
    load_folder,
    numbers_by_layer,
    output_id,
    reject_if,
)
from core.pretrained.finetune import LAB, folder_of, name_of, resolve
from core.runs.runs import Run
from core.runs.worker import work as work_on
from core.serialization import check_types
from core.tasks import reading

COLUMNS = ("clean", "corrupted", "answer", "other")
TARGET, SLOTS = "target", ("[A]", "[B]")  # further columns
MAX_PAIRS = 1_000
PairQuantity = Literal["difference", "log-probability", "kl"]


@dataclass(frozen=True)
class Pair:
    """Two texts, the answer to the clean one, and the other answer; `line` is its line in the file, counted from 1.

    `target` is what an encoder–decoder has written before the answer, and `words` are one of each of a template's two lists.
    """

    clean: str
    corrupted: str
    answer: str
    other: str
    line: int = 0
    target: str = ""
    words: tuple[str, ...] = ()

    @property
    def inputs(self) -> tuple[ModelInputs, ...]:
        """The clean and the corrupted text, as a model reads them."""
        return tuple(
            ModelInputs(text, target=self.target or None) for text in (self.clean, self.corrupted)
        )


def read_pairs(source: Path | str) -> tuple[Pair, ...]:
    """The pairs in a file or a text: CSV, TSV, or an object of JSON a line, with the columns clean, corrupted, answer
    and other in any order; further ones are target, and [A] and [B], the words of a template's lists.

    ConfigError where one of these is not there, and as in `read_rows`; what a row holds is checked with the model.
    """
    text = reading.decode_text(source.read_bytes()) if isinstance(source, Path) else source
    rows: list[tuple[int, dict[str, Any]]] = []
    if text.lstrip("\ufeff \r\n").startswith("{"):
        for line, item in enumerate(reading.validate_text(text, "list of pairs").split("\n"), 1):
            try:
                value = json.loads(item) if item.strip() else None
            except (ValueError, RecursionError) as error:
                raise ConfigError(f"Line {line} is no JSON: {error}") from error
            refuse_if(
                value is not None and not isinstance(value, dict),
                f"Line {line} is no object of JSON; write one with {', '.join(COLUMNS)} a line.",
            )
            rows += [] if value is None else [(line, {one.casefold(): value[one] for one in value})]
        names = {name for _, value in rows for name in value}
    else:
        (_, first), *others = reading.read_rows(text, "list of pairs")[0]
        names = {name.strip().casefold() for name in first}
        rows = [
            (line, dict(zip(map(str.casefold, first), cells, strict=True)))
            for line, cells in others
        ]
    missing = [name for name in COLUMNS if name not in names]
    refuse_if(
        missing,
        f"There is no column {' and no '.join(missing)}. The first line of a CSV, or each object of JSON, names "
        f"{', '.join(COLUMNS)}; this one names {', '.join(sorted(names))[:200]}.",
    )
    refuse_if(not rows, "There is a line of names, and no pair below it.")
    refuse_if(
        len(rows) > MAX_PAIRS,
        f"There are {len(rows):,} pairs; at most {MAX_PAIRS:,} are measured. Cut the file.",
    )
    return tuple(
        Pair(
            **{name: str(value.get(name, "")).strip() for name in (*COLUMNS, TARGET)},
            line=line,
            words=tuple(str(word) for word in words) if all(words) else (),
        )
        for line, value in rows
        for words in [[value.get(slot.casefold()) for slot in SLOTS]]
    )


def pairs_of_template(
    clean: str,
    corrupted: str,
    first: Sequence[str],
    second: Sequence[str],
    answer: str = "[A]",
    other: str = "[B]",
    both_orders: bool = True,
) -> tuple[Pair, ...]:
    """A pair for each word of `first` as [A] with each of `second` as [B], with `both_orders` also the other way round.

    All four texts may hold the slots. ConfigError where the clean text has none, or both texts are the same.
    """
    slots = any(slot in clean + corrupted for slot in SLOTS)
    refuse_if(not slots, "The template has no slot; write [A] and [B] where the words differ.")
    refuse_if(clean == corrupted, "The clean and the corrupted text are the same; change one slot.")
    couples = {
        couple: (a, b)
        for a in first
        for b in second
        for couple in ([(a, b), (b, a)] if both_orders else [(a, b)])
        if a != b
    }
    refuse_if(not couples, "Two lists of different words are needed, such as names.")
    return tuple(
        Pair(
            **{
                name: text.replace("[A]", a).replace("[B]", b)
                for name, text in zip(COLUMNS, (clean, corrupted, answer, other), strict=True)
            },
            line=line,
            words=words,
        )
        for line, ((a, b), words) in enumerate(couples.items(), 2)
    )


def to_rows(pairs: Sequence[Pair]) -> list[list[str]]:
    """The names of the columns, and a row a pair; of the further columns, those that a pair has."""
    rows = [
        [*COLUMNS, TARGET, *SLOTS],
        *(
            [one.clean, one.corrupted, one.answer, one.other, one.target, *(one.words or ("", ""))]
            for one in pairs
        ),
    ]
    used = [
        at for at, name in enumerate(rows[0]) if name in COLUMNS or any(row[at] for row in rows[1:])
    ]
    return [[row[at] for at in used] for row in rows]


def to_csv(pairs: Sequence[Pair]) -> str:
    """The pairs as the text that `read_pairs` reads."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(to_rows(pairs))
    return out.getvalue()


OWN = {  # the texts with which the page opens, for the lab's models that know names
    "writer": (
        "When [A] and [B] went to the shop, [B] gave a book to",
        "When [A] and [B] went to the shop, [A] gave a book to",
        ("Mary", "Anna", "Emma", "Lucy"),
        ("John", "Tom", "Jack"),
    ),
    "names": (
        "when [A] and [B] went to the shop , [B] gave the book to",
        "when [A] and [B] went to the shop , [A] gave the book to",
        ("ann", "clara", "dora", "emma"),
        ("ben", "leo", "paul"),
    ),
}


@dataclass(frozen=True)
class PairsConfig(MeasurementConfig):
    """A model, its pairs as the text of a file ("": the lab's own for this model), and how they are measured.

    `quantity` is as in `Question`. With `positions`, each head is also patched in at one token at a time. ConfigError
    for what cannot be measured.
    """

    job = "pairs"
    model: str = f"{LAB}writer"
    data: str = ""
    ways: tuple[str, ...] = tuple(BY_KEY)
    quantity: PairQuantity = "difference"
    positions: bool = False

    def __post_init__(self) -> None:
        check_types(self)
        check_ways(self.ways)
        own = OWN.get(self.model.removeprefix(LAB))
        refuse_if(
            not self.data and own is None,
            f"The lab has no pairs for {self.model}; give some of your own, or take {' or '.join(OWN)}.",
        )
        if not self.data and own:
            object.__setattr__(self, "data", to_csv(pairs_of_template(*own)))

    @property
    def pairs(self) -> tuple[Pair, ...]:
        return read_pairs(reading.read(self.data))

    def prepare(self, folder: Path) -> dict[str, Any]:
        return {"count": len(self.pairs)}


def check_ways(ways: Sequence[str]) -> None:
    """ConfigError for ways that there are not, or none."""
    refuse_if(
        not ways or not {*ways} <= {*BY_KEY}, f"ways = {quote(list(ways))}", ways=tuple(BY_KEY)
    )


@dataclass(frozen=True, eq=False)
class PairEffects:
    """What each pair's answer loses without what a head knows: `effects` (N, H) by way, in the unit of the measure.

    `heads` (H,) are in the order of the model, with `names` such as L0·H1. `clean` and `corrupted` (N,) are the value of
    the whole model on both texts. `positions` (N, H, T) are what patching a head in at one token gains, None where that
    was not measured or the pairs differ in their number of tokens; `tokens` are named where all pairs have the same.
    `refused` says of each row that was not measured why, and what would fit.
    """

    heads: tuple[HeadKey, ...]
    names: tuple[str, ...]
    pairs: tuple[Pair, ...]
    clean: Float[np.ndarray, " N"]
    corrupted: Float[np.ndarray, " N"]
    effects: dict[str, Float[np.ndarray, "N H"]]
    positions: Float[np.ndarray, "N H T"] | None
    tokens: tuple[str, ...]
    refused: tuple[str, ...]

    def mean(self, way: str) -> Float[np.ndarray, " H"]:
        """The mean effect of each head over the pairs."""
        return self.effects[way].mean(0)

    def half(self, way: str) -> Float[np.ndarray, " H"]:
        """Half of the 95 % interval of that mean; nan of a single pair."""
        return self.half_of(self.effects[way])

    def half_of(self, values: Float[np.ndarray, "N ..."]) -> Float[np.ndarray, "..."]:
        """Half of the 95 % interval of a mean over the pairs, by the words of their template where all have some."""
        words = [pair.words for pair in self.pairs]
        return half_interval(values, [*zip(*words, strict=True)] if all(words) else ())


def check_model(pretrained: Pretrained) -> None:
    """PretrainedError for a model whose answer to a text is no token or class."""
    reject_if(
        pretrained.head == "none" or not pretrained.reads_text,
        f"{pretrained.name} answers no text with one token or class, so no answer can be compared with another. Take "
        "a model that continues a text, such as the writer, fills a mask, classifies, or writes a text of its own.",
    )


def baselines(
    pretrained: Pretrained, pair: Pair, quantity: PairQuantity = "difference", equal: bool = True
) -> tuple[Baseline, Baseline]:
    """Both texts with what is measured of them. PretrainedError says what is wrong with the pair and what would fit.

    An encoder–decoder answers after the pair's target; without one, with the first token that it writes.
    """
    empty = [name for name in COLUMNS if not getattr(pair, name)]
    reject_if(empty, f"{' and '.join(empty)} {'is' if len(empty) == 1 else 'are'} empty.")
    writes = pretrained.head == "seq2seq"
    reject_if(
        pair.target and not writes,
        f"target is what an encoder–decoder has written before the answer; {pretrained.name} is none. Leave it out.",
    )
    position = 0 if writes and not pair.target else None
    first = ask(pretrained, Question(pair.inputs[0], position))
    output, contrast = (
        output_id(pretrained, first.answer, one) for one in (pair.answer, pair.other)
    )
    reject_if(output == contrast, f"answer and other are the same, {quote(pair.answer)}.")
    clean, corrupted = (
        ask(
            pretrained,
            Question(
                one,
                position,
                output=output,
                quantity=quantity,
                contrast=contrast if quantity == "difference" else None,
            ),
        )
        for one in pair.inputs
    )
    lengths = len(clean.source), len(corrupted.source)
    reject_if(
        equal and lengths[0] != lengths[1],
        f"the texts have {lengths[0]} and {lengths[1]} tokens. What a head writes at a token is put into the "
        "same token of the other text: write texts of equal length.",
    )
    return clean, corrupted


def position_effects(
    clean: Baseline, corrupted: Baseline, heads: Sequence[HeadKey]
) -> Float[np.ndarray, "H T"]:
    """What the corrupted text's answer gains when one head writes, at one token alone, what it writes on the clean one."""
    theirs, own = (
        {key: call.replaceable[0] for key, call in outputs_of(one.pretrained, one.batch).items()}
        for one in (clean, corrupted)
    )
    before = float(clean.target_value(corrupted.answer))
    effects = np.zeros((len(heads), len(clean.source)))
    for key, values in own.items():  # a layer at a time: each change holds all tokens of it
        mixed = [values.clone() for _ in range(effects.shape[1])]
        for token, out in enumerate(mixed):
            out[token] = theirs[key][token]
        changes = [  # before the texts differ a causal head writes the same, and has no effect there
            (row, token, (0, *key, head, mixed[token]))
            for row, (kind, layer, head) in enumerate(heads)
            if (kind, layer) == key
            for token in range(effects.shape[1])
            if not torch.equal(theirs[key][token, head], values[token, head])
        ]
        after = rerun_rows(corrupted, [change for *_, change in changes], clean)
        for (row, token, _), value in zip(changes, after, strict=True):
            effects[row, token] = value - before
    return effects


Line = dict[str, Any]  # what was measured of one pair, as JSON


def each_pair(
    pretrained: Pretrained,
    pairs: Sequence[Pair],
    ways: Sequence[str],
    quantity: PairQuantity,
    positions: bool,
    done: Sequence[int] = (),
) -> tuple[Line, Iterator[Line]]:
    """The heads with the rows that are refused; and, one by one, what is measured of the pairs whose lines are not done.

    The means of the way "mean" are those over the tokens of both texts of all pairs.
    """
    check_model(pretrained)
    positions = positions and pretrained.head != "seq2seq"  # whose heads are at tokens of two texts
    equal = positions or any(BY_KEY[way].needs == "a second text" for way in ways)
    fitting, refused = list[Pair](), list[str]()
    for row, pair in enumerate(pairs, 1):
        try:
            clean, _ = baselines(pretrained, pair, quantity, equal)
            fitting.append(pair)
        except PretrainedError as error:
            refused.append(f"{f'Row {pair.line}' if pair.line else f'Pair {row}'}: {error}")
    reject_if(not fitting, f"No pair can be measured. {' '.join(refused[:3])}")
    calls = outputs_of(pretrained, clean.batch)
    heads = [
        (*key, head) for key, call in calls.items() for head in range(call.replaceable.shape[2])
    ]
    layers = layer_names(numbers_by_layer(pretrained.model, list(calls.values())))
    texts = [one for pair in fitting for one in pair.inputs]
    means = mean_outputs(pretrained, texts) if "mean" in ways else None

    def lines() -> Iterator[Line]:
        for pair in fitting:
            if pair.line in done:
                continue
            clean, corrupted = baselines(pretrained, pair, quantity, equal)
            effects = {
                way: list(head_effects(clean, way, heads, means=means, other=corrupted).values())
                for way in ways
            }
            at_tokens = None
            if positions:
                at_tokens = position_effects(clean, corrupted, heads).round(6).tolist()
            yield {
                "pair": asdict(pair),
                "values": [clean.value, float(clean.target_value(corrupted.answer))],
                "effects": effects,
                "positions": at_tokens,
                "tokens": clean.source.tokens,
            }

    return {
        "heads": heads,
        "names": [f"{layers[kind, layer]}·H{head}" for kind, layer, head in heads],
        "refused": refused,
    }, lines()


def join(facts: Line, lines: Sequence[Line]) -> PairEffects:
    """The pairs together, in the order of their lines."""
    lines = sorted(lines, key=lambda one: one["pair"]["line"])
    tokens = [one["tokens"] for one in lines]
    aligned = len({*map(len, tokens)}) == 1 and lines[0]["positions"] is not None
    clean, corrupted = np.array([one["values"] for one in lines]).reshape(-1, 2).T
    return PairEffects(
        tuple(tuple(head) for head in facts["heads"]),
        tuple(facts["names"]),
        tuple(Pair(**one["pair"]) for one in lines),
        clean,
        corrupted,
        {way: np.array([one["effects"][way] for one in lines]) for way in lines[0]["effects"]},
        np.array([one["positions"] for one in lines]) if aligned else None,
        tuple(one[0] if len({*one}) == 1 else f"{one[0]} …" for one in zip(*tokens, strict=True))
        if aligned
        else (),
        tuple(facts["refused"]),
    )


def measure_pairs(
    pretrained: Pretrained,
    pairs: Sequence[Pair],
    ways: Sequence[str] = tuple(BY_KEY),
    quantity: PairQuantity = "difference",
    positions: bool = False,
) -> PairEffects:
    """Every head of a model by each of these ways on all pairs. A row that cannot be measured is one of the `refused`;
    PretrainedError where none can, ConfigError for ways that do not fit."""
    check_ways(ways)
    facts, lines = each_pair(pretrained, pairs, ways, quantity, positions)
    return join(facts, list(lines))


# A measurement as a run: the folder that a worker fills.


SAVED = Path(__file__).parents[1] / "studies" / "data" / "pairs"  # made by `make pairs`
LINES = "pairs.jsonl"


@dataclass(frozen=True, eq=False)
class Measurement(AnyMeasurement):
    """A measurement of pairs, with those so far (None before the first)."""

    config: PairsConfig
    effects: PairEffects | None

    @property
    def done(self) -> int:
        return 0 if self.effects is None else len(self.effects.pairs)


def load_lines(run: Run) -> list[Line]:
    """What was measured of each pair so far; a line that is not whole, or was damaged, is measured again."""
    return [one for _, one in read_lines(run.path / LINES, lambda line: line) if one is not None]


def read_measurement(run: Run) -> Measurement:
    """A measurement as its worker left it; ConfigError for a folder without one."""
    status, lines, data, config = run.status(), load_lines(run), run.metadata(), PairsConfig.of(run)
    effects = join(data["facts"], lines) if lines and "facts" in data else None
    if effects is not None:
        written = {pair.line: pair for pair in config.pairs}
        effects = replace(effects, pairs=tuple(written[one.line] for one in effects.pairs))
    return Measurement(run, config, status, int(data.get("count", 0)), effects)


def work(
    run: Run, stop: Callable[[], bool], on_pair: Callable[[Line], object] = lambda line: None
) -> tuple[str, str]:
    """Measure the pairs that are left; returns the final state and its message."""
    config = PairsConfig.of(run)
    done = [one["pair"]["line"] for one in load_lines(run)]
    pretrained = load_folder(folder_of(config.model), name_of(config.model))
    facts, lines = each_pair(
        pretrained, config.pairs, config.ways, config.quantity, config.positions, done
    )
    count = len(config.pairs) - len(facts["refused"])
    run.update_metadata(facts=facts, count=count)
    for line in lines:
        run.require()
        append_line(run.path / LINES, with_checksum(json.dumps(line, ensure_ascii=False)))
        done.append(line["pair"]["line"])
        on_pair(line)
        if len(done) < count and stop():
            return "stopped", f"Stopped after {len(done):,} of {count:,} pairs, which are saved."
    refused = len(facts["refused"])
    return "finished", f"Measured {len(done):,} pairs." + (
        f" {refused:,} more could not be measured." if refused else ""
    )


app = command_line.new_app(__doc__)


@app.command()
def pairs(
    file: Annotated[
        Path | None, typer.Argument(help="clean, corrupted, answer, other; the lab's own without")
    ] = None,
    model: Annotated[
        str, typer.Option(help="a model of the lab, a folder, or a hub name")
    ] = "writer",
    ways: Annotated[list[str], typer.Option(help=f"of {' '.join(BY_KEY)}")] = list(BY_KEY),  # noqa: B006
    quantity: Annotated[
        str, typer.Option(help=f"what is measured: {', '.join(get_args(PairQuantity))}")
    ] = "difference",
    positions: Annotated[
        bool, typer.Option("--positions", help="patch each head in at one token at a time, too")
    ] = False,
    folder: Annotated[
        Path | None, typer.Option(help="of the measurement; one that is there goes on")
    ] = None,
) -> None:
    """Measure every head of a model on contrast pairs, as means over pairs with their 95 % intervals."""
    torch.set_num_threads(1)
    data = "" if file is None else reading.decode_text(file.read_bytes())
    config = PairsConfig(resolve(model), data, tuple(ways), quantity, positions)  # type: ignore[arg-type]
    run = Run(folder) if folder and (folder / "run.json").is_file() else config.create(folder)
    refuse_if(
        not config.fits(run),
        f"{run.path} is a measurement of other pairs, or by other ways; name another folder",
    )
    if run.status().ended:
        run.requeue()
    state = work_on(run.path)
    if (effects := read_measurement(run).effects) is not None:
        for row in effects.refused:
            print(row)
        print(to_table(effects))
    raise typer.Exit(0 if state == "finished" else 1)


def to_table(effects: PairEffects) -> str:
    """The mean effect of every head by each way with half of its 95 % interval, as CSV; the largest first."""
    out = io.StringIO()
    ways = list(effects.effects)
    columns = [column for way in ways for column in (way, f"{way} ±")]
    values = [one for way in ways for one in (effects.mean(way), effects.half(way))]
    order = np.argsort(-np.abs(values[0]), kind="stable")
    csv.writer(out, lineterminator="\n").writerows(
        [
            ["head", "pairs", *columns],
            *(
                [effects.names[at], len(effects.pairs), *(f"{one[at]:.4f}" for one in values)]
                for at in order
            ),
        ]
    )
    return out.getvalue()
