"""Carrying what is remembered of objects from one video to another."""

from collections.abc import Iterable

from samgraph.errors import PromptError
from samgraph.predict.video.following import Follower
from samgraph.predict.video.object_prompts import ObjectId


def carry(
    source: Follower, target: Follower, names: Iterable[ObjectId] | None, before: int = 0
) -> None:
    """Give the objects of one follower to another, as if prompted just before its next frame.

    Prompted frames keep their order and become the frames before frame `before`. What was only
    tracked stays behind: it belongs to the other video's last moments.

    Raises:
        PromptError: An object is unknown, or is there already; or the models are different.
    """
    if source.tracker.config != target.tracker.config:
        raise PromptError(
            "what one model remembers means nothing to another",
            got=source.tracker.config.name,
            expected=target.tracker.config.name,
        )
    source.settle()
    chosen = [source.known(name) for name in (source.objects if names is None else names)]
    for one in chosen:
        if one.name in target.objects:
            raise PromptError(f"there is an object `{one.name}` already", hint="remove it first")
    for one in chosen:
        taken = target.new_object(one.name)
        memories = [one.bank.prompted[frame] for frame in sorted(one.bank.prompted)]
        for place, memory in enumerate(memories, start=before - len(memories)):
            taken.bank.remember_prompted(place, memory)
        target.objects[one.name] = taken
