"""Export a run as a Hugging Face folder, which `transformers` opens: `attention-lab export RUN FOLDER`."""

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor

from core import command_line
from core.files import zip_of
from core.models import Model
from core.pretrained.hf_conversion import convert_to_hf
from core.pretrained.model_card import LICENSE, card_text
from core.runs.runs import Run, open_run
from core.tasks import Batch, Example, Task, Vocabulary
from core.tasks.base import SPECIALS

CLOSE = 1e-4  # most that logits may differ; sums taken in another order differ by about 1e-6
CHECK_EXAMPLES = 16


def export(run: Run, folder: Path, step: int | None = None, license: str = LICENSE) -> Path:
    """Write a run's model at a checkpoint (by default the one that counts): config, weights, tokenizer, model card.

    PretrainedError where no class of the library computes what the model does; ValueError without checkpoints.
    """
    step = run.default_step() if step is None else step
    model, task = run.model(step)
    vocabulary = Vocabulary(vocabulary_words(task))
    hf_model = convert_to_hf(model, task, vocabulary)
    if task.form == "pairs":  # the library's own default cuts at 20 tokens
        hf_model.generation_config.max_new_tokens = task.max_target + 1
    check_logits(model, hf_model, task, vocabulary)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = None
    if task.shape.input == "patches":
        write(folder / "preprocessor_config.json", image_processor_config(task))
    else:
        tokenizer = tokenizer_of(task, vocabulary, hf_model.config.max_position_embeddings)
        tokenizer.save_pretrained(folder)
    (folder / "README.md").write_text(
        card_text(run, step, task, hf_model, tokenizer, license), "utf-8"
    )
    hf_model.save_pretrained(folder)
    write(folder / "run.json", {"config": run.config().to_json(), "reached": final_metrics(run)})
    return folder


def export_zip(run: Run) -> bytes:
    """The folder of `export` as a zip; raises what that raises."""
    with tempfile.TemporaryDirectory() as folder:
        return zip_of(export(run, Path(folder) / run.id))


def vocabulary_words(task: Task) -> tuple[str, ...]:
    """The words of the source and of the target; none where a picture is read."""
    return (
        ()
        if task.shape.input == "patches"
        else (*task.source_vocab.tokens, *task.target_vocab.tokens)
    )


def check_logits(model: Model, hf_model: Any, task: Task, vocabulary: Vocabulary) -> float:
    """The largest difference of the two models' logits on held-out examples; RuntimeError above CLOSE."""
    held_out = task.held_out(CHECK_EXAMPLES)
    one_line = (
        not hf_model.config.is_encoder_decoder and task.form == "pairs"
    )  # one at a time: lines have no padding
    batches = [[example] for example in held_out] if one_line else [held_out]
    difference = max(_max_difference(model, hf_model, task, vocabulary, batch) for batch in batches)
    if not difference <= CLOSE:
        raise RuntimeError(
            f"{type(hf_model).__name__} differs from the model: logits by {difference:.2g}."
        )
    return difference


def _max_difference(
    model: Model, hf_model: Any, task: Task, vocabulary: Vocabulary, examples: Sequence[Example]
) -> float:
    batch = task.collate(examples)
    with torch.no_grad():
        own = model(batch.source, batch.source_mask, batch.target_in).logits
        their = hf_model(
            **hf_inputs(batch, task, vocabulary, hf_model.config.is_encoder_decoder)
        ).logits
    if task.form != "label":
        their, own = _on_words(their[:, -own.shape[1] :], own, batch, task, vocabulary)
    return float((their - own).abs().max())


