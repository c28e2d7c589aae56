"""A video in a notebook: a small player with the masks that are known, inside the page."""

import base64
import html
import math
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from samgraph.errors import SamgraphError
from samgraph.formats.folders import write_overlay_video
from samgraph.formats.pictures import draw_segments
from samgraph.formats.segment import SegmentedImage
from samgraph.predict.video.export import frame_rate

if TYPE_CHECKING:
    from samgraph.predict.video.video import Video

MOST_FRAMES, LONGEST_SIDE = 240, 480


def player_html(video: "Video") -> str | None:
    """An HTML player, or None where the video cannot be read again or written.

    At most 240 frames of at most 480 pixels, evenly chosen: about a second of work and a megabyte.
    Nothing is tracked: frames that were not, or whose results were not kept, have no masks.
    """
    length = video.source.length
    if not length:
        return None
    step = math.ceil(length / MOST_FRAMES)
    with tempfile.TemporaryDirectory() as folder:
        try:
            file = Path(folder, "player.mp4")
            rate = max(1.0, frame_rate(video.source) / step)
            write_overlay_video(file, _frames(video, range(0, length, step)), rate=rate)
        except SamgraphError:  # no PyAV, or damage: a notebook then shows the text
            return None
        data = base64.b64encode(file.read_bytes()).decode("ascii")
    return (
        f'<video controls loop muted src="data:video/mp4;base64,{data}"></video>'
        f"<div>{html.escape(repr(video))}</div>"
    )


def _frames(video: "Video", indices: range) -> Iterator[tuple[SegmentedImage, None]]:
    """Frames with the masks drawn in, made small."""
    for index in indices:
        known = video.known(index).segmented_image(all=False)
        drawn = Image.fromarray(draw_segments(video.source.frame(index), known.segments))
        drawn.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
        pixels = np.asarray(drawn)
        size_hw = (pixels.shape[0], pixels.shape[1])
        yield replace(known, segments=(), size_hw=size_hw, pixels=pixels), None
