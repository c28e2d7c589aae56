"""`SAM` and `SAM2VideoPredictor`: calls that give a `Results` per image or frame."""

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from samgraph import checkpoint
from samgraph.checkpoint.builtin import is_built_in
from samgraph.compat.modeling.sam2_base import SAM2Base, core_of
from samgraph.compat.ultralytics.results import Results
from samgraph.compat.ultralytics.sources import Pixels, images_of, read_prompts, video_of
from samgraph.errors import PromptError
from samgraph.media.image.reading import Rgb
from samgraph.models.loading import load_model
from samgraph.predict.everything.options import own_thresholds
from samgraph.predict.image.encoded import EncodedImage
from samgraph.predict.options import check_names

logger = logging.getLogger(__name__)

# How automatic masks are filtered there; the names of its options, and ours.
_EVERYTHING = {
    "points_stride": ("points_per_side", 32),
    "points_batch_size": ("points_per_batch", 64),
    "conf_thres": ("pred_iou_thresh", 0.88),
    "stability_score_thresh": ("stability_score_thresh", 0.95),
    "stability_score_offset": ("stability_score_offset", 0.95),
    "crop_n_layers": ("crop_n_layers", 0),
    "crop_overlap_ratio": ("crop_overlap_ratio", 512 / 1500),
    "crop_downscale_factor": ("crop_n_points_downscale_factor", 1),
    "crop_nms_thresh": ("crop_nms_thresh", 0.7),
}
_FOLDER = "runs/segment/predict"
_USED = (
    "device", "multimask_output", "name", "project", "save", "save_conf", "save_crop", "save_txt",
    "show",
)  # fmt: skip
# Options of every model there that change nothing here.
_WITHOUT_EFFECT = (
    "agnostic_nms", "augment", "batch", "classes", "compile", "conf", "exist_ok", "half", "imgsz",
    "iou", "line_width", "max_det", "mode", "rect", "retina_masks", "save_frames", "show_boxes",
    "show_conf", "show_labels", "stream_buffer", "task", "verbose", "vid_stride", "visualize",
    "workers",
)  # fmt: skip
PROMPTS = ("points", "labels", "bboxes", "masks")


class SAM:
    """A model by the name or path of its weights, such as `sam2.1_b.pt`."""

    task = "segment"

    def __init__(self, model: Any = "sam2.1_b.pt", **kwargs: Any) -> None:
        self.model = SAM2Base(_loaded(model, kwargs))

    @property
    def device(self) -> Any:
        """Where the model runs."""
        return self.model.device

    @property
    def is_sam2(self) -> bool:
        """Always true."""
        return True

    def to(self, device: Any) -> "SAM":
        """On another device, where the model is recompiled."""
        self.model.to(device)
        return self

    def eval(self) -> "SAM":
        """Itself: nothing here is trained."""
        return self

    def info(self, detailed: bool = False, verbose: bool = True) -> tuple[int, int, int, float]:
        """Log what the model is; returns counts of tensors and parameters, then two zeros."""
        weights = self.model.core.weights
        count = sum(int(weight.size) for weight in weights.values())
        if verbose:
            logger.info("%s: %d tensors, %s parameters", self.model, len(weights), f"{count:,}")
        return len(weights), count, 0, 0.0

    def __call__(self, source: Any = None, stream: bool = False, **kwargs: Any) -> Any:
        """As `predict`."""
        return self.predict(source, stream, **kwargs)

    def predict(
        self,
        source: Any = None,
        stream: bool = False,
        bboxes: Any = None,
        points: Any = None,
        labels: Any = None,
        masks: Any = None,
        **kwargs: Any,
    ) -> Any:
        """A `Results` per image or frame: a list, or with `stream` an iterator.

        Without prompts, everything is segmented. `save=True` also writes the drawn images to
        `project/name`, `save_txt` and `save_crop` what they say; `device` moves the model;
        `multimask_output` gives three masks per prompt. Other options of ultralytics have no
        effect, and a name that is none of them is refused.
        """
        check_options(kwargs)
        if kwargs.get("device") is not None:
            self.to(kwargs["device"])
        prompts = read_prompts(points, labels, bboxes, masks)
        found = self._results(source, prompts, kwargs)
        return found if stream else list(found)

    def _everything_options(self, options: dict[str, Any]) -> dict[str, Any]:
        """What is given, else the model's own threshold, else the library's default."""
        own = own_thresholds(self.model.core.config)
        return {
            ours: options.get(name, own.get(ours, default))
            for name, (ours, default) in _EVERYTHING.items()
        }

    def _results(
        self, source: Any, prompts: list[dict[str, Any]], options: dict[str, Any]
    ) -> Iterator[Results]:
        for pixels in images_of(source):
            yield self.result_of(pixels, self.model.image(pixels.rgb), prompts, options)

    def result_of(
        self,
        pixels: Pixels,
        image: EncodedImage,
        prompts: list[dict[str, Any]],
        options: dict[str, Any],
    ) -> Results:
        """The result of prompts on an encoded image, or of everything in it; saved if asked."""
        if prompts:
            several = bool(options.get("multimask_output"))
            parts = [image.predict(multimask=several, **prompt) for prompt in prompts]
            masks = np.concatenate([part.masks for part in parts])
            scores = np.concatenate([part.scores for part in parts])
        else:
            named = self._everything_options(options)
            segments = self.model.everything(image, progress=False, **named).segments
            masks = np.array([segment.mask for segment in segments], np.bool_)
            masks = masks.reshape(-1, *image.size_hw)
            scores = np.array([segment.score for segment in segments], np.float32)
        results = Results(_bgr(pixels.rgb), pixels.path, masks, scores)
        _save(results, pixels.name, options)
        return results