def hf_inputs(
    batch: Batch, task: Task, vocabulary: Vocabulary, two: bool = True
) -> dict[str, Tensor]:
    """The Hugging Face model's inputs; without an encoder (`two` false) source and target form one line."""
    if task.shape.input == "patches":
        rows, columns = task.shape.grid
        side = int(task.shape.source**0.5)
        pixels = (
            batch.source.unflatten(1, (rows, columns))
            .unflatten(3, (side, side))
            .permute(0, 1, 3, 2, 4)
        )
        return {"pixel_values": pixels.reshape(len(batch.source), 1, rows * side, columns * side)}
    source = torch.tensor(vocabulary.encode(task.source_vocab.tokens))[batch.source]
    read = {"input_ids": source, "attention_mask": batch.source_mask.long()}
    if batch.target_in is None:
        return read
    target = torch.tensor(vocabulary.encode(task.target_vocab.tokens))[batch.target_in]
    return (
        read | {"decoder_input_ids": target}
        if two
        else {"input_ids": torch.cat((source, target), dim=1)}
    )


def _on_words(
    their: Tensor, own: Tensor, batch: Batch, task: Task, vocabulary: Vocabulary
) -> tuple[Tensor, Tensor]:
    """Both logits on the words that the model has, without padding."""
    real = batch.source_mask if batch.target_in is None else batch.target_out != 0
    return their[..., vocabulary.encode(task.target_vocab.tokens)][real], own[real]


def tokenizer_of(task: Task, vocabulary: Vocabulary, longest: int) -> Any:
    """A tokenizer of words or letters that splits a text as the task does."""
    from tokenizers import (
        Regex,
        Tokenizer,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
        processors,
    )
    from transformers import PreTrainedTokenizerFast

    pad, begin, end, unknown = SPECIALS
    tokenizer = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(vocabulary.tokens)}, unk_token=unknown)
    )
    changes: list[Any] = [normalizers.Strip()]
    if all(word == word.lower() for word in vocabulary.tokens):
        changes.append(normalizers.Lowercase())
    if task.separator:
        if "-" not in vocabulary.tokens:
            changes.append(normalizers.Replace("-", " "))
        parts = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()]
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(parts)  # type: ignore[assignment]
    else:
        changes.append(normalizers.Replace("\n", "↵"))
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")  # type: ignore[assignment]
        tokenizer.decoder = decoders.Fuse()  # type: ignore[assignment]
    tokenizer.normalizer = normalizers.Sequence(changes)  # type: ignore[assignment]
    if task.tokens("")[:1] == [begin]:
        tokenizer.post_processor = processors.TemplateProcessing(  # type: ignore[assignment]
            single=f"{begin} $A", special_tokens=[(begin, vocabulary.encode([begin])[0])]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=pad,
        bos_token=begin,
        eos_token=end,
        unk_token=unknown,
        model_max_length=longest,
        model_input_names=["input_ids", "attention_mask"],
    )


def image_processor_config(task: Task) -> dict[str, Any]:
    """The preprocessor file of a model that reads pixels from 0 (paper) to 1 (ink)."""
    rows, columns = task.shape.grid
    side = int(task.shape.source**0.5)
    return {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        "do_rescale": True,
        "do_normalize": False,
        "rescale_factor": 1 / 255,
        "image_mean": [0.0],
        "image_std": [1.0],
        "size": {"height": rows * side, "width": columns * side},
    }


def final_metrics(run: Run) -> dict[str, Any]:
    """The last record's figures."""
    records = run.records()
    last = records[-1].to_json() if records else {}
    return {
        name: last[name]
        for name in ("step", "loss", "letters", "exact", "bleu", "chrf", "cut", "held_out")
        if last.get(name) is not None
    }


def write(path: Path, data: dict[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", "utf-8")


app = command_line.new_app(__doc__)


@app.command("export")
def export_run(
    run: Annotated[str, typer.Argument(help="a run's name in the list, or its folder")],
    folder: Path,
    step: Annotated[int | None, typer.Option(help="a saved step; by default the best one")] = None,
    license: Annotated[
        str, typer.Option(help="of the weights, such as mit, for the model card")
    ] = LICENSE,
) -> None:
    """Write a run as a Hugging Face folder with its model card."""
    print(export(open_run(run), folder, step, license))


def main(arguments: Sequence[str] | None = None) -> int:
    return command_line.run(app, arguments)


if __name__ == "__main__":
    sys.exit(main())
