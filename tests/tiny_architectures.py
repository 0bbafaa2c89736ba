"""Every architecture of the installed transformers, at a size that is built in a moment.

`shrunk(kind)` is a config of a class with small numbers, `class_of(model_type)` the class of its models. Numbers are
shrunk by the names of their fields (`RULES`); what an architecture needs beside that stands in `SPECIAL`.
"""

import importlib
import inspect
import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES
from transformers.models.auto.feature_extraction_auto import FEATURE_EXTRACTOR_MAPPING_NAMES

from core.pretrained.load import ImageProcessor, reads_of
from tests.tiny_models import ids_of, tokenizer, uneven

ARCHITECTURES = tuple(CONFIG_MAPPING_NAMES)
TABLES = (
    "SEQ_TO_SEQ_CAUSAL_LM",
    "SPEECH_SEQ_2_SEQ",
    "CAUSAL_LM",
    "MULTIMODAL_LM",
    "MASKED_LM",
    "IMAGE_CLASSIFICATION",
)
WIDTH, HEADS, LAYERS, WORDS, PICTURE, PATCH, SEES = 32, 4, 2, 128, 16, 4, 5
IDS = {"pad": 0, "bos": 1, "eos": 2, "decoder_start": 3, "mask": 4}
# What limits the keys that a query sees, and is shorter here than a sentence.
LIMITS = (
    r"(sliding|attention)_window_size|sliding_window|local_attention(_window_len)?|attention_chunk_size"
    r"|keep_window_size|index_topk|index_block_size|indexer_budget"
)
SWITCHES = {"use_sliding_window": True, "max_window_layers": 1, "index_topk_blocks": 1, "mamba_chunk_size": 8,
            "latent_query_num": 8, "loop_num_passes": 2, "rel_extent": 32}  # fmt: skip
RULES: tuple[tuple[str, int], ...] = (
    (r"num_kv_shared_layers|hidden_size_per_layer_input", 0),
    (r"(\w+_)?vocab_size\w*|num_embeddings|n_vocab|codebook_size", WORDS),
    (r"max_source_positions", 50),
    (r"(max_)?(\w+_)?position(s|_embeddings)|n_positions|n_ctx|max_seq_len\w*", WORDS),
    (r"(\w*_)?image_size|img_size|input_size", PICTURE),
    (r"(\w*_)?patch_size", PATCH),
    (r"(\w*_)?(num_(\w+_)?layers|n_layers?|num_blocks|depth|\w+_layers|num_hidden_blocks|depths)", LAYERS),
    (r"(\w*_)?(num_(\w+_)?heads|n_heads?|\w*_?attention_heads|num_attention_groups|multi_query_group_num"
     r"|kv_heads)", HEADS),
    (r"(\w*_)?(head_dim|d_kv|d_head|attention_head_size|qk_nope_head_dim|qk_rope_head_dim|v_head_dim)", 8),
    (r"(\w*_)?(hidden_size|n_embd|embedding_size|dim|width|n_embed|embed_size|hidden_channels|\w*_dim"
     r"|intermediate_size|d_model|d_ff|d_inner"
     r"|d_latents|n_inner|\w+_size|hidden_sizes|\w+_rank|\w+_dims|dims|encoder_hidden_dim)", WIDTH),
    (r"(\w*_)?(num_(\w+_)?experts|n_(\w+_)?experts|moe_num_experts)", 4),
    (r"(\w*_)?(top_k|experts_per_tok\w*|num_experts_per_tok)", 2),
    (r"n_group|num_group|num_expert_groups?", 2),
    (r"topk_group|num_limited_groups", 1),
    (r"moe_k", 2),
    (r"num_queries", 10),
    (r"num_denoising", 0),
    (r"upsample_groups|(\w+_)?(channels|initial_channel|units|hidden_sizes|hidden_size_global)", WIDTH),
    (r"num_filters|n_filters", 4),
    (r"(\w+_)?num_pos_feats", WIDTH // 2),
    (r"encoder_hash_byte_group_vocab", WORDS),
    (r"num_mel_bins|n_mels|input_feat_per_channel|num_mels", 16),
)  # fmt: skip
ATTENDS = ("full_attention", "sliding_attention", "hybrid", "indexed_attention")
LEFT = (
    r"kernel_size|(\w+_)?(window|chunk|block|group|stride|state|cluster|batch|step|bucket)\w*_size|\w*_kernel\w*"
    r"|type_vocab_size"
)
HYBRID = {"num_hidden_layers": 5, "layer_types": ["linear_attention", "linear_attention", "full_attention",
                                                  "linear_attention", "full_attention"]}  # fmt: skip
SWIN = {"embed_dim": 12, "num_heads": [3, 3], "depths": [1, 1], "window_size": 2}
SERIES = {"prediction_length": 4, "context_length": 8}
EXPERTS = {
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 2,
    "topk_group": 1,
    "n_shared_experts": 1,
}
SECTIONS = {
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}
}
MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_n_groups": 1, "mamba_d_state": 8}

