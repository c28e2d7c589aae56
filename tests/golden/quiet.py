"""Records parts of the reference on inputs so small that the epsilon of each norm shows.

With inputs of a usual size, 1e-5 in place of 1e-6 moves a result by no more than rounding does.
Here variances are about 1e-6, so it moves it by a factor.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.golden.configs import ModelFields
from tests.golden.recording import Recorder
from tests.parity import reference

Array = npt.NDArray[Any]

QUIET = 1e-3
POINTERS = 4
# Weights that are made smaller, so that what they give is as small as the inputs.
FACTORS = {
    "sam_mask_decoder.transformer.layers.0.self_attn.out_proj.": 1e-2,
    "sam_mask_decoder.output_upscaling.0.": QUIET,
    "sam_prompt_encoder.mask_downscaling.0.": 1e-2,
    "memory_encoder.fuser.layers.0.dwconv.": QUIET,
}


def quietened(state: Mapping[str, Array]) -> dict[str, Array]:
    """The same weights with some made smaller."""
    return {key: np.asarray(value * np.float32(_factor(key))) for key, value in state.items()}


def _factor(key: str) -> float:
    return next((factor for part, factor in FACTORS.items() if key.startswith(part)), 1.0)


def record_quiet(model: Any, fields: ModelFields, limit: int = 1500) -> Recorder:
    """Everything in the file `quiet_test.npz`."""
    import torch

    recorder = Recorder(limit)
    with torch.no_grad():
        for key, tensor in model.state_dict().items():
            tensor *= _factor(key)
        _record_trunk(recorder, model, fields)
        _record_memory_layer(recorder, model, fields)
        _record_fuser(recorder, model, fields)
    _record_decoder(recorder, model, fields)
    return recorder


def _record_trunk(recorder: Recorder, model: Any, fields: ModelFields) -> None:
    """Block 0, and block 1, which pools."""
    side = fields.image_size // 4
    x = recorder.randn("in_quiet_patches", 500, (1, side, side, fields.embed_dim), QUIET)
    for i in (0, 1):
        block = model.image_encoder.trunk.blocks[i]
        recorder.add(f"enc_quiet_block{i}", _call(model, block, x), layout="BHWC")


def _record_memory_layer(recorder: Recorder, model: Any, fields: ModelFields) -> None:
    tokens = fields.embedding_size**2
    x = recorder.randn("in_quiet_current", 510, (1, tokens, fields.d_model), QUIET)
    shape = (1, tokens + POINTERS, fields.mem_dim)
    memory = recorder.randn("in_quiet_memory", 511, shape)
    position = recorder.randn("in_quiet_memory_pos", 512, shape, 0.5)
    layer = model.memory_attention.layers[0]
    named = {"num_k_exclude_rope": POINTERS}
    out = _call(model, layer, x, memory, position, None, **named)
    recorder.add("attn_quiet_layer0", out, layout="B, HW, C")


def _record_fuser(recorder: Recorder, model: Any, fields: ModelFields) -> None:
    side = fields.embedding_size
    x = recorder.randn("in_quiet_fuser", 520, (1, fields.d_model, side, side))
    recorder.add("mem_quiet_fuser0", _call(model, model.memory_encoder.fuser.layers[0], x))


def _record_decoder(recorder: Recorder, model: Any, fields: ModelFields) -> None:
    """A click and a mask, with a fine map that is small as well."""
    side, channels = fields.embedding_size, fields.d_model
    mask = recorder.randn("in_quiet_mask", 530, (1, 1, 4 * side, 4 * side), 5.0)
    image = recorder.randn("in_quiet_image", 531, (1, channels, side, side))
    fine_0 = recorder.randn("in_quiet_fine_0", 532, (1, channels // 8, 4 * side, 4 * side))
    fine_1 = recorder.randn("in_quiet_fine_1", 533, (1, channels // 4, 2 * side, 2 * side), QUIET)
    coords, labels = np.array([[[103.25, 76.5]]], np.float32), np.array([[1]], np.int32)
    recorder.add_all("pe_quiet_", {"coords": coords, "labels": labels})
    sparse, dense = reference.prompt_encoder(model, coords, labels, masks=mask)
    recorder.add("pe_quiet_dense", dense, layout="BCHW")
    named = reference.mask_decoder(model, image, sparse, dense, fine_0, fine_1, multimask=True)
    for name in ("tokens_out", "src_out", "all_masks"):
        recorder.add(f"dec_quiet_{name}", named[name])


def _call(model: Any, module: Any, *inputs: Array | None, **named: Any) -> Array:
    """A module on arrays, in the precision of the model."""
    import torch

    dtype = model.no_mem_embed.dtype
    given = (None if x is None else torch.from_numpy(x).to(dtype) for x in inputs)
    return np.array(module(*given, **named).detach())
