"""Meta's SAM 2 with known weights, called with numpy arrays and answering with them.

Needs torch and the PyPI package `sam2`; both are imported only when a function is called, so a
test module may import this one anywhere and skip with `pytest.importorskip`.

Layouts: B images, objects or prompts; HW tokens; C channels; S image size, E = S/16, L = S/4.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tests import weights
from tests.golden.configs import CONFIGS, ModelFields

Array = npt.NDArray[Any]
Outputs = dict[str, Array]


def build_reference(
    config: str | ModelFields,
    seed: int | None = None,
    *,
    state: Mapping[str, Array] | None = None,
    precision: Literal["float32", "float64"] = "float32",
) -> Any:
    """The reference's `SAM2VideoPredictor`, which is also a `SAM2Base`, in eval mode.

    Weights are those of `tests/weights.py` for `seed`, or `state`. Post-processing is that of the
    reference's builder, but holes are not filled (that needs its CUDA extension). `float64` is for
    measuring rounding noise; rotary and Fourier encodings stay float32 in it.
    """
    import torch

    torch.set_num_threads(min(2, torch.get_num_threads()))
    model = _construct(CONFIGS[config] if isinstance(config, str) else config)
    if state is None:
        if seed is None:
            raise ValueError("either a seed or a state is needed")
        state = weights.state(state_shapes(model), seed)
    model.load_state_dict({key: torch.from_numpy(np.array(value)) for key, value in state.items()})
    model.eval()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    if precision == "float64":
        _to_float64(model)
    return model


def state_shapes(model: Any) -> dict[str, tuple[int, ...]]:
    """Key and shape of everything in a checkpoint of `model`."""
    return {key: tuple(value.shape) for key, value in model.state_dict().items()}


def _construct(fields: ModelFields) -> Any:
    from sam2.sam2_video_predictor import SAM2VideoPredictor

    return SAM2VideoPredictor(
        image_encoder=_image_encoder(fields),
        memory_attention=_memory_attention(fields),
        memory_encoder=_memory_encoder(fields),
        num_maskmem=fields.num_maskmem,
        image_size=fields.image_size,
        sigmoid_scale_for_mem_enc=20.0,
        sigmoid_bias_for_mem_enc=-10.0,
        use_mask_input_as_output_without_sam=True,
        directly_add_no_mem_embed=True,
        use_high_res_features_in_sam=True,
        multimask_output_in_sam=True,
        iou_prediction_use_sigmoid=True,
        use_obj_ptrs_in_encoder=True,
        no_obj_embed_spatial=fields.no_obj_embed_spatial,
        add_tpos_enc_to_obj_ptrs=fields.add_tpos_enc_to_obj_ptrs,
        proj_tpos_enc_in_obj_ptrs=fields.proj_tpos_enc_in_obj_ptrs,
        use_signed_tpos_enc_to_obj_ptrs=fields.use_signed_tpos_enc_to_obj_ptrs,
        only_obj_ptrs_in_the_past_for_eval=True,
        pred_obj_scores=True,
        pred_obj_scores_mlp=True,
        fixed_no_obj_ptr=True,
        multimask_output_for_tracking=True,
        use_multimask_token_for_obj_ptr=True,
        multimask_min_pt_num=0,
        multimask_max_pt_num=1,
        use_mlp_for_obj_ptr_proj=True,
        sam_mask_decoder_extra_args={
            "dynamic_multimask_via_stability": True,
            "dynamic_multimask_stability_delta": 0.05,
            "dynamic_multimask_stability_thresh": 0.98,
        },
        binarize_mask_from_pts_for_mem_enc=True,
        fill_hole_area=0,
    )


def _image_encoder(fields: ModelFields) -> Any:
    from sam2.modeling.backbones.hieradet import Hiera
    from sam2.modeling.backbones.image_encoder import FpnNeck, ImageEncoder
    from sam2.modeling.position_encoding import PositionEmbeddingSine

    trunk = Hiera(
        embed_dim=fields.embed_dim,
        num_heads=fields.num_heads,
        stages=fields.stages,
        global_att_blocks=fields.global_att_blocks,
        window_pos_embed_bkg_spatial_size=fields.window_pos_embed_bkg_spatial_size,
        window_spec=fields.window_spec,
    )
    neck = FpnNeck(
        position_encoding=PositionEmbeddingSine(fields.d_model),
        d_model=fields.d_model,
        backbone_channel_list=list(reversed(fields.channels)),
        fpn_top_down_levels=[2, 3],
        fpn_interp_model="nearest",
    )
    return ImageEncoder(trunk, neck, scalp=1)


def _memory_attention(fields: ModelFields) -> Any:
    from sam2.modeling.memory_attention import MemoryAttention, MemoryAttentionLayer
    from sam2.modeling.sam.transformer import RoPEAttention

    rope = {
        "rope_theta": 10000.0,
        "feat_sizes": (fields.embedding_size, fields.embedding_size),
        "embedding_dim": fields.d_model,
        "num_heads": 1,
        "downsample_rate": 1,
        "dropout": 0.1,
    }
    layer = MemoryAttentionLayer(
        activation="relu",
        cross_attention=RoPEAttention(rope_k_repeat=True, kv_in_dim=fields.mem_dim, **rope),
        d_model=fields.d_model,
        dim_feedforward=fields.dim_feedforward,
        dropout=0.1,
        pos_enc_at_attn=False,
        pos_enc_at_cross_attn_keys=True,
        pos_enc_at_cross_attn_queries=False,
        self_attention=RoPEAttention(**rope),
    )
    return MemoryAttention(
        d_model=fields.d_model,
        pos_enc_at_input=True,
        layer=layer,
        num_layers=fields.num_memory_layers,
    )


def _memory_encoder(fields: ModelFields) -> Any:
    from sam2.modeling.memory_encoder import CXBlock, Fuser, MaskDownSampler, MemoryEncoder
    from sam2.modeling.position_encoding import PositionEmbeddingSine

    block = CXBlock(dim=fields.d_model, kernel_size=7, padding=3, use_dwconv=True)
    return MemoryEncoder(
        out_dim=fields.mem_dim,
        mask_downsampler=MaskDownSampler(fields.d_model, kernel_size=3, stride=2, padding=1),
        fuser=Fuser(block, num_layers=2),
        position_encoding=PositionEmbeddingSine(fields.mem_dim),
        in_dim=fields.d_model,
    )


def _to_float64(model: Any) -> None:
    """Double every weight; layers cast what reaches them in float32."""
    import torch

    def cast(module: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(x.to(module.weight.dtype) for x in inputs)

    model.double()
    model.sam_prompt_encoder.pe_layer.float()
    for module in model.modules():
        if isinstance(module, (torch.nn.Linear, torch.nn.Conv2d, torch.nn.ConvTranspose2d)):
            module.register_forward_pre_hook(cast)


# Components, numpy in and numpy out.


def image_encoder(model: Any, image: Array) -> Outputs:
    """[B, 3, S, S], normalised -> what the predictors use.

    `vision_features` [B, 256, E, E], without `no_mem_embed`; `conv_s0` [B, 32, L, L] and `conv_s1`
    [B, 64, L/2, L/2], which the decoder adds; `pos0..2`, sine encodings of the three levels.
    """
    with _no_grad():
        out = model.forward_image(_tensor(model, image))
    conv_s0, conv_s1, features = out["backbone_fpn"]
    named = {"vision_features": features, "conv_s0": conv_s0, "conv_s1": conv_s1}
    named |= {f"pos{i}": pos for i, pos in enumerate(out["vision_pos_enc"])}
    return _arrays(named)


def encoder_stages(model: Any, image: Array) -> Outputs:
    """Every step of the image encoder.

    `patch_embed`, `pos_embed` and `blockNN` are [B, H, W, C]; `stage0..3`, `fpn0..3`, `pos0..3`,
    `conv_s0`, `conv_s1` are [B, C, H, W].
    """
    encoder, decoder = model.image_encoder, model.sam_mask_decoder
    modules = {"patch_embed": encoder.trunk.patch_embed}
    modules |= {f"block{i:02d}": block for i, block in enumerate(encoder.trunk.blocks)}
    with _no_grad(), _watch(modules) as named:
        stages = encoder.trunk(_tensor(model, image))
        levels, positions = encoder.neck(stages)
        side = model.image_size // 4
        named["pos_embed"] = encoder.trunk._get_pos_embed((side, side))
        named |= {f"stage{i}": x for i, x in enumerate(stages)}
        named |= {f"fpn{i}": x for i, x in enumerate(levels)}
        named |= {f"pos{i}": x for i, x in enumerate(positions)}
        named["conv_s0"] = decoder.conv_s0(levels[0])
        named["conv_s1"] = decoder.conv_s1(levels[1])
    return _arrays(named)


def prompt_encoder(
    model: Any,
    coords: Array | None = None,
    labels: Array | None = None,
    boxes: Array | None = None,
    masks: Array | None = None,
) -> tuple[Array, Array]:
    """Sparse [B, P, C] and dense [B, C, E, E] embeddings.

    `coords` [B, P, 2] and `boxes` [B, 4] are in pixels of the S x S input; `masks` [B, 1, L, L].
    """
    points = None
    if coords is not None:
        points = (_tensor(model, coords), _tensor(model, labels))
    with _no_grad():
        sparse, dense = model.sam_prompt_encoder(
            points=points, boxes=_tensor(model, boxes), masks=_tensor(model, masks)
        )
    return to_numpy(sparse), to_numpy(dense)


def dense_pe(model: Any) -> Array:
    """The decoder's image position encoding [1, C, E, E]."""
    with _no_grad():
        return to_numpy(model.sam_prompt_encoder.get_dense_pe())


