"""The API reference, made from docstrings with pdoc, and a check of every link in it.

    ./dev docs        # writes build/reference/index.html

A link inside the reference must lead to a page and a name that exist.
"""

import argparse
import importlib
import sys
import warnings
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

MODULES = (
    "samgraph",
    "samgraph.errors",
    "samgraph.formats",
    "samgraph.formats.table",
    "samgraph.formats.segment",
    "samgraph.predict.everything.options",
    "samgraph.predict.output",
    "samgraph.predict.video.options",
    "samgraph.predict.video.session",
    "samgraph.compat",
    "samgraph.compat.transformers",
    "samgraph.compat.transformers.modeling",
    "samgraph.compat.ultralytics",
    "samgraph.compat.ultralytics.results",
)


class Page(HTMLParser):
    """The names a page has, and the links on it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an id or a link."""
        for key, value in attrs:
            if key in ("id", "name") and value:
                self.names.add(value)
            if key == "href" and tag == "a" and value:
                self.links.append(value)


def build(folder: Path) -> list[Path]:
    """Write the reference; returns its pages."""
    import pdoc

    for name in MODULES:  # pdoc sees what is there already, not what is imported when first used
        module = importlib.import_module(name)
        for public in getattr(module, "__all__", ()):
            setattr(module, public, getattr(module, public))
    pdoc.render.configure(docformat="google", footer_text="samgraph", show_source=False)
    pdoc.pdoc(*MODULES, output_directory=folder)
    return sorted(folder.rglob("*.html"))


def broken_links(folder: Path, pages: list[Path]) -> list[str]:
    """Links to a page or a name that is not there; addresses elsewhere are not looked at."""
    read = {page.resolve(): Page(page.read_text(encoding="utf-8")) for page in pages}
    broken = []
    for page, found in read.items():
        for link in found.links:
            address, name = urldefrag(link)
            if "://" in address or address.startswith(("mailto:", "data:")):
                continue
            target = (page.parent / unquote(address)).resolve() if address else page
            if target not in read:
                broken.append(f"{page.relative_to(folder.resolve())}: {link}: no such page")
            elif name and unquote(name) not in read[target].names:
                broken.append(f"{page.relative_to(folder.resolve())}: {link}: no such name")
    return broken


def undocumented() -> list[str]:
    """Public names of the package without a docstring."""
    import samgraph

    return [n for n in samgraph.__all__ if n != "__version__" and not getattr(samgraph, n).__doc__]


def main() -> int:
    """Build, check, and say where it is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("build/reference"))
    folder = parser.parse_args().out
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # types that are imported for type checkers only
        warnings.filterwarnings("error", message=".*does not resolve")
        pages = build(folder)
    broken = [*broken_links(folder, pages), *undocumented()]
    for line in broken:
        print(line)
    print(f"{len(pages)} pages, {len(broken)} broken links: {folder / 'index.html'}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
