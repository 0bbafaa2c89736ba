"""Measure a corpus from a shell: `attention-lab corpus FOLDER`, by default MiniLM on the lab's sentences."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import torch
import typer

from core import command_line
from core.command_line import Pairs, settings, text_of
from core.interpret.corpus import DEFAULT_TEXTS, CorpusConfig, Source, Split
from core.interpret.corpus_run import create
from core.pretrained.finetune import MINILM, resolve
from core.runs.worker import work

app = command_line.new_app(__doc__)


def main(arguments: Sequence[str] | None = None) -> int:
    return command_line.run(app, arguments)


@app.command()
def corpus(
    folder: Path,
    model: Annotated[
        str, typer.Option(help="minilm, a model of the lab, a folder, or a hub name")
    ] = MINILM,
    source: Source = "own",
    data: Annotated[Path | None, typer.Option(help="a text file, for --source texts")] = None,
    split: Split = "lines",
    kind: Annotated[
        str, typer.Option(help="attention of an encoder (self), or of a decoder (causal)")
    ] = "self",
    count: int = DEFAULT_TEXTS,
    ablation: Annotated[
        bool, typer.Option("--ablation", help="switch off every head on every text")
    ] = False,
    *,
    set: Pairs,
) -> None:
    """Measure every head of a model on a corpus; --set changes a setting, as count=50."""
    torch.set_num_threads(1)
    config = {
        "model": resolve(model),
        "source": source,
        "split": split,
        "kind": kind,
        "count": count,
        "ablation": ablation,
        **text_of(data),
        **settings(set),
    }
    create(CorpusConfig.from_json(config), folder)
    raise typer.Exit(0 if work(folder) == "finished" else 1)


if __name__ == "__main__":
    sys.exit(main())
