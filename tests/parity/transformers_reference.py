"""SAM 2 of the transformers library, called with numpy arrays and answering with them.

A second reference, written by other people, and the judge of weights under its names. Needs torch
and transformers, imported only when a function is called.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.golden.configs import CONFIGS, ModelFields
from tests.parity.reference import to_numpy

Array = npt.NDArray[Any]

POINTS = "prompt_encoder.point_embed.weight"


def build_transformers(
    config: str | ModelFields,
    state: Mapping[str, Array] | None = None,
    *,
    state_for: Callable[[list[str]], Mapping[str, Array]] | None = None,
) -> Any:
    """A `Sam2Model` (images only) in eval mode.

    `state` has its names; or `state_for` gives the arrays for the list of names it is called with.
    Every name must be there, and none too many, but for the memory parts, which it does not have.
    """
    import torch
    from transformers import Sam2Config, Sam2Model

    torch.set_num_threads(min(2, torch.get_num_threads()))
    fields = CONFIGS[config] if isinstance(config, str) else config
    model = Sam2Model(Sam2Config(**_settings(fields))).eval()
    names = list(model.state_dict())
    if state is None:
        if state_for is None:
            raise ValueError("either a state or a function that gives one is needed")
        state = state_for(names)
    tensors = {name: torch.from_numpy(np.array(state[name])) for name in names}
    model.load_state_dict(tensors)
    return model


def state_from_meta(
    state: Mapping[str, Array], meta_name: Callable[[str], str]
) -> Callable[[list[str]], Mapping[str, Array]]:
    """For `state_for`: Meta's arrays under the names asked for, given how one turns into the other.

    `meta_name` is `samgraph.checkpoint.transformers_names.meta_name`, or another.
    """

    def give(names: list[str]) -> dict[str, Array]:
        found = {name: state[meta_name(name)] for name in names if name != POINTS}
        rows = [state[f"sam_prompt_encoder.point_embeddings.{i}.weight"] for i in range(4)]
        return found | {POINTS: np.concatenate(rows)}

    return give


def image_encoder(model: Any, image: Array) -> dict[str, Array]:
    """[B, 3, S, S] -> `vision_features` (without `no_mem_embed`), `conv_s0`, `conv_s1`."""
    import torch

    with torch.inference_mode():
        levels = model.get_image_embeddings(torch.from_numpy(image))
        levels[-1] = levels[-1] - model.no_memory_embedding.reshape(1, -1, 1, 1)
    return dict(zip(("conv_s0", "conv_s1", "vision_features"), map(to_numpy, levels), strict=True))


def segment(
    model: Any,
    image: Array,
    coords: Array | None = None,
    labels: Array | None = None,
    boxes: Array | None = None,
    masks: Array | None = None,
    *,
    multimask: bool,
) -> dict[str, Array]:
    """One image [1, 3, S, S] with P prompts -> `masks` [P, M, L, L], `ious` [P, M], `score` [P, 1].

    `coords` [P, N, 2] and `boxes` [P, 4] are in pixels of the S x S input; `masks` [1, 1, L, L].
    A padding point follows the points or the box, as in both of Meta's predictors.
    """
    import torch

    def batched(array: Array | None) -> Any:
        return None if array is None else torch.from_numpy(array)[None]

    with torch.inference_mode():
        out = model(
            pixel_values=torch.from_numpy(image),
            input_points=batched(coords),
            input_labels=batched(labels),
            input_boxes=batched(boxes),
            input_masks=None if masks is None else torch.from_numpy(masks),
            multimask_output=multimask,
        )
    named = {"masks": out.pred_masks, "ious": out.iou_scores, "score": out.object_score_logits}
    return {name: to_numpy(tensor[0]) for name, tensor in named.items()}


def _settings(fields: ModelFields) -> dict[str, Any]:
    """Our fields in the words of transformers."""
    side = fields.image_size // 4
    channels = list(fields.channels)
    backbone = {
        "model_type": "sam2_hiera_det_model",
        "hidden_size": fields.embed_dim,
        "num_attention_heads": fields.num_heads,
        "image_size": [fields.image_size, fields.image_size],
        "window_positional_embedding_background_size": list(
            fields.window_pos_embed_bkg_spatial_size
        ),
        "blocks_per_stage": list(fields.stages),
        "embed_dim_per_stage": channels,
        "num_attention_heads_per_stage": [fields.num_heads * 2**i for i in range(4)],
        "window_size_per_stage": list(fields.window_spec),
        "global_attention_blocks": list(fields.global_att_blocks),
    }
    vision = {
        "model_type": "sam2_vision_model",
        "backbone_config": backbone,
        "backbone_channel_list": channels[::-1],
        "backbone_feature_sizes": [[side >> level, side >> level] for level in range(3)],
        "fpn_hidden_size": fields.d_model,
    }
    prompts = {"hidden_size": fields.d_model, "image_size": fields.image_size}
    return {
        "vision_config": vision,
        "prompt_encoder_config": prompts,
        "mask_decoder_config": {"hidden_size": fields.d_model},
    }
