"""The report of the demo: one HTML file with its pictures inside, to open in any browser."""

import base64
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

_TYPES = {".jpg": "jpeg", ".png": "png", ".webp": "webp"}

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --accent: #2a7d5f; }
* { box-sizing: border-box; }
body { font: 16px/1.55 system-ui, sans-serif; margin: 0 auto; max-width: 60rem;
       padding: 3rem 1.25rem 4rem; }
h1 { font-size: 2rem; line-height: 1.2; margin: 0 0 .4rem; letter-spacing: -.01em; }
h2 { font-size: 1.25rem; margin: 0; }
.lead { font-size: 1.1rem; margin: 0; opacity: .8; max-width: 44rem; }
section { border-top: 1px solid var(--line); margin-top: 2.2rem; padding-top: 1.8rem; }
.head { display: flex; gap: 1rem; align-items: baseline; justify-content: space-between; }
.time { font-variant-numeric: tabular-nums; white-space: nowrap; opacity: .65; }
p { margin: .5rem 0 1rem; max-width: 44rem; }
figure { margin: 1rem 0; }
img { display: block; width: 100%; height: auto; border: 1px solid var(--line);
      border-radius: 8px; }
figcaption { font-size: .9rem; opacity: .7; margin-top: .4rem; }
.code { display: grid; gap: .75rem; grid-template-columns: repeat(auto-fit, minmax(20rem, 1fr)); }
.code h3 { font-size: .75rem; letter-spacing: .06em; text-transform: uppercase; opacity: .6;
           margin: 0 0 .25rem; }
pre { font: 13px/1.5 ui-monospace, monospace; background: var(--soft); border-radius: 8px;
      margin: 0; overflow-x: auto; padding: .8rem 1rem; }
.figure { font-weight: 600; color: var(--accent); }
footer { border-top: 1px solid var(--line); margin-top: 2.5rem; padding-top: 1rem;
         font-size: .9rem; opacity: .7; }
"""


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the demo: a sentence, pictures, and the same in shell and Python."""

    title: str
    sentence: str
    pictures: tuple[tuple[Path, str], ...]  # each with its caption
    shell: str
    python: str
    seconds: float
    figures: dict[str, float] = field(default_factory=dict)


def write_report(path: Path, title: str, lead: str, steps: list[Step], footer: str) -> Path:
    """Write the page."""
    sections = "\n".join(_section(number, step) for number, step in enumerate(steps, 1))
    path.write_text(
        f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{escape(title)}</h1>
<p class="lead">{escape(lead)}</p>
{sections}
<footer>{escape(footer)}</footer>
</body>
</html>
""",
        encoding="utf-8",
    )
    return path


def _section(number: int, step: Step) -> str:
    figures = "".join(
        f' <span class="figure">{escape(name)} {value:.2f}</span>.'
        for name, value in step.figures.items()
    )
    pictures = "\n".join(_picture(path, caption) for path, caption in step.pictures)
    return f"""<section>
<div class="head"><h2>{number}. {escape(step.title)}</h2>
<span class="time">{step.seconds:.1f} s</span></div>
<p>{escape(step.sentence)}{figures}</p>
{pictures}
<div class="code">
<div><h3>Shell</h3><pre>{escape(step.shell)}</pre></div>
<div><h3>Python</h3><pre>{escape(step.python)}</pre></div>
</div>
</section>"""


def _picture(path: Path, caption: str) -> str:
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    kind = _TYPES[path.suffix]
    return (
        f'<figure><img alt="{escape(caption)}" src="data:image/{kind};base64,{data}">'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )
