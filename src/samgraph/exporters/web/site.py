"""The files of the page without a server.

index.html, static/    the page of `samgraph serve`, but for how its requests travel
engine/                answers them, in a worker
runtime/               ONNX Runtime for browsers
model/                 the graphs, and their weights in 16 bits
samples/, info.json    what the page offers
sw.js                  keeps all of this in the browser
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from samgraph.version import __version__

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "serve" / "page"
SAMPLES = HERE.parents[1] / "serve" / "samples_media"
WORKER = "sw.js"
_SUFFIXES = (".html", ".js", ".css", ".svg", ".json", ".jpg")
# Files that are kept when somebody uses them, not before: a browser needs one half of the runtime.
_WHEN_USED = ("runtime/",)
_LARGE = ("model/", "samples/")


def page_files() -> dict[str, bytes]:
    """The files beside model and runtime, by their path in the folder; without the worker."""
    found = {}
    for path in _files(PAGE):
        name = path.relative_to(PAGE).as_posix()
        found[name if name == "index.html" else f"static/{name}"] = path.read_bytes()
    for path in _files(HERE / "page"):
        found[path.relative_to(HERE / "page").as_posix()] = path.read_bytes()
    for path in SAMPLES.glob("*.jpg"):
        found[f"samples/{path.name}"] = path.read_bytes()
    del found[WORKER]
    info = {"version": __version__, **json.loads(found["info.json"])}
    found["info.json"] = json.dumps(info).encode()
    return found


def service_worker(files: Mapping[str, bytes], also: tuple[str, ...]) -> bytes:
    """The service worker that keeps these files, and `also`, which are written later."""
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(name.encode() + b"\0" + hashlib.sha256(files[name]).digest())
    kept = [name for name in sorted((*files, *also)) if not name.startswith(_WHEN_USED)]
    page = ["./", *(name for name in kept if not name.startswith(_LARGE))]
    rest = [name for name in kept if name.startswith(_LARGE)]
    text = (HERE / "page" / WORKER).read_text(encoding="utf-8")
    for mark, value in (
        ('"@VERSION@"', digest.hexdigest()[:16]),
        ('["@PAGE@"]', page),
        ('["@REST@"]', rest),
    ):
        text = text.replace(mark, json.dumps(value))
    return text.encode()


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix in _SUFFIXES)
