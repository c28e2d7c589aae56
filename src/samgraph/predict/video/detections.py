"""Boxes of a detector on the frames of a stream, matched to the objects that are tracked.

    result = stream.step(frame, boxes=detector(frame))    # [K, 4]: left, top, right, bottom

    a detection with an id        belongs to the object of that id, wherever it is
    one that overlaps an object   belongs to it: greedily, the largest IoU of boxes first
    any other                     becomes a new object, prompted with the box

An object that goes on without detections is tracked as before, and ends after `end_after` steps. A
detection corrects its object where that is absent, or the mask's box overlaps too little.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from samgraph.errors import PromptError
from samgraph.predict.video.automatic import limit_prompted
from samgraph.predict.video.policies.history import box_overlaps
from samgraph.predict.video.prompts import ObjectId, checked_object, video_prompt
from samgraph.predict.video.result import FrameResult, ObjectResult

if TYPE_CHECKING:
    from samgraph.predict.video.stream import Stream

Floats = NDArray[np.float32]
MOST_BOXES = 4096


@dataclass(frozen=True, slots=True, eq=False)
class Detections:
    """Boxes of one frame, within it: boxes [K, 4], an id or None each, scores [K]."""

    boxes: Floats
    ids: tuple[ObjectId | None, ...]
    scores: Floats


def read_detections(
    size_hw: tuple[int, int], boxes: Any, ids: Any = None, scores: Any = None
) -> Detections:
    """What a detector gave, checked; boxes are clipped to the frame, and dropped if outside of it.

    Raises:
        PromptError: The boxes are no boxes, or there is not one id or score for each.
    """
    found = _numbers("boxes", boxes)
    found = found.reshape(0, 4) if found.size == 0 else found
    if found.ndim != 2 or found.shape[1] != 4 or len(found) > MOST_BOXES:
        raise PromptError(
            "boxes are left, top, right, bottom each",
            got=f"an array of shape {list(found.shape)}",
            expected=f"[K, 4], K at most {MOST_BOXES}",
        )
    names = [None] * len(found) if ids is None else [_id(name) for name in ids]
    given = np.ones(len(found), np.float32) if scores is None else _numbers("scores", scores)
    for what, count in (("ids", len(names)), ("scores", given.size)):
        if count != len(found):
            raise PromptError(
                f"there is not one of `{what}` for each box", got=f"{count} for {len(found)}"
            )
    known = [name for name in names if name is not None]
    if len(set(known)) < len(known):
        raise PromptError("an id stands for two boxes of one frame", got=f"{known}"[:80])
    if (found[:, 2:] < found[:, :2]).any():
        raise PromptError(
            "a box ends before it begins",
            got=str(found[(found[:, 2:] < found[:, :2]).any(1)][0].tolist()),
            expected="left, top, right, bottom",
        )
    height, width = size_hw
    clipped = np.clip(found, 0, np.array([width, height, width, height], np.float32))
    inside = ((clipped[:, 2:] - clipped[:, :2]) >= 1).all(1)
    kept = np.flatnonzero(inside)
    return Detections(clipped[kept], tuple(names[i] for i in kept), given.reshape(-1)[kept])


def match_boxes(objects: Floats, boxes: Floats, least_iou: float) -> dict[int, int]:
    """Pairs of boxes by overlap, greedily: index in `boxes` [K, 4] to index in `objects` [N, 4]."""
    overlaps = np.zeros((len(boxes), len(objects)), np.float32)
    for row, box in enumerate(boxes):
        if len(objects):
            overlaps[row] = box_overlaps(box, objects)
    pairs: dict[int, int] = {}
    taken: set[int] = set()
    for flat in np.argsort(-overlaps, axis=None, kind="stable"):
        row, column = divmod(int(flat), max(len(objects), 1))
        if overlaps[row, column] < least_iou:
            break
        if row not in pairs and column not in taken:
            pairs[row] = column
            taken.add(column)
    return pairs


def apply_detections(stream: "Stream", result: FrameResult, found: Detections) -> FrameResult:
    """Match detections to the tracked objects of a result, correct, begin and end objects.

    Returns the result as it is then, with the objects that are new.
    """
    options, automatic = stream.options, stream.automatic
    frame, before = result.index, {obj.name: obj for obj in result.object_results}
    matched, boxes = _matched(result, found, options.match_iou), result.boxes
    results: dict[ObjectId, ObjectResult] = {}
    confirmed = set(matched.values())
    for row, box in enumerate(found.boxes):
        name = matched.get(row, found.ids[row])
        if name is not None and name in before:
            place = result.objects.index(name)
            is_off = box_overlaps(box, boxes[place : place + 1])[0] < options.match_iou
            if is_off or not result.present[place]:
                results[name] = _prompted(stream, name, frame, box, result.size_hw)
        elif found.scores[row] >= options.min_score and _has_room(stream, confirmed):
            name = automatic.new_id(stream.numbers) if name is None else name
            results[name] = _prompted(stream, name, frame, box, result.size_hw)
            automatic.begin(name, frame)
            confirmed.add(name)
    for name, life in list(automatic.lifetimes.items()):
        life.missed = 0 if name in confirmed else life.missed + 1
        if life.missed >= options.end_after:
            stream.end(name)
        else:
            limit_prompted(stream.states[name].bank)
    shown = {**before, **results}
    left = {name: one for name, one in shown.items() if name in stream.states}
    if not results and len(left) == len(before):
        return result
    return stream.result_of(left)


def _matched(result: FrameResult, found: Detections, least_iou: float) -> dict[int, ObjectId]:
    """The object of each detection that has one: by its id, else by overlap."""
    by_id = {
        row: name
        for row, name in enumerate(found.ids)
        if name is not None and name in result.objects
    }
    taken = set(by_id.values())
    free = [row for row in range(len(found.boxes)) if found.ids[row] is None]
    places = [
        place
        for place, (name, is_there) in enumerate(zip(result.objects, result.present, strict=True))
        if is_there and name not in taken
    ]
    boxes = result.boxes.astype(np.float32)
    pairs = match_boxes(boxes[places].reshape(-1, 4), found.boxes[free].reshape(-1, 4), least_iou)
    return by_id | {free[row]: result.objects[places[place]] for row, place in pairs.items()}


def _has_room(stream: "Stream", confirmed: Collection[ObjectId]) -> bool:
    """Whether another object fits; one that is missed ends for it, the longest missed first."""
    lifetimes = stream.automatic.lifetimes
    if len(stream.states) < stream.options.max_objects:
        return True
    missed = [name for name, one in lifetimes.items() if one.missed and name not in confirmed]
    if not missed:
        return False
    name = max(missed, key=lambda name: lifetimes[name].missed)
    stream.end(name)
    return True


def _prompted(
    stream: "Stream", name: ObjectId, frame: int, box: Floats, size_hw: tuple[int, int]
) -> ObjectResult:
    stream.prompt(name, video_prompt(size_hw, box=box))
    return ObjectResult.of(name, stream.states[name].answers[frame], is_prompted=True)


def _numbers(name: str, values: Any) -> Floats:
    try:
        found = np.asarray(values, np.float32)
    except (TypeError, ValueError, OverflowError) as error:
        raise PromptError(f"`{name}` are numbers", got=str(error)[:80]) from error
    if not np.isfinite(found).all():
        raise PromptError(f"`{name}` are finite numbers", got="NaN or infinity")
    return found


def _id(name: Any) -> ObjectId | None:
    return None if name is None else checked_object(name)