def mask_decoder(
    model: Any,
    image_embed: Array,
    sparse: Array,
    dense: Array,
    feat_s0: Array,
    feat_s1: Array,
    *,
    multimask: bool,
    repeat_image: bool = False,
) -> Outputs:
    """The mask decoder and each of its choices.

    `tokens_out` [B, 6+P, C] (object score, IoU, four mask tokens, prompts) and `src_out` [B, HW, C]
    of the two-way transformer; `all_masks`, `all_ious`, `all_mask_tokens` and `stability` of the
    four masks; then what is returned: `masks`, `ious`, `sam_tokens`, `object_score`, and `ptr_proj`
    (the pointer projection of `sam_tokens`, before occlusion is handled).
    """
    decoder = model.sam_mask_decoder
    named: dict[str, Any] = {}

    def keep(_module: Any, _inputs: Any, output: tuple[Any, Any]) -> None:
        named["tokens_out"], named["src_out"] = output

    hook = decoder.transformer.register_forward_hook(keep)
    arguments = {
        "image_embeddings": _tensor(model, image_embed),
        "image_pe": model.sam_prompt_encoder.get_dense_pe(),
        "sparse_prompt_embeddings": _tensor(model, sparse),
        "dense_prompt_embeddings": _tensor(model, dense),
        "repeat_image": repeat_image,
        "high_res_features": [_tensor(model, feat_s0), _tensor(model, feat_s1)],
    }
    with _no_grad():
        masks, ious, tokens, _ = decoder.predict_masks(**arguments)
        named |= {"all_masks": masks, "all_ious": ious, "all_mask_tokens": tokens}
        named["stability"] = decoder._get_stability_scores(masks)
        masks, ious, tokens, score = decoder(multimask_output=multimask, **arguments)
        named |= {"masks": masks, "ious": ious, "sam_tokens": tokens, "object_score": score}
        named["ptr_proj"] = model.obj_ptr_proj(tokens)
    hook.remove()
    return _arrays(named)


