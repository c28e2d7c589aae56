"""Label Studio's labelling configuration: which tag gets the masks, and which shows the image.

<View>
  <Image name="image" value="$image"/>
  <BrushLabels name="tag" toName="image"><Label value="cat"/></BrushLabels>
  <KeyPointLabels name="kp" toName="image" smart="true"><Label value="cat"/></KeyPointLabels>
</View>
"""

from dataclasses import dataclass
from xml.etree import ElementTree

from samgraph.serve.replies import RequestError
from samgraph.untrusted.text import shown

LONGEST_CONFIG = 1 << 20
OBJECTS = ("Image", "Video")
# Control tags that can hold what a model finds, the most exact first, and the type of a region.
CONTROLS = {
    "BrushLabels": "brushlabels",
    "Brush": "brush",
    "BitmaskLabels": "bitmasklabels",
    "Bitmask": "bitmask",
    "PolygonLabels": "polygonlabels",
    "Polygon": "polygon",
    "VectorLabels": "vectorlabels",
    "RectangleLabels": "rectanglelabels",
    "Rectangle": "rectangle",
    "VideoVectorLabels": "videovectorlabels",
    "VideoVector": "videovector",
    "VideoRectangle": "videorectangle",
}


@dataclass(frozen=True, slots=True)
class Control:
    """Where masks go: the control tag, and the object tag it belongs to.

    Attributes:
        type: The type of its regions, such as `brushlabels`.
        from_name: Its name.
        to_name: The name of the image or video.
        is_video: Whether that is a video.
        key: Where its address is in the data of a task.
        labels: Labels of regions.
    """

    type: str
    from_name: str
    to_name: str
    is_video: bool
    key: str
    labels: tuple[str, ...]

    def label(self, wanted: str | None) -> str | None:
        """The label that was chosen, if the control knows it; else its first."""
        if wanted in self.labels or not self.labels:
            return wanted
        return self.labels[0]


def read_control(config: str) -> Control:
    """The control tag that masks are for.

    Raises:
        RequestError: It is not XML, or has no such tag.
    """
    root = _parse(config)
    objects = {tag.get("name", ""): tag for tag in root.iter() if tag.tag in OBJECTS}
    for kind, region in CONTROLS.items():
        for tag in root.iter(kind):
            to_name = tag.get("toName", "")
            if to_name not in objects or not tag.get("name"):
                continue
            shown_by = objects[to_name]
            return Control(
                region,
                tag.get("name", ""),
                to_name,
                shown_by.tag == "Video",
                shown_by.get("value", "").removeprefix("$"),
                _labels(tag, root),
            )
    raise RequestError(
        422,
        "the labelling configuration has no tag for masks",
        hint="add <BrushLabels> or <PolygonLabels> for an <Image>, <VideoRectangle> for a <Video>",
    )


def _labels(control: ElementTree.Element, root: ElementTree.Element) -> tuple[str, ...]:
    """The labels of a control; of a `Labels` tag next to it, where it has none."""
    found = [tag.get("value", "") for tag in control.iter("Label")]
    if not found:
        beside = [tag for tag in root.iter("Labels") if tag.get("toName") == control.get("toName")]
        found = [label.get("value", "") for tag in beside for label in tag.iter("Label")]
    return tuple(filter(None, found))


def _parse(config: str) -> ElementTree.Element:
    # A document type is how XML bombs and references to other files come in.
    if len(config) > LONGEST_CONFIG or "<!" in config.replace("<!--", ""):
        raise RequestError(422, "the labelling configuration is too long or declares a type")
    try:
        return ElementTree.fromstring(config)  # noqa: S314 (no document type, so no entities)
    except (ElementTree.ParseError, ValueError, RecursionError, MemoryError) as error:
        raise RequestError(
            422, f"the labelling configuration is not XML: {shown(str(error), 80)}"
        ) from error
