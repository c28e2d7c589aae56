"""Segmenting objects in a volume: a box on a key slice, followed through the slices on both sides.

    scan = model.volume("scan.nii.gz", window="abdomen")
    scan.add(slice=42, object=1, box=(100, 120, 180, 200))
    result = scan.segment()
    result.save("mask.nii.gz")

Slices are frames of a video (`samgraph.predict.video`). As MedSAM 2 does it, each direction starts
at the key slice with nothing but the prompts in memory, and of every object the largest connected
component is kept.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from samgraph.errors import PromptError
from samgraph.media.mask.components import largest_component
from samgraph.media.volume.opening import VolumeSource, open_scan
from samgraph.media.volume.scan import MAX_VOXELS, Scan
from samgraph.media.volume.slices import Slices
from samgraph.media.volume.window import Window
from samgraph.models.family import SegmentationModel
from samgraph.predict.video.options import VideoOptions, read_options
from samgraph.predict.video.prompts import ObjectId, checked_frame
from samgraph.predict.video.result import FrameResult
from samgraph.predict.video.video import Video
from samgraph.predict.volume.result import VolumeResult
from samgraph.progress import Progress, ShowProgress
from samgraph.untrusted.arguments import flag


class Volume:
    """A volume to segment objects in, along `axis`. Made by `model.volume`."""

    def __init__(
        self, scan: Scan, model: SegmentationModel, options: VideoOptions, *, axis: int,
        window: Window = None,
    ) -> None:  # fmt: skip
        self.scan, self.model, self.options, self.axis = scan, model, options, axis
        self.slices = Slices(scan, axis, window)
        self._prompted = Video(self.slices, model, options)

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.shape))
        return (
            f"<volume {self.scan.name}: {shape}, {len(self)} slices, {len(self.objects)} objects>"
        )

    def __len__(self) -> int:
        """The number of slices."""
        return self.slices.length

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array, and of masks: [Z, Y, X]."""
        return tuple(self.scan.voxels.shape)

    @property
    def size_hw(self) -> tuple[int, int]:
        """Height and width of a slice: the lengths of the two other axes, in order."""
        return self.slices.size_hw

    @property
    def objects(self) -> tuple[ObjectId, ...]:
        """The ids of the objects, in the order they were added."""
        return self._prompted.objects

    def picture(self, slice: int) -> NDArray[np.uint8]:
        """A slice as the model sees it: uint8 [H, W]; prompts are in its pixels."""
        return self.slices.picture(checked_frame(slice, len(self), "slice"))

    def add(
        self,
        *,
        slice: int,
        object: ObjectId = 1,
        points: ArrayLike | None = None,
        labels: ArrayLike | None = None,
        box: ArrayLike | None = None,
        mask: ArrayLike | None = None,
        replace: bool = False,
    ) -> FrameResult:
        """Point at an object on a slice; returns what all objects prompted there look like.

        An object may be prompted on several slices: all of them are remembered.

        Args:
            slice: The number of the slice along the axis, from 0.
            object: The object's id, a number or a text; a new one makes a new object.
            points: Pairs (x, y) in pixels of `picture(slice)`: x along its rows.
            labels: For each point 1 (inside) or 0 (outside); all inside if omitted.
            box: Left, top, right, bottom.
            mask: bool [H, W], taken as the answer.
            replace: Start over on this slice.

        Raises:
            PromptError: The prompt makes no sense in this volume.
        """
        index = checked_frame(slice, len(self), "slice")
        return self._prompted.add(
            frame=index, object=object, points=points, labels=labels, box=box, mask=mask,
            replace=replace,
        )  # fmt: skip

    def clear(self, *, slice: int | None = None, object: ObjectId | None = None) -> None:
        """Take back the prompts on a slice, of an object, or of an object on a slice."""
        self._prompted.clear(frame=slice, object=object)

    def reset(self) -> None:
        """Forget all objects."""
        self._prompted.reset()

    def segment(
        self,
        *,
        start: int | None = None,
        end: int | None = None,
        largest: bool = True,
        progress: ShowProgress = False,
    ) -> VolumeResult:
        """Follow every object from its first prompted slice to both ends.

        Args:
            start: The first slice to look at; the first of the volume if omitted.
            end: The last, included.
            largest: Keep the largest connected component of each object alone.
            progress: True to print slices, rate and time left; or a function of the slices done
                and of all slices.

        Raises:
            PromptError: There is no object, or a prompt is outside of the slices to look at.
        """
        is_largest = flag("largest", largest)
        first = 0 if start is None else checked_frame(start, len(self), "slice")
        last = len(self) - 1 if end is None else checked_frame(end, len(self), "slice")
        keys = self._key_slices(first, last)
        masks = {name: np.zeros((len(self), *self.size_hw), np.bool_) for name in self.objects}
        scores = {name: np.zeros(len(self), np.float32) for name in self.objects}
        total = len(keys) * (last - first + 2)  # a key slice is the first of both directions
        with Progress(total, "slices", show=progress) as shown:
            for key, names in keys.items():
                for frame in self._both_ways(names, key, first, last):
                    for index, name in enumerate(frame.objects):
                        masks[name][frame.index] = frame.masks[index]
                        scores[name][frame.index] = frame.scores[index]
                    shown.advance()
        if is_largest:
            masks = {name: largest_component(mask) for name, mask in masks.items()}
        return VolumeResult.of(self.scan, self.axis, masks, scores)

    def _key_slices(self, first: int, last: int) -> dict[int, list[ObjectId]]:
        """Objects by the first slice that they are prompted on."""
        if not self.objects:
            raise PromptError(
                "there is nothing to segment", hint="volume.add(slice=40, box=(x0, y0, x1, y1))"
            )
        keys: dict[int, list[ObjectId]] = {}
        for name, obj in self._prompted.states.items():
            for index in obj.prompts:
                if not first <= index <= last:
                    raise PromptError(
                        f"object `{name}` is prompted on slice {index}",
                        expected=f"{first} to {last}, the slices to look at",
                    )
            keys.setdefault(min(obj.prompts), []).append(name)
        return dict(sorted(keys.items()))

    def _both_ways(
        self, names: Iterable[ObjectId], key: int, first: int, last: int
    ) -> Iterator[FrameResult]:
        """Slices from the key slice to the last, and then to the first."""
        names = list(names)
        yield from self._session(names).track(start=key, end=last)
        yield from self._session(names).track(start=key, end=first, reverse=True)

    def _session(self, names: Iterable[ObjectId]) -> Video:
        """A video of the slices that remembers prompts and their answers, and nothing else."""
        video = Video(self.slices, self.model, self.options)
        video.encoded = self._prompted.encoded
        for name in names:
            known, obj = self._prompted.state(name), video.new_object(name)
            for index, prompt in known.prompts.items():
                obj.answer(index, prompt, known.answers[index])
            video.states[name] = obj
        return video


def open_volume(
    model: SegmentationModel,
    source: VolumeSource,
    *,
    axis: int | str | None = None,
    window: Window = None,
    series: str | None = None,
    max_voxels: int = MAX_VOXELS,
    **options: Any,
) -> Volume:
    """A volume to segment objects in; `options` are those of `VideoOptions`.

    Raises:
        ImageError: The volume cannot be read.
        OptionError: There is no such option, axis or window.
    """
    chosen = replace(read_options(VideoOptions, options, "volume"), results_mb=0)
    chosen.policy_for(model)
    scan = open_scan(source, series=series, max_voxels=max_voxels)
    return Volume(scan, model, chosen, axis=scan.axis_of(axis), window=window)