SPECIAL: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("autoformer", "informer", "time_series_transformer"), SERIES),
    **dict.fromkeys(("swin", "swinv2", "donut-swin", "maskformer-swin", "swin2sr"), SWIN),
    **dict.fromkeys(("qwen2_vl_text", "qwen2_5_vl_text", "glm4v_text", "glm4v_moe_text", "glm_image_text",
                     "glm_ocr_text", "paddleocr_vl_text", "qwen2_5_omni_text", "qwen2_5_omni_talker"), SECTIONS),
    **dict.fromkeys(("gptj", "codegen"), {"rotary_dim": 4}), "led": {"attention_window": [4, 4]},
    "levit": {"image_size": 64, "patch_size": 16, "hidden_sizes": [16, 24, 32], "num_attention_heads": [2, 3, 4],
              "depths": [1, 1, 1], "key_dim": [8, 8, 8]},
    "hiera": {"image_size": [32, 32], "embed_dim": 8, "depths": [1, 1], "num_heads": [1, 2], "patch_size": [7, 7],
              "query_stride": [2, 2], "masked_unit_size": [4, 4], "num_query_pool": 1},
    "bamba": {"num_hidden_layers": 5, "attn_layer_indices": [2, 4], **MAMBA},
    "big_bird": {"attention_type": "original_full"}, "bigbird_pegasus": {"attention_type": "original_full"},
    "bit": {"num_groups": 8}, "mobilenet_v1": {"depth_multiplier": 0.25},
    **dict.fromkeys(("dac", "xcodec2", "neucodec"), {"encoder_hidden_size": 4, "decoder_hidden_size": 32}),
    **dict.fromkeys(("efficientnet", "align_vision_model"), {"width_coefficient": 1.0, "depth_coefficient": 1.0}),
    "cvt": {"depth": [1, 2, 3]},
    "dory": {"num_hidden_layers": 4, "n_input_layers": 1, "n_output_layers": 1},
    "dbrx": {"attn_config": {"rope_theta": 1e4, "kv_n_heads": 4, "clip_qkv": 8.0}},
    "dots1": EXPERTS, "deepseek_v3": EXPERTS,
    **dict.fromkeys(("encoder-decoder", "vision-encoder-decoder"),
                    {"decoder": {"is_decoder": True, "add_cross_attention": True}}),
    "esm": {"vocab_size": WORDS, "pad_token_id": 0, "mask_token_id": 4},
    "gpt_neo": {"window_size": SEES, "num_layers": 2, "attention_types": [[["global", "local"], 1]]},
    **dict.fromkeys(("hunyuan_v1_dense", "hunyuan_v1_moe", "ministral", "hunyuan_vl_text"), {"head_dim": 8}),
    "jamba": {"num_hidden_layers": 5, "attn_layer_period": 3, "attn_layer_offset": 1},
    "lfm2": {"num_hidden_layers": 5, "full_attn_idxs": [2, 4]},
    "lilt": {"channel_shrink_ratio": 4, "hidden_size": 48, "num_attention_heads": 4},
    "longt5": {"local_radius": 3}, "mamba2": {"num_heads": 8, "head_dim": 8, "chunk_size": 8},
    "falcon_h1": {"mamba_d_ssm": 64, **MAMBA},
    "dots3_note_text": {"swa_num_attention_heads": HEADS, "swa_num_key_value_heads": HEADS, "swa_q_lora_rank": WIDTH,
                        "swa_kv_lora_rank": WIDTH, "swa_head_dim": 16, "swa_qk_nope_head_dim": 8, "swa_v_head_dim": 8},
    "minimax": HYBRID, "nemotron": {"num_key_value_heads": 4},
    "nemotron_h": {"layers_block_type": ["linear_attention", "full_attention", "moe", "full_attention"],
                   "mamba_num_heads": 8, "mamba_head_dim": 8, "n_groups": 1},
    "qwen3_next": {**HYBRID, "linear_num_key_heads": 2, "linear_num_value_heads": 4},
    "recurrent_gemma": {"num_hidden_layers": 6},
    "reformer": {"is_decoder": True, "axial_pos_embds_dim": [8, 24], "axial_pos_shape": [8, 16]},
    "chmv2": {"post_process_channels": [8, 8, 8, 8], "neck_hidden_sizes": [8, 8, 8, 8]},
    "tipsv2_dpt": {"neck_hidden_sizes": [8, 8, 8, 8]},
    **dict.fromkeys(("deepseek_ocr2_sam_vision_model", "unlimited_ocr_sam_vision_model"),
                    {"downsample_channels": [16, 32]}),
    "axk1": EXPERTS, "bailing_hybrid": EXPERTS, "deepseek_v2": EXPERTS,
    "clvp_encoder": {"hidden_size": 128, "num_attention_heads": 4, "projection_dim": 128},
    "bridgetower": {"hidden_size": 64, "num_attention_heads": 1, "text_config": {"hidden_size": 64},
                    "vision_config": {"hidden_size": 64}}, "bridgetower_vision_model": {"hidden_size": 64},
    "chameleon": {"vocabulary_map": {"<image>": 5}}, "shieldgemma2": {"yes_token_index": 5, "no_token_index": 6},
    "diffusion_gemma_text": {"num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 16},
    "cosmos3_edge_text": SECTIONS, "hunyuan_vl_text": {**SECTIONS, "head_dim": 8},
    "ernie4_5_vl_moe_text": {**SECTIONS, "hidden_size": 48}, "fastspeech2_conformer": {"vocab_size": WORDS},
    "vits": {"vocab_size": WORDS, "upsample_rates": [2, 2], "upsample_kernel_sizes": [4, 4], "resblock_kernel_sizes": [3],
             "resblock_dilation_sizes": [[1, 3]]}, "neomme": {"head_dim": 16}, "nemotron_h_omni": {"vision_config": {
        "video_temporal_patch_size": 2}}, "molmo2": {"adapter_config": {"vision_feature_layer": [1, 0]}},
    "qwen4_exp_text": {"indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 8, "indexer_budget": 8,
                       "indexer_compress_ratio": 4},
    "cohere_compass_text": {"layer_types": ["sliding_attention", "full_attention"], "rope_parameters": {
        kind: {"rope_type": "default", "rope_theta": 1e4} for kind in ("sliding_attention", "full_attention")}},
    "inkling2_loop_text": {
        "num_hidden_layers": 4, "loop_layer_index_start": 1, "loop_layer_index_end": 3, "n_layers_per_attn_res_block": 1,
        "layer_types": ["hybrid_sliding", "hybrid", "hybrid_sliding", "hybrid"]},
    "hy_v4_vl_text": SECTIONS, "apertus1p5": {"image_token_offset": 0, "audio_token_offset": 128,
                                                "text_config": {"vocab_size": 2 * WORDS}},
    "emu3": {"vocabulary_map": {"<image>": 5, "<|extra_200|>": 6}},
    **dict.fromkeys(("laguna", "mellum", "smollm3", "step3p5"),
                    {"layer_types": ["sliding_attention", "full_attention"]}),
    "minimax_m3_vl_text": {"layer_types": ["minimax_m3_sparse", "full_attention"]},
    "zaya": {"layer_types": ["hybrid_sliding", "hybrid"]},
    "glm5_next_text": {"index_topk": 4, "index_kpool": 2},
    "lfm2_moe": {"num_hidden_layers": 4, "layer_types": ["conv", "conv", "full_attention", "full_attention"],
                 "num_dense_layers": 1},
    "deepseek_ocr2_text": {"mlp_layer_types": ["dense", "sparse"], "num_experts_per_tok": 2},
    "granitemoehybrid": {"num_hidden_layers": 3, **MAMBA,
                         "layer_types": ["linear_attention", "linear_attention", "full_attention"]},
    "zoedepth": {"bottleneck_features": 32, "backbone_config": {"num_hidden_layers": 4, "out_indices": [1, 2, 3, 4],
                                                                 "reshape_hidden_states": False}},
    **dict.fromkeys(("depth_anything", "prompt_depth_anything"), {"backbone_config": {
        "num_hidden_layers": 4, "out_indices": [1, 2, 3, 4], "reshape_hidden_states": False}}),
    "layoutlmv3": {"coordinate_size": 4, "shape_size": 8}, "lw_detr_vit": {"num_windows": 4},
    "lw_detr": {"backbone_config": {"num_windows": 4}},
    "muse_spark_audio": {"num_hidden_layers": 4}, "dots3_note_vision_encoder": {"per_layer_config": {}},
    "fun_asr_nano": {"adaptor_config": {"intermediate_size": 8}},
    "granite4_vision": {"deepstack_layer_map": [[0, 0]]}, "moonshine_streaming": {"num_key_value_heads": 4},
    "pix2struct": {"vision_config": {"patch_embed_hidden_size": 48}},
    "pix2struct_vision_model": {"patch_embed_hidden_size": 48},
    "pix2struct_text_model": {"initializer_range": 0.02}, "xmod": {"default_language": "en_XX"},
    **dict.fromkeys(("t5gemma2_text", "t5gemma2_decoder", "t5gemma2_encoder"), {"dropout_rate": 0.0}),
    "qwen3_omni_moe_talker_text": {"shared_expert_intermediate_size": 32}, "esmc": {"vocab_size": WORDS},
    "vitmatte": {"fusion_hidden_sizes": [8, 8, 8, 8]},
    "vitpose": {"backbone_config": {"image_size": [16, 16], "patch_size": [8, 8]}},
    "xlstm": {"hidden_size": 128, "embedding_dim": 128},  # else its cache is wider than its layers
    "mobilevitv2": {"image_size": 64}, "videoprism_vision_model": {"tubelet_size": [1, 4, 4]},
    **dict.fromkeys(("mask2former", "maskformer"), {"backbone_config": {
        "image_size": 64, "embed_dim": 12, "depths": [1, 1, 1, 1], "num_heads": [3, 3, 3, 3], "window_size": 2}}),
    "sam2_hiera_det_model": {"embed_dim_per_stage": [8, 16, 24, 32], "image_size": [64, 64]},
    "dinov3_convnext": {"hidden_sizes": [8, 16, 24, 32]}, "mimo_v2_flash": {"num_key_value_heads": 2},
    "hgnet_v2": {"stage_in_channels": [48, 8, 16, 24], "stage_mid_channels": [8, 8, 8, 8],
                 "stage_out_channels": [8, 16, 24, 32]},
    **dict.fromkeys(("zamba", "zamba2"), {"num_hidden_layers": 5, "chunk_size": 8, "layers_block_type": [
        "linear_attention", "hybrid", "linear_attention", "linear_attention", "hybrid"]}),
}  # fmt: skip


