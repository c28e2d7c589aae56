"""The lines of a batch run's files, written and read back: a run folder may come from elsewhere."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from samgraph.jobs.batch.inputs import Input
from samgraph.jobs.batch.scheduler import Success, Verdict
from samgraph.untrusted.schema import list_of, record, text, whole
from samgraph.untrusted.text import json_bytes, strict_json

LONGEST_LINE = 256 << 20
MOST_INPUTS = 1 << 20  # of a shard
_KEY = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class Result:
    """What is recorded of an input: its result, or why there is none.

    Args:
        key: That of the input.
        prompt_key: That of its prompts.
        name: What the input is called.
        attempts: How often it was tried.
        body: The result.
        failure: The reason and the message, where there is no result.
    """

    key: str
    prompt_key: str
    name: str
    attempts: int
    body: dict[str, Any] | None = None
    failure: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Shard:
    """The journal's record of a finished shard; the inputs in it are done.

    Args:
        number: Counted from 0.
        keys: The inputs.
        prompt_keys: Their prompts.
        failures: Key, name, reason, message and attempts of those without a result.
        images: Images in the shard's file.
        annotations: Masks in it.
        categories: Labels that are new in it, in order.
        damaged: Inputs with a result that says `damage`.
    """

    number: int
    keys: Sequence[str]
    prompt_keys: Sequence[str]
    failures: Sequence[Mapping[str, Any]] = ()
    images: int = 0
    annotations: int = 0
    categories: Sequence[str] = field(default_factory=tuple)
    damaged: int = 0

    def line(self) -> bytes:
        """As the journal has it."""
        fields = {
            "shard": self.number,
            "keys": "".join(self.keys),
            "prompts": "".join(self.prompt_keys),
            "failures": list(self.failures),
            "images": self.images,
            "annotations": self.annotations,
            "categories": list(self.categories),
            "damaged": self.damaged,
        }
        return json_bytes(fields, compact=True) + b"\n"


_COUNT = whole(0, 2**53)
_SHARD = record(
    {
        "shard": whole(0, 2**31),
        "keys": text(16 * MOST_INPUTS),
        "prompts": text(16 * MOST_INPUTS),
        "failures": list_of(
            record(
                {
                    "key": text(16),
                    "name": text(1 << 16),
                    "reason": text(256),
                    "message": text(1 << 16),
                    "attempts": _COUNT,
                }
            ),
            MOST_INPUTS,
        ),
        "images": _COUNT,
        "annotations": _COUNT,
        "categories": list_of(text(1 << 16), MOST_INPUTS),
        "damaged": _COUNT,
    }
)


def result_line(verdict: Verdict[Input]) -> bytes:
    """The line of an input; its result, which is JSON already, is not read."""
    found = verdict.input
    head = {
        "key": found.key,
        "prompts": found.prompt_key,
        "name": found.name,
        "attempts": verdict.attempts,
    }
    start = json_bytes(head, compact=True)[:-1]
    if isinstance(verdict.outcome, Success):
        return start + b',"result":' + verdict.outcome.body + b"}\n"
    why = json_bytes([verdict.outcome.reason, verdict.outcome.message], compact=True)
    return start + b',"failure":' + why + b"}\n"


def result_of(line: bytes) -> Result | None:
    """The input of a line; None for a line that is damaged."""
    try:
        found = json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    match found:
        case {"key": str(key), "prompts": str(prompts), "name": str(name), "attempts": int(tries)}:
            pass
        case _:
            return None
    if not _KEY.fullmatch(key) or not _KEY.fullmatch(prompts):
        return None
    match found:
        case {"result": dict(body)} if _is_body(body):
            return Result(key, prompts, name, tries, body)
        case {"failure": [str(reason), str(message)]}:
            return Result(key, prompts, name, tries, None, (reason, message))
    return None


def shard_of(line: bytes) -> Shard | None:
    """The shard of a journal's line; None for a line that is damaged."""
    try:
        found = _SHARD(strict_json(line, most_bytes=LONGEST_LINE), "shard")
    except ValueError:
        return None
    keys, prompts = _split(found["keys"]), _split(found["prompts"])
    if keys is None or prompts is None or len(keys) != len(prompts):
        return None
    failed = found["failures"]
    if any(not _KEY.fullmatch(failure["key"]) for failure in failed):
        return None
    return Shard(
        found["shard"], keys, prompts, failed, found["images"], found["annotations"],
        found["categories"], found["damaged"],
    )  # fmt: skip


def _split(keys: str) -> list[str] | None:
    """Keys that are written one after another."""
    parts = [keys[start : start + 16] for start in range(0, len(keys), 16)]
    return parts if all(map(_KEY.fullmatch, parts)) else None


def _is_body(body: dict[str, Any]) -> bool:
    """Whether a result has the form that shards are made of."""
    annotations = body.get("annotations", [])
    return isinstance(annotations, list) and all(
        isinstance(one, dict) and isinstance(one.get("label"), str | None) for one in annotations
    )


def _refuse(name: str) -> float:
    raise ValueError(f"`{name}` is not JSON")
