"""The results of `all.py` as a Markdown table and as bars in an SVG."""

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
    peaks = [f"{found['peak_mb'][name]:.0f}" for name in names]
    sizes = [str(found["installed_mb"][name]) for name in names]
    lines.append("| peak memory of the process, MB | " + " | ".join(peaks) + " |")
    lines.append("| installed size, MB | " + " | ".join(sizes) + " |")
    lines += [""] + [f"* {name}: not measured ({why})" for name, why in found["failed"].items()]
    for name, seconds in found.get("starts", {}).items():
        lines.append(f"* first mask of the built-in model from a {name} start: {seconds:.1f} s")
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


def fill_page(page: Path, text: str) -> None:
    """Put the table between the marks of a page."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{page} has no `{BEGIN}` and `{END}`")
    page.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")
