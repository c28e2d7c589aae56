"""Records the reference's image predictor from 8-bit picture to masks."""

import warnings
from typing import Any

import numpy as np

from tests.golden import scenes
from tests.golden.recording import Recorder
from tests.parity import torchvision_stand_in
from tests.parity.reference import to_numpy

# Arguments of `predict`; pixels of the 160 x 120 picture. `mask_input` names a case whose best
# low-resolution logits are given back.
CASES: dict[str, dict[str, Any]] = {
    "point_multi": {"point_coords": [[40, 50]], "point_labels": [1], "multimask_output": True},
    "point_single": {"point_coords": [[40, 50]], "point_labels": [1], "multimask_output": False},
    "points_single": {
        "point_coords": [[40, 50], [118.5, 84.25], [4, 110]],
        "point_labels": [1, 0, 1],
        "multimask_output": False,
    },
    "box_single": {"box": [17, 27, 63, 73], "multimask_output": False},
    "box_point_multi": {
        "point_coords": [[118, 84]],
        "point_labels": [1],
        "box": [99.5, 66, 136, 102],
        "multimask_output": True,
    },
    "boxes3_single": {
        "box": [[17, 27, 63, 73], [100, 66, 136, 102], [0, 0, 159, 119]],
        "multimask_output": False,
    },
    "point_mask_single": {
        "point_coords": [[44, 60]],
        "point_labels": [0],
        "mask_input": "point_multi",
        "multimask_output": False,
    },
}


def record_image(model: Any, limit: int = 1200) -> Recorder:
    """Everything in the file `image_<config>.npz`."""
    recorder = Recorder(limit)
    recorder.meta |= {"picture": "scenes.frame(0)", "cases": CASES}
    predictor = image_predictor(model)
    picture = scenes.frame(0)
    recorder.add("image_uint8_sample", picture.reshape(-1)[::97].copy(), note="every 97th value")
    predictor.set_image(picture)
    recorder.add("input_tensor", to_numpy(predictor._transforms(picture))[None])
    features = predictor._features
    recorder.add("image_embed", to_numpy(features["image_embed"]), note="with no_mem_embed")
    for i, array in enumerate(features["high_res_feats"]):
        recorder.add(f"high_res_feat{i}", to_numpy(array))
    best: dict[str, Any] = {}
    for case, arguments in CASES.items():
        arrays: dict[str, Any] = {
            k: np.array(v, np.float32) if k in _ARRAYS else v for k, v in arguments.items()
        }
        if "mask_input" in arrays:
            arrays["mask_input"] = best[arrays["mask_input"]]
        masks, ious, low = predictor.predict(**arrays)
        flat = np.argmax(ious.reshape(-1))
        best[case] = low.reshape(-1, *low.shape[-2:])[flat][None]
        recorder.add(f"{case}_low", low, note="clamped to +-32")
        recorder.add(f"{case}_iou", ious)
        recorder.bits(f"{case}_bits", masks.astype(bool))
        logits, _, _ = predictor.predict(**arrays, return_logits=True)
        recorder.add(f"{case}_logits", logits, note="at the size of the picture, not clamped")
    return recorder


_ARRAYS = ("point_coords", "point_labels", "box")


def image_predictor(model: Any) -> Any:
    """The reference's `SAM2ImagePredictor`; its fixed feature sizes are replaced by the model's."""
    with torchvision_stand_in.installed():
        from sam2.sam2_image_predictor import SAM2ImagePredictor

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit.script is deprecated
        predictor = SAM2ImagePredictor(model)
    side = model.image_size // 4
    predictor._bb_feat_sizes = [(side >> level, side >> level) for level in range(3)]
    return predictor
