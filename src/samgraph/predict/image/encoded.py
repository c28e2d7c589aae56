"""One image, encoded once, to be prompted as often as you like.

image = model.image("truck.jpg")
result = image.predict(points=[(500, 375)], labels=[1])
result = image.predict(box=(75, 275, 1725, 850), mask=result)      # refine
"""

import os
import threading
from typing import Any

import numpy as np

from samgraph.errors import ImageError
from samgraph.media.image.preprocess import resize_image
from samgraph.media.image.reading import MAX_PIXELS, Rgb, check_size, read_image
from samgraph.models.sam2.model import Sam2Model
from samgraph.predict.features import Embedding, embeddings
from samgraph.predict.image import decoding
from samgraph.predict.image.result import Result
from samgraph.predict.picture import Picture, name_of
from samgraph.predict.prompts import PromptBatch, assemble, read_prompts
from samgraph.untrusted.text import shown


class EncodedImage:
    """An image and what the encoder made of it. Safe to prompt from several threads."""

    def __init__(
        self, core: Sam2Model, picture: Picture, embedding: Embedding, *, falls_back: bool = True
    ) -> None:
        self.core, self.picture, self.embedding = core, picture, embedding
        self.falls_back = falls_back  # to one of three masks where a single one is unstable
        self._prepared: decoding.Arrays | None = None
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

    @property
    def prepared(self) -> decoding.Arrays:
        """What the decoder wants of the image whatever the prompt; made when first needed."""
        with self._lock:
            if self._prepared is None:
                self._prepared = decoding.prepare(self.core, self.embedding)
            return self._prepared

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
        """The masks that a prompt asks for; everything in pixels of the image.

        One object: points [(x, y), ...] with labels (1 inside, 0 outside; all inside if left
        out), a box, a mask, or any of them together. Several objects at once: `boxes` [N, 4], a
        list of points for each, or both; the numbers of points may differ.

        Args:
            points: Clicks, [K, 2]; for several objects a list of such lists, or [N, K, 2].
            labels: One for each click.
            box: Left, top, right, bottom.
            boxes: Several of them, one for each object.
            mask: An earlier result, its `logits`, or a mask of the image's size.
            multimask: Three masks a prompt, for an ambiguous one such as a single click, or one.
            threshold: The logit above which a pixel belongs to the mask.

        Raises:
            PromptError: A prompt is missing, malformed, or not in the image.
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
        return Result.of(self.answer(batch, multimask=multimask), self.picture, threshold)

    def answer(self, prompts: PromptBatch, *, multimask: bool) -> decoding.Answers:
        """What the decoder says to prompts that are ready for it."""
        core, how = self.core, {"multimask": multimask, "falls_back": self.falls_back}
        if prompts.mask is None:
            return decoding.decode_prepared(core, self.prepared, prompts, **how)
        return decoding.decode(core, [self.embedding], prompts, **how)


def encode_image(
    core: Sam2Model,
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
        name: What to call the image in written files.
        embedding: An embedding of this image, or the path of a saved one.
        max_pixels: The most pixels accepted, told from the header.

    Raises:
        ImageError: The image cannot be read, or the embedding is of another image or model.
    """
    if isinstance(source, Embedding):
        source.check(core)
        check_size(f"`{shown(source.name)}`", *source.size_hw, max_pixels)
        picture = Picture(name or source.name, source.size_hw)
        return EncodedImage(core, picture, source)
    pixels = read_image(source, max_pixels=max_pixels)
    picture = Picture(name or name_of(source), (pixels.shape[0], pixels.shape[1]), pixels)
    if embedding is not None:
        return EncodedImage(core, picture, _given(core, embedding, picture))
    encoded = EncodedImage(core, picture, encode_pixels(core, [picture])[0])
    encoded.prepared  # noqa: B018  (so that the first click is as quick as the others)
    return encoded


def encode_pixels(core: Sam2Model, pictures: list[Picture]) -> list[Embedding]:
    """The embeddings of images that go through the encoder together."""
    size = core.config.image_size
    batch = np.stack([resize_image(picture.need_pixels(), size) for picture in pictures])
    features = core.run("image_encoder", image=batch)
    sizes, names = [picture.size_hw for picture in pictures], [one.name for one in pictures]
    return embeddings(core, features, sizes, names)


def _given(
    core: Sam2Model, embedding: Embedding | str | os.PathLike[str], picture: Picture
) -> Embedding:
    found = embedding if isinstance(embedding, Embedding) else Embedding.load(embedding)
    found.check(core)
    if found.size_hw != picture.size_hw:
        height, width = found.size_hw
        raise ImageError(
            f"the embedding is not that of `{picture.name}`",
            got=f"one of an image of {width}x{height}",
            expected=picture.size_text,
        )
    return found
