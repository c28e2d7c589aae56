"""Replaying a recorded session through `samgraph.compat`, and judging every array of it."""

from collections.abc import Collection, Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from samgraph.compat.sam2_video_predictor import SAM2VideoPredictor
from samgraph.compat.video_settings import video_settings
from samgraph.media.image.preprocess import upscale_logits
from samgraph.models.family import SegmentationModel
from samgraph.predict.video.policy import MemoryPolicy, Position, Selection
from tests import tolerances
from tests.golden.reading import Golden
from tests.golden.video import mask_prompt

Array = npt.NDArray[Any]

TURNED_AT = (1024, 1024)


def predictor_for(core: SegmentationModel, *overrides: str) -> SAM2VideoPredictor:
    """A predictor as the golden files were recorded: holes are not filled."""
    settings = ["fill_hole_area=0", *overrides]
    return SAM2VideoPredictor(
        core, video_settings([f"++model.{text}" for text in settings], apply_postprocessing=True)
    )


@dataclass
class Watching:
    """A policy that notes what is read, as the golden files do."""

    policy: MemoryPolicy
    event: int = 0
    reads: list[dict[str, Any]] = field(default_factory=list)

    def choose(
        self, position: Position, prompted: Collection[int], tracked: Container[int]
    ) -> Selection:
        choice = self.policy.choose(position, prompted, tracked)
        self.reads.append(
            {
                "event": self.event,
                "frame": position.frame,
                "reverse": position.is_reverse,
                "memory_frames_and_tpos_row": [[frame, slot] for frame, slot, _ in choice.masks],
                "pointer_frames": [frame for frame, _, _ in choice.pointers],
            }
        )
        return choice

    def __getattr__(self, name: str) -> Any:
        return getattr(self.policy, name)


def recorded_reads(golden: Golden) -> list[dict[str, Any]]:
    """What the reference read, in the words of `Watching`."""
    keys = ("event", "frame", "reverse", "memory_frames_and_tpos_row", "pointer_frames")
    calls = golden.meta["memory_attention_calls"]
    return [{key: call[key] for key in keys} for call in calls if not call["is_init_cond_frame"]]


def replay(
    predictor: SAM2VideoPredictor, source: Any, golden: Golden, *, takes_recorded: bool = False
) -> tuple[dict[str, Array], list[dict[str, Any]]]:
    """Every array of the recorded session, by its name in the file; and what was read.

    With `takes_recorded`, tracking goes on from the recorded masks of prompted frames. Those are
    hardened before they are remembered: a few pixels in a million, whose logit is next to 0, may
    turn, and what it adds grows from frame to frame.
    """
    watching = Watching(predictor._policy)
    predictor._policy = watching  # type: ignore[assignment]  # it has what a policy has
    state = predictor.init_state(source)
    arrays: dict[str, Array] = {"frame00000_input": state["images"][0]}
    for number, event in enumerate(golden.meta["events"]):
        watching.event = number
        steps = _propagate if event["call"] == "propagate_in_video" else _prompt
        for name, array in steps(predictor, state, event):
            arrays[f"e{number:02d}_{name}"] = array
        if takes_recorded and steps is _prompt:
            _take_recorded(state, event, golden.stored(f"e{number:02d}_low"))
    return arrays, watching.reads


def _prompt(
    predictor: SAM2VideoPredictor, state: dict[str, Any], event: dict[str, Any]
) -> Iterator[tuple[str, Array]]:
    given = dict(event["args"])
    if given.get("mask") == "disc":
        given["mask"] = mask_prompt()
    _, _, masks = getattr(predictor, event["call"])(state, **given)
    index = state["obj_id_to_idx"][given["obj_id"]]
    stores = state["temp_output_dict_per_obj"][index]
    store = next(key for key in stores if given["frame_idx"] in stores[key])
    wanted = event["stored_as"]
    assert store in wanted
    out = stores[store][given["frame_idx"]]
    yield "low", out["pred_masks"][0, 0]
    yield "score", out["object_score_logits"][0]
    yield "ptr", out["obj_ptr"][0]
    yield "bits", masks[:, 0] > 0


def _take_recorded(state: dict[str, Any], event: dict[str, Any], low: Array) -> None:
    """Put the recorded logits in the place of ours, from which they hardly differ."""
    frame, index = event["args"]["frame_idx"], state["obj_id_to_idx"][event["args"]["obj_id"]]
    for store in state["temp_output_dict_per_obj"][index].values():
        if frame in store:
            mine = store[frame]["pred_masks"]
            found = upscale_logits(mine[0, 0], TURNED_AT)
            recorded = upscale_logits(low.reshape(mine.shape[-2:]), TURNED_AT)
            flipped = (found > 0) != (recorded > 0)
            assert float(np.abs(recorded[flipped]).max(initial=0)) < tolerances.VIDEO_FLIPPED_1024
            store[frame]["pred_masks"] = low.reshape(mine.shape).copy()


