"""A device without memory left: smaller batches, the bank on the host, the CPU; never lost work."""

import warnings
from typing import Any

import numpy as np
import pytest

from samgraph.errors import DeviceMemoryError, SamgraphWarning
from samgraph.predict.everything.generate import segment_everything
from samgraph.predict.image.encoded import encode_image
from samgraph.predict.video.stream import open_stream
from samgraph.predict.video.video import open_video
from tests.golden import scenes
from tests.predict.full_device import SmallMemory, small_device_model
from tests.predict.models import tiny_model
from tests.tolerances import SMALLER_BATCHES

POINTS = [(40, 50), (118, 84), (20, 100)]


def tracked(model: Any, on_frame: Any = lambda frame: None, frames: int = 7) -> list[Any]:
    """Three objects, one of which is corrected on the way; logits of each frame on the host."""
    video = open_video(model, scenes.frames(frames), cache_mb=0.1)
    for number, point in enumerate(POINTS, start=1):
        video.add(frame=0, object=number, points=[point])
    found = []
    for result in video.track():
        found.append(np.array(result.low_logits))
        assert result.masks.shape[0] == 3
        on_frame(result.index)
        if result.index == 4:
            video.add(frame=4, object=2, points=[(60, 52)], labels=[0])
    return found


@pytest.fixture(scope="module")
def plain() -> Any:
    """What the CPU engine finds, which has memory enough."""
    return tracked(tiny_model())


def assert_same(found: list[Any], plain: list[Any]) -> None:
    assert len(found) == len(plain)
    for one, other in zip(found, plain, strict=True):
        np.testing.assert_allclose(one, other, atol=SMALLER_BATCHES, rtol=SMALLER_BATCHES)


def messages(record: Any) -> list[str]:
    return [str(one.message) for one in record if one.category is SamgraphWarning]


def test_a_device_with_memory_enough_changes_nothing(plain: Any) -> None:
    memory = SmallMemory()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same(tracked(small_device_model(memory)), plain)

    assert ("attend_prepared", 3) in memory.runs


@pytest.mark.parametrize("graph", ["attend_prepared", "decode", "memory_encoder"])
def test_many_objects_run_in_smaller_batches(graph: str, plain: Any) -> None:
    memory = SmallMemory(refuses=lambda name, batch: name == graph and batch > 1)

    with pytest.warns(SamgraphWarning) as record:
        assert_same(tracked(small_device_model(memory)), plain)

    assert messages(record) == [
        f"the GPU has no memory left for graph `{graph}` with a batch of 3: from now on batches of "
        "1 are run, which is slower; free memory on the device and load the model again to undo "
        "that"
    ]
    assert memory.runs.count((graph, 3)) == 1  # remembered


def test_the_memory_bank_moves_to_the_host(plain: Any) -> None:
    memory = SmallMemory(most_zeros=8)

    with pytest.warns(SamgraphWarning) as record:
        assert_same(tracked(small_device_model(memory)), plain)

    told = messages(record)
    assert len(told) == 2  # of mask memories and of pointers
    assert told[0] == (
        "the device has no memory left for a larger memory bank (a small device): it moves to "
        "host memory, and what a frame reads is copied, which is slower; track fewer objects at "
        "once or set `archive_mb=0` to avoid that"
    )


def test_a_bank_that_never_fits_is_on_the_host_from_the_start(plain: Any) -> None:
    memory = SmallMemory(most_zeros=7)

    with pytest.warns(SamgraphWarning):
        assert_same(tracked(small_device_model(memory)), plain)


@pytest.mark.parametrize("graph", ["image_encoder", "attend_prepared", "compile attend_prepared"])
@pytest.mark.parametrize("after", [0, 5])
def test_a_video_goes_on_on_the_cpu(graph: str, after: int, plain: Any) -> None:
    now = [0]

    def refuses(name: str, batch: int) -> bool:
        return name == graph and now[0] >= after

    memory = SmallMemory(refuses=refuses, most_zeros=8 if after == 5 else 99)
    model = small_device_model(memory)
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        found = tracked(model, lambda frame: now.__setitem__(0, frame))

    assert_same(found, plain)
    moved = [text for text in messages(record) if "moves from `cuda` to the CPU" in text]
    is_late = graph.startswith("compile") and after > 0  # it is compiled by then
    assert len(moved) == (0 if is_late else 1)
    assert model.session.device.kind == ("cuda" if is_late else "cpu")


@pytest.mark.parametrize("kilobytes", [400, 1200, 1500, 2500])
def test_any_amount_of_memory_gives_the_same_masks(kilobytes: int, plain: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = tracked(small_device_model(SmallMemory(capacity=kilobytes * 1000)))

    assert_same(found, plain)


def test_a_saved_session_and_a_handover_survive_a_move(tmp_path: Any) -> None:
    def run(model: Any, leave: Any) -> list[Any]:
        stream = open_stream(model)
        frames = scenes.frames(6)
        stream.step(frames[0])
        stream.add(object=1, points=[POINTS[0]])
        stream.step(frames[1])
        leave()
        stream.save(tmp_path / "state.safetensors")
        other = open_stream(model)
        other.step(frames[0])
        other.remember(stream)
        return [np.array(s.step(f).low_logits) for f in frames[2:] for s in (stream, other)]

    memory = SmallMemory()
    model = small_device_model(memory)
    memory.most_zeros = 8
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = run(model, lambda: model.leave_device(DeviceMemoryError("full"), model.buffers))

    assert_same(found, run(tiny_model(), lambda: None))


def test_an_image_is_clicked_on_and_searched_after_a_move() -> None:
    def run(model: Any, leave: Any) -> list[Any]:
        image = encode_image(model, scenes.frames(1)[0])
        first = image.predict(points=[POINTS[0]])
        leave()
        again = image.predict(points=[POINTS[0]], mask=first, multimask=False)
        found = segment_everything(
            model, image, points_per_side=2, pred_iou_thresh=0.0, stability_score_thresh=0.0
        )
        return [first.logits, again.logits, found.areas, found.boxes]

    model = small_device_model(SmallMemory())
    with pytest.warns(SamgraphWarning, match="moves from `cuda` to the CPU"):
        found = run(model, lambda: model.leave_device(DeviceMemoryError("full"), model.buffers))

    assert_same(found, run(tiny_model(), lambda: None))


def test_on_the_cpu_there_is_nowhere_to_go() -> None:
    model = tiny_model()

    with pytest.raises(DeviceMemoryError, match="really full"):
        model.leave_device(DeviceMemoryError("really full"), model.buffers)


def test_a_bank_that_forgot_its_pages_is_seen(monkeypatch: pytest.MonkeyPatch, plain: Any) -> None:
    """A planted fault: pages are not taken along to the host."""
    from samgraph.engines.buffers import HOST_BUFFERS
    from samgraph.predict.video import bank

    def without_pages(pool: Any) -> None:
        pool.buffer = np.zeros_like(pool._device.download(pool.buffer))
        pool._buffers = HOST_BUFFERS

    monkeypatch.setattr(bank.PagePool, "_move", without_pages)

    with pytest.raises(AssertionError), pytest.warns(SamgraphWarning):
        assert_same(tracked(small_device_model(SmallMemory(most_zeros=8))), plain)
