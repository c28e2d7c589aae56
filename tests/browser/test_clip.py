"""A clip on the page: frames, prompts, tracking, corrections, review, export, sessions."""

import json
from collections.abc import Callable

from tests.browser.double import Double
from tests.browser.opened import FILMSTRIP, Opened
from tests.browser.scene import AWAY, BACKGROUND, FRAMES, LOW, RED, disc_at, picture

FIRST = "#2e90fa"


def frame_to(page: Opened, frame: int) -> None:
    """Go to a frame by its number."""
    number = page.page.get_by_label("Frame", exact=True)
    number.fill(str(frame))
    number.press("Enter")
    page.until(lambda: page.state()["frame"] == frame)
    page.page.locator("#view").focus()


def tracked(page: Opened) -> None:
    """Open the clip, click on the disc on frame 0, track."""
    page.open_clip()
    page.click(*disc_at(0))
    page.page.keyboard.press("t")
    page.until(lambda: page.state()["tracking"] is None and page.double.clip.done == FRAMES)


def asked_frames(double: Double) -> set[str]:
    """The frames that the page has asked for."""
    return {path for _, path in double.requests if "/frames/" in path}


def test_a_clip_opens_and_is_stepped_through(page: Opened) -> None:
    page.open_clip()
    page.until(lambda: page.is_like(*disc_at(0), color=FIRST, share=0, of=RED))
    page.page.keyboard.press(".")
    page.page.keyboard.press(".")
    page.until(lambda: page.state()["frame"] == 2)
    page.page.focus("#strip")
    page.page.keyboard.press("End")
    page.until(lambda: page.is_like(*disc_at(FRAMES - 1), color=FIRST, share=0, of=RED))

    strip = page.page.locator("#strip")
    page.until(lambda: strip.get_attribute("aria-valuenow") == str(FRAMES - 1))
    assert "0:01.9" in (strip.get_attribute("aria-valuetext") or "")


def test_an_hour_of_video_opens_at_once(visit: Callable[..., Opened], double: Double) -> None:
    double.frames = 108_000
    page = visit()
    page.open_clip()
    page.page.focus("#strip")
    page.page.keyboard.press("End")
    page.until(lambda: page.state()["frame"] == 107_999)
    frame_to(page, 50_000)
    page.until(lambda: "/api/videos/v1/frames/50000" in asked_frames(double))
    page.until(lambda: page.page.evaluate(FILMSTRIP))
    page.quiet()

    assert len(asked_frames(double)) < 60  # the filmstrip, and a few about the frames looked at


def test_a_click_is_tracked_through_the_clip(page: Opened) -> None:
    tracked(page)

    frame_to(page, 10)
    page.until(lambda: page.is_like(*disc_at(10), color=FIRST, of=RED))
    x, y = disc_at(10)
    assert page.is_like(x - 60, y, color=FIRST, share=0, of=BACKGROUND)
    frame_to(page, AWAY[0])
    page.until(lambda: page.page.locator(".object .score").inner_text() == "absent")
    lane = page.page.locator(".lane-names button").first
    words = (
        f"Object 1: 1 prompted frames, {FRAMES} tracked, present on {FRAMES - len(AWAY)}, "
        f"low score on {len(LOW)}"
    )
    page.until(lambda: lane.get_attribute("aria-label") == words)


def test_hovering_on_a_frame_leaves_no_trace(page: Opened) -> None:
    page.open_clip()
    frame_to(page, 5)
    page.page.mouse.move(*page.at(*disc_at(5)))

    page.until(lambda: page.is_like(disc_at(5)[0], 180, color=FIRST, share=0.3, of=RED))
    assert page.double.asked("POST", "/frames/5/predict") >= 1
    assert not page.double.clip.objects


