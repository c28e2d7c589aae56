"""What was to be reached, against the results of `all.py`: met or not, and the largest gaps."""

from typing import Any, NamedTuple

OURS, OURS_BF16 = "samgraph fp32", "samgraph bf16"
BF16 = (OURS_BF16, "torch bf16")


class Target(NamedTuple):
    """A job, our peer, and how many times as fast as the best other one of its precision."""

    title: str
    job: str
    ours: str
    wanted: float


SPEED = (
    Target("memory attention, full bank, fp32", "memory_attention_7", OURS, 1.7),
    Target("memory attention, full bank, bf16", "memory_attention_7", OURS_BF16, 2.8),
    Target("tracked frame, one object, fp32", "track_1", OURS, 1.6),
    Target("tracked frame, one object, bf16", "track_1", OURS_BF16, 2.5),
    Target("tracked frame, four objects, fp32", "track_4", OURS, 2.0),
    Target("encode", "image_encoder", OURS, 1.3),
    Target("click", "click", OURS, 2.0),
    Target("everything", "everything", OURS, 3.0),
)


class Verdict(NamedTuple):
    """A target and what was found; `reached` is 1 or more where it is met."""

    title: str
    wanted: str
    found: str
    reached: float


def verdicts(results: dict[str, Any]) -> list[Verdict]:
    """Every target that the results say something of."""
    rows = [_speed(results, target) for target in SPEED]
    rows += [_start(results, kind, wanted) for kind, wanted in (("cold", 2.0), ("warm", 3.0))]
    rows += [
        _share("peak memory in tracking", results.get("tracking_mb", {}), 0.6),
        _share("installed size", results.get("installed_mb", {}), 1 / 3, "torch eager"),
        _growth(results, 4, 2.3),
        _growth(results, 16, 8.0),
    ]
    return [row for row in rows if row is not None]


def targets_table(results: dict[str, Any]) -> list[str]:
    """A row per target, and the three largest gaps."""
    rows = verdicts(results)
    lines = ["| target | wanted | found | met |", "|---|---|---|---|"]
    for row in rows:
        met = "yes" if row.reached >= 1 else "no"
        lines.append(f"| {row.title} | {row.wanted} | {row.found} | {met} |")
    gaps = sorted((row for row in rows if row.reached < 1), key=lambda row: row.reached)
    names = "; ".join(f"{row.title} ({row.found} of {row.wanted})" for row in gaps[:3])
    return [*lines, "", f"Largest gaps: {names or 'none'}."]


def _speed(results: dict[str, Any], target: Target) -> Verdict | None:
    """The best other peer of the same precision is what counts."""
    row = results["seconds"].get(target.job, {})
    others = {
        name: times["median"]
        for name, times in row.items()
        if name not in (OURS, OURS_BF16) and (name in BF16) == (target.ours in BF16)
    }
    if target.ours not in row or not others:
        return None
    best = min(others, key=lambda name: others[name])
    ratio = others[best] / row[target.ours]["median"]
    found = f"{ratio:.2f}x {best}"
    return Verdict(target.title, f">= {target.wanted:g}x", found, ratio / target.wanted)


def _start(results: dict[str, Any], kind: str, wanted: float) -> Verdict | None:
    starts = {
        name: times[kind] for name, times in results.get("starts", {}).items() if kind in times
    }
    ours = starts.pop(OURS, None)
    if ours is None or not starts:
        return None
    best = min(starts, key=lambda name: starts[name])
    found = f"{starts[best] / ours:.2f}x {best}"
    return Verdict(
        f"{kind} start to a mask", f">= {wanted:g}x", found, starts[best] / ours / wanted
    )


def _share(
    title: str, sizes: dict[str, float], wanted: float, peer: str | None = None
) -> Verdict | None:
    others = {
        name: size for name, size in sizes.items() if not name.startswith("samgraph") and size
    }
    if peer is not None:
        others = {name: size for name, size in others.items() if name == peer}
    if not sizes.get(OURS) or not others:
        return None
    best = min(others, key=lambda name: others[name])
    share = sizes[OURS] / others[best]
    return Verdict(title, f"<= {wanted:.2f}", f"{share:.2f} of {best}", wanted / share)


def _growth(results: dict[str, Any], objects: int, wanted: float) -> Verdict | None:
    one, many = (results["seconds"].get(f"track_{n}", {}).get(OURS) for n in (1, objects))
    if one is None or many is None:
        return None
    ratio = many["median"] / one["median"]
    return Verdict(
        f"{objects} objects, times one", f"<= {wanted:g}", f"{ratio:.2f}", wanted / ratio
    )
