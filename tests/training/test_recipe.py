"""The recipe on a CPU: exact masks, prompts, losses, and two steps of every stage."""

import hashlib
import io
import json
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save_file

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.parity

from samgraph import checkpoint  # noqa: E402
from samgraph.models.nano.config import NANO  # noqa: E402
from samgraph.models.nano.graphs import GRAPHS  # noqa: E402
from samgraph.models.sam2.config import Sam2Config  # noqa: E402
from samgraph.models.sam2.graphs import weight_shapes as sam2_shapes  # noqa: E402
from training import data, labelling, manifest, student, teacher, train  # noqa: E402
from training import scenes as scenes_module  # noqa: E402
from training.data import SIDE  # noqa: E402
from training.export import STEEPER, export, read_exported  # noqa: E402
from training.films import Real, Reel, between, cut_out  # noqa: E402
from training.labelling import NEAR, Teacher, draw  # noqa: E402
from training.losses import (  # noqa: E402
    EDGE_REACH,
    answer_loss,
    mask_loss,
    near_edges,
    overlap,
)
from training.prompting import Prompter  # noqa: E402
from training.scenes import MASK, THINGS, Film, Scenes  # noqa: E402
from training.state import load_state, save_state  # noqa: E402


def _photos(count: int) -> data.Photos:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, (count, 3, SIDE, SIDE), np.uint8)
    masks = np.zeros((count, data.CUT, data.CUT), np.uint8)
    masks[:, 60:180, 80:200] = 255
    return data.Photos(
        torch.from_numpy(images),
        torch.ones(count),
        torch.from_numpy(masks),
        torch.ones(count, dtype=torch.bool),
    )


def _scenes() -> Scenes:
    objects = torch.zeros(3, 4, data.CUT, data.CUT, dtype=torch.uint8)
    objects[:, 0, 20:230, 20:230] = 255
    objects[:, 3, 20:230, 20:230] = 255
    return Scenes(_photos(3), objects, "cpu", 0)


def test_what_lies_in_front_covers_what_lies_behind() -> None:
    images, masks = _scenes().views(6)
    assert images.shape == (6, 3, SIDE, SIDE)
    assert images.dtype == masks.dtype == torch.uint8
    total = masks.float().sum(1)
    assert float(total.max()) <= 256  # at most one thing a pixel, up to rounding
    assert int((masks.float().flatten(2).mean(2) > 1).sum()) >= 6


def test_a_clip_moves_and_its_masks_with_it() -> None:
    scenes = _scenes()
    images, masks = scenes.views(2)
    film = scenes.clips(images, masks, frames=4, objects=2)
    assert film.images.shape == (2, 4, 3, SIDE, SIDE)
    assert film.masks.shape == (2, 2, 4, MASK, MASK)
    assert not torch.equal(film.images[:, 0], film.images[:, 3])
    assert bool((film.masks[:, :, 0].flatten(2).float().mean(2) > 0).all())


def test_between_two_labels_a_box_moves_evenly_and_next_to_nothing_nothing_is_known() -> None:
    here, there = {"box": [0.0, 0.0, 8.0, 8.0]}, {"box": [8.0, 4.0, 16.0, 12.0]}
    track = data.Track("clip", torch.tensor([8, 12, 14, 16]), [here, there, {}, {}])
    assert between(track) == {
        8: (here, True),
        9: ({"box": [2.0, 1.0, 10.0, 9.0]}, False),
        10: ({"box": [4.0, 2.0, 12.0, 10.0]}, False),
        11: ({"box": [6.0, 3.0, 14.0, 11.0]}, False),
        12: (there, True),
        14: ({}, True),
        15: ({}, False),
        16: ({}, True),
    }


