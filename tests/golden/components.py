"""Records every component of the reference in isolation, from inputs that are recipes."""

from typing import Any

import numpy as np
import numpy.typing as npt

from tests.golden.configs import ModelFields
from tests.golden.reading import disc_mask
from tests.golden.recording import Recorder
from tests.parity import reference

Array = npt.NDArray[Any]
Points = tuple[list[list[tuple[float, float]]], list[list[int]]]

# Pixels of a 256 x 256 input; scaled to the input at hand. Labels: 1 yes, 0 no, 2 and 3 the corners
# of a box, -1 not a point.
POINTS: dict[str, Points] = {
    "point1": ([[(103.25, 76.5)]], [[1]]),
    "points_b2": (
        [[(31.0, 200.5), (255.75, 0.0), (0.0, 0.0)], [(120.0, 33.25), (66.5, 140.0), (9.0, 250.0)]],
        [[1, 0, -1], [1, 1, 0]],
    ),
    "box_as_points": ([[(40.0, 22.5), (240.0, 181.0), (88.0, 150.0)]], [[2, 3, 0]]),
    "empty_point": ([[(0.0, 0.0)]], [[-1]]),
}
BOXES = {"boxes_b2": [[12.0, 30.5, 140.0, 250.0], [0.0, 0.0, 255.0, 128.0]]}
POINTS_AND_BOX = (([[(60.5, 90.0), (150.0, 130.0)]], [[1, 0]]), [[20.0, 33.0, 190.0, 201.5]])


def record_components(model: Any, fields: ModelFields, limit: int = 1500) -> Recorder:
    """Everything in the file `components_<config>.npz`."""
    recorder = Recorder(limit)
    recorder.meta["disc_mask"] = (
        "((x-0.4*S)**2+(y-0.55*S)**2) < (0.23*S)**2 on integer pixel indices; S = image size"
    )
    positions = _record_encoder(recorder, model, fields)
    _record_prompts(recorder, model, fields)
    _record_decoder(recorder, model, fields)
    _record_heads(recorder, model, fields)
    _record_memory_encoder(recorder, model, fields)
    _record_memory_attention(recorder, model, fields, positions)
    _record_tables(recorder, model, fields)
    return recorder


def _record_encoder(recorder: Recorder, model: Any, fields: ModelFields) -> Array:
    """The image encoder; returns the position encoding of the stride-16 level, [HW, 1, C]."""
    image = recorder.randn("in_image", 100, (1, 3, fields.image_size, fields.image_size))
    named = reference.encoder_stages(model, image)
    for name, array in sorted(named.items()):
        channels_last = name.startswith(("patch", "block", "pos_embed"))
        recorder.add(f"enc_{name}", array, layout="BHWC" if channels_last else "BCHW")
    pos2 = named["pos2"]
    return np.ascontiguousarray(pos2.reshape(1, fields.d_model, -1).transpose(2, 0, 1))


def _record_prompts(recorder: Recorder, model: Any, fields: ModelFields) -> None:
    scale = fields.image_size / 256

    def record(case: str, points: Points | None, boxes: list[list[float]] | None) -> None:
        prompt: dict[str, Array] = {}
        if points is not None:
            prompt["coords"] = np.array(points[0], np.float32) * np.float32(scale)
            prompt["labels"] = np.array(points[1], np.int32)
        if boxes is not None:
            prompt["boxes"] = np.array(boxes, np.float32) * np.float32(scale)
        recorder.add_all(f"pe_{case}_", prompt)
        sparse, dense = reference.prompt_encoder(model, **prompt)
        recorder.add(f"pe_{case}_sparse", sparse, limit=4096)
        recorder.add(f"pe_{case}_dense", dense, limit=300, layout="BCHW")

    for case, points in POINTS.items():
        record(case, points, None)
    for case, boxes in BOXES.items():
        record(case, None, boxes)
    record("points_and_box", *POINTS_AND_BOX)

    sparse, dense = reference.prompt_encoder(model)
    recorder.meta["pe_none_sparse_shape"] = sparse.shape
    recorder.add("pe_none_dense", dense, limit=300, layout="BCHW")
    side = fields.image_size // 4
    mask = recorder.randn("in_mask_prompt", 110, (1, 1, side, side), 5.0)
    recorder.add("pe_mask_dense", reference.prompt_encoder(model, masks=mask)[1], layout="BCHW")
    recorder.add("pe_dense_pe", reference.dense_pe(model), layout="BCHW")


