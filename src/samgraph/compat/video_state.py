"""The state of the reference's video predictor: a dict with its keys, holding numpy arrays.

For every object, `output_dict_per_obj` has two stores of outputs by frame: conditioning frames,
which were prompted before they were tracked, and all others. Prompts since the last propagation
are in `temp_output_dict_per_obj`.

Shapes: C channels, E grid, L mask size, S image size, T cells of the grid.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from samgraph.media.image.preprocess import resize_video_frame
from samgraph.media.video.frames import FrameSource
from samgraph.models.family import BankRead, SegmentationModel
from samgraph.models.sam2.positions import sine_grid
from samgraph.predict.prompts import BOX_LABELS, Floats
from samgraph.predict.video.feed import EncodedFrames
from samgraph.predict.video.policy import Selection
from samgraph.predict.video.step import Clicks, Outcome

State = dict[str, Any]
Output = dict[str, Any]

COND, NON_COND = "cond_frame_outputs", "non_cond_frame_outputs"


class Frames:
    """The frames of a video as the reference's `images`: float32 [3, S, S], decoded on access."""

    def __init__(self, source: FrameSource, size: int) -> None:
        self.source, self._size = source, size

    def __len__(self) -> int:
        return self.source.length or 0

    def __getitem__(self, index: int) -> Floats:
        return resize_video_frame(self.source.frame(index), self._size)


def initial_state(source: FrameSource, model: SegmentationModel, **offloading: bool) -> State:
    """A session without objects."""
    if source.length is None:
        raise ValueError("the number of frames must be known: give a list, a folder or a file")
    height, width = source.size_hw
    return {
        "images": Frames(source, model.config.image_size),
        "num_frames": source.length,
        **offloading,
        "video_height": height,
        "video_width": width,
        "device": "cpu",
        "storage_device": "cpu",
        "point_inputs_per_obj": {},
        "mask_inputs_per_obj": {},
        "cached_features": EncodedFrames(source, model, 0),
        "constants": {},
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
    places = (
        state["temp_output_dict_per_obj"][index][store],
        state["output_dict_per_obj"][index][COND],
        state["output_dict_per_obj"][index][NON_COND],
    )
    return next((outputs[frame] for outputs in places if frame in outputs), None)


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
    """Add the memory [T, 64] to an output, as [1, 64, E, E]; the values are not copied."""
    side, channels = model.config.grid, model.memory_layout.channels
    output["maskmem_features"] = memory.T.reshape(1, channels, side, side)
    output["maskmem_pos_enc"] = [_positions(channels, side)]


def bank_read(model: SegmentationModel, selection: Selection, stores: dict[str, Any]) -> BankRead:
    """What a frame reads of the outputs of an object, put together as the pages of a bank."""
    masks, slots, pointers, times = [], [], [], []
    for frame, slot, is_prompted in selection.masks:
        features = stores[COND if is_prompted else NON_COND][frame]["maskmem_features"]
        masks.append(features.reshape(features.shape[1], -1).T[None])
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
        xy = np.asarray(points, np.float32).reshape(-1, 2)
        kinds = np.asarray(labels).astype(np.int64).reshape(-1)
    if box is not None:
        if not clears:
            raise ValueError("a box comes before any point: use clear_old_points=True")
        xy = np.concatenate([np.asarray(box, np.float32).reshape(2, 2), xy])
        kinds = np.concatenate([np.array(BOX_LABELS, np.int64), kinds])
    return xy, kinds


def stored_clicks(given: dict[str, NDArray[Any]]) -> Clicks:
    """The earlier clicks on a frame."""
    return Clicks(given["point_coords"][0], given["point_labels"][0])


def close_up(state: State, removed: int) -> None:
    """Renumber the objects after a removed object."""
    ids = [name for place, name in enumerate(state["obj_ids"]) if place != removed]
    for key in (
        "point_inputs_per_obj",
        "mask_inputs_per_obj",
        "output_dict_per_obj",
        "temp_output_dict_per_obj",
        "frames_tracked_per_obj",
    ):
        kept = [value for place, value in sorted(state[key].items()) if place != removed]
        state[key].clear()
        state[key].update(enumerate(kept))
    state["obj_id_to_idx"] = {name: place for place, name in enumerate(ids)}
    state["obj_idx_to_id"] = dict(enumerate(ids))
    state["obj_ids"] = ids


_POSITIONS: dict[tuple[int, int], Floats] = {}


def _positions(channels: int, side: int) -> Floats:
    key = (channels, side)
    if key not in _POSITIONS:
        _POSITIONS[key] = sine_grid(channels, side, side)[None].astype(np.float32)
    return _POSITIONS[key]
