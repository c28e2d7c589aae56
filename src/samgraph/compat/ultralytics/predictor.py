"""`SAM2Predictor`: one image, encoded once, then prompted any number of times.

predictor = SAM2Predictor(overrides={"model": "sam2.1_b.pt"})
predictor.set_image("bus.jpg")
results = predictor(points=[900, 370], labels=[1])
predictor.reset_image()
"""

from typing import Any

from samgraph.compat.ultralytics.model import PROMPTS, SAM, check_options
from samgraph.compat.ultralytics.results import Results
from samgraph.compat.ultralytics.sources import Pixels, images_of, read_prompts
from samgraph.errors import PromptError
from samgraph.predict.image.encoded import EncodedImage


class SAM2Predictor:
    """Results of prompts on the image that was set, or on a source."""

    def __init__(self, cfg: Any = None, overrides: dict[str, Any] | None = None, **_: Any) -> None:
        self.args = dict(overrides or {})
        self.model: SAM | None = None
        self._set: tuple[Pixels, EncodedImage] | None = None

    def setup_model(self, model: Any = None, verbose: bool = True) -> None:
        """Load the model now, not with the first image."""
        device = {"device": self.args["device"]} if self.args.get("device") else {}
        self.model = SAM(
            self.args.get("model", "sam2.1_b.pt") if model is None else model, **device
        )

    def set_image(self, image: Any) -> None:
        """Encode an image: a path, a Pillow image, or an array: blue, green, red."""
        found = list(images_of(image))
        if len(found) != 1:
            raise PromptError("one image can be set", got=f"{len(found)}")
        self._set = found[0], self._loaded().model.image(found[0].rgb)

    def reset_image(self) -> None:
        """Forget the image."""
        self._set = None

    def __call__(
        self, source: Any = None, model: Any = None, stream: bool = False, **kwargs: Any
    ) -> Any:
        """A `Results` per image: of the source, or else of the image that was set."""
        if model is not None:
            self.setup_model(model)
        loaded = self._loaded()
        if source is not None or self._set is None:
            return loaded.predict(source, stream, **kwargs)
        check_options(kwargs)
        prompts = read_prompts(*(kwargs.get(name) for name in PROMPTS))
        results: list[Results] = [loaded.result_of(*self._set, prompts, kwargs)]
        return iter(results) if stream else results

    def _loaded(self) -> SAM:
        if self.model is None:
            self.setup_model()
        if self.model is None:
            raise PromptError("no model is set")
        return self.model
