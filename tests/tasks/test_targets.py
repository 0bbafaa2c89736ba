"""The table of targets: every kind of model of every task made here has one, and a miss is told as a miss."""

from dataclasses import replace

from benchmarks.tasks import TARGETS, Figures, Row, Target, figures
from core.tasks import TaskConfig, make_task
from core.training import Record
from tests.cases import each

GOOD = Figures(steps=200, seconds=4.0, exact=99.5, bleu=float("nan"), mass=0.93, even=0.1, data=3.0)


def test_every_recipe_of_a_sequence_or_translation_has_a_target():
    targets = {(target.task, target.model) for target in TARGETS if not target.card}
    assert len({(target.task, target.model, target.card) for target in TARGETS}) == len(TARGETS)
    for key in (
        "copy",
        "reverse",
        "sort",
        "recall",
        "induction",
        "addition",
        "dates",
        "numbers",
        "language",
    ):
        assert {(key, kind) for kind in make_task(TaskConfig.of(key)).recommended} <= targets


@each(
    ("missed", "met"),
    [({}, True), ({"exact": 98.9}, False), ({"mass": 0.89}, False), ({"seconds": 10.1}, False)],
)
def test_all_parts_of_a_target_must_be_met(missed, met):
    row = Row(Target("recall", "decoder", 10, mass=0.9), [replace(GOOD, **missed)])
    assert row.markdown().endswith("| yes |" if met else "| no |")


def test_a_target_in_bleu_asks_no_exact_match_and_several_seeds_tell_their_spread():
    result = [replace(GOOD, exact=60.0, bleu=96.0), replace(GOOD, exact=70.0, bleu=98.0)]
    row = Row(Target("numbers", "recurrent", 10, bleu=96.5), result)
    assert row.markdown() == (
        "| numbers | recurrent | 200 ± 0 | 4.0 ± 0.0 | 65.0 ± 7.1 | 97.0 ± 1.4 | 0.93 ± 0.00 | "
        "0.10 ± 0.00 | 3.0 ± 0.0 | BLEU ≥ 96.5, ≤ 10 s | yes |"
    )


def test_what_a_record_does_not_say_is_a_dash():
    row = Row(
        Target("language", "classifier", 10), [figures(Record(step=3, sequence_accuracy=1.0), 2.0)]
    )
    assert (
        row.markdown()
        == "| language | classifier | 3 | 2.0 | 100.0 | – | – | – | – | exact ≥ 99, ≤ 10 s | yes |"
    )