def test_frames_to_review_are_listed(page: Opened) -> None:
    tracked(page)
    page.page.click("#tab-review")
    items = page.page.locator("#pane-review li")
    page.until(lambda: items.count() == 2)
    assert "disappeared" in items.nth(0).inner_text()
    items.nth(1).get_by_role("button").click()

    page.until(lambda: page.state()["frame"] == LOW[0])
    page.page.locator("#view").focus()
    page.page.keyboard.press("Shift+r")
    page.until(lambda: page.state()["frame"] == AWAY[0])


def test_a_correction_is_tracked_from_its_frame(page: Opened) -> None:
    tracked(page)
    frame_to(page, 12)
    page.click(*disc_at(12))
    page.click(disc_at(12)[0] + 30, 175, button="right")
    assert page.double.last("/prompts")["labels"] == [1, 0]
    assert page.double.last("/prompts")["frame"] == 12
    page.until(lambda: "Frame 12" in page.page.locator(".stale").inner_text())
    page.page.click("#track")
    page.until(lambda: page.double.last("/track")["start"] == 12)
    assert page.double.last("/track")["direction"] == "forward"  # what is before stands

    page.until(lambda: page.state()["tracking"] is None and page.state()["stale"] is None)
    page.until(lambda: page.page.locator(".stale").is_hidden())


def test_tracking_shows_progress_and_can_be_cancelled(page: Opened) -> None:
    page.double.holds_at = 5
    page.open_clip()
    page.click(*disc_at(0))
    page.page.click("#track")
    words = page.page.locator(".progress span")
    page.until(lambda: "left" in words.inner_text() and f"of {FRAMES}" in words.inner_text())
    assert page.page.locator("#track").is_hidden()
    page.page.click("#cancel-track")
    page.until(lambda: page.state()["tracking"] is None)

    assert page.double.clip.done <= 5
    assert page.double.asked("DELETE", "/track") == 1
    frame_to(page, 0)
    page.until(lambda: page.is_like(80, 180, color=FIRST, of=RED))


def test_tracking_is_followed_and_the_frame_comes_back(page: Opened) -> None:
    page.double.holds_at = 5
    page.open_clip()
    page.click(*disc_at(0))
    page.page.click("#track")
    page.until(lambda: page.state()["frame"] == 4)
    page.double.holds_at = 9
    page.until(lambda: page.state()["frame"] == 8)
    page.double.holds_at = None

    page.until(lambda: page.state()["tracking"] is None)
    page.until(lambda: page.state()["frame"] == 0)


def test_tracking_without_a_prompt_says_what_to_do(page: Opened) -> None:
    page.open_clip()
    page.page.keyboard.press("t")

    page.until(lambda: "Click on something" in page.page.locator("#timeline-notice").inner_text())
    assert page.double.asked("POST", "/track") == 0


def test_undo_takes_back_what_the_server_was_told(page: Opened) -> None:
    page.open_clip()
    page.click(*disc_at(0))
    page.until(lambda: page.double.clip.prompts)
    (name,) = page.double.clip.objects
    page.click(60, 180, button="right")
    page.until(lambda: page.double.clip.prompts[name][0]["labels"] == [1, 0])
    page.page.keyboard.press("Control+z")
    page.until(lambda: page.double.clip.prompts[name][0]["labels"] == [1])
    page.page.keyboard.press("Control+z")
    page.until(lambda: not page.double.clip.objects)
    page.page.keyboard.press("Control+y")

    page.until(lambda: len(page.double.clip.objects) == 1)
    page.until(lambda: any(page.double.clip.prompts.values()))
    page.until(lambda: page.is_like(80, 190, color=FIRST, of=RED))


def test_another_candidate_is_sent_as_a_mask(page: Opened) -> None:
    page.open_clip()
    page.click(*disc_at(0))
    page.until(lambda: page.page.locator(".candidate").count() == 3)
    page.page.keyboard.press("1")

    page.until(lambda: page.double.last("/prompts").get("mask"))
    page.until(lambda: page.is_like(100, 170, color=FIRST, share=0, of=RED))


