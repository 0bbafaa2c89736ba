"""A race beside the page: a thread of its own, one at a time for all sessions, which stops when told or left."""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Callable

import torch

from core.benchmark import CUDA, Measured, race
from dashboard.views.efficient.state import ROUNDS, Asked, Result, lengths, limits

ONE_AT_A_TIME = threading.Lock()  # two races would measure each other
LEFT = 20.0  # seconds without a look from the page after which nobody waits any more


def machine(device: str) -> str:
    """Where and how it was measured."""
    if device == CUDA:
        return f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}"
    threads = torch.get_num_threads()
    return (f"{os.cpu_count()} CPU cores, {threads} {'thread' if threads == 1 else 'threads'}, PyTorch "
            f"{torch.__version__.partition('+')[0]}, {platform.system()} {platform.machine()}")


class Race:
    """What a page follows: how far it is, what has been measured, and why it ended early."""

    def __init__(self, asked: Asked, clock: Callable[[], float] = time.perf_counter) -> None:
        self.asked, self.clock, self.fraction, self.error = asked, clock, 0.0, ""
        self.points: list[Measured] = []
        self.waiting = self.alive = True
        self._told, self._seen = threading.Event(), time.monotonic()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def look(self) -> None:
        """The page is still there."""
        self._seen = time.monotonic()

    def stop(self) -> None:
        """End after the call that is being measured."""
        self._told.set()

    def wait(self, seconds: float) -> None:
        self._thread.join(seconds)

    def result(self) -> Result:
        return Result(self.asked, tuple(self.points), machine(self.asked.device))

    def _ended(self) -> bool:
        return self._told.is_set() or time.monotonic() - self._seen > LEFT

    def _run(self) -> None:
        try:
            while not ONE_AT_A_TIME.acquire(timeout=0.1):
                if self._ended():
                    return
            try:
                self.waiting = False
                self._measure()
            finally:
                ONE_AT_A_TIME.release()
        except Exception as error:  # the thread's end, which the page must be able to say
            self.error = str(error)
        finally:
            self.alive = False

    def _measure(self) -> None:
        configs, _ = self.asked.configs()
        for progress in race(configs, lengths(self.asked.longest), backward=self.asked.backward, rounds=ROUNDS,
                             limits=limits(self.asked.device), clock=self.clock, device=self.asked.device):
            self.fraction = progress.fraction
            self.points += progress.points
            if self._ended():
                return
