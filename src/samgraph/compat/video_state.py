"""The state of the reference's video predictor: a dict with its keys, holding numpy arrays.

For every object, `output_dict_per_obj` has two stores of outputs by frame: conditioning frames,
which were prompted before they were tracked, and all others. Prompts since the last propagation
are in `temp_output_dict_per_obj`.

Shapes: C channels, E grid, L mask size, S image size, T cells of the grid.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from samgraph.compat.host import device_named, to_host
from samgraph.compat.utils.misc import Frames
from samgraph.media.video.frames import FrameList
from samgraph.models.family import BankRead, Features, SegmentationModel
from samgraph.predict.prompts import BOX_LABELS, Floats
from samgraph.predict.video.feed import EncodedFrames, FrameFeed, ReadyFrame, feeding
from samgraph.predict.video.policy import Selection
from samgraph.predict.video.step import Clicks, Outcome

State = dict[str, Any]
Output = dict[str, Any]

COND, NON_COND = "cond_frame_outputs", "non_cond_frame_outputs"


class LoadedFrames(EncodedFrames):
    """Frames that a program loaded itself, [F, 3, S, S] as the model takes them."""

    def __init__(self, images: Any, model: SegmentationModel) -> None:
        super().__init__(FrameList([np.zeros((1, 1, 3), np.uint8)]), model, 0)
        self._images = images

    def __call__(self, index: int) -> Features:
        """A frame, encoded if it is not cached."""
        kept = self.get(index)
        if kept is not None:
            return kept
        pixels = np.ascontiguousarray(to_host(self._images[index]), np.float32)
        return self.put(index, ReadyFrame(np.zeros((0, 0, 3), np.uint8), pixels))


@contextmanager
def feeding_from(
    images: Any, model: SegmentationModel, last: int | None, *, is_reverse: bool
) -> Iterator[FrameFeed | None]:
    """A feed that decodes ahead, or None where a program loaded the frames itself."""
    if not isinstance(images, Frames):
        yield None
        return
    with feeding(images.source, model, last=last, is_reverse=is_reverse) as feed:
        yield feed


def initial_state(
    images: Any, size_hw: tuple[int, int], model: SegmentationModel, **offloading: bool
) -> State:
    """A session without objects; `images` are `Frames`, or loaded [F, 3, S, S]."""
    encoded = (
        EncodedFrames(images.source, model, 0)
        if isinstance(images, Frames)
        else LoadedFrames(images, model)
    )
    height, width = size_hw
    return {
        "images": images,
        "num_frames": len(images),
        **offloading,
        "video_height": height,
        "video_width": width,
        "device": device_named("cpu"),
        "storage_device": device_named("cpu"),
        "cached_features": encoded,
        "constants": {},
        **no_objects(),
    }


def no_objects() -> State:
    """The objects of a new state."""
    return {
        "point_inputs_per_obj": {},
        "mask_inputs_per_obj": {},
        "obj_id_to_idx": {},
        "obj_idx_to_id": {},
        "obj_ids": [],
        "output_dict_per_obj": {},
        "temp_output_dict_per_obj": {},
        "frames_tracked_per_obj": {},
    }


def number_of_objects(state: State) -> int:
    """The number of objects."""
    return len(state["obj_idx_to_id"])


def new_object(state: State, name: Any) -> int:
    """The index of an object, which is added if it is new."""
    if name in state["obj_id_to_idx"]:
        index: int = state["obj_id_to_idx"][name]
        return index
    index = len(state["obj_id_to_idx"])
    state["obj_id_to_idx"][name] = index
    state["obj_idx_to_id"][index] = name
    state["obj_ids"] = list(state["obj_id_to_idx"])
    state["point_inputs_per_obj"][index] = {}
    state["mask_inputs_per_obj"][index] = {}
    state["output_dict_per_obj"][index] = {COND: {}, NON_COND: {}}
    state["temp_output_dict_per_obj"][index] = {COND: {}, NON_COND: {}}
    state["frames_tracked_per_obj"][index] = {}
    return index


def expected_frames(state: State, start: int | None, most: int | None, reverse: bool) -> range:
    """The frames to track: by default, from the earliest conditioning frame on."""
    count = state["num_frames"]
    if start is None:
        stores = state["output_dict_per_obj"].values()
        start = min(frame for one in stores for frame in one[COND])
    most = count if most is None else most
    if reverse:
        return range(start, max(start - most, 0) - 1, -1) if start > 0 else range(0)
    return range(start, min(start + most, count - 1) + 1)


def all_frames(state: State, index: int, store: str, frame: int) -> Output | None:
    """The latest output of an object on a frame, from any store."""
    stores = (
        state["temp_output_dict_per_obj"][index][store],
        state["output_dict_per_obj"][index][COND],
        state["output_dict_per_obj"][index][NON_COND],
    )
    return next((outputs[frame] for outputs in stores if frame in outputs), None)


def output_of(outcome: Outcome) -> Output:
    """An outcome in the reference's layout, without memory."""
    return {
        "maskmem_features": None,
        "maskmem_pos_enc": None,
        "pred_masks": outcome.logits[None, None],
        "obj_ptr": outcome.pointer[None],
        "object_score_logits": outcome.score[None],
    }


