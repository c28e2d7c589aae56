"""One image: encoded once, prompted any number of times.

image = model.image("truck.jpg")
result = image.predict(points=[(500, 375)], labels=[1])
result = image.predict(box=(75, 275, 1725, 850), mask=result)      # refine
"""

import os
import threading
from contextlib import suppress
from typing import Any

import numpy as np

from samgraph.errors import DeviceMemoryError, ImageError, OptionError
from samgraph.media.image.preprocess import resize_image
from samgraph.media.image.reading import MAX_PIXELS, Rgb, check_size, read_image
from samgraph.models.family import SegmentationModel
from samgraph.predict.features import Embedding, embeddings
from samgraph.predict.image import decoding
from samgraph.predict.image.result import Result
from samgraph.predict.options import refuses_unknown
from samgraph.predict.output import Picture, name_of, notebook_png
from samgraph.predict.prompts import PromptBatch, assemble, read_prompts
from samgraph.untrusted.text import shown


class EncodedImage:
    """An image with its embedding. Safe to prompt from several threads."""

    def __init__(
        self,
        core: SegmentationModel,
        picture: Picture,
        embedding: Embedding,
        *,
        falls_back: bool = True,
    ) -> None:
        self.core, self.picture, self.embedding = core, picture, embedding
        self.falls_back = falls_back  # to a multimask output where the single mask is unstable
        self._prepared: decoding.Prepared | None = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<{self.name}, {self.picture.size_text}, encoded by {self.core.config.name}>"

    @property
    def name(self) -> str:
        """The file name, or `image`."""
        return self.picture.name

    @property
    def size_hw(self) -> tuple[int, int]:
        """Height and width of the upright image."""
        return self.picture.size_hw

    @property
    def pixels(self) -> Rgb:
        """The image itself, uint8 [H, W, 3]."""
        return self.picture.need_pixels()

    def _repr_png_(self) -> bytes | None:
        """What a notebook shows: the image, at most 1024 pixels wide and high."""
        pixels = self.picture.pixels
        return None if pixels is None else notebook_png(pixels)

    @property
    def prepared(self) -> decoding.Prepared:
        """The decoder's image-side values, computed when first needed."""
        with self._lock:
            if self._prepared is None:
                self._prepared = decoding.prepare(self.core, self.embedding)
            return self._prepared

    @refuses_unknown
    def predict(
        self,
        points: Any = None,
        labels: Any = None,
        box: Any = None,
        boxes: Any = None,
        mask: Any = None,
        *,
        multimask: bool = True,
        threshold: float = 0.0,
    ) -> Result:
        """The masks of a prompt; all coordinates are pixels of the image.

        One object: points [(x, y), ...] with labels (1 positive, 0 negative; all positive if
        omitted), a box, a mask, or any combination. Several objects at once: `boxes` [N, 4], a list
        of points per object, or both; the numbers of points may differ.

        Args:
            points: Clicks, [K, 2]; for several objects a list of such lists, or [N, K, 2].
            labels: One per click.
            box: Left, top, right, bottom.
            boxes: A box per object.
            mask: An earlier result, its `logits`, or a mask of the image's size.
            multimask: Three masks per prompt, for ambiguous prompts such as a single click; or one.
            threshold: The logit above which a pixel belongs to the mask.

        Raises:
            PromptError: A prompt is missing, malformed, or outside the image.
        """
        prompts = read_prompts(
            self.size_hw,
            self.core.config.mask_size,
            points=points,
            labels=labels,
            box=box,
            boxes=boxes,
            mask=mask,
        )
        config = self.core.config
        batch = assemble(prompts, self.size_hw, config.image_size, config.mask_size)
        return Result.of(self.decode(batch, multimask=multimask), self.picture, threshold)

    def decode(self, prompts: PromptBatch, *, multimask: bool) -> decoding.MaskPredictions:
        """Run the mask decoder on prompts in pixels of the model's input."""
        core, how = self.core, {"multimask": multimask, "falls_back": self.falls_back}
        if prompts.mask is None:
            return decoding.decode_prepared(core, self.prepared, prompts, **how)
        used = core.buffers
        try:
            return decoding.decode(core, [self.embedding], prompts, **how)
        except DeviceMemoryError as error:
            core.leave_device(error, used)
        return decoding.decode(core, [self.embedding], prompts, **how)


def encode_image(
    core: SegmentationModel,
    source: Any,
    *,
    name: str | None = None,
    embedding: Embedding | str | os.PathLike[str] | None = None,
    max_pixels: int = MAX_PIXELS,
) -> EncodedImage:
    """Read an image and encode it, unless its embedding is given.

    Args:
        core: The model.
        source: A path, the bytes of a file, an open file, a Pillow image or an array; or an
            `Embedding` alone, which can be prompted but not drawn on.
        name: The name of the image in written files.
        embedding: An embedding of this image, or the path of a saved one.
        max_pixels: The most pixels accepted, checked before decoding.

    Raises:
        ImageError: The image cannot be read, or the embedding is of another image or model.
    """
    if name is not None and not isinstance(name, str):
        raise OptionError("the name of an image is text", got=f"a {type(name).__name__}")
    if isinstance(source, Embedding):
        check_size(f"`{shown(source.name)}`", *source.size_hw, max_pixels)
        picture = Picture(name or source.name, source.size_hw)
        return EncodedImage(core, picture, source.on(core))
    pixels = read_image(source, max_pixels=max_pixels)
    picture = Picture(name or name_of(source), (pixels.shape[0], pixels.shape[1]), pixels)
    if embedding is not None:
        return EncodedImage(core, picture, _given(core, embedding, picture))
    with core.compiling_for_prompts():
        encoded = EncodedImage(core, picture, encode_pixels(core, [picture])[0])
    encoded.prepared  # noqa: B018  (so that the first click is as fast as the next)
    return encoded


def encode_pixels(core: SegmentationModel, pictures: list[Picture]) -> list[Embedding]:
    """The embeddings of images, encoded as one batch."""
    how, images = core.preprocessing, core.buffers.images
    pixels: Any = None
    if images is not None:
        with suppress(DeviceMemoryError):  # the host resizes as well
            made = [
                images.image_pixels(picture.need_pixels(), how.size, how.mean, how.std)[None]
                for picture in pictures
            ]
            pixels = core.buffers.concat(made)
    if pixels is None:
        pixels = np.stack(
            [
                resize_image(picture.need_pixels(), how.size, mean=how.mean, std=how.std)
                for picture in pictures
            ]
        )
    features = core.encode(pixels)
    sizes, names = [picture.size_hw for picture in pictures], [picture.name for picture in pictures]
    return embeddings(core, features, sizes, names)


def _given(
    core: SegmentationModel, embedding: Embedding | str | os.PathLike[str], picture: Picture
) -> Embedding:
    found = embedding if isinstance(embedding, Embedding) else Embedding.load(embedding)
    found = found.on(core)
    if found.size_hw != picture.size_hw:
        height, width = found.size_hw
        raise ImageError(
            f"the embedding is not that of `{picture.name}`",
            got=f"the embedding of an image of {width}x{height}",
            expected=picture.size_text,
        )
    return found
