"""Scenes of solids: masks are what rays end on, parts lie in groups and groups in wholes."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.parity

from training.rays import Stage, as_picture, cast, looking  # noqa: E402
from training.scenes import Film  # noqa: E402
from training.solids import Solids  # noqa: E402
from training.stages import OBJECTS, P  # noqa: E402
from training.things import FAR, FIELDS, NAMES, PARTS, Kit, bank  # noqa: E402

SIDE, MASK = 32, 16


def shapes(*solids: tuple[str, tuple[float, ...], tuple[float, ...]], **more: Any) -> Stage:
    """A stage of solids at places and of sizes, seen from z = 10."""
    kit = Kit(torch.Generator(), 1)
    for kind, at, size in solids:
        kit.add(kind, at, size, **more)  # type: ignore[arg-type]
    rows = torch.stack(kit.rows, 1)
    size = rows[..., 3:6]
    eye, no = torch.tensor([[0.0, 0.0, 10.0]]), torch.zeros(1)
    axes = looking(eye, torch.zeros(1, 3), no + 0.3, no)
    look = torch.cat([size, torch.zeros(1, len(solids), 7)], 2)
    into = torch.diag_embed(1 / size)
    reach = size.square().sum(2).sqrt()
    light, place = torch.zeros(1, 8), torch.full((1, 6), -FAR)
    rest = (eye, axes, eye, axes, light, place, torch.zeros(1, dtype=torch.long))
    return Stage(rows[..., :3], into, rows[..., 9:19], look, reach, *rest)


def seen(stage: Stage, tiles: int = 8, t: int = 16) -> Any:
    """Solids, distances and normals as pictures."""
    hit = cast(stage, stage.eye, stage.axes, tiles, t)
    normal = as_picture(hit.normal.permute(0, 3, 1, 2), t)[0]
    return as_picture(hit.who, t)[0], as_picture(hit.far, t)[0], normal


def test_a_ball_is_as_large_as_it_should_be() -> None:
    who, far, normal = seen(shapes(("ball", (0, 0, 0), (1, 1, 1))))
    sine = 0.1  # of the angle under which its edge is seen
    radius = sine / (1 - sine**2) ** 0.5 / 0.3 * 64
    assert (who == 0).sum().item() == pytest.approx(3.14159 * radius**2, rel=0.01)
    assert far[64, 64].item() == pytest.approx(9, abs=1e-2)
    assert normal[2, 64, 64].item() == pytest.approx(1, abs=1e-2)
    assert (normal[:, who == 0].square().sum(0) - 1).abs().max() < 1e-4


@pytest.mark.parametrize("kind", ["ball", "box", "soft", "tube", "limb", "dome", "basin", "cone"])
def test_rays_end_on_the_surface_of_a_solid(kind: str) -> None:
    stage = shapes((kind, (0.3, 0.2, 0), (1.0, 1.5, 0.7)))
    who, far, normal = seen(stage)
    assert (who == 0).any()
    step = (torch.arange(128) + 0.5) / 64 - 1
    y, x = torch.meshgrid(-step, step, indexing="ij")
    ray = torch.stack([0.3 * x, 0.3 * y, -torch.ones_like(x)], -1)
    point = (torch.tensor([0.0, 0, 10]) + far[..., None] * ray - stage.at[0, 0]) * stage.into[
        0, 0
    ].diagonal()
    quad, slab = stage.form[0, 0, :5], stage.form[0, 0, 5:8]
    value = (quad[:3] * point**2).sum(-1) + quad[3] * point[..., 1] + quad[4]
    outside = torch.maximum(value, (point.abs() - slab).amax(-1))[who == 0]
    assert outside.abs().max() < 2e-3 or kind in ("box", "soft")  # those are flat in places
    assert ((point.abs() - slab).amax(-1)[who == 0] < 1e-3).all()
    towards = -(normal.permute(1, 2, 0) * ray).sum(-1)[who == 0]
    assert (towards > -1e-3).all()


def test_the_front_one_is_seen_in_either_order() -> None:
    near, back = ("ball", (0, 0, 3.0), (0.5, 0.5, 0.5)), ("box", (0, 0, 0), (1, 1, 1))
    one, far, _ = seen(shapes(near, back))
    two, same, _ = seen(shapes(back, near))
    assert one[64, 64] == 0
    assert two[64, 64] == 1
    assert torch.equal(far, same)
    assert torch.equal(one == 0, two == 1)
    assert (one == 1).any()


def test_a_bored_tube_shows_what_is_behind_it() -> None:
    ring = shapes(("tube", (0, 0, 0), (1, 1, 1)), bore=0.5)
    ring.eye, no = torch.tensor([[0.0, 10.0, 0.01]]), torch.zeros(1)
    ring.axes = looking(ring.eye, torch.zeros(1, 3), no + 0.3, no)
    who, _, _ = seen(ring)
    assert who[64, 64] == 1  # nothing: P is one here
    assert who[64, 64 + 20] == 0


def test_tiles_change_nothing() -> None:
    stage = Solids("cpu", 3).staged(2, 1)[0]
    coarse = cast(stage, stage.eye, stage.axes, 1, 32)
    fine = cast(stage, stage.eye, stage.axes, 8, 4)
    differs = as_picture(coarse.who, 32) != as_picture(fine.who, 4)
    assert differs.float().mean() < 0.002  # rounding at edges
    # A planted fault: a solid whose surrounding ball is too small is cut off by its tile.
    stage.reach = stage.reach * 0.3
    cut = cast(stage, stage.eye, stage.axes, 8, 4)
    assert (as_picture(coarse.who, 32) != as_picture(cut.who, 4)).float().mean() > 0.002


def test_masks_count_the_rays_that_end_on_a_thing() -> None:
    solids = Solids("cpu", 1)
    stage, keys, paper, _ = solids.staged(2, 1)
    _, count = solids.drawn(stage, paper, SIDE, MASK)
    hit = cast(stage, stage.eye, stage.axes, 2 * SIDE // 16, 16)
    down = -stage.eye[:, None, None, 1] / hit.ray[..., 1]
    walls = (stage.place[:, :2] - stage.eye[:, (0, 2)])[:, None, None] / hit.ray[..., (0, 2)]
    behind = torch.cat([down[..., None], walls], -1)
    behind = torch.where(behind > 0, behind, FAR).amin(-1)
    who = as_picture(torch.where(hit.far < behind, hit.who, P), 16)
    for solid in range(P + 1):
        rays = (who == solid).unflatten(1, (MASK, 4)).unflatten(3, (MASK, 4)).sum((2, 4))
        assert torch.equal(count[:, solid], rays.float())
    assert (count.sum(1) == 16).all()
    thing, group, part = keys
    for outer, inner in ((thing, group), (group, part)):
        same_inner = inner[:, :, None] == inner[:, None]
        assert ((outer[:, :, None] == outer[:, None]) | ~same_inner).all()


def test_parts_lie_in_groups_and_groups_in_wholes() -> None:
    images, masks = Solids("cpu", 4).nested(4, SIDE, MASK)
    assert images.shape == (4, 3, SIDE, SIDE)
    assert masks.shape == (4, OBJECTS, 3, MASK, MASK)
    assert images.dtype == masks.dtype == torch.uint8
    part, group, whole = masks.unbind(2)
    assert (part <= group).all()
    assert (group <= whole).all()
    assert (whole.int().sum(1) <= 255 + OBJECTS).all()  # no ray ends on two things
    assert ((part > 0).any((2, 3)) <= (group > 0).any((2, 3))).all()
    assert (whole > 127).any()
    assert (part < whole).any()


def test_the_same_seed_draws_the_same() -> None:
    photos = torch.randint(256, (3, 3, 40, 50), dtype=torch.uint8)
    one, two, other = (Solids("cpu", seed, photos).stills(2, SIDE, MASK) for seed in (7, 7, 8))
    assert torch.equal(one[0], two[0])
    assert torch.equal(one[1], two[1])
    assert not torch.equal(one[0], other[0])


@pytest.mark.parametrize(("side", "mask_side"), [(40, 10), (33, 7)])
def test_any_size_of_picture_and_mask(side: int, mask_side: int) -> None:
    images, masks = Solids("cpu", 2).stills(1, side, mask_side)
    assert images.shape == (1, 3, side, side)
    assert masks.shape == (1, 3 * OBJECTS, mask_side, mask_side)


def test_clips_show_moving_things_from_the_first_frame() -> None:
    film = Solids("cpu", 6).clips(3, 3, 4, SIDE, MASK)
    assert isinstance(film, Film)
    assert film.images.shape == (3, 3, 3, SIDE, SIDE)
    assert film.masks.shape == (3, 4, 3, MASK, MASK)
    assert film.known.shape == (3, 4, 3)
    assert film.known.all()
    assert (film.masks[:, :, 0].float().mean((2, 3)) > 0).all()
    assert (film.masks[:, :, 0] != film.masks[:, :, 2]).any()


def test_things_stand_on_the_floor_and_fit_their_slots() -> None:
    things = bank(0, 4)
    assert things.shape == (len(NAMES), 4, PARTS, FIELDS)
    assert things.isfinite().all()
    assert (things[..., 3:6][things[..., -1] > 0] > 0).all()
    lowest = torch.where(things[..., -1] > 0, things[..., 1], 1.0).amin(2)
    assert (lowest > -0.05).all()