def _small(name: str, value: Any) -> Any:
    if name.endswith("_token_id") and isinstance(value, int) and value >= WORDS:
        return IDS.get(name.removesuffix("_token_id"), 10)
    if name in SWITCHES:
        return SWITCHES[name]
    if re.fullmatch(LIMITS, name) and (value is None or isinstance(value, int)):
        return SEES
    size = next((size for rule, size in RULES if re.fullmatch(rule, name)), None)
    if size is None or isinstance(value, bool) or re.fullmatch(LEFT, name):
        return value
    if isinstance(value, int):
        return min(value, size)
    if isinstance(value, list | tuple) and value and all(isinstance(one, int) for one in value):
        return type(value)(min(one, size) for one in value)
    return value


def shrunk(kind: type[PreTrainedConfig], special: dict[str, Any] | None = None) -> Any:
    """A config of that class with small numbers, down to those of its parts."""
    sizes, parts = {}, getattr(kind, "sub_configs", {})
    for name, field in inspect.signature(kind).parameters.items():
        value = field.default
        if (
            value is not field.empty
            and name not in parts
            and (small := _small(name, value)) != value
        ):
            sizes[name] = small
    # configs change what they are given
    sizes |= deepcopy({**SPECIAL.get(kind.model_type, {}), **(special or {})})
    usual = default(kind)
    for name, part in parts.items():
        own = getattr(usual, name, None)
        if own is not None or part is not transformers.AutoConfig:
            of = type(own) if isinstance(own, PreTrainedConfig) else part
            if of is not transformers.AutoConfig and (
                isinstance(sizes.get(name), dict) or own is not None
            ):
                sizes[name] = shrunk(of, sizes.get(name)).to_dict()
    config = kind(**sizes)
    types, usual_types = (getattr(one, "layer_types", None) or [] for one in (config, usual))
    if set(usual_types) - set(types) and "layer_types" in inspect.signature(kind).parameters:
        # Each kind of layer once, and attention after another kind, whose number it then does not have.
        every = sorted(set(usual_types), key=lambda one: (one in ATTENDS, one))
        every = every if set(every) & set(ATTENDS) else [*every, "full_attention"]
        config = kind(**{**sizes, "num_hidden_layers": len(every), "layer_types": every})
    if (
        getattr(config, "is_encoder_decoder", False)
        and getattr(config, "decoder_start_token_id", None) is None
    ):
        config.decoder_start_token_id = IDS["decoder_start"]
    _fit_sections(config)
    return config


