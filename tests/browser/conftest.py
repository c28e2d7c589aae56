"""A browser on the page: chromium driven by Playwright, skipped where either is missing."""

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.browser.double import Double
from tests.browser.opened import SECONDS, Opened
from tests.browser.serving import serving

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


@pytest.fixture(scope="module")  # Playwright's event loop runs until it is closed
def browser() -> Iterator[Any]:
    """One browser for the tests of a file."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip("there is no chromium here: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox"], timeout=SECONDS * 1000
        )
        yield chromium
        chromium.close()


@pytest.fixture
def double() -> Double:
    """The stand-in for the server."""
    return Double()


@pytest.fixture
def visit(browser: Any, double: Double) -> Iterator[Callable[..., Opened]]:
    """Opens the page in a window of its own; afterwards nothing may have gone wrong in it."""
    contexts, pages = [], []
    with serving(double.app) as address:

        def opened(path: str = "", **options: Any) -> Opened:
            options = {"viewport": {"width": 1280, "height": 800}, **options}
            contexts.append(browser.new_context(**options))
            pages.append(Opened(contexts[-1], address, double))
            pages[-1].open(path)
            return pages[-1]

        yield opened
        for page in pages:
            page.check()
        for context in contexts:
            context.close()


@pytest.fixture
def page(visit: Callable[..., Opened]) -> Opened:
    """The page in an ordinary window, with its sample picture."""
    return visit()
