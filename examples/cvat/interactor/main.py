"""A Nuclio function for CVAT: the mask of an object from clicks and a box.

CVAT sends the image with every click: `{image (base64), pos_points, neg_points, obj_bbox}`. The
last images stay encoded, so that only the first click on an image takes long.
"""

import base64
import binascii
import hashlib
import json
import os
from collections import OrderedDict
from typing import Any

import samgraph
from samgraph.errors import PromptError, SamgraphError
from samgraph.formats.cvat import cvat_points

MOST_IMAGES = 8


class Interactor:
    """The model, and the images that were clicked on last."""

    def __init__(self, model: samgraph.Model) -> None:
        self._model = model
        self._images: OrderedDict[str, Any] = OrderedDict()

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        """The reply to a request of CVAT: a mask as runs of its box, row by row, and the box."""
        image = self._image(_bytes(body.get("image")))
        inside, outside = body.get("pos_points") or [], body.get("neg_points") or []
        points = [*inside, *outside]
        labels = [1] * len(inside) + [0] * len(outside)
        box = _box(body.get("obj_bbox"), image.size_hw)
        result = image.predict(
            points=points or None,
            labels=labels or None,
            box=box,
            multimask=len(points) == 1 and box is None,
        )
        best = result.best.segments[0]
        shapes = [{"type": "mask", "points": cvat_points(best)}] if best.area else []
        return {"shapes": shapes}

    def _image(self, data: bytes) -> Any:
        key = hashlib.sha256(data).hexdigest()
        if key not in self._images:
            self._images[key] = self._model.image(data)
        self._images.move_to_end(key)
        while len(self._images) > MOST_IMAGES:
            self._images.popitem(last=False)
        return self._images[key]


def init_context(context: Any) -> None:
    """Load the model once for all requests."""
    context.user_data.interactor = Interactor(
        samgraph.load(os.environ.get("SAMGRAPH_MODEL") or None)
    )


def handler(context: Any, event: Any) -> Any:
    """Answer a request."""
    try:
        reply, status = context.user_data.interactor.answer(event.body), 200
    except SamgraphError as error:
        reply, status = {"error": str(error)}, 400
    return context.Response(
        body=json.dumps(reply), headers={}, content_type="application/json", status_code=status
    )


def _bytes(text: object) -> bytes:
    try:
        return base64.b64decode(text if isinstance(text, str) else "", validate=True)
    except (binascii.Error, ValueError) as error:
        raise PromptError("`image` is not base64") from error


def _box(given: Any, size_hw: tuple[int, int]) -> list[float] | None:
    """A box as CVAT gives it, two corners, cut off at the edges of the image."""
    if not given:
        return None
    flat = [
        value for corner in given for value in (corner if isinstance(corner, list) else [corner])
    ]
    if len(flat) != 4 or not all(isinstance(value, int | float) for value in flat):
        raise PromptError("`obj_bbox` is not a box", expected="two corners")
    (left, right), (top, bottom) = sorted(flat[0::2]), sorted(flat[1::2])
    return [max(left, 0), max(top, 0), min(right, size_hw[1]), min(bottom, size_hw[0])]
