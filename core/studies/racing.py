"""Benchmarks in a thread beside the page, one at a time for all sessions, ended when the page is left."""

import os
import platform
import threading
import time
from collections.abc import Callable, Mapping, Sequence

import torch

from core.attention import AttentionConfig
from core.attention.cost import CPU, CUDA, Limits, Measurement, race

ONE_AT_A_TIME = threading.Lock()  # two races would measure each other
LEFT = 20.0  # seconds after the page's last poll until the race ends


def machine(device: str = CPU, threads: int | None = None) -> str:
    """Device, threads and PyTorch's version; `threads` are those of this process unless given."""
    if device == CUDA:
        return f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}"
    threads = threads or torch.get_num_threads()
    return (
        f"{os.cpu_count()} CPU cores, {threads} {'thread' if threads == 1 else 'threads'}, PyTorch "
        f"{torch.__version__.partition('+')[0]}, {platform.system()} {platform.machine()}"
    )


class Race:
    """Benchmark mechanisms over lengths in a thread: a page polls its fraction, points, and error."""

    def __init__(
        self,
        configs: Mapping[str, AttentionConfig],
        lengths: Sequence[int],
        *,
        rounds: int,
        limits: Limits,
        backward: bool = False,
        device: str = CPU,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.configs, self.lengths, self.rounds, self.limits = configs, lengths, rounds, limits
        self.backward, self.device, self.clock = backward, device, clock
        self.fraction, self.error = 0.0, ""
        self.points: list[Measurement] = []
        self.waiting = self.alive = True
        self._stop, self._last_poll = threading.Event(), time.monotonic()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def poll(self) -> None:
        """Say that the page is still there."""
        self._last_poll = time.monotonic()

    def stop(self) -> None:
        """End after the call that is being measured."""
        self._stop.set()

    def wait(self, seconds: float) -> None:
        """Wait at most so long for the end."""
        self._thread.join(seconds)

    def _ended(self) -> bool:
        return self._stop.is_set() or time.monotonic() - self._last_poll > LEFT

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
        except Exception as error:  # the thread's end; the page shows it
            self.error = str(error)
        finally:
            self.alive = False

    def _measure(self) -> None:
        for progress in race(
            self.configs,
            self.lengths,
            backward=self.backward,
            rounds=self.rounds,
            limits=self.limits,
            clock=self.clock,
            device=self.device,
        ):
            self.fraction = progress.fraction
            self.points += progress.points
            if self._ended():
                return
