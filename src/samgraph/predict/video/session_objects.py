"""One object of a session, as tensors and JSON. Memory in bf16 is written as the same 16 bits."""

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from samgraph.errors import CheckpointError
from samgraph.predict.video.following import Follower
from samgraph.predict.video.memory_bank import STORED_AS, Memory, Stored
from samgraph.predict.video.object_prompts import Prompt, checked_object
from samgraph.predict.video.tracked_object import Run, TrackedObject
from samgraph.predict.video.tracker import Outcome

Tensors = Mapping[str, NDArray[Any]]


def write_object(one: TrackedObject, at: str, tensors: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """Put an object's arrays among the tensors; returns the rest of it."""
    for store, memories in (("prompted", one.bank.prompted), ("tracked", one.bank.tracked)):
        for frame, memory in memories.items():
            if memory.mask is not None:
                tensors[f"{at}.{store}.{frame}.mask"] = _bits(memory.mask)
            tensors[f"{at}.{store}.{frame}.pointer"] = memory.pointer
    for frame, answer in one.answers.items():
        tensors[f"{at}.answer.{frame}.low"] = answer.low
        tensors[f"{at}.answer.{frame}.pointer"] = answer.pointer
    for frame, prompt in one.prompts.items():
        for name in ("box_xyxy", "points_xy", "labels", "mask"):
            array = getattr(prompt, name)
            if array is not None:
                tensors[f"{at}.prompt.{frame}.{name}"] = array
    passed = np.array(list(one.tracked.items()), np.int64).reshape(-1, 2)
    tensors[f"{at}.passed"] = passed
    return {
        "name": one.name,
        "prompted": list(one.bank.prompted),
        "tracked": list(one.bank.tracked),
        "answers": {frame: [float(a.score), float(a.iou)] for frame, a in one.answers.items()},
        "prompts": list(one.prompts),
        "waiting": list(one.waiting),
        "runs": {str(int(way)): [run.first, run.last] for way, run in one.runs.items()},
    }


def read_object(
    follower: Follower, described: Mapping[str, Any], at: str, tensors: Tensors
) -> TrackedObject:
    """An object as it was."""
    one = follower.new_object(checked_object(described["name"]))
    config = follower.tracker.config
    for store, memories in (("prompted", one.bank.prompted), ("tracked", one.bank.tracked)):
        for frame in map(int, described[store]):
            place = f"{at}.{store}.{frame}"
            pointer = _shaped(tensors[f"{place}.pointer"], (config.channels,))
            mask = tensors.get(f"{place}.mask")
            if mask is not None:
                shape = (config.grid**2, config.memory_channels)
                mask = _stored(_shaped(mask, shape), follower.tracker.memory_precision)
            memories[frame] = Memory(mask, pointer)
    for frame, (score, iou) in described["answers"].items():
        place = f"{at}.answer.{frame}"
        low = _shaped(tensors[f"{place}.low"], (config.mask_size, config.mask_size))
        pointer = _shaped(tensors[f"{place}.pointer"], (config.channels,))
        one.answers[int(frame)] = Outcome(low, float(score), float(iou), pointer)
    for frame in map(int, described["prompts"]):
        one.prompts[frame] = Prompt(
            *(
                tensors.get(f"{at}.prompt.{frame}.{name}")
                for name in ("box_xyxy", "points_xy", "labels", "mask")
            )
        )
    one.waiting.update(dict.fromkeys(map(int, described["waiting"])))
    one.tracked.update({int(f): bool(way) for f, way in tensors[f"{at}.passed"].tolist()})
    for way, (first, last) in described["runs"].items():
        one.runs[way == "1"] = Run(int(first), int(last))
    return one


def _bits(mask: Stored) -> NDArray[Any]:
    return mask.view(np.uint16) if mask.dtype == ml_dtypes.bfloat16 else mask


def _stored(mask: NDArray[Any], precision: str) -> Stored:
    """A memory in the precision of the session that goes on."""
    values = mask.view(STORED_AS["bf16"]) if mask.dtype == np.uint16 else mask
    return values.astype(STORED_AS[precision])


def _shaped(array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    if array.shape != shape:
        raise CheckpointError(
            "a session does not fit this model", got=list(array.shape), expected=list(shape)
        )
    return array