def test_real_films_start_with_something_to_see(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scenes, "presence", lambda _, B, T: torch.zeros(B, T))  # nothing in front
    masks = torch.zeros(2, 6, MASK, MASK, dtype=torch.uint8)
    masks[0, 2:, 60:180, 60:180] = 255
    known = [[True] * 6, [False] * 6]
    visible = [[False, False, True, True, True, True], [False] * 6]
    images = torch.zeros(6, 3, SIDE, SIDE, dtype=torch.uint8)
    images[2:, :, 120:360, 120:360] = 255
    reel = Reel([Real(images, masks, known, visible)], _scenes(), 0)
    film = reel.film(8, frames=3, objects=2)
    assert film.known.all()
    there = film.masks.float().flatten(3).mean(3) > 1
    assert there[:, :, 0].all()
    assert not there.all()
    bright = torch.nn.functional.avg_pool2d(film.images[:, :, 0].float(), SIDE // MASK)
    assert float((bright - film.masks[:, 0]).abs().mean()) < 8  # masks move with pictures


def test_things_in_front_cover_what_is_real_and_can_be_followed() -> None:
    masks = torch.zeros(64, 1, 3, MASK, MASK, dtype=torch.uint8)
    masks[..., 40:216, 40:216] = 255
    images = torch.full((64, 3, 3, SIDE, SIDE), 9, dtype=torch.uint8)
    known = torch.tensor([[[True, False, True]]]).expand(64, 1, 3)
    scenes = _scenes()
    scenes.objects = scenes.objects[:3]  # red ones
    film = scenes.refilmed(Film(images, masks, known))
    real = ~film.known[:, 0, 1]  # all of a thing's masks are known
    assert 0 < int(real.sum()) < 64
    assert film.known[~real].all()
    dark = torch.nn.functional.avg_pool2d((film.images < 30).all(2).float(), SIDE // MASK)
    solid = film.masks[:, 0] > 250
    assert not bool((solid[~real] & (dark[~real] > 0.1)).any())  # things are not dark
    assert not bool((solid[real] & (dark[real] < 0.8)).any())  # but for edges
    lost = (film.masks[real, 0] < 5) & (dark[real] < 0.1)
    assert float(lost.float().mean()) > 0.005


def test_things_cross_the_path_of_what_is_real(monkeypatch: pytest.MonkeyPatch) -> None:
    crossed: list[Any] = []

    def crossing(_: Scenes, path: Any) -> Any:
        crossed.append(path)
        return path

    monkeypatch.setattr(Scenes, "presence", lambda _, B, T: torch.zeros(B, T))  # nothing in front
    monkeypatch.setattr(Scenes, "crossing", crossing)
    masks = torch.zeros(4, 1, 3, MASK, MASK, dtype=torch.uint8)
    masks[..., 60:120, 100:200] = 255
    images = torch.zeros(4, 3, 3, SIDE, SIDE, dtype=torch.uint8)
    film = _scenes().refilmed(Film(images, masks, torch.ones(4, 1, 3, dtype=torch.bool)))
    for clip, path in zip(film.masks[:, 0], crossed[0], strict=True):
        for mask, pose in zip(clip, path, strict=True):
            y, x = (mask > 127).nonzero().float().mean(0).tolist()
            assert pose[:2].tolist() == pytest.approx([x / 128 - 1, y / 128 - 1], abs=0.03)


def test_an_actor_is_cut_out_around_its_mask() -> None:
    images = torch.zeros(1, 2, 3, SIDE, SIDE, dtype=torch.uint8)
    masks = torch.zeros(1, 2, MASK, MASK, dtype=torch.uint8)
    images[0, 0, 0, 40:200, 320:400], masks[0, 0, 20:100, 160:200] = 200, 255
    images[0, 1, 0, 240:400, 240:400], masks[0, 1, 120:200, 120:200] = 200, 255
    actor = cut_out(images, masks).float()
    assert actor.shape == (1, 2, 4, data.CUT, data.CUT)
    middle = slice(data.CUT // 2 - 50, data.CUT // 2 + 50)
    assert float(actor[0, :, 0, middle, middle].min()) == 200
    first, second = (actor[0, :, 3] > 127).float().mean((1, 2)).tolist()
    assert second == pytest.approx(1 / 1.05**2, abs=0.02)  # the largest fills the picture
    assert first == pytest.approx(second / 2, abs=0.02)  # the other is drawn to the same scale


def test_what_rides_along_stays_with_its_leader() -> None:
    scenes = _scenes()
    leader = scenes.pose(50, small=False)[:, None] + scenes.path(50, 6, (2.0, 2.0, 0.0, 0.0, 0.0))
    rider = scenes.riding(leader)
    assert bool((rider[..., 2] < leader[..., 2]).all())
    apart = (rider - leader)[..., :2].norm(dim=2)
    moved = (leader[:, -1] - leader[:, 0])[:, :2].norm(dim=1).mean()
    assert float((apart[:, -1] - apart[:, 0]).abs().mean()) < 0.2 * float(moved)


def test_some_stay_away_for_half_of_a_long_clip_and_most_come_back() -> None:
    there = _scenes().presence(400, 14)
    assert bool((there[:, 0] == 1).all())
    leave = there[there.min(1).values == 0]
    assert 100 < len(leave) < 180
    assert 5 <= float((14 - leave.sum(1)).max()) <= 8
    assert 0.8 < float(leave[:, -1].mean()) < 1


def test_half_of_what_comes_back_is_somewhere_else() -> None:
    there = torch.ones(200, 6)
    there[:100, 2:4] = 0
    path = torch.arange(6.0)[None, :, None].expand(200, 6, 5) * 0.5
    found = _scenes().returned(path, there)
    moved = found - path
    assert not bool(moved[:, :4].any())  # nothing before
    assert not bool(moved[100:].any())  # nor where nothing was away
    assert not bool(moved[..., 2:].any())
    assert torch.equal(moved[:, 4], moved[:, 5])  # it goes on from there
    elsewhere = moved[:100, 4, 0] != 0
    assert 30 < int(elsewhere.sum()) < 70
    assert float(found[:100, 4, :2][elsewhere].abs().max()) < 0.8


def test_some_things_leap_farther_than_they_are_large() -> None:
    leaps = _scenes().leaps(400, 8, 0.3)
    step = leaps.diff(dim=1)[..., :2].norm(dim=2).amax(1)
    assert 80 < int((step > 0).sum()) < 160
    assert int((step > 0.5).sum()) > 40
    assert not bool(leaps[..., 2:].any())


def test_the_last_two_things_are_small_and_leap_the_most(monkeypatch: pytest.MonkeyPatch) -> None:
    often: list[float] = []
    placed: list[tuple[float, bool]] = []

    def leaps(_: Scenes, B: int, T: int, share: float) -> Any:
        often.append(share)
        return torch.zeros(B, T, 5)

    def place(cut: Any, pose: Any, *, bend: Any, small: bool) -> Any:
        placed.append((float(pose[:, 2].exp().median()), small))
        return torch.zeros(1, 4, SIDE, SIDE).expand(len(cut), -1, -1, -1)

    monkeypatch.setattr(Scenes, "leaps", leaps)
    monkeypatch.setattr(scenes_module, "place", place)
    pictures = torch.zeros(20, 3, SIDE, SIDE, dtype=torch.uint8)
    _scenes().clips(pictures, torch.zeros(20, 1, MASK, MASK, dtype=torch.uint8), 2, 1)
    _, *things = often  # the first is the camera's
    assert things[0] == things[1] < things[2] == things[3]
    sizes, smooth = zip(*placed, strict=True)
    assert smooth == (False, False, True, True)
    assert max(sizes[2:]) < 0.25 < min(sizes[:2])


def test_moving_things_are_followed_first_where_that_is_asked_for() -> None:
    masks = torch.zeros(40, 3 + THINGS, 2, MASK, MASK)
    masks[..., 10:40, 10:40] = 1.0
    masks[:, -1] = 0.0  # not to be seen
    scenes = _scenes()
    first, mixed = (scenes.targets(masks, 2, by) for by in (1.0, 0.0))
    assert bool((first >= 3).all())
    assert 20 < int((mixed < 3).sum()) < 60
    assert int(torch.stack([first, mixed]).max()) < 2 + THINGS


@pytest.mark.parametrize("by_mask", [True, False])
def test_the_first_answer_counts_however_an_object_is_shown(
    monkeypatch: pytest.MonkeyPatch, by_mask: bool
) -> None:
    target = torch.zeros(1, 2, 8, 8)
    target[..., 2:6, 2:6] = 1.0
    right = torch.where(target[:, :1] > 0, 20.0, -20.0).expand(1, 4, 8, 8)
    found: dict[str, Any] = {"ious": torch.ones(1, 4), "object_score": torch.full((1, 1), 20.0)}
    run: Any = SimpleNamespace(student=SimpleNamespace(encode=lambda x: {"embedding": x}))
    monkeypatch.setattr(train, "_mask_losses", lambda *_: {"still": torch.zeros(())})
    points, labels = torch.zeros(1, 3, 2), torch.ones(1, 3, dtype=torch.long)
    yes = torch.ones(1, 2, dtype=torch.bool)
    losses = []
    for first in (right, -right):
        answers = [{**found, "masks": first}, {**found, "masks": right}]
        monkeypatch.setattr(train, "follow", lambda *_, answers=answers: answers)
        given = torch.zeros(1, 2, 3, 8, 8), target, yes, torch.ones(()), points, labels, yes[:, 0]
        losses.append(float(train._video_losses(run, by_mask, *given)["clip"]))
    assert losses[0] == pytest.approx(0, abs=1e-3)
    assert losses[1] > 1


def test_the_teacher_is_asked_at_its_own_resolution(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr(labelling, "evaluator", lambda *_: None)
    blank = Teacher({}, "cpu")

    def decode(given: dict[str, Any]) -> dict[str, Any]:
        asked.update(given)
        y = torch.arange(256.0).reshape(1, 1, 256, 1).expand(1, 4, 256, 256)
        return {"masks": y, "ious": torch.ones(1, 4)}

    monkeypatch.setattr(blank, "_decode", decode)
    points = torch.tensor([[[-0.5, -0.5], [511.5, 127.5]]])
    found = blank.decode({"embedding": torch.zeros(1)}, points, torch.tensor([[2, 3]]))
    assert asked["points"].tolist() == [[[-0.5, -0.5], [1023.5, 255.5]]]
    assert asked["mask"].shape == (1, 1, 256, 256)
    assert asked["has_mask"].tolist() == [False]
    assert found["masks"].shape == (1, 4, MASK, MASK)
    assert found["masks"][0, 0, :3, 0].tolist() == [0.0, 1.0, 2.0]

    cover, _ = draw(
        blank, {"embedding": torch.zeros(1)}, [{"box": [32.0, 8.0, 64.0, 16.0]}], (256, 64)
    )
    ys, xs = (cover[0] > 0.5).nonzero().T
    assert (int(xs.min()), int(xs.max())) == (32 - NEAR, 64 + NEAR - 1)
    assert (int(ys.min()), int(ys.max())) == (32 - NEAR, 64 + NEAR - 1)


def test_clicks_and_boxes_are_where_they_should_be() -> None:
    target = torch.zeros(1, MASK, MASK)
    target[0, 80:120, 40:160] = 1.0
    prompter = Prompter("cpu", 0)
    for careful in (0.0, 1.0):
        x, y = prompter.click(target, careful=careful)[0, 0].tolist()
        assert 40 <= x / 2 < 160
        assert 80 <= y / 2 < 120
    corners = prompter.box(target, rough=0.0)[0].tolist()
    assert corners == [[79.5, 159.5], [319.5, 239.5]]
    nothing = prompter.box(torch.zeros(1, MASK, MASK), rough=0.0)[0].tolist()
    assert nothing == [[-0.5, -0.5], [511.5, 511.5]]
    too_much = torch.full((1, 1, MASK, MASK), -1.0)
    too_much[0, 0, 80:120, 40:256] = 1.0
    point, label = prompter.correction(too_much, target)
    assert label.item() == 0
    assert point[0, 0, 0] / 2 >= 160
    missed = torch.full((1, 1, MASK, MASK), -1.0)
    assert prompter.correction(missed, target)[1].item() == 1


def test_a_mistake_at_an_edge_costs_more_than_one_far_from_it() -> None:
    target = torch.zeros(1, 64, 64)
    target[0, :, 32:] = 1.0
    right = torch.where(target > 0, 9.0, -9.0)[:, None]
    near, far = right.clone(), right.clone()
    near[..., 30:32] = 1.0
    far[..., 10:12] = 1.0
    assert float(mask_loss(near, target)) > float(mask_loss(far, target)) + 0.1
    counted = near_edges(target)[0, 0]
    places = counted.nonzero()[:, 0].tolist()
    assert places == list(range(32 - EDGE_REACH, 32 + EDGE_REACH))
    target[0, :, 32] = 0.5  # either side
    assert float(near_edges(target)[0, :, 32].max()) == 0.0
    assert float(near_edges(torch.zeros(1, 64, 64)).max()) == 0.0


def test_losses_of_cases_worked_by_hand() -> None:
    target = torch.zeros(1, 4, 4)
    target[0, :2] = 1.0
    right = torch.where(target > 0, 20.0, -20.0)[:, None]
    assert float(mask_loss(right, target)) == pytest.approx(0, abs=1e-4)
    assert float(overlap(right, target)) == 1
    half = right.clone()
    half[0, 0, 1] = -20.0
    assert float(overlap(half, target)) == 0.5
    answer = {
        "masks": right.expand(1, 4, 4, 4),
        "ious": torch.ones(1, 4),
        "object_score": torch.full((1, 1), 20.0),
    }
    yes, no = torch.tensor([True]), torch.tensor([False])
    assert float(answer_loss(answer, target, yes, yes)) == pytest.approx(0, abs=1e-4)
    assert float(answer_loss(answer, target, yes, no)) == pytest.approx(20, rel=1e-3)
    assert float(answer_loss(answer, target, yes, no, known=no)) == 0
    assert float(answer_loss(answer, 1 - target, yes, yes, known=no)) == 0


def test_a_larger_window_has_the_bias_of_the_farthest_offset() -> None:
    table = np.array([[0.0, 1.0, 2.0, 3.0]], np.float32)  # offsets (0,0), (0,1), (1,0), (1,1)
    wide = student.widened(table, (1, 9))
    np.testing.assert_array_equal(wide, [[0, 1, 1, 2, 3, 3, 2, 3, 3]])


def test_the_student_starts_with_all_of_the_teachers_trunk() -> None:
    graphs = (teacher.encode_graph(), teacher.decode_graph())
    taught = {value.name for graph in graphs for value in graph.params}
    own = {student.taught_name(name) for name in GRAPHS.weight_shapes(NANO)}
    left = {name for name in taught - own if not name.startswith("image_encoder.neck")}
    assert not left


def test_the_student_draws_as_finely_as_the_teacher_of_masks() -> None:
    assert labelling.CONFIG.mask_size == NANO.mask_size


TAUGHT_BY = Sam2Config(
    name="small", image_size=256, embed_dim=16, stages=(1, 1, 2, 1), global_blocks=(3,),
    windows=(8, 4, 8, 4), channels=64, memory_channels=16, decoder_feedforward=64,
)  # fmt: skip


def _noise(shapes: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        name: (rng.standard_normal(shape) * 0.05).astype(np.float32)
        for name, shape in shapes.items()
    }


def _archive(path: Path, files: dict[str, bytes]) -> None:
    with tarfile.open(path, "w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def _encoded(array: Any, kind: str) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(array).save(stream, kind)
    return stream.getvalue()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Everything the recipe reads, made of noise; the teacher too."""
    rng = np.random.default_rng(0)

    def photo(height: int = 60, width: int = 80) -> bytes:
        return _encoded(rng.integers(0, 255, (height, width, 3), np.uint8), "JPEG")

    trimap = np.full((60, 80), 2, np.uint8)
    trimap[10:50, 10:60], trimap[20:40, 20:50] = 3, 1
    place = tmp_path / "data"
    place.mkdir()
    names = [f"pets/cat_{i}" for i in range(30)]
    pets = {f"{name}.jpg": photo() for name in names}
    pets |= {f"{name}.png": _encoded(trimap, "PNG") for name in names}
    for part in ("pets-0.tar", "pets-1.tar"):
        _archive(place / part, pets)
    _archive(place / "clips.tar", {f"clips/01_dog/{i:03}.jpg": photo() for i in range(48)})
    _archive(place / "photos.tar", {"a.jpg": photo(), "b.jpg": photo(50, 90)})
    cut = np.full((50, 40, 4), 255, np.uint8)
    _archive(place / "cutouts.tar", {"a.png": _encoded(cut, "PNG")})
    save_file(_noise(sam2_shapes(TAUGHT_BY)), place / labelling.FILE)
    monkeypatch.setattr(labelling, "CONFIG", TAUGHT_BY)
    home = tmp_path / "training"
    (home / "labels").mkdir(parents=True)
    labels = data.HERE / "labels" / "clips.json"
    (home / "labels" / "clips.json").write_text(labels.read_text())
    sums = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in place.iterdir()}
    (home / "manifest.json").write_text(json.dumps(sums))
    monkeypatch.setattr(data, "HERE", home)
    monkeypatch.setattr(manifest, "MANIFEST", home / "manifest.json")
    return place


@pytest.fixture
def start(tmp_path: Path) -> Path:
    """An exported model to start from."""
    path = tmp_path / "start.safetensors"
    checkpoint.save(path, _noise(GRAPHS.weight_shapes(NANO)))
    return path


@pytest.mark.timeout(900)
def test_every_stage_runs_and_goes_on_from_the_one_before(
    folder: Path, start: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    before: dict[str, Any] = read_exported(start)
    for stage in train.STAGES:
        train.train({stage: 60.0}, folder, state, small=True, start=start)
        found = load_state(state)
        assert found is not None
        weights, where = found
        assert where["stage"] == stage
        assert where["done"]
        assert any((weights[name] != before[name]).any() for name in weights)
        assert all(np.isfinite(array).all() for array in weights.values())
        before = weights


@pytest.mark.timeout(900)
def test_stages_that_are_named_together_run_one_after_the_other(
    folder: Path, start: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"

    train.train(dict.fromkeys(train.STAGES, 60.0), folder, state, small=True, start=start)

    lines = [json.loads(line) for line in (state / "log.jsonl").read_text().splitlines()]
    assert list(dict.fromkeys(line["stage"] for line in lines)) == list(train.STAGES)
    found = load_state(state)
    assert found is not None
    assert (found[1]["stage"], found[1]["done"]) == (list(train.STAGES)[-1], True)


def test_an_empty_state_wants_a_model_to_start_from(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="give a model to start from"):
        train.train({"masks": 1.0}, folder, tmp_path / "state", small=True)


def test_an_interrupt_says_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(train, "train", interrupted)
    words = ["train", "video", "--data", str(tmp_path), "--state", str(tmp_path / "state")]
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit) as ending:
        train.main()
    assert ending.value.code == 130
    assert capsys.readouterr().err == f"stopped; run it again to go on from {tmp_path}/state\n"


@pytest.mark.parametrize("wrong", ["--minutes=0", "--minutes=-3", "--minutes=nan", "--steps=0"])
def test_no_time_or_no_steps_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, wrong: str
) -> None:
    words = ["train", "video", "--data", str(tmp_path), "--state", str(tmp_path / "state"), wrong]
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit) as ending:
        train.main()
    assert ending.value.code == 2
    assert "--minutes and --steps must be more than 0" in capsys.readouterr().err
    assert not (tmp_path / "state").exists()


def test_what_is_exported_can_be_trained_on(tmp_path: Path) -> None:
    shapes = GRAPHS.weight_shapes(NANO)
    weights = {name: np.full(shape, 0.25, np.float32) for name, shape in shapes.items()}
    save_state(tmp_path / "state", weights, {"stage": "video", "step": 1, "done": True})
    out = tmp_path / "nano.safetensors"
    export(tmp_path / "state", out)
    last = "sam_mask_decoder.output_hypernetworks_mlps.0.layers.2.weight"
    assert float(checkpoint.read(out).tensors[last].max()) == 0.25 * STEEPER
    again = read_exported(out)
    assert set(again) == set(weights)
    for name, array in again.items():
        np.testing.assert_allclose(array, weights[name], rtol=1e-3, err_msg=name)


def test_a_written_model_gets_the_config_of_today(tmp_path: Path) -> None:
    old, new = tmp_path / "old.safetensors", tmp_path / "new.safetensors"
    weights = {"a": np.arange(6, dtype=np.float32).reshape(2, 3) / 7}
    checkpoint.save(old, weights, precision="fp16", metadata={"samgraph.config": "{}"})
    export(old, new)
    before, after = checkpoint.read(old), checkpoint.read(new)
    assert after.metadata["samgraph.config"] == NANO.to_json()
    assert after.tensors["a"].tobytes() == before.tensors["a"].tobytes()


def test_a_start_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no file"):
        read_exported(tmp_path / "typo.safetensors")
    checkpoint.save(tmp_path / "other.safetensors", {"w": np.ones(3, np.float32)})
    with pytest.raises(SystemExit, match="not a samgraph-nano"):
        read_exported(tmp_path / "other.safetensors")


def test_changed_data_is_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "clips.tar").write_bytes(b"something else")
    with pytest.raises(SystemExit, match="not what the manifest says"):
        train.train({"masks": 1.0}, folder, tmp_path / "state", small=True)
    (folder / "clips.tar").unlink()
    with pytest.raises(SystemExit, match="is missing"):
        train.train({"masks": 1.0}, folder, tmp_path / "state", small=True)
