"""SAM 2 for CVAT's SDK (`pip install cvat-sdk cvat-cli`): masks of everything, clicks, tracks.

Annotate a task with automatic masks, from the machine that has this file:

    cvat-cli task auto-annotate TASK --function-file examples/cvat/sdk_function.py \
        -p kind=str:everything -p model=str:sam2.1-tiny

Or run an agent, whose functions then appear among CVAT's AI tools (`kind` interaction or tracking):

    cvat-cli function create-native "SAM 2" --function-file examples/cvat/sdk_function.py \
        -p kind=str:interaction
    cvat-cli function run-agent ID --function-file examples/cvat/sdk_function.py \
        -p kind=str:interaction
"""

from typing import Any

import cvat_sdk.auto_annotation as cvataa
import cvat_sdk.models
import numpy as np
from PIL import Image

import samgraph
from samgraph.errors import OptionError
from samgraph.formats.cvat import cvat_mask, cvat_points
from samgraph.formats.segment import Segment
from samgraph.media.mask.polygons import mask_to_polygons, polygons_to_mask, ring_area

LABEL = "object"


class Everything:
    """A detection function: automatic masks, all under one label."""

    spec = cvataa.DetectionFunctionSpec(labels=[cvataa.label_spec(LABEL, 0, type="any")])

    def __init__(self, model: samgraph.Model) -> None:
        self._model = model

    def detect(self, context: Any, image: Image.Image) -> list[Any]:
        """Masks, or polygons where they are asked for, above the threshold that is asked for."""
        least = context.conf_threshold or 0.0
        found = self._model.everything(image, progress=False)
        kept = [segment for segment in found.segments if (segment.score or 0.0) >= least]
        if not context.conv_mask_to_poly:
            return [cvataa.mask(0, cvat_points(segment)) for segment in kept]
        return [cvataa.polygon(0, _outline(segment.mask)) for segment in kept]


class Interaction:
    """An interaction function: images are encoded once, then clicked on."""

    spec = cvataa.InteractionFunctionSpec(min_pos_points=0, min_neg_points=0, min_bounding_boxes=0)

    def __init__(self, model: samgraph.Model) -> None:
        self._model = model

    def preprocess_image(self, context: Any, image: Image.Image) -> Any:
        """The image, encoded."""
        return self._model.image(image)

    def detect(self, context: Any, pp_image: Any, prompts: Any) -> list[Any]:
        """The mask of the clicks and the box."""
        points = [*prompts.pos_points, *prompts.neg_points]
        labels = [1] * len(prompts.pos_points) + [0] * len(prompts.neg_points)
        box = None if prompts.bounding_box is None else np.ravel(prompts.bounding_box)
        best = pp_image.predict(
            points=points or None,
            labels=labels or None,
            box=box,
            multimask=len(points) == 1 and box is None,
        ).best.segments[0]
        if not best.area:
            return []
        confidence = cvat_sdk.models.AttributeValRequest(
            spec_id=int(cvataa.InteractionResultAttributes.CONFIDENCE),
            value=f"{min(max(best.score or 0.0, 0.0), 1.0):.4f}",
        )
        shape = cvataa.InteractionResultShape(
            type="mask", points=cvat_points(best), attributes=[confidence]
        )
        return [shape]


class Tracking:
    """A tracking function: a shape is followed from image to image."""

    spec = cvataa.TrackingFunctionSpec(supported_shape_types=["rectangle", "polygon", "mask"])

    def __init__(self, model: samgraph.Model) -> None:
        self._model = model

    def preprocess_image(self, context: Any, image: Image.Image) -> Any:
        """The pixels, [H, W, 3]."""
        return np.asarray(image.convert("RGB"))

    def init_tracking_state(self, context: Any, pp_image: Any, shape: Any) -> Any:
        """What is remembered of the shape."""
        stream, size_hw = self._model.stream(), pp_image.shape[:2]
        stream.step(pp_image)
        if shape.type == "rectangle":
            stream.add(object=1, box=np.clip(shape.points, 0, [*size_hw[::-1], *size_hw[::-1]]))
        elif shape.type == "mask":
            stream.add(object=1, mask=cvat_mask(shape.points, size_hw))
        else:
            ring = np.reshape(shape.points, (-1, 2))
            stream.add(object=1, mask=polygons_to_mask([ring], size_hw))
        return stream

    def track(self, context: Any, pp_image: Any, state: Any) -> Any:
        """The shape on the next image; None where it cannot be seen."""
        segment = Segment.from_mask(state.step(pp_image).masks[0])
        if not segment.area:
            return None
        kind = context.original_shape_type
        points = {
            "rectangle": lambda: segment.box_xyxy,
            "mask": lambda: cvat_points(segment),
            "polygon": lambda: _outline(segment.mask),
        }[kind]()
        return cvataa.TrackableShape(type=kind, points=points)


KINDS = {"everything": Everything, "interaction": Interaction, "tracking": Tracking}


def create(kind: str = "interaction", model: str = "", **options: Any) -> Any:
    """The function that `cvat-cli` asks for; options are those of `samgraph.load`."""
    if kind not in KINDS:
        raise OptionError(f"there is no function `{kind}`", expected=", ".join(KINDS))
    return KINDS[kind](samgraph.load(model or None, **options))


def _outline(mask: Any) -> list[float]:
    """The outline of a mask's largest part: x, y, x, y, ..."""
    largest = max(mask_to_polygons(mask, 1.0), key=lambda part: ring_area(part.outer))
    return [float(value) for value in largest.outer.ravel()]
