"""Downloads that outlive the page that started them: one thread a model, shared by all sessions."""

from __future__ import annotations

import threading
from pathlib import Path

from core.files import hosted, sentence_of
from core.pretrained import PretrainedError
from core.pretrained.hub import DownloadPlan, DownloadStopped, download
from dashboard.runtime.limits import at_most
from dashboard.runtime.person import me

MOST = 2
_lock = threading.Lock()
_downloads: dict[str, Download] = {}


class Download:
    """A running download for `person`: `done` bytes of `plan.size`; once it has `ended`, `error` is why it failed."""

    def __init__(self, plan: DownloadPlan, token: str | None) -> None:
        self.plan, self.done, self.person = plan, 0, me()
        self.error: str | None = None
        self.ended = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(token,), name=f"download {plan.repo}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop at the next bytes; the page need not wait for it."""
        self._stop.set()
        forget(self.plan.repo)

    def _run(self, token: str | None) -> None:
        try:
            download(self.plan, token=token, progress=self._progress, stopped=self._stop.is_set)
        except DownloadStopped:
            pass
        except PretrainedError as error:
            self.error = str(error)
        except Exception as error:  # whatever the disk or the network did must end in words, not in a thread
            from huggingface_hub.constants import HF_HUB_CACHE  # which the download has imported

            self.error = f"{self.plan.repo} cannot be downloaded: {sentence_of(error, folder=Path(HF_HUB_CACHE))}"
        finally:
            self.ended = True

    def _progress(self, done: int) -> None:
        self.done = done


def start(plan: DownloadPlan, token: str | None) -> Download:
    """The download of this model, started unless it is running; PretrainedError when too many run."""
    with _lock:
        running = [one for one in _downloads.values() if not one.ended]
        if plan.repo in _downloads and not _downloads[plan.repo].ended:
            return _downloads[plan.repo]
        if len(running) >= at_most("downloads", MOST):
            names = " and ".join(one.plan.repo for one in running)
            raise PretrainedError(f"{names} {'is' if len(running) == 1 else 'are'} being downloaded; wait for its end."
                                  if hosted() else f"{names} are being downloaded; wait for one of them, or stop it.")
        _downloads[plan.repo] = Download(plan, token)
        return _downloads[plan.repo]


def find(repo: str) -> Download | None:
    """The download of this model, running or failed."""
    with _lock:
        return _downloads.get(repo)


def forget(repo: str) -> None:
    """Remove the download of this model from the list."""
    with _lock:
        _downloads.pop(repo, None)
