"""Small models of other people's packages, with random weights: their attention is read, and none of their code is touched.

The packages are those of the group `models` of pyproject.toml, and a few of the extra `dev`. A model is skipped where its
package is absent, or does not import with this PyTorch (torchvision needs a build of its own for each); `make test-models`
has an environment with all of them, where none is skipped.
"""

import os
from collections.abc import Callable
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from core.pretrained.module_reader import CHANNELS, NO_MATRIX, read_module

IMAGE = (2, 3, 32, 32)


def package(name: str) -> Any:
    try:
        return import_module(name)
    except (ImportError, RuntimeError) as error:
        if os.environ.get("ATTENTION_LAB_MODELS"):
            raise
        pytest.skip(f"{name} does not import: {error}")


def image(*shape: int) -> torch.Tensor:
    return torch.randn(shape or IMAGE)


def ids(length: int = 12) -> torch.Tensor:
    return torch.randint(4, 20, (2, length))


def timm(name: str, **options: Any) -> Any:
    return package("timm").create_model(name, num_classes=5, **options)


def mvit() -> Any:
    mvit = package("timm.models.mvitv2")
    config = mvit.MultiScaleVitCfg(depths=(1, 1), embed_dim=(24, 48), num_heads=(1, 2))
    return mvit.MultiScaleVit(config, img_size=(64, 64), num_classes=5)


def clip() -> Any:
    picture = dict(image_size=32, layers=2, width=64, patch_size=8, head_width=32)
    text = dict(context_length=12, vocab_size=99, width=48, heads=3, layers=2)
    return package("open_clip").model.CLIP(embed_dim=32, vision_cfg=picture, text_cfg=text)


def esm() -> Any:
    alphabet = package("esm.data").Alphabet.from_architecture("ESM-1b")
    return package("esm").ESM2(num_layers=2, embed_dim=40, attention_heads=4, alphabet=alphabet)


def unet() -> Any:
    return package("diffusers").UNet2DConditionModel(
        sample_size=8,
        block_out_channels=(32, 32),
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=24,
        attention_head_dim=8,
        layers_per_block=1,
        norm_num_groups=8,
    )


def noise() -> dict[str, Any]:
    words = torch.randn(2, 7, 24)
    return dict(
        sample=torch.randn(2, 4, 8, 8), timestep=torch.tensor(3), encoder_hidden_states=words
    )


def litgpt() -> Any:
    package("litgpt")
    made = package("litgpt.config").Config(
        block_size=32, vocab_size=99, padded_vocab_size=99, n_layer=2, n_head=4, n_query_groups=2, n_embd=48
    )  # fmt: skip
    return package("litgpt.model").GPT(made)


SERIES: dict[str, Any] = dict(d_model=48, d_kv=12, d_ff=64, num_layers=2, num_heads=4)
PATCHES = dict(
    context_length=32,
    input_patch_size=8,
    input_patch_stride=8,
    quantiles=[0.1, 0.5, 0.9],
    use_reg_token=True,
)


def chronos() -> Any:
    package("chronos")
    from transformers import T5Config, T5ForConditionalGeneration

    return T5ForConditionalGeneration(T5Config(vocab_size=99, **SERIES))


def bolt() -> Any:
    bolt = package("chronos.chronos_bolt")
    from transformers import T5Config

    config = T5Config(vocab_size=2, is_encoder_decoder=True, **SERIES)
    config.chronos_config = dict(prediction_length=8, **PATCHES)
    config.pad_token_id, config.reg_token_id, config.decoder_start_token_id = 0, 1, 0
    return bolt.ChronosBoltModelForForecasting(config)


def chronos2() -> Any:
    model = package("chronos.chronos2").Chronos2Model
    config = package("chronos.chronos2.config").Chronos2CoreConfig
    patches = dict(output_patch_size=8, max_output_patches=2, **PATCHES)
    return model(config(chronos_config=patches, **SERIES))


def vit(module: str, name: str, **options: Any) -> Any:
    size = dict(image_size=32, patch_size=8, num_classes=5, dim=48, depth=2, heads=3, mlp_dim=64)
    return getattr(package(module), name)(**size, **options)


def cross_vit() -> Any:
    small = dict(sm_dim=24, sm_patch_size=8, sm_enc_depth=1, sm_enc_heads=2, sm_enc_mlp_dim=32)
    large = dict(lg_dim=36, lg_patch_size=16, lg_enc_depth=1, lg_enc_heads=3, lg_enc_mlp_dim=32)
    made = package("vit_pytorch.cross_vit").CrossViT
    return made(image_size=32, num_classes=5, depth=1, **small, **large)


def translator() -> Any:
    parts = {
        f"{part}_{name}": value
        for part in ("enc", "dec")
        for name, value in dict(num_tokens=50, depth=1, heads=3, max_seq_len=20).items()
    }
    return package("x_transformers").XTransformer(dim=48, **parts)


def local() -> Any:
    made = package("local_attention").LocalTransformer
    return made(num_tokens=50, dim=48, depth=1, max_seq_len=32, local_attn_window_size=8, heads=3, dim_head=16)  # fmt: skip


def linformer() -> Any:
    return package("linformer").Linformer(dim=48, seq_len=16, depth=1, heads=3, k=8)


def performer() -> Any:
    return package("performer_pytorch").SelfAttention(dim=48, heads=3, causal=False)


