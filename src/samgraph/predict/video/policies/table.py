"""The memory policies by name: one table for the library, the shell, the server and sessions."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from samgraph.errors import OptionError
from samgraph.models.family import ModelConfig, OffersAlternatives, SegmentationModel
from samgraph.predict.video.policies.distractors import DistractorAwarePolicy
from samgraph.predict.video.policies.history import ObservingPolicy
from samgraph.predict.video.policies.motion import MotionAwarePolicy
from samgraph.predict.video.policies.quality import QualityGatedPolicy
from samgraph.predict.video.policy import MemoryPolicy, ReferencePolicy
from samgraph.untrusted.schema import Schema, flag, number, one_of, optional, record, whole

MOST_FRAMES = 2**31
DEFAULT = "sam2"
_SHARE = number(0, 1)
_SHARED: dict[str, Schema] = {
    "memory_frames": whole(1, 64),
    "max_pointers": whole(1, 1024),
    "max_prompted": optional(whole(1, MOST_FRAMES)),
    "stride": whole(1, MOST_FRAMES),
    "is_signed": flag,
}


@dataclass(frozen=True, slots=True)
class NamedPolicy:
    """A policy: its name, what it does, its class, and the fields that it adds to SAM 2's."""

    name: str
    summary: str
    kind: type[ReferencePolicy]
    fields: Mapping[str, Schema] = field(default_factory=dict)

    def schema(self, value: object, where: str) -> dict[str, Any]:
        """The record of such a policy in a saved session, checked."""
        checked: dict[str, Any] = record({"name": one_of(self.name), **_SHARED, **self.fields})(
            value, where
        )
        return checked


_TABLE = (
    NamedPolicy(DEFAULT, "the last six frames and all prompted ones, as SAM 2", ReferencePolicy),
    NamedPolicy(
        "quality-gated", "the last six frames on which the object was found well",
        QualityGatedPolicy, {"least_quality": _SHARE},
    ),
    NamedPolicy(
        "motion-aware", "masks chosen with a Kalman filter of the box, and gated memory",
        MotionAwarePolicy,
        {
            "motion_weight": _SHARE, "steady_frames": whole(0, MOST_FRAMES),
            "steady_iou": _SHARE, "least_iou": _SHARE,
        },
    ),
    NamedPolicy(
        "distractor-aware", "frames that show the object beside a look-alike stay in memory",
        DistractorAwarePolicy,
        {
            "most_anchors": whole(0, 64), "anchor_iou": _SHARE, "area_change": number(0, 100),
            "area_frames": whole(1, 1024), "anchor_gap": whole(0, MOST_FRAMES),
            "divergence": _SHARE,
        },
    ),
)  # fmt: skip
POLICIES: dict[str, NamedPolicy] = {entry.name: entry for entry in _TABLE}


def find_policy(name: object) -> NamedPolicy:
    """The policy with this name.

    Raises:
        OptionError: There is none.
    """
    if not isinstance(name, str) or name not in POLICIES:
        raise OptionError(f"there is no memory policy `{name}`", expected=", ".join(POLICIES))
    return POLICIES[name]


def make_policy(
    name: str, config: ModelConfig, *, max_prompted: int | None, stride: int
) -> ReferencePolicy:
    """A policy by name, for a model."""
    return find_policy(name).kind.of(config, max_prompted=max_prompted, stride=stride)


def check_policy(policy: MemoryPolicy, model: SegmentationModel) -> None:
    """Refuse a policy that needs more than a model gives.

    Raises:
        OptionError: It compares masks, and the model's decoder gives one.
    """
    is_observing = isinstance(policy, ObservingPolicy) and policy.compares_masks
    if is_observing and not isinstance(model, OffersAlternatives):
        raise OptionError(
            f"`{type(policy).__name__}` compares the masks of the decoder",
            got=f"a model of the family {model.family}, which gives one",
            expected=f"{DEFAULT} or quality-gated",
        )


def policy_record(policy: MemoryPolicy) -> dict[str, Any] | None:
    """A policy of the table as a record for JSON; None for any other."""
    for entry in _TABLE:
        if type(policy) is entry.kind:
            return {"name": entry.name, **asdict(policy)}
    return None


def policy_schema(value: object, where: str) -> dict[str, Any]:
    """The record of any policy of the table, checked."""
    name = value.get("name") if isinstance(value, Mapping) else None
    known = POLICIES.get(name, POLICIES[DEFAULT]) if isinstance(name, str) else POLICIES[DEFAULT]
    return known.schema(value, where)


def policy_of(checked: Mapping[str, Any]) -> ReferencePolicy:
    """The policy of a record that was checked."""
    options = {name: value for name, value in checked.items() if name != "name"}
    return POLICIES[checked["name"]].kind(**options)
