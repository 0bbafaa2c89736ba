"""From a model's name to a model that can be loaded: hub models are looked up, checked for size and downloaded."""

from __future__ import annotations

import threading
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import streamlit as st

from core.files import hosted, sentence_of, without_paths
from core.pretrained import PretrainedError, hub, hub as model_storage
from core.pretrained.hub import COMMIT, DownloadPlan, DownloadStopped, download, format_bytes
from core.settings import settings
from dashboard.draw.formats import plain
from dashboard.server.limits import at_most
from dashboard.server.visitors import me
from dashboard.ui.model_folders import folder_name, folder_of, is_open
from dashboard.widgets.model_picker.allowed import hub_examples, is_allowed, refuse_model
from dashboard.widgets.model_picker.models import EMBEDDED, MODEL, PICKED, ModelRef, parse_model

MOST = 2
_lock = threading.Lock()
_downloads: dict[str, Download] = {}

TYPED, LOOKUP, BEFORE = "inside:typed", "inside:looked", "inside:before"
FOLDER_LIMIT = 1_600_000_000


def select_model(name: str) -> None:
    """Select this model from the next run on; for callbacks."""
    st.session_state[MODEL], st.session_state[PICKED] = name, True


def on_model_change() -> None:
    """Keep the user's choice on every page."""
    st.session_state[PICKED] = True
    if typed := st.session_state.get(MODEL):
        st.session_state[MODEL] = _full_name(st.session_state.get(BEFORE, ""), typed)


def _full_name(before: str, typed: str) -> str:
    """What was typed, with the previous name that the field drops from its beginning."""
    if typed[0] in "@-":  # no name starts with these
        return before + typed
    longer = (
        typed[0] == "/"
        and folders_allowed()
        and not Path(typed).is_dir()
        and Path(before + typed).is_dir()
    )
    return before + typed if longer else typed


def resolve_model(name: str) -> ModelRef | None:
    """The model of that name if it is on this computer; None after drawing the next step (download, progress, error).

    PretrainedError when the name is invalid, or the folder may not be opened.
    """
    ref = parse_model(name)
    if ref.source == "folder":
        return _folder(ref)
    return _hub(ref) if ref.source == "hub" else ref


def other_panel(container: Any) -> None:
    """A text field for any model of the hub, or a folder where folders are allowed."""
    folders = ", or the path of a folder" if folders_allowed() else ""
    container.text_input(
        f"Name on the hub{folders}",
        key=TYPED,
        placeholder="owner/name",
        on_change=_typed,
        help="The name in the address of the model's page on huggingface.co.",
    )
    st.caption(
        f"{plain(hub_examples())}. The lab looks the model up and shows "
        f"its size before it downloads anything: at most {format_bytes(hub.most_bytes())}, only safetensors "
        "files. It runs no code from the hub."
    )


def _typed() -> None:
    if (st.session_state.get(TYPED) or "").strip():
        select_model(st.session_state.pop(TYPED).strip())


def folders_allowed() -> bool:
    """Whether a visitor may open folders: by ATTENTION_LAB_FOLDERS (1, 0), else only from the same computer."""
    if hosted():
        return False
    setting = settings().folders or secret("ATTENTION_LAB_FOLDERS")
    if setting:
        return str(setting).lower() not in ("0", "false", "no")
    passed_on = {"X-Forwarded-For", "Forwarded", "X-Real-Ip"} & set(st.context.headers)
    return not passed_on and loopback(st.context.ip_address)


def loopback(address: object) -> bool:
    """Whether a browser's address is this computer's own; None counts as its own."""
    try:
        ip = ip_address(str(address or "127.0.0.1"))
    except ValueError:
        return False
    return bool((getattr(ip, "ipv4_mapped", None) or ip).is_loopback)


def secret(name: str) -> str | None:
    """A line of Streamlit's secrets, or None."""
    try:
        return str(st.secrets[name]) or None
    except (FileNotFoundError, KeyError):
        return None


def _folder(ref: ModelRef) -> ModelRef:
    if not folders_allowed() and not is_open(ref.name):
        raise PretrainedError(
            "Folders of this computer are not open to visitors. Name a model of the hub, or run the "
            "lab on your own computer."
        )
    folder = model_storage.check_folder(str(folder_of(ref.name)), FOLDER_LIMIT)
    newest = max(path.stat().st_mtime_ns for path in folder.iterdir())
    return ModelRef("folder", folder_name(folder), str(newest))


