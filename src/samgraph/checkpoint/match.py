"""Matching of a checkpoint's names and shapes with those of a model."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from samgraph.checkpoint.foreign import describe_foreign
from samgraph.checkpoint.source_file import short_name
from samgraph.errors import CheckpointError
from samgraph.untrusted.text import shown

Shapes = Mapping[str, tuple[int, ...]]

EXAMPLES = 3
LIKELY = 0.5  # of a model's tensors must agree before it is named
MEMORY = (
    "memory_", "maskmem_", "mask_downsample.", "obj_ptr_", "no_obj_", "no_mem_pos_enc",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LoadReport:
    """Tensors that a checkpoint lacks, and tensors of it that the model does not have."""

    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()

    @property
    def is_image_only(self) -> bool:
        """Whether it lacks tensors of the video memory, and nothing else."""
        return bool(self.missing) and all(name.startswith(MEMORY) for name in self.missing)

    def __str__(self) -> str:
        lines = [
            f"{len(self.missing)} missing, {len(self.unexpected)} unexpected",
            _examples("missing", [f"`{name}`" for name in self.missing]),
            _examples("unexpected", [f"`{shown(name)}`" for name in self.unexpected]),
        ]
        return "\n".join(line for line in lines if line)


def check(
    expected: Shapes,
    found: Shapes,
    *,
    source: str,
    known: Mapping[str, Shapes] | None = None,
    strict: bool = True,
) -> LoadReport:
    """Raise unless `found` has the names and shapes of `expected`; what it lacks otherwise.

    The error counts what is missing, unexpected and of another shape, with examples, and names
    the model of `known` that the checkpoint is for, or the other kind of model it is. A checkpoint
    without any tensor of the video memory is of an image-only model, and accepted. Unless `strict`,
    only tensors of another shape are an error.
    """
    missing = [name for name in expected if name not in found]
    unexpected = [name for name in found if name not in expected]
    reshaped = [name for name in expected if name in found and expected[name] != found[name]]
    if not reshaped and (not strict or _is_image_only(missing, unexpected, found)):
        return LoadReport(tuple(missing), tuple(unexpected))
    lines = [
        f"`{short_name(source)}` does not fit the model ({len(missing)} missing, "
        f"{len(unexpected)} unexpected, {len(reshaped)} of another shape)",
        _examples("missing", [f"`{name}`" for name in missing]),
        _examples("unexpected", [f"`{shown(name)}`" for name in unexpected]),
        _examples(
            "shape",
            [f"`{name}` is {_text(found[name])}, not {_text(expected[name])}" for name in reshaped],
        ),
    ]
    raise CheckpointError("\n".join(line for line in lines if line), hint=_hint(found, known))


def best_match(found: Shapes, known: Mapping[str, Shapes]) -> tuple[str, float] | None:
    """The model of `known` with the most tensors in common with `found`, and the fraction.

    The fraction is of the larger of the two, so 1.0 means equal.
    """
    scores = [(_agreement(found, shapes), name) for name, shapes in known.items()]
    if not scores:
        return None
    share, name = max(scores, key=lambda score: score[0])
    return name, share


def _agreement(a: Shapes, b: Shapes) -> float:
    same = sum(1 for name, shape in a.items() if b.get(name) == shape)
    return same / max(len(a), len(b), 1)


def _is_image_only(missing: Collection[str], unexpected: Collection[str], found: Shapes) -> bool:
    """Whether nothing is wrong but, perhaps, that all tensors of the video memory are missing."""
    if unexpected or not all(name.startswith(MEMORY) for name in missing):
        return False
    return not missing or not any(name.startswith(MEMORY) for name in found)


def _hint(found: Shapes, known: Mapping[str, Shapes] | None) -> str | None:
    """A hint about what the checkpoint is, from its tensor names."""
    match = best_match(found, known or {})
    if match and match[1] == 1.0:
        return f"this is a checkpoint of `{match[0]}`: load it as that"
    foreign = describe_foreign(found)
    if foreign:
        return f"this looks like {foreign}"
    if match and match[1] >= LIKELY:
        return f"it is closest to `{match[0]}`: {int(100 * match[1])} % of the tensors agree"
    return None


def _examples(label: str, items: list[str]) -> str:
    """One line with a few of `items`, or nothing."""
    if not items:
        return ""
    more = f" and {len(items) - EXAMPLES} more" if len(items) > EXAMPLES else ""
    return f"  {label + ':':<11} {', '.join(items[:EXAMPLES])}{more}"


def _text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) if shape else "a single number"