def is_limited(config: dict[str, Any]) -> bool:
    """Whether a config, or a part of it, limits the keys that a query sees."""
    return any(
        is_limited(value) if isinstance(value, dict) else value and re.fullmatch(LIMITS, str(name))
        for name, value in config.items()
    )


def default(kind: type[PreTrainedConfig]) -> PreTrainedConfig | None:
    """The config with the defaults of its class; None where it cannot be made."""
    try:
        return kind()
    except Exception:  # some have no usual parts
        return None


def _fit_sections(config: Any) -> None:
    """Rotary sections (time, height, width) as long as half a head."""
    ropes = getattr(config, "rope_parameters", None)
    for rope in (ropes, *ropes.values()) if isinstance(ropes, dict) else ():
        if isinstance(rope, dict) and rope.get("mrope_section"):
            size = (
                getattr(config, "head_dim", None)
                or config.hidden_size // config.num_attention_heads
            )
            half = int(size * (rope.get("partial_rotary_factor") or 1)) // 2
            rope["mrope_section"] = [half - 2 * (half // 3), half // 3, half // 3]


def class_of(model_type: str) -> type | None:
    """The class of its models: the one that answers, of the tables of the library, else the bare one."""
    config = CONFIG_MAPPING[model_type]
    tables = [getattr(modeling_auto, f"MODEL_FOR_{table}_MAPPING_NAMES") for table in TABLES]
    for table in (*tables, modeling_auto.MODEL_MAPPING_NAMES):
        names = table.get(model_type) or ()
        cls = (
            getattr(transformers, names if isinstance(names, str) else names[0], None)
            if names
            else None
        )
        if cls is not None and getattr(cls, "config_class", None) in (config, None):
            return cls
    home = config.__module__.replace("configuration_", "modeling_")
    try:
        module = importlib.import_module(home)
    except ModuleNotFoundError:
        return None
    own = [
        one
        for one in vars(module).values()
        if inspect.isclass(one)
        and issubclass(one, PreTrainedModel)
        and one.__module__ == home
        and getattr(one, "config_class", None) is config
        and not one.__name__.endswith("PreTrainedModel")
    ]
    return own[0] if own else None


def save_small(model_type: str, folder: Path) -> Path:
    """Write a small model of that architecture that writes text, with uneven weights, and its tokenizer to a folder."""
    kind, reader = class_of(model_type), tokenizer("bytes")
    torch.manual_seed(1)
    model = kind(shrunk(CONFIG_MAPPING[model_type], ids_of(reader, kind.__name__)))
    uneven(model.eval(), 1).save_pretrained(folder)
    reader.save_pretrained(folder)
    return folder


class Ears:
    """What prepares sound, with a tokenizer beside it, as a processor has them."""

    def __init__(self, extractor: Any) -> None:
        self.feature_extractor, self.tokenizer = extractor, tokenizer("wordpiece")

    def __call__(self, *sound: Any, **how: Any) -> Any:
        return self.feature_extractor(*sound, **how)


def reader_of(model: Any) -> Any:
    """What a page would have beside the model: a tokenizer, or what prepares its pictures or its sound."""
    config, reads = model.config, reads_of(model)
    if reads == "picture":
        parts = (
            config,
            *(
                getattr(config, name, None)
                for name in ("vision_config", "encoder", "backbone_config")
            ),
        )
        size = next(
            (size for part in parts if (size := getattr(part, "image_size", None))), PICTURE
        )
        return ImageProcessor(
            (size, size) if isinstance(size, int) else tuple(size[-2:]),
            tokenizer=tokenizer("wordpiece"),
        )
    if reads != "sound":
        return tokenizer("wordpiece")
    if model.main_input_name == "input_values":
        return Ears(transformers.Wav2Vec2FeatureExtractor())
    name = FEATURE_EXTRACTOR_MAPPING_NAMES.get(config.model_type)
    kind = getattr(transformers, str(name), transformers.Wav2Vec2FeatureExtractor)
    bands = getattr(config, "num_mel_bins", None) or 16
    options = {"feature_size": bands, "num_mel_bins": bands, "chunk_length": 1}
    takes = inspect.signature(kind).parameters
    return Ears(kind(**{name: value for name, value in options.items() if name in takes}))