def _propagate(
    predictor: SAM2VideoPredictor, state: dict[str, Any], event: dict[str, Any]
) -> Iterator[tuple[str, Array]]:
    seen = []
    for frame, ids, masks in predictor.propagate_in_video(state, **event["args"]):
        seen.append(frame)
        assert list(ids) == event["obj_ids"]
        outs = []
        for index, stores in state["output_dict_per_obj"].items():
            is_cond = frame in stores["cond_frame_outputs"]
            out = stores["cond_frame_outputs" if is_cond else "non_cond_frame_outputs"][frame]
            outs.append((out, is_cond))
            memory = predictor.core.buffers.download(out["maskmem_features"])
            yield f"f{frame:05d}_mem{index}", memory.astype(np.float32)
        for name, key in (("low", "pred_masks"), ("ptr", "obj_ptr")):
            yield (
                f"f{frame:05d}_{name}",
                np.concatenate([out[key][0] for out, _ in outs]).reshape(
                    len(outs), *outs[0][0][key].shape[-1 if name == "ptr" else -2 :]
                ),
            )
        scores = np.concatenate([out["object_score_logits"][0] for out, _ in outs])
        yield f"f{frame:05d}_score", scores
        yield f"f{frame:05d}_is_cond", np.array([is_cond for _, is_cond in outs])
        yield f"f{frame:05d}_bits", masks[:, 0] > 0
    assert seen == event["frames"]


@dataclass(frozen=True)
class Limits:
    """How far arrays may be off, by the end of their names."""

    low: float
    score: float
    ptr: float
    mem: float
    bits: float
    is_absolute: bool = False


TIGHT = Limits(
    tolerances.VIDEO_LOGITS,
    tolerances.VIDEO_SCORE,
    tolerances.VIDEO_POINTER,
    tolerances.VIDEO_MEMORY,
    tolerances.VIDEO_PIXELS,
)
TIGHT_SMALL = Limits(
    tolerances.VIDEO_LOGITS,
    tolerances.VIDEO_SCORE,
    tolerances.VIDEO_POINTER,
    tolerances.VIDEO_MEMORY,
    tolerances.VIDEO_PIXELS_SMALL,
)
TIGHT_1024 = Limits(
    tolerances.VIDEO_LOGITS_1024,
    tolerances.VIDEO_SCORE_1024,
    tolerances.VIDEO_POINTER_1024,
    tolerances.VIDEO_MEMORY_1024,
    tolerances.VIDEO_PIXELS,
    is_absolute=True,
)


def faults(golden: Golden, arrays: dict[str, Array], limits: Limits) -> list[str]:
    """What is further from the recording than it may be, memory kept in float32."""
    found = []
    for name, array in arrays.items():
        error, limit = _error(golden, name, array, limits)
        if not error <= limit:
            found.append(f"{name}: {error:.2e}, limit {limit:.1e}")
    return found


def _error(golden: Golden, name: str, array: Array, limits: Limits) -> tuple[float, float]:
    if name == "frame00000_input":
        return golden.difference(name, array.reshape(golden.shape(name))), 1e-6
    end = name.rsplit("_", 1)[-1]
    if end == "bits":
        return golden.disagreement(name, array.reshape(golden.shape(name))), limits.bits
    array = array.reshape(golden.shape(name))
    if end == "cond":
        return float(np.any(golden.stored(name) != array)), 0.0
    if end in ("low", "score"):
        return golden.difference(name, array), getattr(limits, end)
    limit = limits.mem if end.startswith("mem") else limits.ptr
    compare = golden.difference if limits.is_absolute else golden.compare
    return compare(name, array), limit


def loose_faults(
    golden: Golden, arrays: dict[str, Array], loosened: Mapping[str, float] | None = None
) -> list[str]:
    """The same where memory is rounded to bfloat16: the rounding feeds back."""
    found = []
    for name, array in arrays.items():
        end = name.rsplit("_", 1)[-1]
        if end == "score":
            error = golden.difference(name, array.reshape(golden.shape(name)))
            limit = tolerances.VIDEO_BF16_SCORE
        elif end == "low":
            error, limit = _rms(golden, name, array), tolerances.VIDEO_BF16_LOGITS_RMS
        elif end == "bits":
            error, limit = 1 - _iou(golden.bits(name), array), 1 - tolerances.VIDEO_BF16_MASK_IOU
        else:
            continue
        limit = (loosened or {}).get(name, limit)
        if not error <= limit:
            found.append(f"{name}: {error:.2e}, limit {limit:.1e}")
    return found


def _rms(golden: Golden, name: str, array: Array) -> float:
    """Root mean square of the difference, over the deviation of the recording."""
    entry = golden.index[name]
    mine = array.reshape(-1)[:: entry["step"]].astype(np.float64)
    difference = mine - golden.stored(name).reshape(-1)
    deviation = max(float(entry["std"]), 1e-6)
    return float(np.sqrt(np.mean(difference**2)) / deviation)


def _iou(recorded: Array, mine: Array) -> float:
    """The worst overlap of any object; two empty masks agree."""
    worst = 1.0
    for one, other in zip(recorded, mine.reshape(recorded.shape), strict=True):
        union = np.logical_or(one, other).sum()
        if union:
            worst = min(worst, float(np.logical_and(one, other).sum() / union))
    return worst
