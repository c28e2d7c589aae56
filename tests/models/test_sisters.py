"""Sister models everywhere: image, everything, video, stream, sessions, compat, shell and server.

The models are small and random, so results are compared with each other, not with pictures.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import samgraph
from samgraph.checkpoint import save
from samgraph.compat.build_sam import build_sam2_video_predictor
from samgraph.errors import CheckpointError, OptionError, SamgraphWarning
from samgraph.evaluate.speed import typical_inputs
from samgraph.graph import Array
from samgraph.models.loading import find_config, load_model
from samgraph.models.sam2.model import Sam2Model
from samgraph.predict.video.policies.table import DEFAULT, POLICIES
from samgraph.predict.video.video import Video
from tests.cli.running import call
from tests.compat.sessions import predictor_for
from tests.models.sisters import (
    EDGETAM,
    POOLED_KEYS,
    POOLED_SCORES,
    SISTERS,
    disc,
    small_sister,
    small_weights,
)
from tests.serve.serving import running
from tests.tolerances import COMPAT_TRACKED_LOGITS as SAME
from tests.tolerances import FUSED_GRAPH

POOLED = (POOLED_SCORES.name, POOLED_KEYS.name)
FRAMES = [np.roll(disc(), 3 * shift, axis=1) for shift in range(5)]
CLICK, BOX = (30.0, 20.0), (40, 5, 70, 40)


@pytest.fixture(params=SISTERS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def low(frame: Any) -> Array:
    found: Array = frame.low_logits
    return found


def clicked(name: str) -> Video:
    video = small_sister(name).video(FRAMES)
    video.add(frame=0, object=1, points=[CLICK])
    video.add(frame=0, object=2, box=BOX)
    return video


@pytest.mark.parametrize("engine", ["openvino", "torch", "onnxruntime"])
def test_every_graph_agrees_with_the_reference(name: str, engine: str) -> None:
    pytest.importorskip(engine)
    fast, slow = (small_sister(name, which).core for which in (engine, "reference"))
    assert isinstance(fast, Sam2Model)
    assert isinstance(slow, Sam2Model)

    for graph in fast.graphs:
        is_pooled = graph.endswith("pooled")
        if is_pooled != (name in POOLED):
            continue  # plain graphs are those of the plain model
        if any(value.name == "pages" for value in fast.graph(graph).inputs):
            continue  # a bank is read in videos
        inputs = typical_inputs(fast.graph(graph))
        if "slots" in inputs:
            inputs["slots"] = np.arange(inputs["slots"].size).reshape(inputs["slots"].shape)
        found = fast.compiled(graph).run_numpy(inputs)
        for key, wanted in slow.compiled(graph).run_numpy(inputs).items():
            error = np.abs(found[key] - wanted).max() / max(1e-6, np.abs(wanted).max())
            assert error < FUSED_GRAPH, (graph, key)


def test_an_image_and_everything_in_it(name: str) -> None:
    model = small_sister(name)

    result = model.image(FRAMES[0]).predict(points=[CLICK])
    found = model.everything(
        FRAMES[0], points_per_side=2, pred_iou_thresh=0, stability_score_thresh=0
    )

    assert result.masks.shape[-2:] == (48, 80)
    assert np.isfinite(result.scores).all()
    assert all(segment.mask.shape == (48, 80) for segment in found.segments)


def test_a_stream_and_a_resumed_video_track_as_the_video_does(name: str, tmp_path: Path) -> None:
    path = tmp_path / "session.safetensors"
    wanted = [low(frame) for frame in clicked(name).track()]
    video = clicked(name)
    for frame in video.track():
        if frame.index == 2:
            break
    video.save(path)
    resumed = small_sister(name).resume(path, source=FRAMES)
    assert isinstance(resumed, Video)
    rest = [low(frame) for frame in resumed.track(start=3)]
    stream = small_sister(name).stream(length=len(FRAMES))  # pointer times count from it
    stream.step(FRAMES[0])
    stream.add(object=1, points=[CLICK])
    stream.add(object=2, box=BOX)
    streamed = [low(stream.step(frame)) for frame in FRAMES[1:]]

    assert any(array.max() > 0 for array in wanted[1:])
    assert max(np.abs(a - b).max() for a, b in zip(rest, wanted[3:], strict=True)) < SAME
    assert max(np.abs(a - b).max() for a, b in zip(streamed, wanted[1:], strict=True)) < SAME


@pytest.mark.parametrize("policy", [name for name in POLICIES if name != DEFAULT])
@pytest.mark.parametrize("name", ["small edgetam", "small efficienttam 1"])
def test_a_policy_is_saved_and_goes_on(name: str, policy: str, tmp_path: Path) -> None:
    path = tmp_path / "session.safetensors"

    def begun() -> Video:
        video = small_sister(name).video(FRAMES, policy=policy)
        video.add(frame=0, object=1, points=[CLICK])
        return video

    wanted = [low(frame) for frame in begun().track()]
    video = begun()
    next(frame for frame in video.track() if frame.index == 2)
    video.save(path)
    resumed = small_sister(name).resume(path, source=FRAMES)

    assert isinstance(resumed, Video)
    assert resumed.policy == video.policy
    assert len(resumed.states[1].history.observed) == 2
    for one, other in zip(resumed.track(start=3), wanted[3:], strict=True):
        np.testing.assert_allclose(low(one), other, atol=SAME)


def test_the_calls_of_the_reference_track_as_ours(name: str) -> None:
    wanted = [low(frame) for frame in clicked(name).track()]
    predictor = predictor_for(small_sister(name).core)
    state = predictor.init_state(FRAMES)
    predictor.add_new_points_or_box(state, 0, 1, points=[CLICK], labels=[1])
    predictor.add_new_points_or_box(state, 0, 2, box=BOX)

    for frame, ids, _ in predictor.propagate_in_video(state):
        for index, _ in enumerate(ids):
            stores = state["output_dict_per_obj"][index].values()
            (out,) = [store[frame] for store in stores if frame in store]
            assert np.abs(out["pred_masks"][0, 0] - wanted[frame][index]).max() < SAME
            tokens = SISTERS[name].memory_tokens
            assert out["maskmem_features"].size == tokens * SISTERS[name].memory_channels
            assert out["maskmem_pos_enc"][0].shape == out["maskmem_features"].shape


@pytest.mark.parametrize("name", ["small edgetam", "small efficienttam"])
def test_commands_and_the_server_run_them(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights, picture = tmp_path / "weights.safetensors", tmp_path / "frame.png"
    small_sister(name).save(weights)
    Image.fromarray(FRAMES[0]).save(picture)

    segment = ["segment", picture, "--point", "30,20", "-o", tmp_path / "out.png"]
    done = call(monkeypatch, [*segment, "--model", weights])
    graph = call(monkeypatch, ["graph", "memory_attention", "--model", "edgetam", "--cost"])

    assert done.code == 0, done.err
    assert (tmp_path / "out.png").is_file()
    assert graph.code == 0, graph.err
    again = samgraph.load(weights)
    assert (again.config, again.core.family) == (SISTERS[name], name.split()[-1])
    with running(tmp_path / "sessions", model=again) as server:
        image = server.client.post("/api/images", params={"sample": "cat"}).json()["id"]
        body = {"points": [[100, 100]], "labels": [1]}
        reply = server.client.post(f"/api/images/{image}/predict", json=body)
        assert reply.status_code == 200, reply.text
        assert reply.json()["masks"]


def test_a_file_as_released_has_counters_that_are_not_read(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "small.pt"
    tensors = {key: torch.from_numpy(array) for key, array in small_weights(EDGETAM).items()}
    for key in tensors:
        if key.endswith("num_batches_tracked"):
            tensors[key] = torch.tensor(7)
    torch.save({"model": tensors}, path)

    model = load_model(path, config=EDGETAM, device="cpu")

    assert model.family == "edgetam"
    assert any(key.endswith("num_batches_tracked") for key in model.checkpoint())


@pytest.mark.parametrize(
    ("given", "wanted"),
    [("edgetam", "sam2.1-tiny"), ("sam2.1-tiny", "edgetam"), ("efficienttam-ti", "edgetam")],
)
def test_a_checkpoint_of_another_family_says_which_it_is(given: str, wanted: str) -> None:
    family, config = find_config(given)
    shapes = family.weight_shapes(config.smallest())
    tensors = {key: np.broadcast_to(np.float32(0), shape) for key, shape in shapes.items()}

    with pytest.raises(
        CheckpointError, match=f"this is a checkpoint of `{given}`: load it as that"
    ):
        load_model(tensors, config=wanted)


def test_the_command_line_says_of_which_family_a_file_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file in the cache under the name of another model, and the reference's builder."""
    family, config = find_config("efficienttam-ti")
    shapes = family.weight_shapes(config.smallest())
    tensors = {key: np.zeros(shape, np.float32) for key, shape in shapes.items()}
    monkeypatch.setenv("SAMGRAPH_CACHE", str(tmp_path))
    (tmp_path / "checkpoints").mkdir()
    path = tmp_path / "checkpoints" / "edgetam.pt"
    save(path, tensors, precision="fp16")
    Image.fromarray(FRAMES[0]).save(tmp_path / "frame.png")
    arguments = ["segment", tmp_path / "frame.png", "--point", "30,20", "-o", tmp_path / "o.png"]

    with pytest.warns(SamgraphWarning, match="may be"):
        done = call(monkeypatch, [*arguments, "--model", "edgetam"])

    assert done.code == 2, done.err
    assert "`edgetam.pt` is a checkpoint of `efficienttam-ti`, not of `edgetam`" in done.err
    with pytest.raises(CheckpointError, match="this is a checkpoint of `efficienttam-ti`"):
        build_sam2_video_predictor("configs/edgetam.yaml", path)


