"""Many small cases in one test: each of hundreds would cost more as a test of its own than it takes."""

import inspect
import json
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch

from core import memory

T = TypeVar("T")


def instance(value: object, type_: type[T]) -> T:
    """A value whose type the test knows."""
    assert isinstance(value, type_)
    return value


PATIENCE = 600.0  # seconds in which nothing moves, after which a test gives up


def wait_for(what: Callable[[], Any], progress: Callable[[], Any] = lambda: None) -> Any:
    """The answer once it is true, for as long as it, or the progress towards it, moves now and then."""
    before, end = None, 0.0
    while not (answer := what()):
        if (now := (answer, progress())) != before:
            before, end = now, time.monotonic() + PATIENCE
        assert time.monotonic() < end, f"nothing moved for {PATIENCE:.0f} s; last: {before}"
        time.sleep(0.02)
    return answer


def memory_is(monkeypatch: pytest.MonkeyPatch, free: float) -> None:
    """So many bytes are free for more work; the smallest is looked at, too, and no cache makes room."""
    monkeypatch.setattr(memory, "UNASKED", 0)
    monkeypatch.setattr(memory, "free_bytes", lambda: memory.RESERVE + free)
    monkeypatch.setattr(memory, "_caches", set())


def snapshot(path: Path, now: Any) -> Any:
    """What a file holds, which `make generated` makes what is there now."""
    if os.environ.get("UPDATE_SNAPSHOTS"):
        path.write_text(json.dumps(now, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return json.loads(path.read_text("utf-8"))


def descend(
    optimizer: torch.optim.Optimizer,
    loss: Callable[[], torch.Tensor],
    steps: int,
    enough: float = 0.0,
    clip: float = 1.0,
) -> float:
    """Take steps with the gradient of a fresh loss each, until it is below `enough`; the last loss."""
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    value = torch.tensor(torch.inf)
    for _ in range(steps):
        value = loss()
        if value < enough:
            break
        optimizer.zero_grad()
        value.backward()
        torch.nn.utils.clip_grad_norm_(weights, clip)
        optimizer.step()
    return value.item()


def each(names: str | tuple[str, ...], cases: Iterable) -> Callable:
    """As `pytest.mark.parametrize`, but inside one test: every case runs, and a failure names its cases.

    Where plug-ins are loaded, each case is a test of its own, so that `pytest -k KEY` runs those of one plug-in.
    """
    names = (
        tuple(name.strip() for name in names.split(",")) if isinstance(names, str) else tuple(names)
    )
    cases = [case if len(names) > 1 else (case,) for case in cases]
    if os.environ.get("ATTENTION_LAB_PLUGINS"):
        return pytest.mark.parametrize(
            names,
            cases,
            ids=["-".join(str(getattr(value, "key", value)) for value in case) for case in cases],
        )

    def decorate(test: Callable) -> Callable:
        def run(**fixtures):
            failures = []
            for case in cases:
                torch.default_generator.manual_seed(86)
                values = dict(zip(names, case, strict=True))
                try:
                    test(**fixtures, **values)
                except pytest.skip.Exception:
                    continue
                except Exception as error:
                    error.add_note(
                        "case: "
                        + ", ".join(f"{k} = {getattr(v, 'key', v)!r}" for k, v in values.items())
                    )
                    failures.append(error)
            if failures:
                raise ExceptionGroup(
                    f"{test.__name__}: {len(failures)} of {len(cases)} cases", failures
                )

        signature = inspect.signature(test)
        run.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[p for name, p in signature.parameters.items() if name not in names]
        )
        run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
        run.pytestmark = getattr(test, "pytestmark", [])  # type: ignore[attr-defined]
        return run

    return decorate
