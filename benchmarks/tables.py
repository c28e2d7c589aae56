"""The results of `all.py` as a Markdown table, as bars and as curves in an SVG."""

from html import escape
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
OURS = "samgraph fp32"
COLOURS = {"samgraph fp32": "#1f6f5c", "samgraph bf16": "#55b096"}
OTHER = "#b9bfc6"
ROW, LABEL, WIDTH = 16, 170, 520


def table(found: dict[str, Any]) -> str:
    """A row per job, a column per peer: median milliseconds, spread, and the ratio to ours."""
    names = [name for name in found["versions"] if name not in found["failed"]]
    settings, host = found["settings"], found["machine"]
    lines = [
        f"{settings['model']}, {settings['threads']} threads, {settings['kind']} time, median of "
        f"{settings['rounds']} rounds (lowest to highest); {host['processor']}, {host['cores']} "
        f"cores, {' '.join(host['features'])}, load {host['load']} at the start.",
        "",
        "| ms | " + " | ".join(names) + " |",
        "|---|" + "---|" * len(names),
    ]
    for job, row in found["seconds"].items():
        cells = [_cell(row.get(name), row.get(OURS)) for name in names]
        lines.append(f"| {job} | " + " | ".join(cells) + " |")
    for title, sizes in (
        ("peak memory when one object is tracked, MB", found.get("tracking_mb", {})),
        ("peak memory of the process, all jobs, MB", found["peak_mb"]),
        ("installed size with requirements, MB", found["installed_mb"]),
    ):
        cells = [f"{sizes[name]:.0f}" if name in sizes else "" for name in names]
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    starts = found.get("starts", {})
    for kind in ("cold", "warm") if starts else ():
        times = [starts.get(name, {}).get(kind) for name in names]
        cells = ["" if seconds is None else f"{1e3 * seconds:.0f}" for seconds in times]
        lines.append(f"| first mask from a {kind} start | " + " | ".join(cells) + " |")
    lines += [""] + [f"* {name}: not measured ({why})" for name, why in found["failed"].items()]
    packages = {k: v for row in found["versions"].values() for k, v in row.items()}
    lines.append("* versions: " + ", ".join(f"{k} {v}" for k, v in sorted(packages.items())))
    return "\n".join(lines)


def _cell(times: dict[str, float] | None, ours: dict[str, float] | None) -> str:
    if times is None:
        return ""
    spread = f"{1e3 * times['low']:.0f} to {1e3 * times['high']:.0f}"
    ratio = f", {times['median'] / ours['median']:.2f}x" if ours and times is not ours else ""
    return f"{1e3 * times['median']:.0f} ({spread}){ratio}"


def bars(found: dict[str, Any]) -> str:
    """A group of bars per job; the longest of a job fills the width, so that ratios show."""
    parts, y = [], 10
    for job, row in found["seconds"].items():
        if not row:
            continue
        parts.append(f'<text x="0" y="{y + 12}" font-weight="bold">{escape(job)}</text>')
        y += ROW + 4
        most = max(times["median"] for times in row.values())
        for name, times in row.items():
            length = WIDTH * times["median"] / most
            parts.append(f'<text x="{LABEL - 8}" y="{y + 12}" text-anchor="end">{name}</text>')
            fill = COLOURS.get(name, OTHER)
            parts.append(
                f'<rect x="{LABEL}" y="{y}" width="{length:.1f}" height="{ROW - 3}" fill="{fill}"/>'
            )
            shown = f"{1e3 * times['median']:.0f} ms"
            parts.append(f'<text x="{LABEL + length + 6:.1f}" y="{y + 12}">{shown}</text>')
            y += ROW
        y += 8
    style = "font-family:sans-serif;font-size:12px"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LABEL + WIDTH + 90}" height="{y}" '
        f'style="{style}">\n' + "\n".join(parts) + "\n</svg>\n"
    )


# Title, unit of the axis, and the jobs whose names end in a number along it.
GROWTH = (
    ("a tracked frame, by input size", "pixels", ("size_256", "size_512", "size_768", "track_1")),
    ("a tracked frame, by objects", "objects", ("track_1", "track_4", "track_16")),
    (
        "memory attention, by remembered frames",
        "frames",
        ("memory_attention_1", "memory_attention_3", "memory_attention_7"),
    ),
    ("a frame at 256 pixels, by length", "frames", ("length_16", "length_64", "length_256")),
)
PANEL, MARGIN = (260, 170), 46


def growth(found: dict[str, Any]) -> str:
    """A panel per quantity that grows: seconds over size, objects, frames and length."""
    parts = []
    for number, (title, unit, jobs) in enumerate(GROWTH):
        left = MARGIN + number % 2 * (PANEL[0] + 3 * MARGIN)
        top = MARGIN + number // 2 * (PANEL[1] + 2 * MARGIN)
        parts += _panel(found, left, top, title, unit, jobs)
    width, height = 2 * PANEL[0] + 6 * MARGIN, 2 * (PANEL[1] + 2 * MARGIN)
    style = "font-family:sans-serif;font-size:11px"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'style="{style}">\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _panel(
    found: dict[str, Any], left: int, top: int, title: str, unit: str, jobs: tuple[str, ...]
) -> list[str]:
    """Both axes begin at 0; a line per peer that has two jobs of it or more."""
    places = {job: 1024 if unit == "pixels" and job == "track_1" else _number(job) for job in jobs}
    lines: dict[str, list[tuple[int, float]]] = {}
    for job in jobs:
        for name, times in found["seconds"].get(job, {}).items():
            lines.setdefault(name, []).append((places[job], times["median"]))
    lines = {name: points for name, points in lines.items() if len(points) > 1}
    if not lines:
        return []
    most = max(y for points in lines.values() for _, y in points)
    wide, high = PANEL
    parts = [
        f'<text x="{left}" y="{top - 14}" font-weight="bold">{escape(title)}</text>',
        f'<path d="M{left} {top}V{top + high}H{left + wide}" fill="none" stroke="#888"/>',
        f'<text x="{left - 4}" y="{top + 8}" text-anchor="end">{most:.3g} s</text>',
    ]
    for place in places.values():
        x = left + wide * place / max(places.values())
        parts.append(f'<text x="{x:.0f}" y="{top + high + 14}" text-anchor="middle">{place}</text>')
    parts.append(
        f'<text x="{left + wide + 8}" y="{top + high + 28}" text-anchor="end">{unit}</text>'
    )
    for name, points in lines.items():
        where = [
            (left + wide * x / max(places.values()), top + high * (1 - y / most)) for x, y in points
        ]
        drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in where)
        fill = COLOURS.get(name, OTHER)
        parts.append(f'<polyline points="{drawn}" fill="none" stroke="{fill}" stroke-width="2"/>')
        x, y = where[-1]
        parts.append(f'<text x="{x + 4:.1f}" y="{y + 4:.1f}">{escape(name)}</text>')
    return parts


def _number(job: str) -> int:
    return int(job.rpartition("_")[2])


def fill_page(page: Path, text: str) -> None:
    """Put the table between the marks of a page."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{page} has no `{BEGIN}` and `{END}`")
    page.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")
