"""COCO for videos (CocoVID): COCO instance annotations whose images are the frames of a video.

    {"videos":      [{"id": 1, "name": "clip", "width": 640, "height": 480}],
     "images":      [{"id": 1, "video_id": 1, "frame_id": 0, "file_name": "00000.png", ...}],
     "annotations": [{"id": 1, "image_id": 1, "video_id": 1, "instance_id": 3, ...}], ...}

`instance_id` is the object over all frames, `frame_id` counts from 0. The rest is COCO, so that
readers of COCO, ours among them, read it as images.
"""

from collections.abc import Iterable
from typing import Any

from samgraph.formats.coco import coco_document
from samgraph.formats.segment import SegmentedImage

VIDEO_ID = 1


def coco_vid_document(
    frames: Iterable[SegmentedImage], *, polygons: bool = False, tolerance: float = 0.0
) -> dict[str, Any]:
    """The annotation file of one video as a value for `json.dumps`."""
    frames = list(frames)
    document = coco_document(frames, polygons=polygons, tolerance=tolerance)
    height, width = frames[0].size_hw if frames else (0, 0)
    video = {"id": VIDEO_ID, "name": "video", "width": width, "height": height}
    for place, (image, frame) in enumerate(zip(document["images"], frames, strict=True)):
        image |= {"video_id": VIDEO_ID, "frame_id": place if frame.index is None else frame.index}
    for annotation in document["annotations"]:
        annotation["video_id"] = VIDEO_ID
        if "track_id" in annotation:
            annotation["instance_id"] = annotation.pop("track_id")
    return {
        "info": document["info"],
        "videos": [video | {"length": len(frames)}],
        **{key: document[key] for key in ("images", "categories", "annotations")},
    }
