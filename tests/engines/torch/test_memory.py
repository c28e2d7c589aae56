"""Torch without memory left: errors of ours that hold nothing, and what automatic masks do."""

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from samgraph import ops
from samgraph.engines import EngineOptions, find_engine
from samgraph.errors import DeviceMemoryError, SamgraphWarning
from samgraph.graph import Builder
from samgraph.predict.everything.generate import segment_everything
from tests.golden import scenes
from tests.predict.models import tiny_model

torch = pytest.importorskip("torch")

OPTIONS: dict[str, Any] = {
    "points_per_side": 3, "pred_iou_thresh": 0.0, "stability_score_thresh": 0.0,
}  # fmt: skip


def out_of_memory(*_: Any, **__: Any) -> Any:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has more.")


def program() -> Any:
    builder = Builder("pair")
    x, w = builder.input("x", "f32[N,4]"), builder.param("w", "f32[4,4]")
    graph = builder.finish(y=ops.linear(ops.relu(x), w))
    return find_engine("torch").compile(graph, {"w": np.eye(4, dtype=np.float32)}, EngineOptions())


def test_a_run_without_memory_left_is_an_error_that_holds_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else what was computed up to it would be in the way of the next, smaller run."""
    from samgraph.engines.torch import plan

    made: list[Any] = []
    run = plan.Step.run

    def watched(step: Any, memory: dict[str, Any], bindings: Any) -> None:
        if step.node.op == "linear":
            out_of_memory()
        run(step, memory, bindings)
        made.append(weakref.ref(memory[step.node.result.name]))

    monkeypatch.setattr(plan.Step, "run", watched)

    with pytest.raises(DeviceMemoryError) as caught:
        program().run({"x": torch.ones(2, 4)})

    gc.disable()  # without its help
    try:
        assert len(made) == 1
        assert made[0]() is None
    finally:
        gc.enable()
    assert str(caught.value) == (
        "the GPU has no memory left for graph `pair`\n"
        "  got:      CUDA out of memory\n"
        '  hint: run fewer objects or images at once, or use device="cpu"'
    )


def test_captured_graphs_are_let_go_before_a_run_fails() -> None:
    class Replay:
        """A runner that has memory once its captures are gone."""

        def __init__(self, captures: int) -> None:
            self.captures = captures

        def run(self, inputs: Any) -> Any:
            return out_of_memory() if self.captures else {"y": inputs["x"]}

        def release(self) -> bool:
            had, self.captures = self.captures > 0, 0
            return had

    made = program()
    made._replay = Replay(2)

    assert made.run({"x": torch.ones(1, 4)})["y"].shape == (1, 4)

    made._replay.run = out_of_memory
    with pytest.raises(DeviceMemoryError):
        made.run({"x": torch.ones(1, 4)})


def test_a_runner_that_let_go_captures_nothing_more() -> None:
    from samgraph.engines.torch.cuda_graphs import GraphRunner

    runner = GraphRunner(lambda inputs: {}, frozenset(), torch.device("cpu"))

    assert not runner.release()
    runner._captures[("key",)] = None  # type: ignore[assignment]  # a stand-in
    assert runner.release()
    assert not runner._captures
    assert runner._is_short


@pytest.mark.parametrize(
    ("name", "given"),
    [("zeros", ((2, 3), "f32")), ("concat", ([torch.ones(1), torch.ones(1)],))],
)
def test_buffers_without_memory_left_say_so(
    monkeypatch: pytest.MonkeyPatch, name: str, given: Any
) -> None:
    monkeypatch.setattr("torch.zeros", out_of_memory)
    monkeypatch.setattr("torch.cat", out_of_memory)

    with pytest.raises(DeviceMemoryError, match=f"no memory left for `{name}`"):
        getattr(find_engine("torch").buffers, name)(*given)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The small model on the torch engine, with images as on a GPU."""
    from samgraph.engines.torch import images

    monkeypatch.setattr(images, "has_kernels", lambda: False)
    core: Any = tiny_model("torch")
    monkeypatch.setattr(core.buffers, "images", images.TorchImages(torch.device("cpu")))
    yield core
    core.session.batch_limits.clear()


def found(model: Any) -> list[Any]:
    return [
        (one.rle["counts"], one.box_xyxy, one.point_xy)
        for one in segment_everything(model, scenes.frames(1)[0], **OPTIONS)
    ]


def test_points_run_in_smaller_batches(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from samgraph.engines.torch import screening

    plain, screen, tried = found(model), screening.screen, []

    def small(masks: Any, *rest: Any) -> Any:
        tried.append(len(masks))
        return out_of_memory() if len(masks) > 3 else screen(masks, *rest)

    monkeypatch.setattr(screening, "screen", small)

    with pytest.warns(SamgraphWarning) as record:
        assert found(model) == plain

    assert tried == [9, 4, 2, 2, 2, 2, 1]
    assert str(record[0].message) == (
        "the GPU has no memory left for `screen` with 9 points at once: from now on there are 4; "
        "free memory on the device and load the model again to undo that"
    )
    tried.clear()
    assert found(model) == plain
    assert tried == [2, 2, 2, 2, 1]  # remembered


@pytest.mark.parametrize("name", ["screen", "passed", "best"])
def test_the_host_filters_where_the_device_cannot(
    model: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    from samgraph.engines.torch import screening

    monkeypatch.setattr("samgraph.predict.everything.on_device.BATCH", 1)
    calls: list[tuple[int, int]] = []
    with monkeypatch.context() as without:
        without.setattr(model.buffers, "images", None)
        plain = found(model)
    monkeypatch.setattr(screening, name, out_of_memory)

    with pytest.warns(SamgraphWarning, match="are filtered on the host, which is slower"):
        made = segment_everything(
            model, scenes.frames(1)[0], progress=lambda *done: calls.append(done), **OPTIONS
        )

    assert [(one.rle["counts"], one.box_xyxy, one.point_xy) for one in made] == plain
    assert calls[-1] == (9, 9)
