"""Several images: encoded in batches, prompted together.

images = model.images(["a.jpg", "b.jpg"])
results = images.predict(points=[[(500, 375)], [(20, 30), (40, 50)]])
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, TypeAlias, get_args, overload

import numpy as np

from samgraph.errors import ImageError, PromptError
from samgraph.media.image.reading import MAX_PIXELS, read_image
from samgraph.models.family import SegmentationModel
from samgraph.predict.image import decoding
from samgraph.predict.image.encoded import EncodedImage, encode_pixels
from samgraph.predict.image.result import Result
from samgraph.predict.options import refuses_unknown
from samgraph.predict.output import Picture, name_of
from samgraph.predict.prompts import PromptBatch, assemble, join, read_prompts
from samgraph.untrusted.arguments import choice, whole

OnError: TypeAlias = Literal["raise", "skip"]
Prompts: TypeAlias = Sequence[Any] | None


class EncodedImages(Sequence[EncodedImage]):
    """Encoded images in the order given; `failures` holds the errors of those left out."""

    def __init__(
        self,
        core: SegmentationModel,
        images: Sequence[EncodedImage],
        failures: Sequence[ImageError] = (),
    ) -> None:
        self.core, self._images, self.failures = core, tuple(images), tuple(failures)

    def __repr__(self) -> str:
        left_out = f", {len(self.failures)} left out" if self.failures else ""
        return f"<{len(self)} images, encoded by {self.core.config.name}{left_out}>"

    def __len__(self) -> int:
        return len(self._images)

    @overload
    def __getitem__(self, index: int) -> EncodedImage: ...
    @overload
    def __getitem__(self, index: slice) -> "EncodedImages": ...
    def __getitem__(self, index: int | slice) -> "EncodedImage | EncodedImages":
        if isinstance(index, slice):
            return EncodedImages(self.core, self._images[index])
        return self._images[index]

    def __iter__(self) -> Iterator[EncodedImage]:
        return iter(self._images)

    @refuses_unknown
    def predict(
        self,
        points: Prompts = None,
        labels: Prompts = None,
        box: Prompts = None,
        boxes: Prompts = None,
        mask: Prompts = None,
        *,
        multimask: bool = True,
        threshold: float = 0.0,
    ) -> list[Result]:
        """A result for each image.

        Each prompt is a list with one entry per image: what `EncodedImage.predict` takes, or None.
        The decoder runs on the prompts of all images together.

        Raises:
            PromptError: A prompt is missing, malformed, or outside its image.
        """
        prompts = {"points": points, "labels": labels, "box": box, "boxes": boxes, "mask": mask}
        batches = [self._batch(i, prompts) for i in range(len(self))]
        if not batches:
            return []
        embeddings = [
            image.embedding
            for image, batch in zip(self._images, batches, strict=True)
            for _ in range(len(batch))
        ]
        predictions = decoding.decode(self.core, embeddings, join(batches), multimask=multimask)
        results, start = [], 0
        for image, batch in zip(self._images, batches, strict=True):
            own = predictions.part(start, start + len(batch))
            results.append(Result.of(own, image.picture, threshold))
            start += len(batch)
        return results

    def _batch(self, index: int, prompts: dict[str, Prompts]) -> PromptBatch:
        """The prompts of one image."""
        config, size_hw = self.core.config, self._images[index].size_hw
        own = {name: _entry(name, given, index, len(self)) for name, given in prompts.items()}
        try:
            read = read_prompts(size_hw, config.mask_size, **own)
        except PromptError as error:
            error.add_note(f"  at:       image {index}, `{self._images[index].name}`")
            raise
        return assemble(read, size_hw, config.image_size, config.mask_size)


def encode_images(
    core: SegmentationModel,
    sources: Iterable[Any],
    *,
    batch: int = 2,
    on_error: OnError = "raise",
    max_pixels: int = MAX_PIXELS,
) -> EncodedImages:
    """Read and encode images, `batch` at a time.

    Args:
        core: The model.
        sources: Any number of what `model.image` takes. All stay in memory: about 16 MB per image
            at 1024 pixels, and the pixels themselves.
        batch: Images per run of the encoder.
        on_error: With "skip", an image that cannot be read is left out and its error is kept in
            `failures`.
        max_pixels: The most pixels accepted per image.

    Raises:
        ImageError: An image cannot be read, and `on_error` is "raise".
    """
    batch = whole("batch", batch, 1)
    choice("on_error", on_error, get_args(OnError))
    is_one = isinstance(sources, str | bytes | os.PathLike | np.ndarray)
    if is_one or not isinstance(sources, Iterable):
        raise ImageError(
            "`model.images` takes a list",
            got=type(sources).__name__,
            hint="for one image there is `model.image`",
        )
    pictures, failures = _read(sources, on_error, max_pixels)
    encoded = []
    for start in range(0, len(pictures), batch):
        some = pictures[start : start + batch]
        made = zip(some, encode_pixels(core, some), strict=True)
        encoded += [EncodedImage(core, picture, embedding) for picture, embedding in made]
    return EncodedImages(core, encoded, failures)


def _read(
    sources: Iterable[Any], on_error: OnError, max_pixels: int
) -> tuple[list[Picture], list[ImageError]]:
    pictures: list[Picture] = []
    failures: list[ImageError] = []
    for source in sources:
        try:
            pixels = read_image(source, max_pixels=max_pixels)
        except ImageError as error:
            if on_error == "raise":
                raise
            failures.append(error)
            continue
        height, width = pixels.shape[:2]
        pictures.append(Picture(name_of(source), (height, width), pixels))
    return pictures, failures


def _entry(name: str, given: Prompts, index: int, count: int) -> Any:
    """The prompt of one image."""
    if given is None:
        return None
    try:
        length = len(given)
    except TypeError:
        length = -1
    if length != count:
        raise PromptError(
            f"`{name}` needs an entry for each image",
            got=f"{length} entries" if length >= 0 else type(given).__name__,
            expected=f"{count}, None where an image has none",
        )
    return given[index]