def test_playing_goes_on_and_stops_at_the_end(page: Opened) -> None:
    page.double.rate = 2.0  # slow enough for any machine
    tracked(page)
    frame_to(page, FRAMES - 4)
    page.watch()
    page.page.keyboard.press(" ")
    page.until(lambda: any(playing for _, playing, _ in page.seen()))
    page.until(lambda: not page.state()["playing"])

    played = [frame for frame, playing, _ in page.seen() if playing]
    assert played == sorted(played)
    assert len(set(played)) > 1
    assert page.state()["frame"] == FRAMES - 1
    page.until(lambda: page.is_like(disc_at(FRAMES - 1)[0], 180, color=FIRST, of=RED))


def test_everything_works_on_a_frame(page: Opened) -> None:
    page.open_clip()
    page.page.keyboard.press("e")

    page.until(lambda: page.state()["found"] == 3)
    assert page.double.uploads[-1][0] == "frame-0.jpg"


def test_a_clip_is_exported_as_a_job(page: Opened) -> None:
    tracked(page)
    page.page.keyboard.press("Control+s")
    page.page.check("input[value=coco]")
    with page.page.expect_download() as download:
        page.page.click("#do-export")

    assert download.value.suggested_filename == "clip.zip"
    assert download.value.path().read_bytes() == b"video"
    assert page.double.last("/export") == {"format": "coco", "effect": None}


def test_a_session_file_goes_down_and_up_with_its_clip(page: Opened) -> None:
    tracked(page)
    page.page.keyboard.press("Control+s")
    page.page.check("input[value=session]")
    with page.page.expect_download() as download:
        page.page.click("#do-export")
    saved = download.value.path().read_bytes()
    assert saved == b"session"
    page.drop(("clip.session.zip", "application/zip", saved))
    page.until(lambda: "together" in page.page.locator("#stage-notice").inner_text())
    page.drop(("clip.mp4", "video/mp4", b"0"), ("clip.session.zip", "application/zip", saved))

    page.until(lambda: ("clip.session.zip", 0) in page.double.uploads)


def test_names_reach_the_server(page: Opened) -> None:
    page.open_clip()
    page.click(*disc_at(0))
    name = page.page.locator(".object .name")
    name.fill("ball")
    name.press("Enter")

    page.until(lambda: [o["name"] for o in page.double.clip.objects.values()] == ["ball"])


def test_a_missing_frame_is_said(page: Opened) -> None:
    page.expected += ["500"]
    page.open_clip()
    page.double.failures.append(("/frames/30", 500, "damaged", ""))
    frame_to(page, 30)

    page.until(lambda: "Frame 30" in page.page.locator("#stage-notice").inner_text())
    page.page.get_by_role("button", name="Try again").click()
    page.until(lambda: page.is_like(*disc_at(30), color=FIRST, share=0, of=RED))


def test_a_dropped_clip_is_sent_as_a_video(page: Opened) -> None:
    page.drop(("tennis.mov", "", picture([])))

    page.page.locator("#timeline").wait_for(state="visible")
    assert page.double.asked("POST", "/api/videos") == 1
    assert json.dumps(page.double.uploads) == '[["scene.png", 0]]'


def test_a_reload_keeps_points_so_that_clicks_add_to_them(page: Opened) -> None:
    page.open_clip()
    page.click(*disc_at(0))
    page.until(lambda: page.double.asked("GET", "/timeline") > 1)
    page.page.reload()
    page.page.locator(".object").wait_for()
    page.click(60, 180, button="right")

    assert page.double.last("/prompts")["labels"] == [1, 0]


def test_prompts_of_another_browser_are_corrected_by_their_mask(
    visit: Callable[..., Opened], double: Double
) -> None:
    page = visit()
    page.open_clip()
    page.click(*disc_at(0))
    page.until(lambda: page.double.asked("GET", "/timeline") > 1)
    other = visit("#video/v1")
    other.page.locator(".object").wait_for()
    other.until(lambda: other.is_like(80, 190, color=FIRST, of=RED))
    other.click(60, 180, button="right")

    assert double.asked("POST", "/frames/0/predict") >= 1
    assert double.last("/prompts")["mask"]
    assert list(double.clip.objects)