def _features(recorder: Recorder, fields: ModelFields) -> tuple[Array, Array]:
    """High-resolution features of the decoder; recorded once."""
    low = fields.image_size // 4
    shapes = ((1, fields.d_model // 8, low, low), (1, fields.d_model // 4, low // 2, low // 2))
    return (
        recorder.randn("in_feat_s0", 201, shapes[0]),
        recorder.randn("in_feat_s1", 202, shapes[1]),
    )


def _record_decoder(recorder: Recorder, model: Any, fields: ModelFields) -> None:
    side = fields.embedding_size
    image = recorder.randn("in_image_embed", 200, (1, fields.d_model, side, side))
    features = _features(recorder, fields)

    def record(
        case: str, coords: Array, labels: Array, multimask: bool, mask: Array | None = None
    ) -> None:
        sparse, dense = reference.prompt_encoder(model, coords, labels, masks=mask)
        repeat = case.endswith("_repeat")
        named = reference.mask_decoder(
            model, image, sparse, dense, *features, multimask=multimask, repeat_image=repeat
        )
        for name, array in named.items():
            small = name in ("src_out", "tokens_out", "all_mask_tokens")
            recorder.add(f"dec_{case}_{name}", array, limit=500 if small else None)

    def prompt(case: str) -> tuple[Array, Array]:
        return recorder.whole[f"pe_{case}_coords"], recorder.whole[f"pe_{case}_labels"]

    record("point1_multi", *prompt("point1"), multimask=True)
    record("point1_single", *prompt("point1"), multimask=False)
    record("boxpoint_single", *prompt("box_as_points"), multimask=False)
    record("points_b2_multi_repeat", *prompt("points_b2"), multimask=True)
    coords, labels = _six_boxes(fields)
    recorder.add_all("dec_boxes_b6_single_repeat_", {"coords": coords, "labels": labels})
    record("boxes_b6_single_repeat", coords, labels, multimask=False)
    mask = _input(recorder, "in_mask_prompt")
    record("point1_mask_single", *prompt("point1"), multimask=False, mask=mask)


def _six_boxes(fields: ModelFields) -> tuple[Array, Array]:
    corners = np.random.RandomState(220).uniform(0, fields.image_size - 1, (6, 2, 2))
    return np.sort(corners, axis=1).astype(np.float32), np.tile(np.array([2, 3], np.int32), (6, 1))


def _input(recorder: Recorder, name: str) -> Array:
    """An input recorded earlier, made again."""
    entry = recorder.index[name]
    return Recorder(0).randn(name, entry["seed"], entry["shape"], entry["scale"])


def _record_heads(recorder: Recorder, model: Any, fields: ModelFields) -> None:
    side, size = fields.embedding_size, fields.image_size
    features = _input(recorder, "in_feat_s0"), _input(recorder, "in_feat_s1")
    mask = _input(recorder, "in_mask_prompt")
    point = {name: recorder.whole[f"pe_point1_{name}"] for name in ("coords", "labels")}
    disc = disc_mask(size)[None, None].astype(np.float32)
    for i in range(4):
        image = recorder.randn(f"in_image_embed{i}", 210 + i, (1, fields.d_model, side, side))
        cases = {
            "pt_multi": reference.sam_heads(model, image, *features, **point, multimask=True),
            "none_multi": reference.sam_heads(model, image, *features, multimask=True),
            "pt_mask_single": reference.sam_heads(
                model, image, *features, **point, mask=mask, multimask=False
            ),
        }
        for case, named in cases.items():
            del named["low_all"]
            recorder.add_all(f"heads{i}_{case}_", named)
        masks = {"disc": disc} | ({"empty": np.zeros_like(disc)} if i == 0 else {})
        for case, prompt in masks.items():
            named = reference.mask_as_output(model, image, *features, prompt)
            del named["high"]
            recorder.add_all(f"maskout{i}_{case}_", named)


def _record_memory_encoder(recorder: Recorder, model: Any, fields: ModelFields) -> None:
    tokens, size = fields.embedding_size**2, fields.image_size
    pix = recorder.randn("in_mem_pix", 300, (tokens, 1, fields.d_model))
    logits = recorder.randn("in_mem_logits", 301, (1, 1, size, size), 5.0)
    disc = np.where(disc_mask(size), 10.0, -10.0).astype(np.float32)[None, None]
    paths = {"logits": (logits, False), "binary": (logits, True), "disc": (disc, True)}
    scores = {"present": 3.0, "absent": -3.0}
    recorder.meta["mem_object_scores"] = scores
    for path, (mask, binarize) in paths.items():
        for presence, score in scores.items():
            scores_b1 = np.full((1, 1), score, np.float32)
            named = reference.memory_encoder(model, pix, mask, scores_b1, binarize=binarize)
            recorder.add(f"mem_{path}_{presence}", named.pop("features"), layout="BCHW")
            if (path, presence) == ("logits", "present"):
                recorder.add_all("mem_", named, layout="BCHW")
    pix = recorder.randn("in_mem_pair_pix", 310, (tokens, 2, fields.d_model))
    logits = recorder.randn("in_mem_pair_logits", 311, (2, 1, size, size), 5.0)
    both = np.array([[3.0], [-3.0]], np.float32)
    named = reference.memory_encoder(model, pix, logits, both, binarize=False)
    recorder.add("mem_pair_logits", named["features"], layout="BCHW, first present, second absent")


def _record_memory_attention(
    recorder: Recorder, model: Any, fields: ModelFields, positions: Array
) -> None:
    tokens = fields.embedding_size**2
    for kind, objects in (("", 1), ("pair_", 2)):
        shape = (tokens, objects, fields.d_model)
        curr = recorder.randn(f"in_attn_{kind}curr", 400 + 50 * (objects - 1), shape)
        curr_pos = np.repeat(positions, objects, axis=1)
        for i, (case, frames, pointers) in enumerate((("a", 1, 0), ("b", 3, 8), ("c", 7, 64))):
            seed = 401 + i + 50 * (objects - 1)
            rows = (frames * tokens + pointers, objects, fields.mem_dim)
            memory = recorder.randn(f"in_attn_{kind}{case}_memory", seed, rows)
            memory_pos = recorder.randn(f"in_attn_{kind}{case}_memory_pos", seed + 10, rows, 0.5)
            named = reference.memory_attention(model, curr, curr_pos, memory, memory_pos, pointers)
            recorder.add(
                f"attn_{kind}{case}_out",
                named.pop("out"),
                limit=2000,
                layout="HW, B, C",
                num_obj_ptr_tokens=pointers,
            )
            if case == "b" and objects == 1:
                recorder.add_all("attn_b_", named, layout="B, HW, C")


def _record_tables(recorder: Recorder, model: Any, fields: ModelFields) -> None:
    cosine, sine = reference.rope_tables(model)
    recorder.add("rope_cos", cosine, layout="HW, C/2")
    recorder.add("rope_sin", sine, layout="HW, C/2")
    distances = (np.arange(-15, 16) / np.float32(15)).astype(np.float32)
    named = reference.pointer_time_encoding(model, distances)
    recorder.add("tpos_sine_pe", named["sine"], limit=2000, note="of arange(-15, 16) / 15")
    if "proj" in named:
        recorder.add("tpos_proj", named["proj"], limit=2000)
