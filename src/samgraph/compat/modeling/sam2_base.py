"""What the reference's builders return: a model with the methods of a torch module."""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from samgraph.compat.host import device_named, to_host
from samgraph.compat.tensor import Tensor, like, tensor
from samgraph.engines import parse_device
from samgraph.errors import CheckpointError, OptionError
from samgraph.models.family import SegmentationModel
from samgraph.models.loading import exact_config, load_model
from samgraph.predict.model import Model

# The logit of objects that are not there.
NO_OBJ_SCORE = -1024.0

_IN_GRAPHS = "it is part of a compiled graph, and runs with `set_image`, `predict` and `init_state`"
_UNTRAINED = "nothing is trained here: train with the original, then load its checkpoint"
# What programs take from the original's model, and why it is not here.
_ABSENT = {
    **dict.fromkeys(
        (
            "forward_image", "image_encoder", "mask_downsample", "memory_attention",
            "memory_encoder", "obj_ptr_proj", "sam_mask_decoder", "sam_prompt_encoder",
            "track_step", "_forward_sam_heads", "_prepare_backbone_features",
        ),
        _IN_GRAPHS,
    ),
    **dict.fromkeys(("zero_grad", "forward", "modules", "children", "apply"), _UNTRAINED),
}  # fmt: skip


class SAM2Base(Model):
    """A model that also has the reference's names.

    Weights are arrays in main memory. Precision is chosen when the model is built: `half()`,
    `bfloat16()` and autocast have no effect.
    """

    training = False

    def __init__(self, core: Any, *, falls_back: bool = True) -> None:
        super().__init__(core_of(core))
        self.falls_back = falls_back

    if not TYPE_CHECKING:  # else type checkers would take every name

        def __getattr__(self, name: str) -> Any:
            """Only to say why a part of the original is not here."""
            kind = type(self).__name__
            why = f" here: {_ABSENT[name]}" if name in _ABSENT else ""
            raise AttributeError(f"`{kind}` has no `{name}`{why}", name=name, obj=self)

    def __reduce__(self) -> tuple[Any, ...]:
        """Its weights and how they are compiled; a worker process compiles them again."""
        core = self.core
        kept = {name: value for name, value in vars(self).items() if name != "core"}
        parts = (core.checkpoint(), exact_config(core), str(core.session.device))
        return _again, (type(self), *parts, core.session.options, kept)

    @property
    def image_size(self) -> int:
        """Side of the model's input."""
        return int(self.core.config.image_size)

    @property
    def device(self) -> Any:
        """Where graphs run: a `torch.device` where torch is imported, else a text like it."""
        return device_named(str(self.core.session.device))

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """On another device, where the model is recompiled; a dtype has no effect."""
        given = [*args, kwargs.get("device")]
        device = next((value for value in given if _is_device(value)), None)
        wanted = None if device is None else parse_device(device)
        own = self.core.session.device
        if wanted is not None and (wanted.kind, wanted.index or 0) != (own.kind, own.index or 0):
            self.core = rebuilt(self.core, self.core.checkpoint(), wanted)
        return self

    def cuda(self, device: Any = None) -> Self:
        """On a CUDA GPU."""
        return self.to(
            "cuda" if device is None else f"cuda:{device}" if _is_number(device) else device
        )

    def cpu(self) -> Self:
        """On the CPU."""
        return self.to("cpu")

    def eval(self) -> Self:
        """Itself: nothing here is trained."""
        return self

    def train(self, mode: bool = True) -> Self:
        """Itself: nothing here is trained."""
        return self

    def half(self) -> Self:
        """Itself: the precision is chosen when the model is built."""
        return self

    float = double = bfloat16 = half

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Itself: nothing here is trained."""
        return self

    def parameters(self, recurse: bool = True) -> Iterator[Tensor]:
        """The weights; they share memory with the model, whose graphs are compiled already."""
        return (weight for _, weight in self.named_parameters())

    def named_parameters(self, *_: Any, **__: Any) -> Iterator[tuple[str, Tensor]]:
        """The weights with their names in a checkpoint."""
        return ((name, tensor(weight)) for name, weight in self.core.checkpoint().items())

    def state_dict(self) -> "OrderedDict[str, Tensor]":
        """The weights by name."""
        return OrderedDict(self.named_parameters())

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True
    ) -> tuple[list[str], list[str]]:
        """Other weights of the same model, such as fine-tuned weights; graphs are recompiled.

        Returns the names that were missing and, unless `strict`, those that were not used.
        """
        own = self.core.checkpoint()
        given = {name: np.asarray(to_host(value)) for name, value in state_dict.items()}
        missing, unused = sorted(own.keys() - given.keys()), sorted(given.keys() - own.keys())
        if strict and (missing or unused):
            raise CheckpointError(
                "the weights are those of another model",
                got=f"{len(missing)} tensors missing, {len(unused)} not used",
                hint=f"the first is `{(missing or unused)[0]}`",
            )
        used = {name: value for name, value in given.items() if name in own}
        self.core = rebuilt(self.core, {**own, **used}, self.core.session.device)
        return missing, unused

    def _apply_non_overlapping_constraints(self, pred_masks: Any) -> Any:
        """Logits [N, 1, H, W] where only the object with the highest logit keeps each pixel."""
        return non_overlapping(pred_masks)


def core_of(model: Any) -> SegmentationModel:
    """The model that predictors run: the value itself, or the model it holds."""
    core: SegmentationModel = getattr(model, "core", model)
    if not hasattr(core, "session"):
        raise OptionError(
            "a predictor takes a model",
            got=type(model).__name__,
            expected="what `build_sam2` or `samgraph.load` returns",
            hint="`from_pretrained` takes a name" if isinstance(model, str) else None,
        )
    return core


def _again(
    kind: type["SAM2Base"],
    weights: Mapping[str, Any],
    config: Any,
    device: str,
    options: Any,
    kept: dict[str, Any],
) -> "SAM2Base":
    """A model or predictor that was pickled."""
    core = load_model(weights, config=config, device=device, options=options)
    made = kind.__new__(kind)
    made.__dict__.update(kept, core=core)
    return made


def rebuilt(core: SegmentationModel, weights: Mapping[str, Any], device: Any) -> SegmentationModel:
    """The same model with other weights or on another device."""
    options = core.session.options
    return load_model(weights, config=exact_config(core), device=device, options=options)


def non_overlapping(masks: Any) -> Any:
    """Logits [N, ..., H, W] of which at most one per pixel is positive; tensors stay tensors."""
    from samgraph.predict.video.result import without_overlaps

    return like(masks, without_overlaps(np.asarray(to_host(masks))))


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_device(value: Any) -> bool:
    return isinstance(value, str) or (hasattr(value, "type") and hasattr(value, "index"))