def _hub(ref: ModelRef) -> ModelRef | None:
    refuse_model(ref.name, ref.revision)
    commits = model_storage.downloaded_commits(ref.name)
    if COMMIT.fullmatch(ref.revision) and ref.revision in commits:
        return ref
    if commits and not ref.revision:
        return ModelRef("hub", ref.name, commits[0])
    on_way = find(ref.name)
    if on_way is not None and not on_way.ended:
        _poll_download(ref.name)
        return None
    if on_way is not None and on_way.error:
        _failed(ref, on_way.error)
        return None
    plan = _look_up(ref)
    if isinstance(plan, DownloadPlan) and plan.is_downloaded:
        return ModelRef("hub", plan.repo, plan.commit)
    if isinstance(plan, DownloadPlan):
        _offer(plan)
    else:
        _failed(ref, plan)
    return None


def _look_up(ref: ModelRef) -> DownloadPlan | str:
    """The download plan or its error; the hub is asked once for each name."""
    lookup = st.session_state.get(LOOKUP)
    if lookup is None or lookup[0] != ref:
        with st.spinner(f"Looking up {ref.name} on the hub"):
            try:
                lookup = ref, hub.plan(ref.name, ref.revision or "main", token=secret("HF_TOKEN"))
            except PretrainedError as error:
                lookup = ref, str(error)
        st.session_state[LOOKUP] = lookup
    plan: DownloadPlan | str = lookup[1]
    return plan


def _offer(plan: DownloadPlan) -> None:
    text, button = st.columns([3, 1], vertical_alignment="center")
    text.markdown(
        f"**{plain(plan.repo)}** is a {plain(plan.family)} model: {format_bytes(plan.size)} to download in "
        f"{len(plan.files)} files, {format_bytes(plan.memory)} in memory, pinned to commit "
        f"{plan.commit[:7]}."
    )
    button.button(
        f"Load {format_bytes(plan.size)}",
        type="primary",
        icon=":material/download:",
        width="stretch",
        on_click=_start_download,
        args=(plan,),
    )


def _start_download(plan: DownloadPlan) -> None:
    try:
        refuse_model(plan.repo, "")
        model_storage.make_room(plan.size)
        start(plan, secret("HF_TOKEN"))
        select_model(f"{plan.repo}@{plan.commit}")
    except PretrainedError as error:
        st.session_state[LOOKUP] = parse_model(st.session_state[MODEL]), str(error)


@st.fragment(run_every=0.5)
def _poll_download(repo: str) -> None:
    on_way = find(repo)
    if on_way is None or on_way.ended:
        st.rerun()
    size = on_way.plan.size
    bar, button = st.columns([4, 1], vertical_alignment="center")
    bar.progress(
        min(on_way.done / size, 1.0) if size else 1.0,
        f"Downloading {plain(repo)}: {format_bytes(on_way.done)} of {format_bytes(size)}",
    )
    if on_way.person == me():
        button.button(
            "Stop", icon=":material/stop:", width="stretch", key="inside:stop", on_click=on_way.stop
        )


def _failed(ref: ModelRef, why: str) -> None:
    st.error(plain(without_paths(why)), icon=":material/error:")
    with st.container(horizontal=True):
        st.button(
            "Try again",
            icon=":material/refresh:",
            key="inside:again",
            on_click=_again,
            args=(ref.name,),
        )
        st.button(
            f"Use {EMBEDDED.name}",
            key="inside:use-embedded",
            on_click=select_model,
            args=(EMBEDDED.name,),
        )


def _again(repo: str) -> None:
    forget(repo)
    st.session_state.pop(LOOKUP, None)


def downloaded_models() -> list[str]:
    """The hub models on this computer, as the picker writes them."""
    folders = sorted(
        path for path in model_storage.storage_folder().glob("*/*") if COMMIT.fullmatch(path.name)
    )
    return [
        f"{repo}@{path.name}"
        for path in map(Path, folders)
        if is_allowed(repo := model_storage.repo_of(path))
    ]


# Downloads that outlive the page that started them: one thread a model, shared by all sessions.


class Download:
    """A running download for `person`: `done` bytes of `plan.size`; once it has `ended`, `error` is why it failed."""

    def __init__(self, plan: DownloadPlan, token: str | None) -> None:
        self.plan, self.done, self.person = plan, 0, me()
        self.error: str | None = None
        self.ended = False
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(token,), name=f"download {plan.repo}", daemon=True
        )
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
        except (
            Exception
        ) as error:  # whatever the disk or the network did must end in words, not in a thread
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
            raise PretrainedError(
                f"{names} {'is' if len(running) == 1 else 'are'} being downloaded; wait for its end."
                if hosted()
                else f"{names} are being downloaded; wait for one of them, or stop it."
            )
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
