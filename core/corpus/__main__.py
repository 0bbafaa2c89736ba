"""Measure a corpus from a shell: `python -m core.corpus FOLDER`, by default MiniLM on the lab's sentences."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import get_args

import torch

from core.corpus.config import DEFAULT_TEXTS, KINDS, CorpusConfig, Source, Split
from core.corpus.run import create
from core.entries import ConfigError
from core.finetune.config import MINILM
from core.finetune.models import resolve
from core.pretrained.base import PretrainedError
from core.tasks.reading import decode_text
from core.training.worker import work


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m core.corpus", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", default=MINILM, help="minilm, a model of the lab, a folder, or a hub name")
    parser.add_argument("--source", choices=get_args(Source), default="own")
    parser.add_argument("--data", type=Path, help="a text file, for --source texts")
    parser.add_argument("--split", choices=get_args(Split), default="lines")
    parser.add_argument("--kind", choices=KINDS, default="self", help="attention of an encoder, or of a decoder")
    parser.add_argument("--count", type=int, default=DEFAULT_TEXTS)
    parser.add_argument("--ablation", action="store_true", help="switch every head off on every text, too")
    values = vars(parser.parse_args())
    folder, data = values.pop("folder"), values.pop("data")
    torch.set_num_threads(1)
    try:
        values["model"] = resolve(values["model"])
        create(CorpusConfig(data=decode_text(data.read_bytes()) if data else "", **values), folder)
    except (ConfigError, PretrainedError, OSError) as error:
        parser.error(str(error))
    return 0 if work(folder) == "finished" else 1


if __name__ == "__main__":
    sys.exit(main())