def sam_heads(
    model: Any,
    image_embed: Array,
    feat_s0: Array,
    feat_s1: Array,
    *,
    coords: Array | None = None,
    labels: Array | None = None,
    mask: Array | None = None,
    multimask: bool,
) -> Outputs:
    """Prompt encoder and mask decoder as used in video, with its rules for an absent object.

    `ious`, `low` [B, 1, L, L] (best mask), `high` [B, 1, S, S], `ptr` [B, C], `score` [B, 1];
    `low_all` holds all returned masks.
    """
    points = None
    if coords is not None:
        points = {"point_coords": _tensor(model, coords), "point_labels": _tensor(model, labels)}
    with _no_grad():
        low_all, _, ious, low, high, ptr, score = model._forward_sam_heads(
            backbone_features=_tensor(model, image_embed),
            point_inputs=points,
            mask_inputs=_tensor(model, mask),
            high_res_features=[_tensor(model, feat_s0), _tensor(model, feat_s1)],
            multimask_output=multimask,
        )
    named = {"low_all": low_all, "ious": ious, "low": low, "high": high}
    return _arrays(named | {"ptr": ptr, "score": score})


def mask_as_output(
    model: Any, image_embed: Array, feat_s0: Array, feat_s1: Array, mask: Array
) -> Outputs:
    """A mask prompt [B, 1, S, S] of 0 and 1 taken as the answer: `low`, `high`, `ptr`, `score`."""
    with _no_grad():
        _, _, _, low, high, ptr, score = model._use_mask_as_output(
            _tensor(model, image_embed),
            [_tensor(model, feat_s0), _tensor(model, feat_s1)],
            _tensor(model, mask),
        )
    return _arrays({"low": low, "high": high, "ptr": ptr, "score": score})