class SAM2VideoPredictor:
    """Tracks what is prompted on the first frame through a video."""

    def __init__(self, cfg: Any = None, overrides: dict[str, Any] | None = None, **_: Any) -> None:
        self.args = dict(overrides or {})
        self.model: SAM2Base | None = None

    def __call__(
        self, source: Any = None, model: Any = None, stream: bool = False, **kwargs: Any
    ) -> Any:
        """A `Results` per frame, whose boxes have ids: a list, or with `stream` an iterator."""
        check_options(kwargs)
        prompts = read_prompts(*(kwargs.get(name) for name in PROMPTS))
        if not prompts:
            raise PromptError("a video needs a prompt", expected="points, bboxes or masks")
        if model is not None or self.model is None:
            name = model or self.args.get("model", "sam2.1_b.pt")
            device = {"device": self.args["device"]} if self.args.get("device") else {}
            self.model = SAM2Base(_loaded(name, device))
        found = self._results(self.model, source, prompts, self.args | kwargs)
        return found if stream else list(found)

    def _results(
        self,
        model: SAM2Base,
        source: Any,
        prompts: list[dict[str, Any]],
        options: dict[str, Any],
    ) -> Iterator[Results]:
        video = model.video(video_of(source))
        for number, prompt in enumerate(prompts, 1):
            video.add(frame=0, object=number, **prompt)
        path = str(source) if isinstance(source, str | Path) else "video.mp4"
        for frame in video.track(images=True):
            kept = frame.present
            ids = np.array(frame.objects, np.float32)[kept]
            image = _bgr(np.asarray(frame.image))
            results = Results(image, path, frame.masks[kept], frame.scores[kept], ids)
            _save(results, f"{Path(path).stem}_{frame.index + 1}", options)
            yield results


def _loaded(model: Any, options: dict[str, Any]) -> Any:
    """The model of a file that exists, of a name, or a loaded model."""
    if not isinstance(model, str | Path):
        return core_of(model)
    if not is_built_in(model) and not Path(model).exists():
        model = checkpoint.normalise(Path(model).name)
    return load_model(model, **options)


def check_options(options: Iterable[str]) -> None:
    """Refuse a name that is no option, there or here.

    Raises:
        OptionError: There is one.
    """
    known = [*PROMPTS, *_USED, *_EVERYTHING, *_WITHOUT_EFFECT]
    check_names(options, known, "ultralytics")


def _save(results: Results, name: str, options: dict[str, Any]) -> None:
    """Write what `save`, `save_txt` and `save_crop` ask for, and `show` it."""
    folder = _folder(options)
    if options.get("save"):
        results.save(folder / f"{name}.jpg")
    if options.get("save_txt"):
        file = folder / "labels" / f"{name}.txt"
        results.save_txt(file, save_conf=bool(options.get("save_conf")))
    if options.get("save_crop"):
        results.save_crop(folder / "crops", f"{name}.jpg")
    if options.get("show"):
        results.show()


def _bgr(pixels: Rgb) -> Rgb:
    return np.ascontiguousarray(pixels[..., ::-1])


def _folder(options: dict[str, Any]) -> Path:
    project, name = options.get("project"), options.get("name")
    if project is None and name is None:
        return Path(_FOLDER)
    return Path(project or "runs/segment") / (name or "predict")