def as_outcome(output: Output) -> Outcome:
    """The outcome an output was made of; the IoU is not in it."""
    score = output["object_score_logits"][0]
    return Outcome(output["pred_masks"][0, 0], score, score, output["obj_ptr"][0])


def with_memory(output: Output, memory: Any, model: SegmentationModel) -> None:
    """Add the memory [T, 64] to an output; the values are not copied.

    The tokens of a map are [1, 64, E, E], those of a compressed memory [1, T, 64].
    """
    config, channels = model.config, model.memory_layout.channels
    side, positions = config.grid, _positions(config)
    if len(memory) == side**2:
        output["maskmem_features"] = memory.T.reshape(1, channels, side, side)
        output["maskmem_pos_enc"] = [positions.T.reshape(1, channels, side, side)]
    else:
        output["maskmem_features"] = memory[None]
        output["maskmem_pos_enc"] = [positions[None]]


def bank_read(model: SegmentationModel, selection: Selection, stores: dict[str, Any]) -> BankRead:
    """What a frame reads of the outputs of an object, as the pages of a bank."""
    masks, slots, pointers, times = [], [], [], []
    for frame, slot, is_prompted in selection.masks:
        features = stores[COND if is_prompted else NON_COND][frame]["maskmem_features"]
        is_map = len(features.shape) == 4
        masks.append(features.reshape(features.shape[1], -1).T[None] if is_map else features)
        slots.append(slot)
    for frame, distance, is_prompted in selection.pointers:
        pointers.append(stores[COND if is_prompted else NON_COND][frame]["obj_ptr"])
        times.append(distance / selection.longest)
    concat, width = model.buffers.concat, model.memory_layout.pointer_channels
    rows = concat(pointers) if pointers else model.buffers.zeros((1, width), "f32")
    pages = concat(masks)
    return BankRead(
        pages,
        model.buffers.dtype(pages) or "bf16",
        np.arange(len(masks))[None],
        np.array([slots], np.int64),
        rows,
        np.arange(len(pointers))[None],
        np.array([times], np.float32).reshape(1, -1),
    )


def joined(reads: Sequence[BankRead], model: SegmentationModel) -> BankRead:
    """What several objects read, as one bank; all have memories of equal lengths."""
    if len(reads) == 1:
        return reads[0]
    concat, pages, rows = model.buffers.concat, 0, 0
    frames, pointers = [], []
    for read in reads:
        frames.append(read.frames + pages)
        pointers.append(read.pointers + rows)
        pages, rows = pages + len(read.pages), rows + len(read.pointer_rows)
    return BankRead(
        concat([read.pages for read in reads]),
        reads[0].stored,
        np.concatenate(frames),
        np.concatenate([read.slots for read in reads]),
        concat([read.pointer_rows for read in reads]),
        np.concatenate(pointers),
        np.concatenate([read.pointer_times for read in reads]),
    )


def given_clicks(
    points: Any, labels: Any, box: Any, *, clears: bool
) -> tuple[Floats, NDArray[np.int64]]:
    """The box, then the points, as given: coordinates [P, 2] and labels [P]."""
    if (points is None) != (labels is None):
        raise ValueError("points and labels must be provided together")
    if points is None and box is None:
        raise ValueError("at least one of points or box must be provided as input")
    xy, kinds = np.zeros((0, 2), np.float32), np.zeros(0, np.int64)
    if points is not None:
        xy = np.asarray(to_host(points), np.float32).reshape(-1, 2)
        kinds = np.asarray(to_host(labels)).astype(np.int64).reshape(-1)
    if box is not None:
        if not clears:
            raise ValueError("a box comes before any point: use clear_old_points=True")
        xy = np.concatenate([np.asarray(to_host(box), np.float32).reshape(2, 2), xy])
        kinds = np.concatenate([np.array(BOX_LABELS, np.int64), kinds])
    return xy, kinds


def stored_clicks(given: dict[str, NDArray[Any]]) -> Clicks:
    """The earlier clicks on a frame."""
    return Clicks(given["point_coords"][0], given["point_labels"][0])


def close_up(state: State, removed: int) -> None:
    """Renumber the objects after a removed object."""
    ids = [name for index, name in enumerate(state["obj_ids"]) if index != removed]
    for key in (
        "point_inputs_per_obj",
        "mask_inputs_per_obj",
        "output_dict_per_obj",
        "temp_output_dict_per_obj",
        "frames_tracked_per_obj",
    ):
        kept = [value for index, value in sorted(state[key].items()) if index != removed]
        state[key].clear()
        state[key].update(enumerate(kept))
    state["obj_id_to_idx"] = {name: index for index, name in enumerate(ids)}
    state["obj_idx_to_id"] = dict(enumerate(ids))
    state["obj_ids"] = ids


@lru_cache(maxsize=8)
def _positions(config: Any) -> Floats:
    """The positions of the memory tokens of a frame: [T, 64]."""
    positions: Floats = config.memory_positions()
    return positions
