"""The model as people use it: images, videos and streams on top of the compiled graphs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from samgraph.checkpoint import LoadReport
from samgraph.checkpoint.builtin import NANO
from samgraph.engines.devices import DeviceLike
from samgraph.errors import CheckpointError
from samgraph.media.image.reading import MAX_PIXELS
from samgraph.models.family import SegmentationModel
from samgraph.models.loading import ConfigLike, Source, exact_config, save_model, weights_file
from samgraph.predict.model_source import ModelSource, lasting, load_again, load_from
from samgraph.predict.options import changed, refuses_unknown
from samgraph.runtime import CompileOptions, find_profile
from samgraph.runtime.profiles import ProfileLike

if TYPE_CHECKING:
    from samgraph.formats.sam import Mode
    from samgraph.media.image.opening import ImageSource
    from samgraph.media.video.frames import FramesSource
    from samgraph.media.video.source import OnDamage
    from samgraph.media.volume.opening import VolumeSource
    from samgraph.media.volume.window import Window
    from samgraph.predict.everything.generate import Everything
    from samgraph.predict.everything.grids import Grid
    from samgraph.predict.everything.options import EverythingOptions
    from samgraph.predict.features import Embedding
    from samgraph.predict.image.batch import EncodedImages, OnError
    from samgraph.predict.image.encoded import EncodedImage
    from samgraph.predict.video.bank import MemoryPrecision
    from samgraph.predict.video.policy import MemoryPolicy
    from samgraph.predict.video.stream import Stream
    from samgraph.predict.video.video import Video
    from samgraph.predict.volume.volume import Volume
    from samgraph.progress import ShowProgress


class Model:
    """SAM 2, loaded and ready. Made by `samgraph.load`.

    Threads share a model: every method may be called from several at once. Processes each have
    their own: a model that is pickled, or sent to a worker, loads itself again from its source.
    """

    def __init__(self, core: SegmentationModel, source: ModelSource | None = None) -> None:
        self.core = core
        self._source = source

    def __repr__(self) -> str:
        return repr(self.core)

    def __reduce__(self) -> tuple[Any, ...]:
        """Its source, and which weights these are."""
        from samgraph.predict.features import fingerprint

        source = self._source
        if source is None or isinstance(source.source, Mapping):
            device = "auto" if source is None else source.device
            core, options = self.core, self.core.session.options
            source = ModelSource(core.checkpoint(), exact_config(core), device, None, options, None)
        return _reload, (source, fingerprint(self.core))

    def __copy__(self) -> Model:
        """The same model: it has no state that could be changed."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Model:
        """The same model, as of `copy.copy`."""
        return self

    @property
    def config(self) -> Any:
        """Every dimension of the model."""
        return self.core.config

    @property
    def graphs(self) -> Mapping[str, Any]:
        """The compiled graphs by name; each has `run(**inputs)`."""
        return self.core.graphs

    @refuses_unknown
    def image(
        self,
        source: ImageSource | Embedding,
        *,
        name: str | None = None,
        embedding: Embedding | str | os.PathLike[str] | None = None,
        max_pixels: int = MAX_PIXELS,
    ) -> EncodedImage:
        """An image, encoded once, to be prompted any number of times.

        Args:
            source: A path, the bytes of a file, an open file, a Pillow image or an array; or an
                `Embedding` alone, which can be prompted but not drawn on.
            name: The name of the image in written files.
            embedding: An embedding of this image, or the path of a saved one: nothing is encoded.
            max_pixels: The most pixels accepted, checked before decoding.

        Raises:
            ImageError: The image cannot be read, or the embedding is of another image or model.
        """
        from samgraph.predict.image.encoded import encode_image

        return encode_image(
            self.core, source, name=name, embedding=embedding, max_pixels=max_pixels
        )

    @refuses_unknown
    def images(
        self,
        sources: Iterable[ImageSource],
        *,
        batch: int = 2,
        on_error: OnError = "raise",
        max_pixels: int = MAX_PIXELS,
    ) -> EncodedImages:
        """Several images, encoded in batches.

        Args:
            sources: Any number of what `image` takes. All stay in memory, 16 MB each at 1024 px.
            batch: Images per run of the encoder.
            on_error: With "skip", unreadable images are left out, their errors in `failures`.
            max_pixels: The most pixels accepted per image.

        Raises:
            ImageError: An image cannot be read, and `on_error` is "raise".
        """
        from samgraph.predict.image.batch import encode_images

        return encode_images(
            self.core, sources, batch=batch, on_error=on_error, max_pixels=max_pixels
        )

    @refuses_unknown
    def everything(
        self,
        source: ImageSource | EncodedImage,
        *,
        name: str | None = None,
        max_pixels: int = MAX_PIXELS,
        progress: ShowProgress = None,
        options: EverythingOptions | None = None,
        points_per_side: int | None = 32,
        points_per_batch: int = 64,
        pred_iou_thresh: float | None = None,
        stability_score_thresh: float | None = None,
        stability_score_offset: float = 1.0,
        mask_threshold: float = 0.0,
        box_nms_thresh: float = 0.7,
        crop_n_layers: int = 0,
        crop_nms_thresh: float = 0.7,
        crop_overlap_ratio: float = 512 / 1500,
        crop_n_points_downscale_factor: int = 1,
        point_grids: Sequence[Grid] | None = None,
        min_mask_region_area: int = 0,
        output_mode: Mode = "binary_mask",
        use_m2m: bool = False,
        multimask: bool = True,
    ) -> Everything:
        """Masks of everything in an image, with no prompt.

        Args:
            source: What `image` takes, or an encoded image.
            name: The name of the image in written files.
            max_pixels: The most pixels accepted, checked before decoding.
            progress: A function of the points done and of all points; True to print, False not to.
                If omitted, printed where standard error is a terminal.
            options: All options below as one value, instead of single ones.
            points_per_side: Points along each side of the grid.
            points_per_batch: Points per progress report; does not change the result.
            pred_iou_thresh: Masks with a lower predicted IoU are dropped. If omitted, the model's
                own threshold: 0.8 for released models.
            stability_score_thresh: The same for the stability score: 0.95 for released models.
            stability_score_offset: How far the threshold is moved to compute that score.
            mask_threshold: The logit above which a pixel belongs to a mask.
            box_nms_thresh: IoU of boxes above which non-maximum suppression drops a mask.
            crop_n_layers: Also run on crops: 2 x 2 in the first layer, then 4 x 4, ...
            crop_nms_thresh: As `box_nms_thresh`, between crops; the smaller crop wins.
            crop_overlap_ratio: Overlap of crops in the first layer, of the image's short side.
            crop_n_points_downscale_factor: How much coarser the grid gets per layer.
            point_grids: Points [K, 2] in 0..1 for the image and each layer of crops.
            min_mask_region_area: Smaller holes and islands are removed, in pixels.
            output_mode: The encoding of masks in `to_sam_dicts`.
            use_m2m: Refine each mask once with itself as a mask prompt.
            multimask: Three masks per point, or one.

        Raises:
            ImageError: The image cannot be read.
            OptionError: An option's value is out of range.
        """
        from samgraph.predict.everything.generate import segment_everything
        from samgraph.predict.everything.options import EverythingOptions

        given = changed(locals(), EverythingOptions)
        return segment_everything(
            self.core,
            source,
            name=name,
            max_pixels=max_pixels,
            progress=progress,
            options=options,
            **given,
        )

    @refuses_unknown
    def video(
        self,
        source: FramesSource,
        *,
        memory_precision: MemoryPrecision = "bf16",
        policy: MemoryPolicy | str | None = None,
        max_prompted: int | None = None,
        stride: int = 1,
        fill_holes: int = 0,
        overlaps: bool = True,
        mask_threshold: float = 0.0,
        score_threshold: float = 0.0,
        length: int | None = None,
        objects_at_once: int | None = None,
        on_damage: OnDamage = "error",
        cache_mb: float = 128,
        results_mb: float = 16,
        archive_mb: float = 24,
        cache_frames: int | None = None,
        max_pixels: int | None = None,
    ) -> Video:
        """A video to track objects through.

        Args:
            source: A video file, a folder of images, a list, an array [F, H, W, 3], or an iterator.
            memory_precision: How mask memory is stored: "bf16", as the reference does, or "fp32".
            policy: What frames read of memory, by name: "sam2" (if omitted), "quality-gated",
                "motion-aware" or "distractor-aware"; or a `MemoryPolicy`.
            max_prompted: The most prompted frames a frame reads, the nearest; 1 for the one where
                the track began. If omitted, all; of the built-in model, 1.
            stride: Remember every n-th frame, and the last.
            fill_holes: The largest hole to fill, in pixels of the low-resolution mask.
            overlaps: Whether a pixel may belong to several objects.
            mask_threshold: The logit above which a pixel belongs to an object.
            score_threshold: The object score above which an object counts as present.
            length: The number of frames, where the source does not know it.
            objects_at_once: The most objects in one run of a graph.
            on_damage: Raise an error at a frame that cannot be read, or skip it.
            cache_mb: Megabytes of encoded frames to keep (16 per frame at 1024 pixels).
            results_mb: Megabytes of results to keep, to show them again.
            archive_mb: Megabytes of older memories, so that corrections far back are quick.
            cache_frames: Decoded frames to keep.
            max_pixels: The most pixels a frame may have.

        Raises:
            VideoError: The source cannot be read.
            OptionError: An option's value makes no sense.
        """
        from samgraph.predict.video.options import VideoOptions
        from samgraph.predict.video.video import open_video

        self._require_memory()
        return open_video(self.core, source, **changed(locals(), VideoOptions))

    @refuses_unknown
    def stream(
        self,
        *,
        memory_precision: MemoryPrecision = "bf16",
        policy: MemoryPolicy | str | None = None,
        max_prompted: int | None = None,
        stride: int = 1,
        fill_holes: int = 0,
        overlaps: bool = True,
        mask_threshold: float = 0.0,
        score_threshold: float = 0.0,
        length: int | None = None,
        objects_at_once: int | None = None,
        match_iou: float = 0.5,
        min_score: float = 0.0,
        end_after: int = 30,
        max_objects: int = 64,
    ) -> Stream:
        """A live stream: one frame at a time, in constant memory. Options are those of `video`.

        `length` is the number of frames that will come, where that is known. For boxes of a
        detector, `stream.step(frame, boxes=...)`: a detection belongs to an object from a
        `match_iou` of boxes on, and else becomes a new one, if its score is at least `min_score`;
        such an object ends `end_after` steps after its last detection, or when there are more than
        `max_objects`, the longest missed first.

        Raises:
            OptionError: An option's value makes no sense.
        """
        from samgraph.predict.video.options import StreamOptions
        from samgraph.predict.video.stream import open_stream

        self._require_memory()
        return open_stream(self.core, **changed(locals(), StreamOptions))

    def volume(
        self,
        source: VolumeSource,
        *,
        axis: int | str | None = None,
        window: Window = None,
        series: str | None = None,
        **options: Any,
    ) -> Volume:
        """A volume, such as a CT or MR scan, to segment objects in slice by slice.

        Args:
            source: An array [Z, Y, X]; a `.npy`, `.nii` or `.nii.gz` file, which is [k, j, i]; the
                folder of a DICOM series; or an image of nibabel.
            axis: What slices follow: 0 (if omitted), 1, 2, "axial", "coronal" or "sagittal".
            window: Black and white: (level, width), a name such as "abdomen", or "auto".
            series: The UID or number of a DICOM series, where the folder holds several.
            **options: `max_voxels`, and options of `video`.

        Raises:
            ImageError: The volume cannot be read.
            OptionError: There is no such axis, window or option.
        """
        from samgraph.predict.volume.volume import open_volume

        self._require_memory()
        return open_volume(self.core, source, axis=axis, window=window, series=series, **options)

    @property
    def report(self) -> LoadReport:
        """What the checkpoint lacks, and what of it was not used (`strict=False`)."""
        return self.core.report

    def _require_memory(self) -> None:
        """Raise `CheckpointError` if the checkpoint is of an image-only model."""
        missing = self.core.report.missing
        if missing:
            raise CheckpointError(
                "the checkpoint has no video memory: it segments images only",
                got=f"`{missing[0]}` and {len(missing) - 1} more tensors are missing",
                hint="load the whole checkpoint to track objects",
            )

    def resume(self, path: str | os.PathLike[str], **options: Any) -> Video | Stream:
        """A video or stream session that was saved."""
        from samgraph.predict.video.sessions import resume

        self._require_memory()
        return resume(self.core, path, **options)

    def save(self, path: str | os.PathLike[str], precision: str = "fp32") -> None:
        """Write the weights and the config to a `.safetensors` file.

        `precision` is "fp32", "fp16", "bf16", or "int8": matrices in 8 bits with a scale per row,
        a quarter of the size. Files of any precision load alike and compute in float32.
        """
        save_model(self.core, path, precision)


