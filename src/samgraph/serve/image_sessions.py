"""An image that clients click on: encoded once, prompted any number of times."""

import secrets
import threading
from collections import OrderedDict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from samgraph.errors import PromptError
from samgraph.media.image.reading import MAX_PIXELS, Rgb, encode_image, read_image
from samgraph.media.mask import rle as run_lengths
from samgraph.predict.everything.generate import segment_everything
from samgraph.predict.image.encoded import EncodedImage
from samgraph.predict.image.encoded import encode_image as encode
from samgraph.predict.image.result import Result
from samgraph.serve.gate import Turns
from samgraph.serve.schema import (
    EverythingBody,
    Mask,
    MaskReply,
    MasksReply,
    PredictBody,
    PredictReply,
)
from samgraph.serve.store import UPLOAD, Entry

# Low-resolution logits kept to be refined: 786 KB per reply at 1024 pixels.
MOST_REFINABLE = 32
# Pictures of more pixels are sent as JPEG, which takes a tenth of the time.
MOST_PNG_PIXELS = 2_000_000
PICTURE = "picture"


class Refinable:
    """The logits of earlier replies by token; the oldest are dropped."""

    def __init__(self, most: int = MOST_REFINABLE) -> None:
        self._kept: OrderedDict[str, NDArray[np.float32]] = OrderedDict()
        self._most, self._lock = most, threading.Lock()

    def keep(self, logits: NDArray[np.float32], best: int) -> str:
        """Keep logits [M, L, L], the best first; returns their token."""
        token = secrets.token_hex(8)
        with self._lock:
            self._kept[token] = np.concatenate([logits[best : best + 1], logits])
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return token

    def find(self, token: str | None) -> NDArray[np.float32] | None:
        """The logits [L, L] a token names, `.n` its n-th mask; None where they were dropped."""
        name, _, number = (token or "").partition(".")
        with self._lock:
            logits = self._kept.get(name)
        if logits is None:
            return None
        index = 1 + int(number) if number.isascii() and number.isdigit() else 0
        return logits[index] if index < len(logits) else None


class ImageSession:
    """An encoded image. Safe to prompt from several threads."""

    is_busy = False

    def __init__(self, image: EncodedImage, turns: Turns) -> None:
        self.image, self._turns, self._refinable = image, turns, Refinable()

    @classmethod
    def load(cls, core: Any, entry: Entry, turns: Turns) -> "ImageSession":
        """The session of an accepted upload."""
        pixels = read_image(entry.folder / UPLOAD, max_pixels=MAX_PIXELS)
        with turns.click():
            return cls(encode(core, pixels, name=entry.record.name), turns)

    def close(self) -> None:
        """Does nothing: documents are written when they arrive."""

    def predict(self, body: PredictBody) -> PredictReply:
        """The masks of a prompt."""
        with self._turns.click():
            return predict(self.image, body, self._refinable)

    def everything(self, body: EverythingBody) -> MasksReply:
        """Automatic masks."""
        names = body.__struct_fields__
        given = {name: getattr(body, name) for name in names if getattr(body, name) is not None}
        found = segment_everything(self.image.core, self.image, progress=False, **given)
        return MasksReply(
            [mask_reply(segment.rle, segment.score or 0.0) for segment in found.segments]
        )


def predict(image: EncodedImage, body: PredictBody, refinable: Refinable) -> PredictReply:
    """The masks of a prompt on an encoded image.

    A single click gives three masks and other prompts one, unless the body says otherwise.
    """
    logits: Any = refinable.find(body.refine)
    if body.mask is not None:
        logits = mask_of(body.mask, image.size_hw)
    clicks = len(body.points or ())
    is_ambiguous = clicks == 1 and body.box is None and logits is None
    result: Result = image.predict(
        points=body.points or None,
        labels=body.labels if body.points else body.labels or None,
        box=body.box,
        mask=logits,
        multimask=is_ambiguous if body.multimask is None else body.multimask,
    )
    best = int(result.scores.argmax())
    masks = [mask_reply(segment.rle, segment.score or 0.0) for segment in result.segments]
    return PredictReply(masks, best, refinable.keep(result.logits, best))


def mask_reply(rle: run_lengths.Rle, score: float) -> MaskReply:
    """A mask as it is sent."""
    left, top, width, height = run_lengths.to_bbox(rle)
    box = (left, top, left + width, top + height)
    return MaskReply(sent_mask(rle), round(score, 4), box, run_lengths.area(rle))


def sent_mask(rle: run_lengths.Rle) -> Mask:
    """Run lengths as text."""
    height, width = rle["size"]
    return Mask((height, width), rle["counts"].decode("ascii"))


def rle_of(mask: Mask, size_hw: tuple[int, int]) -> run_lengths.Rle:
    """The run lengths a client sent, checked.

    Raises:
        PromptError: The mask is not of this size.
        ImageError: The runs are damaged.
    """
    if tuple(mask.size) != size_hw:
        raise PromptError(
            "the mask has another size than the image",
            got=f"{mask.size[1]} x {mask.size[0]}",
            expected=f"{size_hw[1]} x {size_hw[0]}",
        )
    shape = {"size": list(mask.size), "counts": mask.counts}
    return run_lengths.from_counts(run_lengths.counts_of(shape), size_hw)


def mask_of(mask: Mask, size_hw: tuple[int, int]) -> NDArray[np.bool_]:
    """A mask a client sent, bool [H, W]; errors as `rle_of`."""
    return run_lengths.decode(rle_of(mask, size_hw))


def picture_bytes(pixels: Rgb, is_png: bool) -> tuple[bytes, str]:
    """A picture for the page, and its suffix: PNG for small pictures that came as PNG."""
    if is_png and pixels.shape[0] * pixels.shape[1] <= MOST_PNG_PIXELS:
        return encode_image(pixels, "PNG"), ".png"
    return encode_image(pixels, "JPEG", quality=92), ".jpg"