def test_a_file_with_the_name_of_another_model_is_loaded_as_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "efficienttam_s.safetensors"
    small_sister(EDGETAM.name).save(path)

    with pytest.warns(SamgraphWarning) as caught:
        model = samgraph.load(path)

    assert model.config == EDGETAM
    (warning,) = caught
    assert str(warning.message) == (
        "`efficienttam_s.safetensors` is a checkpoint of `small edgetam`, not of `efficienttam-s`:"
        " loaded as `small edgetam`"
    )
    assert Path(warning.filename) == Path(__file__)


def test_a_misspelt_config_is_answered_with_those_of_all_families() -> None:
    with pytest.raises(OptionError, match="there is no config `efficientam_ti_2`") as caught:
        find_config("efficientam_ti_2")
    assert "efficienttam-ti-2" in str(caught.value.expected)
    with pytest.raises(OptionError, match="there is no config `what`") as caught:
        find_config("what")
    for name in ("sam2.1-tiny", "medsam2", "edgetam", "efficienttam-s-512x512"):
        assert name in str(caught.value.expected)
    with pytest.raises(OptionError, match=r"there is no config `configs/edgtam\.yaml`") as caught:
        build_sam2_video_predictor("configs/edgtam.yaml", {})
    assert caught.value.hint == "did you mean `edgetam`?"


def test_a_config_of_a_family_refuses_what_makes_no_model() -> None:
    with pytest.raises(OptionError, match="image size 128 is not a multiple of 256"):
        find_config("edgetam")[1].at_size(128)
    with pytest.raises(OptionError, match="`pooling` is not one of none, scores, keys"):
        find_config({"family": "efficienttam", "pooling": "most"})