@refuses_unknown
def load(
    source: Source | None = None,
    *,
    config: ConfigLike | None = None,
    device: DeviceLike = "auto",
    engine: str | None = None,
    precision: str | None = None,
    threads: int | None = None,
    profile: ProfileLike | None = None,
    image_size: int | None = None,
    approximation: str | None = None,
    options: CompileOptions | None = None,
    mirror: str | None = None,
    strict: bool = True,
) -> Model:
    """A model by name ("sam2.1-tiny"), from a checkpoint file, or from a mapping of arrays.

    With no source it is the built-in model, `samgraph-nano`, which needs no network. Released
    weights are downloaded once and checked. The config is recognised from the file; give it only
    for a model that has no name here. `profile` says how graphs are compiled: a `Profile`, its
    name, or a TOML file; `weights.profiles.toml` next to `weights.pt` is read too. `approximation`
    names a way to compute less, at a cost in quality (`samgraph.runtime.APPROXIMATIONS`). A source
    may also be a folder, or the index of a checkpoint in several files. `strict=False` ignores
    tensors that the model does not have, and loads what is there: `model.report` lists both.
    """
    chosen: Source = NANO.name if source is None else source
    if options is None:
        options = CompileOptions(
            engine=engine,
            precision=precision,  # type: ignore[arg-type]  # checked there
            threads=threads,
            profile=find_profile(profile, weights_file(chosen)),
            approximation=approximation,
        )
    wanted = ModelSource(chosen, config, device, image_size, options, mirror, strict)
    return Model(load_from(wanted), lasting(wanted))


def _reload(wanted: ModelSource, weights: str) -> Model:
    """A model that was pickled."""
    return Model(load_again(wanted, weights), lasting(wanted))