def test_a_track_that_ended_with_the_server_can_go_on(page: Opened) -> None:
    page.double.interrupted = [{"first": 0, "last": 9}]
    page.double.clip.objects[1] = {"name": "ball", "color": FIRST}
    page.double.clip.prompts[1] = {0: {"points": [[80, 160]], "labels": [1]}}
    page.page.goto(page.address + "#video/v1")
    page.page.reload()
    page.page.get_by_role("button", name="Go on").click()

    page.until(lambda: page.double.clip.done == FRAMES)


def test_a_track_whose_end_was_not_heard_is_done(page: Opened) -> None:
    page.double.is_mute = True
    page.open_clip()
    page.click(*disc_at(0))
    page.watch()
    page.page.click("#track")

    page.until(lambda: any(tracking for _, _, tracking in page.seen()))
    page.until(lambda: page.state()["tracking"] is None)
    page.until(page.page.locator("#track").is_visible)


def test_a_server_that_goes_away_during_a_track_is_said_until_it_is_back(page: Opened) -> None:
    page.expected += ["503"]
    page.double.holds_at = 3
    page.open_clip()
    page.click(*disc_at(0))
    page.page.click("#track")
    page.until(lambda: page.page.locator(".progress span").inner_text().startswith("3 of"))
    page.double.refused = "/events"
    notice = page.page.locator("#timeline-notice")
    page.until(lambda: "connection to the server was lost" in notice.inner_text())
    page.double.refused = page.double.holds_at = None

    page.until(lambda: page.state()["tracking"] is None and page.double.clip.done == FRAMES)
    page.until(lambda: not notice.inner_text())


def test_the_picture_stays_where_it_is_when_objects_are_added(page: Opened) -> None:
    page.open_clip()
    before = page.at(0, 0)
    for x in (80, 200, 300):
        page.page.keyboard.press("n")
        page.click(x, 60 if x > 80 else 160)
    page.until(lambda: page.page.locator(".lane-names button").count() == 3)
    page.page.keyboard.press("t")
    page.until(lambda: page.double.clip.done == FRAMES)

    page.until(lambda: page.state()["tracking"] is None)
    assert page.at(0, 0) == before


def test_a_correction_offers_no_other_candidates(page: Opened) -> None:
    page.page.keyboard.press("v")  # no previews: predictions are counted
    tracked(page)
    page.until(page.page.locator("#candidates").is_visible)
    frame_to(page, 12)
    page.until(page.page.locator("#candidates").is_hidden)
    asked = page.double.asked("POST", "/frames/12/predict")
    page.click(disc_at(12)[0] + 10, 175, button="right")

    assert page.page.locator("#candidates").is_hidden()
    assert page.double.asked("POST", "/frames/12/predict") == asked


def test_what_could_not_be_sent_is_sent_when_the_server_is_back(page: Opened) -> None:
    page.expected += ["ERR_INTERNET_DISCONNECTED", "disconnected"]
    page.page.keyboard.press("v")
    page.open_clip()
    page.click(*disc_at(0))
    page.page.context.set_offline(True)
    page.page.mouse.click(*page.at(60, 180), button="right")
    notice = page.page.locator("#stage-notice [role=alert]")
    page.until(lambda: notice.count() and "cannot be reached" in notice.inner_text())
    assert page.double.last("/prompts")["labels"] == [1]
    page.page.context.set_offline(False)
    notice.get_by_role("button", name="Try again").click()

    page.until(lambda: page.double.last("/prompts")["labels"] == [1, 0])
    page.until(lambda: notice.count() == 0)
    assert page.page.locator("#tools svg use").first.get_attribute("href") == "#icon-point"
