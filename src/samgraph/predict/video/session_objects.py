"""One object of a session, as tensors and JSON. Memory in bf16 is written as the same 16 bits."""

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from samgraph.errors import CheckpointError
from samgraph.graph.types import numpy_dtype
from samgraph.predict.prompts import Prompt
from samgraph.predict.video.bank import STORED_AS, Memory
from samgraph.predict.video.objects import Run, TrackedObject
from samgraph.predict.video.policies.history import Observation
from samgraph.predict.video.prompts import checked_object
from samgraph.predict.video.session import TrackingSession
from samgraph.predict.video.step import Outcome

Tensors = Mapping[str, NDArray[Any]]


def write_object(
    session: TrackingSession, obj: TrackedObject, at: str, tensors: dict[str, NDArray[Any]]
) -> dict[str, Any]:
    """Put an object's arrays among the tensors; returns the rest of it."""
    download = session.model.buffers.download
    for store, memories in (("prompted", obj.bank.prompted), ("tracked", obj.bank.tracked)):
        for frame, memory in memories.items():
            if memory.mask is not None:
                tensors[f"{at}.{store}.{frame}.mask"] = _bits(download(memory.mask.buffer)[0])
            tensors[f"{at}.{store}.{frame}.pointer"] = download(memory.pointer.buffer)[0]
    answers = {}
    for frame, answer in obj.answers.items():
        tensors[f"{at}.answer.{frame}.logits"] = download(answer.logits)
        tensors[f"{at}.answer.{frame}.pointer"] = download(answer.pointer)
        answers[frame] = [float(download(answer.score)[0]), float(download(answer.iou)[0])]
    for frame, prompt in obj.prompts.items():
        tensors[f"{at}.prompt.{frame}.points"] = prompt.points
        tensors[f"{at}.prompt.{frame}.labels"] = prompt.labels
        if prompt.mask is not None:
            tensors[f"{at}.prompt.{frame}.mask"] = prompt.mask
    passed = np.array(list(obj.tracked.items()), np.int64).reshape(-1, 2)
    tensors[f"{at}.passed"] = passed
    observed = obj.history.observed
    if observed:
        tensors[f"{at}.observed"] = np.array(list(observed), np.int64)
        tensors[f"{at}.observations"] = np.stack([found.row() for found in observed.values()])
    return {
        "name": obj.name,
        "prompted": list(obj.bank.prompted),
        "tracked": list(obj.bank.tracked),
        "answers": answers,
        "prompts": list(obj.prompts),
        "waiting": list(obj.waiting),
        "runs": {str(int(way)): [run.first, run.last] for way, run in obj.runs.items()},
    }


def read_object(
    session: TrackingSession, described: Mapping[str, Any], at: str, tensors: Tensors
) -> TrackedObject:
    """An object as it was, its memory where the session computes."""
    obj = session.new_object(checked_object(described["name"]))
    layout, side = session.model.memory_layout, session.model.config.mask_size
    upload = session.model.buffers.upload
    for store, memories in (("prompted", obj.bank.prompted), ("tracked", obj.bank.tracked)):
        for frame in map(int, described[store]):
            key = f"{at}.{store}.{frame}"
            pointer = _shaped(tensors[f"{key}.pointer"], (layout.pointer_channels,))
            mask = tensors.get(f"{key}.mask")
            page = None
            if mask is not None:
                shaped = _shaped(mask, (layout.tokens, layout.channels))
                stored = _stored(shaped, session.options.memory_precision)
                page = session.pool.masks.store(upload(stored[None]))[0]
            memories[frame] = Memory(page, session.pool.pointers.store(upload(pointer[None]))[0])
    for frame, (score, iou) in described["answers"].items():
        key = f"{at}.answer.{frame}"
        obj.answers[int(frame)] = Outcome(
            upload(_shaped(tensors[f"{key}.logits"], (side, side))),
            upload(np.array([score], np.float32)),
            upload(np.array([iou], np.float32)),
            upload(_shaped(tensors[f"{key}.pointer"], (layout.pointer_channels,))),
        )
    for frame in map(int, described["prompts"]):
        key = f"{at}.prompt.{frame}"
        points, labels = tensors[f"{key}.points"], tensors[f"{key}.labels"]
        obj.prompts[frame] = Prompt(points, labels, mask=tensors.get(f"{key}.mask"))
    obj.waiting.update(dict.fromkeys(map(int, described["waiting"])))
    obj.tracked.update({int(f): bool(way) for f, way in tensors[f"{at}.passed"].tolist()})
    if f"{at}.observed" in tensors:
        rows = tensors[f"{at}.observations"]
        for frame, row in zip(tensors[f"{at}.observed"].tolist(), rows, strict=True):
            obj.history.note(frame, Observation.of_row(row))
    for way, (first, last) in described["runs"].items():
        obj.runs[way == "1"] = Run(int(first), int(last))
    return obj


def _bits(mask: NDArray[Any]) -> NDArray[Any]:
    return mask.view(np.uint16) if mask.dtype == ml_dtypes.bfloat16 else mask


def _stored(mask: NDArray[Any], precision: str) -> NDArray[Any]:
    """A memory in the precision of the session that goes on."""
    values = mask.view(ml_dtypes.bfloat16) if mask.dtype == np.uint16 else mask
    return values.astype(numpy_dtype(STORED_AS[precision]))


def _shaped(array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    if array.shape != shape:
        raise CheckpointError(
            "a session does not fit this model", got=list(array.shape), expected=list(shape)
        )
    return array
