"""One of every stacked model, small, with a batch that it reads: rows of different lengths where it may have such."""

from dataclasses import dataclass

import torch

from core.models import ModelConfig, Shape, build_model

LENGTHS, T, AHEAD, CLASSES, WORDS, SENTENCE = (7, 2, 1, 5), 6, 4, 3, 13, 17
S, B = max(LENGTHS), len(LENGTHS)


@dataclass(frozen=True)
class Case:
    config: ModelConfig
    shape: Shape
    fed: bool = False  # whether it is given a target

    def made(self, **changes):
        """The model in eval mode, a padded source, its mask and the target (None where there is none)."""
        torch.manual_seed(0)
        model = build_model(
            ModelConfig.from_json(self.config.to_json() | changes), self.shape
        ).eval()
        mask = torch.arange(S) < torch.tensor(LENGTHS)[:, None]
        if self.shape.input == "tokens":
            source = torch.randint(4, WORDS, mask.shape).masked_fill(~mask, 0)
        elif self.shape.input == "features":
            source = torch.stack(
                [
                    torch.randint(count, (B,)) if count else torch.randn(B)
                    for count in self.shape.columns
                ],
                1,
            )
            mask = torch.rand(source.shape) < 0.7
            mask[:, 1] = True
            source = source.masked_fill(~mask, float("nan"))  # missing
        else:
            source = torch.randn(B, S, self.shape.source)
        return model, source, mask, torch.randint(4, SENTENCE, (B, T)) if self.fed else None


def of(kind, **more):
    return ModelConfig.transformer(12, 3, 2, kind=kind, **more)


ONE, TWO = Shape(SENTENCE, SENTENCE, 12, one_vocabulary=True), Shape(WORDS, SENTENCE, 12)
LABEL = Shape(WORDS, CLASSES, 12, output="label")
PATCHES = Shape(5, CLASSES, 12, "patches", "label")
ROW = Shape(4, CLASSES, 12, "features", "label", columns=(0, 0, 3, 0))
SERIES = Shape(2, AHEAD, 12, "series", "values")
MODERN = {"norm": "pre", "normalization": "rms", "activation": "swiglu"}
CASES = {
    "decoder-one-vocabulary": Case(of("decoder", position="learned"), ONE, True),
    "decoder-two-vocabularies": Case(of("decoder", position="rope", **MODERN), TWO, True),
    "decoder-tied": Case(of("decoder", tied=True, position="alibi", norm="pre"), TWO, True),
    "decoder-patches": Case(
        of("decoder", position="learned"), Shape(5, SENTENCE, 12, "patches"), True
    ),
    "decoder-text": Case(
        of("decoder", tied=True, position="sinusoidal", norm="pre", activation="gelu"), ONE
    ),
    "classifier-first": Case(of("classifier", position="learned", **MODERN), LABEL),
    "classifier-mean": Case(of("classifier", position="rope", pool="mean"), LABEL),
    "classifier-patches": Case(
        of("classifier", position="learned", norm="pre", activation="gelu"), PATCHES
    ),
    "classifier-features": Case(of("classifier"), ROW),
    "classifier-features-mean": Case(of("classifier", pool="mean", norm="pre"), ROW),
    "one-token": Case(of("one_token", norm="pre"), ROW),
    "forecaster": Case(of("forecaster", position="sinusoidal", norm="pre"), SERIES),
    "forecaster-causal": Case(of("forecaster", position="rope", mask="causal"), SERIES),
    "transformer-modern": Case(of("transformer", tied=True, position="rope", **MODERN), TWO, True),
    "transformer-patches": Case(
        of("transformer", position="learned"), Shape(5, SENTENCE, 12, "patches"), True
    ),
}