# The model, its inputs, the shapes (B, H, T, S) of its calls, in order without repeats, their number, and what is unread.
Case = tuple[Callable[[], Any], Callable[[], Any], list[tuple[int, ...]], int, dict[str, int]]
MODELS: dict[str, Case] = {
    "timm ViT": (lambda: timm("vit_tiny_patch16_224", img_size=32, patch_size=8, depth=2), image,
                 [(2, 3, 17, 17)], 2, {}),
    "timm Swin": (lambda: timm("swin_tiny_patch4_window7_224", img_size=56, embed_dim=24, depths=(1, 2), num_heads=(2, 3)),
                  lambda: image(2, 3, 56, 56), [(8, 2, 49, 49), (2, 3, 49, 49)], 3, {}),
    "timm CaiT": (lambda: timm("cait_xxs24_224", img_size=32, patch_size=8, depth=2, embed_dim=48, num_heads=3), image,
                  [(2, 3, 16, 16), (2, 3, 1, 17)], 4, {}),
    "timm MViTv2": (mvit, lambda: image(2, 3, 64, 64), [(2, 1, 256, 16), (2, 2, 64, 64)], 2, {}),
    "timm XCiT": (lambda: timm("xcit_nano_12_p16_224", img_size=64), lambda: image(2, 3, 64, 64), [(2, 4, 1, 17)], 2,
                  {CHANNELS: 12}),
    "timm EVA-02": (lambda: timm("eva02_tiny_patch14_224", img_size=56, depth=2), lambda: image(2, 3, 56, 56),
                    [(2, 3, 17, 17)], 2, {}),
    "timm SigLIP": (lambda: timm("vit_base_patch16_siglip_224", img_size=32, depth=2), image,
                    [(2, 12, 4, 4), (2, 12, 1, 4)], 3, {}),
    "timm PoolFormer": (lambda: timm("poolformer_s12"), lambda: image(1, 3, 64, 64), [], 0, {NO_MATRIX: 1}),
    "torchvision ViT": (lambda: package("torchvision").models.VisionTransformer(32, 8, 2, 3, 48, 96, num_classes=5), image,
                        [(2, 3, 17, 17)], 2, {}),
    "torchvision Swin": (lambda: package("torchvision").models.SwinTransformer([4, 4], 24, [1, 2], [2, 3], [7, 7]),
                         lambda: image(2, 3, 56, 56), [(8, 2, 49, 49), (2, 3, 49, 49)], 3, {}),
    "torchvision MaxViT": (lambda: package("torchvision").models.MaxVit((64, 64), 32, 4, [32, 32], [1, 1], 8, 0.1),
                           lambda: image(2, 3, 64, 64), [(32, 4, 16, 16), (8, 4, 16, 16)], 4, {}),
    "vit-pytorch ViT": (lambda: vit("vit_pytorch", "ViT"), image, [(2, 3, 17, 17)], 2, {}),
    "vit-pytorch SimpleViT, flash": (lambda: vit("vit_pytorch.simple_flash_attn_vit", "SimpleViT", use_flash=True), image,
                                     [(2, 3, 16, 16)], 2, {}),
    "vit-pytorch DeepViT": (lambda: vit("vit_pytorch.deepvit", "DeepViT"), image, [(2, 3, 17, 17)], 2, {}),
    "vit-pytorch CrossViT": (cross_vit, image, [(2, 2, 17, 17), (2, 3, 5, 5), (2, 8, 1, 5), (2, 8, 1, 17)], 6, {}),
    "open_clip CLIP": (clip, lambda: (image(), ids()), [(2, 2, 17, 17), (2, 3, 12, 12)], 4, {}),
    "fair-esm ESM-2": (esm, ids, [(2, 4, 12, 12)], 2, {}),
    "diffusers UNet": (unet, noise, [(2, 8, 64, 64), (2, 8, 64, 7), (2, 8, 16, 16), (2, 8, 16, 7)], 8, {}),
    "diffusers VAE": (lambda: package("diffusers").AutoencoderKL(block_out_channels=(32,), norm_num_groups=8),
                      lambda: image(1, 3, 8, 8), [(1, 1, 64, 64)], 2, {}),
    "litgpt GPT": (litgpt, ids, [(2, 4, 12, 12)], 2, {}),
    "chronos T5": (chronos, lambda: dict(input_ids=ids(), decoder_input_ids=ids(5)),
                   [(2, 4, 12, 12), (2, 4, 5, 5), (2, 4, 5, 12)], 6, {}),
    "chronos Bolt": (bolt, lambda: torch.randn(2, 32), [(2, 4, 5, 5), (2, 4, 1, 1), (2, 4, 1, 5)], 6, {}),
    "chronos 2": (chronos2, lambda: torch.randn(2, 32), [(2, 4, 6, 6), (6, 4, 2, 2)], 4, {}),
    "x-transformers encoder and decoder": (translator, lambda: (ids(9), ids(13)),
                                           [(2, 3, 9, 9), (2, 3, 13, 13), (2, 3, 13, 9)], 3, {}),
    "local-attention": (local, lambda: ids(16), [(4, 3, 8, 16)], 1, {}),
    "linformer": (linformer, lambda: torch.randn(2, 16, 48), [(2, 3, 16, 8)], 1, {}),
    "performer-pytorch": (performer, lambda: torch.randn(2, 11, 48), [], 0, {NO_MATRIX: 1}),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore")
def test_foreign_model_is_read(name):
    build, inputs, shapes, count, unread = MODELS[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model, given = build().train(), inputs()
        reading = read_module(model, given)
    read = SimpleNamespace(
        shapes=[*dict.fromkeys(call.shape for call in reading.calls)],
        count=len(reading.calls),
        unread={why: [*reading.unread.values()].count(why) for why in reading.unread.values()},
    )
    assert vars(read) == dict(shapes=shapes, count=count, unread=unread)
    assert max((call.error for call in reading.calls), default=0) <= 1e-5
    for call in reading.calls:
        assert call.weights.shape == (call.shape[1], *call.shape[2:])
    assert all(module.training for module in model.modules())
    assert not any(one._forward_hooks for one in model.modules())
