"""Progress: callbacks, one line on a terminal, lines in a log, or nothing."""

import io
import sys

import pytest

from samgraph import progress as module
from samgraph.progress import Progress, ShowProgress, clock, pace


class Stream(io.StringIO):
    def __init__(self, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


def printed(
    monkeypatch: pytest.MonkeyPatch, show: ShowProgress, *, is_terminal: bool
) -> tuple[str, str]:
    """What three steps print, and what is printed with the end."""
    stream = Stream(is_terminal)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(module, "TERMINAL_SECONDS", 0.0)
    monkeypatch.setattr(module, "LOG_SECONDS", 0.0)
    with Progress(3, "frames", name="clip", show=show) as progress:
        for _ in range(3):
            progress.advance()
        during = stream.getvalue()
    return during, stream.getvalue().removeprefix(during)


def test_the_text_has_count_rate_and_time_left() -> None:
    progress = Progress(10, "frames", done=4, show=False)
    progress.advance()

    assert progress.text.startswith("5 of 10 frames, ")
    assert " per second, " in progress.text
    assert progress.text.endswith(" left")
    assert (progress.done, progress.fresh) == (5, 1)
    assert [clock(seconds) for seconds in (5, 411, 4011)] == ["0:05", "6:51", "1:06:51"]


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (12.34, "12.3 per second"), (0.1, "0.1 per second"), (0.02, "1.2 per minute"),
        (0.001, "3.6 per hour"), (0.0, "0.0 per second"),
    ],
)  # fmt: skip
def test_a_slow_rate_is_per_minute_or_hour(rate: float, text: str) -> None:
    assert pace(rate) == text


@pytest.mark.parametrize("show", [True, None])
def test_a_terminal_has_one_line_that_is_removed(
    monkeypatch: pytest.MonkeyPatch, show: ShowProgress
) -> None:
    during, after = printed(monkeypatch, show, is_terminal=True)

    assert [line[:16] for line in during.split("\r")] == [
        "", "clip: 1 of 3 fra", "clip: 2 of 3 fra", "clip: 3 of 3 fra",
    ]  # fmt: skip
    assert "\n" not in during + after
    assert after.strip() == ""
    assert after.endswith("\r")
    assert len(after) >= len(during.split("\r")[-1])


def test_a_log_has_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    during, after = printed(monkeypatch, True, is_terminal=False)

    assert [line[:12] for line in during.splitlines()] == [
        "clip: 1 of 3", "clip: 2 of 3", "clip: 3 of 3",
    ]  # fmt: skip
    assert after == ""


@pytest.mark.parametrize(("show", "is_terminal"), [(False, True), (False, False), (None, False)])
def test_nothing_is_printed(
    monkeypatch: pytest.MonkeyPatch, show: ShowProgress, is_terminal: bool
) -> None:
    assert printed(monkeypatch, show, is_terminal=is_terminal) == ("", "")


def test_a_function_is_called_and_nothing_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, int]] = []

    text = printed(monkeypatch, lambda *call: calls.append(call), is_terminal=True)

    assert calls == [(1, 3), (2, 3), (3, 3)]
    assert text == ("", "")


def test_lines_come_at_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(is_terminal=False)
    monkeypatch.setattr(sys, "stderr", stream)

    with Progress(1000, "frames", show=True) as progress:
        progress.advance(999)

    assert stream.getvalue() == ""


def test_a_process_without_standard_error_reports_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    monkeypatch.setattr(module, "LOG_SECONDS", 0.0)

    for show in (True, None):
        with Progress(2, "frames", show=show) as progress:
            progress.advance()
        assert progress.done == 1