def memory_encoder(
    model: Any, pix: Array, mask_logits: Array, object_score: Array, *, binarize: bool
) -> Outputs:
    """Image features [HW, B, C], masks [B, 1, S, S] and scores [B, 1] -> `features` [B, 64, E, E].

    `binarize` is the path of prompted frames (mask > 0), otherwise the sigmoid is used. Also
    `pos_enc`, and on the way `mask_downsampler`, `pix_feat_proj`, `fuser0`, `fuser1`.
    """
    encoder = model.memory_encoder
    modules = {"mask_downsampler": encoder.mask_downsampler, "pix_feat_proj": encoder.pix_feat_proj}
    modules |= {f"fuser{i}": layer for i, layer in enumerate(encoder.fuser.layers)}
    side = model.sam_image_embedding_size
    with _no_grad(), _watch(modules) as named:
        named["features"], positions = model._encode_new_memory(
            current_vision_feats=[_tensor(model, pix)],
            feat_sizes=[(side, side)],
            pred_masks_high_res=_tensor(model, mask_logits),
            object_score_logits=_tensor(model, object_score),
            is_mask_from_pts=binarize,
        )
        named["pos_enc"] = positions[-1]
    return _arrays(named)


def memory_attention(
    model: Any,
    curr: Array,
    curr_pos: Array,
    memory: Array,
    memory_pos: Array,
    num_obj_ptr_tokens: int,
) -> Outputs:
    """`out` [HW, B, C] from `curr` [HW, B, C] and memory [M, B, 64]; pointer tokens come last.

    Also `layer{i}` [B, HW, C], and `layer{i}_self`, `layer{i}_cross` before their residual sums.
    """
    modules: dict[str, Any] = {}
    for i, layer in enumerate(model.memory_attention.layers):
        modules |= {f"layer{i}_self": layer.self_attn, f"layer{i}_cross": layer.cross_attn_image}
        modules |= {f"layer{i}": layer}
    with _no_grad(), _watch(modules) as named:
        named["out"] = model.memory_attention(
            curr=[_tensor(model, curr)],
            curr_pos=[_tensor(model, curr_pos)],
            memory=_tensor(model, memory),
            memory_pos=_tensor(model, memory_pos),
            num_obj_ptr_tokens=num_obj_ptr_tokens,
        )
    return _arrays(named)


def rope_tables(model: Any) -> tuple[Array, Array]:
    """Cosine and sine [HW, C/2] of the rotary encoding."""
    table = model.memory_attention.layers[0].self_attn.freqs_cis
    return to_numpy(table.real), to_numpy(table.imag)


def pointer_time_encoding(model: Any, positions: Array) -> Outputs:
    """`sine` [N, 256] of normalised distances [N], and `proj` [N, 64] where the model projects."""
    from sam2.modeling.sam2_utils import get_1d_sine_pe

    with _no_grad():
        named = {"sine": get_1d_sine_pe(_tensor(model, positions), dim=model.hidden_dim)}
        if model.proj_tpos_enc_in_obj_ptrs:
            named["proj"] = model.obj_ptr_tpos_proj(named["sine"])
    return _arrays(named)


# Between the two worlds.


@contextmanager
def _no_grad() -> Iterator[None]:
    import torch

    with torch.inference_mode():
        yield


@contextmanager
def _watch(modules: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Collects the output of each named module while the block runs."""
    seen: dict[str, Any] = {}

    def keeper(name: str) -> Any:
        def keep(_module: Any, _inputs: Any, output: Any) -> None:
            seen[name] = output.clone()

        return keep

    hooks = [module.register_forward_hook(keeper(name)) for name, module in modules.items()]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def _tensor(model: Any, array: Array | None) -> Any:
    """The array as a tensor; floats take the precision of the model."""
    import torch

    if array is None:
        return None
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    return tensor.to(model.no_mem_embed.dtype) if tensor.is_floating_point() else tensor


def to_numpy(tensor: Any) -> Array:
    """The tensor as an array of its own dtype; bfloat16 becomes float32."""
    import torch

    if tensor.dtype == torch.bfloat16:
        tensor = tensor.float()
    array: Array = tensor.detach().numpy().copy()
    return array


def _arrays(named: Mapping[str, Any]) -> Outputs:
    return {name: to_numpy(tensor) for name, tensor in named.items()}
