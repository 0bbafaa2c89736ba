"""The way from an ended run of Train to the example run beside it."""

from core.runs.runs import Run, create_run
from core.tasks import TaskConfig
from core.training import Record
from tests.pages.app import open_at
from tests.training.small import small_run


def ended(**changes) -> Run:
    run = create_run(small_run(**changes))
    run.append(Record(2, loss=1.0, sequence_accuracy=0.5, held_out=11))
    run.set_status("finished")
    return run


def links(**link: str) -> list[str]:
    return [
        part.proto.query_string
        for part in open_at("train", **link).get("page_link")
        if part.proto.label == "Compare with the example run"
    ]


def test_an_ended_run_of_the_same_task_leads_to_the_example_beside_it():
    run = ended()
    (query,) = links(run=run.id)
    assert "example_run" in query and run.id in query
    assert not links() and not links(run=ended(task=TaskConfig.of("copy")).id)
