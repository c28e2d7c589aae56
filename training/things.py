"""Things that people know, each of at most twelve solids: a bank of variants to choose from.

A solid is what a quadric and three slabs have in common, less a bore: balls, boxes, tubes, cones,
domes, roofs, rings and cups are all of that form, so one routine meets a ray with any of them.

    q . p² + b y + c <= 0,  |p| <= slab,  and not (q . p² + b y + c + bore <= 0 above the floor)

Shapes: V variants of a thing, PARTS solids of a thing, FIELDS numbers of a solid. Sizes in metres,
y is up, a thing stands on y = 0 and looks along z.
"""

import math
from collections.abc import Callable
from typing import TypeAlias

import torch

PARTS = 12
FAR = 1e4
PAINTS = 6  # main colour, second colour, dark, skin, leaf, wood
# Where the numbers of a solid are.
AT, SIZE, TURN, QUAD, SLAB = slice(0, 3), slice(3, 6), slice(6, 9), slice(9, 14), slice(14, 17)
BORE, FLOOR, PIVOT, SWING, PHASE, SPIN = 17, 18, slice(19, 22), 22, 23, 24
PAINT, GROUP, PART, THERE = 25, 26, 27, 28
FIELDS = 29

Number: TypeAlias = float | torch.Tensor
Three: TypeAlias = tuple[Number, Number, Number]


class Kit:
    """Puts the variants of one thing together."""

    def __init__(self, random: torch.Generator, variants: int) -> None:
        self.random, self.variants, self.rows = random, variants, list[torch.Tensor]()

    def between(self, low: float, high: float) -> torch.Tensor:
        """A number for each variant: [V]."""
        return low + (high - low) * torch.rand(self.variants, generator=self.random)

    def add(
        self,
        kind: str,
        at: Three,
        size: Three,
        group: int = 0,
        paint: int = 0,
        *,
        turn: Three = (0.0, 0.0, 0.0),
        ends: tuple[float, float] = (1.0, 0.5),
        bore: float = FAR,
        floor: float = -FAR,
        pivot: Three = (0.0, 0.0, 0.0),
        swing: Number = 0.0,
        phase: Number = 0.0,
        spin: float = 0.0,
        joined: int = 0,
    ) -> None:
        """One solid; `joined` counts back to the solid whose part it shares."""
        quad, slab = _form(kind, ends)
        part = len(self.rows) - joined
        numbers = [*at, *size, *turn, *quad, *slab, bore, floor, *pivot, swing, phase, spin]
        row = [torch.as_tensor(x, dtype=torch.float32) for x in [*numbers, paint, group, part, 1.0]]
        self.rows.append(torch.stack([x.expand(self.variants) for x in row], 1))

    def pair(
        self,
        kind: str,
        at: Three,
        size: Three,
        group: int = 0,
        paint: int = 0,
        *,
        turn: Three = (0.0, 0.0, 0.0),
        ends: tuple[float, float] = (1.0, 0.5),
        pivot: Three = (0.0, 0.0, 0.0),
        swing: Number = 0.0,
        phase: float = 0.0,
        spin: float = 0.0,
        joined: int = 0,
    ) -> None:
        """The same on the left and on the right, the right half a swing later."""
        for side in (1, -1):
            self.add(
                kind,
                (side * at[0], at[1], at[2]),
                size,
                group,
                paint,
                turn=(turn[0], side * turn[1], side * turn[2]),
                ends=ends,
                pivot=(side * pivot[0], pivot[1], pivot[2]),
                swing=swing,
                phase=phase + (side < 0) * math.pi,
                spin=spin,
                joined=2 * joined,
            )

    def done(self) -> torch.Tensor:
        """All variants: [V, PARTS, FIELDS]."""
        rows = torch.stack(self.rows, 1)
        rows = torch.nn.functional.pad(rows, (0, 0, 0, PARTS - rows.shape[1]))
        rows[:, len(self.rows) :, [GROUP, PART]] = -1.0  # what is not there belongs to nothing
        return rows


def _form(kind: str, ends: tuple[float, float]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Quadric and slabs of a kind of solid of half size one; `ends` are radii below and above."""
    mean, slope = (ends[0] + ends[1]) / 2, (ends[1] - ends[0]) / 2
    taper = (-slope * slope, -2 * mean * slope, -mean * mean)
    return {
        "ball": ((1.0, 1.0, 1.0, 0.0, -1.0), (1.1, 1.1, 1.1)),
        "box": ((0.0, 0.0, 0.0, 0.0, -1.0), (1.0, 1.0, 1.0)),
        "soft": ((0.55, 0.55, 0.55, 0.0, -1.0), (1.0, 1.0, 1.0)),
        "tube": ((1.0, 0.0, 1.0, 0.0, -1.0), (1.1, 1.0, 1.1)),
        "limb": ((1.0, 0.75, 1.0, 0.0, -1.0), (1.1, 1.0, 1.1)),
        "dome": ((1.0, 0.25, 1.0, 0.5, -0.75), (1.1, 1.0, 1.1)),
        "basin": ((1.0, 0.25, 1.0, -0.5, -0.75), (1.1, 1.0, 1.1)),
        "cone": ((1.0, taper[0], 1.0, taper[1], taper[2]), (1.1, 1.0, 1.1)),
        "roof": ((1.0, taper[0], 0.0, taper[1], taper[2]), (1.1, 1.0, 1.0)),
        "cabin": ((0.0, taper[0], 1.0, taper[1], taper[2]), (1.0, 1.0, 1.1)),
    }[kind]


ACROSS: Three = (0.0, 0.0, math.pi / 2)  # a tube along x
AHEAD: Three = (math.pi / 2, 0.0, 0.0)  # a tube along z


def _car(k: Kit) -> None:
    long, wide, wheel, high = (
        k.between(1.6, 2.4), k.between(0.7, 0.95), k.between(0.28, 0.42), k.between(0.25, 0.42),
    )  # fmt: skip
    top, back = wheel + 2 * high, k.between(-0.5, 0.2)
    k.add("soft", (0, wheel + high, 0), (wide, high, long), 1)
    tall = k.between(0.22, 0.4)
    k.add(
        "cabin", (0, top + tall * 0.9, back), (wide * 0.88, tall, long * 0.58), 2, 0, ends=(1, 0.6)
    )
    k.add("cabin", (0, top + tall * 0.85, back), (wide * 0.9, tall * 0.65, long * 0.55), 2, 2,
          ends=(0.95, 0.7))  # fmt: skip
    for z in (0.62, -0.62):
        k.pair("tube", (wide * 0.92, wheel, long * z), (wheel, 0.13, wheel), 3, 2,
               turn=ACROSS, spin=1.0)  # fmt: skip
        k.pair("tube", (wide * 0.94, wheel, long * z), (wheel * 0.6, 0.14, wheel * 0.6), 3, 1,
               turn=ACROSS, spin=1.0, joined=1)  # fmt: skip
    k.add("box", (0, wheel + high * 0.5, long * 0.98), (wide * 0.9, high * 0.3, 0.1), 1, 1)


def _lorry(k: Kit) -> None:
    long, wide, wheel, tall = (
        k.between(2.0, 3.6), k.between(0.9, 1.2), k.between(0.4, 0.5), k.between(0.7, 1.3),
    )  # fmt: skip
    k.add("box", (0, wheel * 1.6 + tall, -0.6), (wide, tall, long), 1)
    cab = k.between(0.6, 0.9)
    k.add("cabin", (0, wheel * 1.4 + cab, long + 0.2), (wide * 0.95, cab, 0.8), 2, 1, ends=(1, 0.8))
    k.add("cabin", (0, wheel * 1.4 + cab * 1.35, long + 0.25), (wide * 0.97, cab * 0.4, 0.72), 2, 2,
          ends=(1, 0.9))  # fmt: skip
    for z in (0.8, -0.2, -0.75):
        k.pair(
            "tube", (wide * 0.85, wheel, long * z), (wheel, 0.2, wheel), 3, 2, turn=ACROSS, spin=1
        )
    k.pair("ball", (wide * 0.7, wheel * 1.5, long + 1.0), (0.12, 0.12, 0.08), 2, 1)


def _person(k: Kit) -> None:
    leg, torso, wide, head = (
        k.between(0.7, 0.95), k.between(0.5, 0.65), k.between(0.17, 0.26), k.between(0.11, 0.14),
    )  # fmt: skip
    step, raised = k.between(0.1, 0.7), k.between(0.05, 1.0) ** 3 * 2.6
    hip, shoulder = leg, leg + torso
    k.add("ball", (0, shoulder + head * 1.5, 0), (head * 0.85, head * 1.15, head), 1, 3)
    k.add("dome", (0, shoulder + head * 2.15, -0.02), (head * 0.95, head * 0.6, head * 1.08), 1, 2)
    k.add("soft", (0, hip + torso * 0.52, 0), (wide, torso * 0.56, wide * 0.6), 1, 0)
    k.add("soft", (0, hip + 0.02, 0), (wide * 0.92, 0.12, wide * 0.62), 2, 1)
    k.pair("limb", (wide * 0.5, leg * 0.52, 0), (wide * 0.42, leg * 0.52, wide * 0.45), 2, 1,
           pivot=(wide * 0.5, hip, 0), swing=step)  # fmt: skip
    k.pair("soft", (wide * 0.5, 0.05, 0.05), (0.07, 0.05, 0.15), 2, 2,
           pivot=(wide * 0.5, hip, 0), swing=step, joined=1)  # fmt: skip
    arm = torso * 0.55
    x, y = wide * 1.1 + arm * raised.sin(), shoulder - 0.03 - arm * raised.cos()
    k.pair("limb", (x, y, 0), (0.055, arm, 0.06), 1, 0, turn=(0, 0, raised),
           pivot=(wide, shoulder, 0), swing=step, phase=math.pi)  # fmt: skip
    x, y = wide * 1.1 + 2 * arm * raised.sin(), shoulder - 0.03 - 2 * arm * raised.cos()
    k.pair("ball", (x, y, 0), (0.06, 0.08, 0.06), 1, 3, pivot=(wide, shoulder, 0),
           swing=step, phase=math.pi, joined=1)  # fmt: skip


def _animal(k: Kit) -> None:
    leg, long, fat = k.between(0.15, 0.6), k.between(0.3, 0.6), k.between(0.12, 0.25)
    step, neck = k.between(0.1, 0.6), k.between(0.05, 0.35)
    top, skull = leg + fat, fat * 0.62
    k.add("ball", (0, top, 0), (fat, fat, long), 1)
    k.add("limb", (0, top + neck * 0.6, long * 0.85), (fat * 0.45, neck + 0.1, fat * 0.5), 2, 0,
          turn=(0.5, 0, 0))  # fmt: skip
    y, z = top + neck * 1.3 + 0.08, long + neck * 0.4 + 0.05
    k.add("ball", (0, y, z), (skull * 0.9, skull, skull), 2, 0)
    k.add("limb", (0, y - skull * 0.3, z + skull), (skull * 0.5, skull * 0.8, skull * 0.42), 2, 1,
          turn=AHEAD)  # fmt: skip
    ear = (skull * 0.3, skull * 0.6, 0.03)
    k.pair("cone", (skull * 0.6, y + skull, z - skull * 0.2), ear, 2, 1,
           ends=(1, 0.15), turn=(0, 0, -0.3))  # fmt: skip
    for at, late in ((long * 0.62, 0.0), (-long * 0.62, math.pi)):
        k.pair("limb", (fat * 0.6, leg * 0.5, at), (fat * 0.27, leg * 0.62, fat * 0.3), 3, 0,
               pivot=(fat * 0.6, leg, at), swing=step, phase=late)  # fmt: skip
    k.add("limb", (0, top + fat, -long * 1.15), (0.035, k.between(0.1, 0.3), 0.035), 4, 0,
          turn=(-0.7, 0, 0))  # fmt: skip


def _table(k: Kit) -> None:
    long, wide, high = k.between(0.5, 1.0), k.between(0.35, 0.6), k.between(0.2, 0.4)
    k.add("box", (0, 2 * high, 0), (long, 0.03, wide), 1, 5)
    for z in (0.85, -0.85):
        k.pair("cone", (long * 0.88, high, wide * z), (0.045, high, 0.045), 2, 5, ends=(0.6, 1))
    k.add("box", (0, 2 * high - 0.09, 0), (long * 0.85, 0.06, wide * 0.8), 1, 0)


def _chair(k: Kit) -> None:
    wide, high, back = k.between(0.2, 0.28), k.between(0.19, 0.26), k.between(0.2, 0.35)
    k.add("soft", (0, 2 * high, 0), (wide, 0.05, wide), 1, 0)
    k.add("soft", (0, 2 * high + back * 1.2, -wide * 0.95), (wide, back * 0.8, 0.03), 3, 0)
    k.pair(
        "tube", (wide * 0.8, 2 * high + back * 0.5, -wide * 0.95), (0.02, back * 0.6, 0.02), 3, 5
    )
    for z in (0.85, -0.85):
        k.pair("tube", (wide * 0.85, high, wide * z), (0.025, high, 0.025), 2, 5)


def _sofa(k: Kit) -> None:
    long, deep, high = k.between(0.5, 1.1), k.between(0.35, 0.5), k.between(0.14, 0.2)
    k.add("soft", (0, high + 0.06, 0), (long, high, deep), 1)
    k.add("soft", (0, high * 2.9, -deep * 0.8), (long, high * 2, deep * 0.28), 1)
    k.pair("soft", (long * 1.05, high * 1.7, 0), (0.1, high * 1.5, deep), 2)
    k.pair(
        "soft", (long * 0.48, high * 2.2, deep * 0.1), (long * 0.45, high * 0.45, deep * 0.75), 3, 1
    )
    k.pair("tube", (long * 0.9, 0.04, deep * 0.8), (0.03, 0.05, 0.03), 4, 5)


def _lamp(k: Kit) -> None:
    high, wide = k.between(0.25, 0.8), k.between(0.12, 0.26)
    k.add("tube", (0, 0.025, 0), (wide * 0.7, 0.025, wide * 0.7), 1, 2)
    k.add("tube", (0, high, 0), (0.018, high, 0.018), 1, 2)
    k.add("cone", (0, 2 * high, 0), (wide, wide * 0.7, wide), 2, 0, ends=(1, 0.5), bore=0.08)
    k.add("ball", (0, 2 * high, 0), (wide * 0.35, wide * 0.35, wide * 0.35), 2, 1)


def _cup(k: Kit) -> None:
    wide, high, foot = k.between(0.035, 0.06), k.between(0.035, 0.06), 0.006
    k.add("cone", (0, high, 0), (wide, high, wide), 1, 0, ends=(0.8, 1), bore=0.16, floor=-0.85)
    k.add("tube", (0, high * k.between(0.9, 1.6), 0), (wide * 0.84, foot, wide * 0.84), 1, 5)
    k.add("tube", (wide * 1.2, high, 0), (wide * 0.55, wide * 0.13, high * 0.62), 2, 0, turn=AHEAD,
          bore=0.45)  # fmt: skip
    k.add("cone", (0, 0.004, 0), (wide * 1.9, 0.008, wide * 1.9), 3, 1, ends=(0.6, 1), bore=0.15)


def _bottle(k: Kit) -> None:
    wide, high = k.between(0.03, 0.05), k.between(0.06, 0.12)
    k.add("tube", (0, high, 0), (wide, high, wide), 1)
    k.add("dome", (0, 2 * high + 0.025, 0), (wide, 0.03, wide), 1)
    k.add("tube", (0, 2 * high + 0.06, 0), (wide * 0.35, 0.05, wide * 0.35), 2)
    k.add("tube", (0, 2 * high + 0.115, 0), (wide * 0.42, 0.015, wide * 0.42), 2, 2)
    k.add("tube", (0, high * k.between(0.8, 1.2), 0), (wide * 1.02, high * 0.5, wide * 1.02), 1, 1)


def _bowl(k: Kit) -> None:
    wide, high = k.between(0.09, 0.15), k.between(0.035, 0.06)
    k.add("basin", (0, high + 0.01, 0), (wide, high, wide), 1, 0, bore=0.14, floor=-0.9)
    k.add("tube", (0, 0.01, 0), (wide * 0.5, 0.012, wide * 0.5), 1, 0)
    for i in range(5):
        r, angle = k.between(0.03, 0.045), i * 1.5708 + k.between(-0.3, 0.3)
        out = wide * 0.45 * (i < 4)
        at = (out * angle.cos(), high * (1.3 if i < 4 else 2.1), out * angle.sin())
        k.add("ball", at, (r, r, r), 2, (1, 4, 1, 0, 4)[i])


def _teapot(k: Kit) -> None:
    wide, high = k.between(0.07, 0.1), k.between(0.05, 0.09)
    k.add("ball", (0, high, 0), (wide, high, wide), 1)
    k.add("cone", (0, high * 1.1, wide * 1.1), (0.022, wide * 0.6, 0.022), 1, 0, ends=(1, 0.5),
          turn=(0.8, 0, 0))  # fmt: skip
    k.add("tube", (0, high * 1.1, -wide * 1.05), (wide * 0.45, 0.01, high * 0.6), 2, 0,
          turn=ACROSS, bore=0.4)  # fmt: skip
    k.add("dome", (0, high * 1.92, 0), (wide * 0.5, high * 0.14, wide * 0.5), 3, 1)
    k.add("ball", (0, high * 2.15, 0), (0.014, 0.014, 0.014), 3, 1)


def _tree(k: Kit) -> None:
    high, wide = k.between(0.7, 1.4), k.between(0.7, 1.3)
    k.add("cone", (0, high, 0), (0.2, high, 0.2), 1, 5, ends=(1, 0.5))
    k.pair("cone", (wide * 0.3, high * 1.7, 0), (0.08, high * 0.5, 0.08), 1, 5, turn=(0, 0, -0.7))
    for i in range(6):
        angle, r = i * 1.2566 + k.between(-0.3, 0.3), wide * k.between(0.45, 0.7)
        out = wide * 0.6 * (i < 5)
        at = (out * angle.cos(), high * 2 + wide * (0.35 if i < 5 else 0.95), out * angle.sin())
        k.add("ball", at, (r, r * 0.8, r), 2, 4, joined=max(0, i - 3))


def _fir(k: Kit) -> None:
    high, wide = k.between(0.35, 0.6), k.between(0.6, 1.1)
    k.add("tube", (0, high * 0.6, 0), (0.12, high * 0.6, 0.12), 1, 5)
    for i in range(4):
        r = wide * (1 - 0.2 * i)
        k.add("cone", (0, high * (1.6 + 1.1 * i), 0), (r, high * 0.85, r), 2, 4, ends=(1, 0.1))
    k.add("ball", (0, high * 5.8, 0), (0.1, 0.1, 0.1), 3, 0)


def _plant(k: Kit) -> None:
    wide, high = k.between(0.1, 0.16), k.between(0.08, 0.14)
    k.add("cone", (0, high, 0), (wide, high, wide), 1, 0, ends=(0.7, 1), bore=0.2, floor=-0.5)
    k.add("tube", (0, high * 1.6, 0), (wide * 0.85, 0.01, wide * 0.85), 1, 5)
    for i in range(8):
        lean, reach = k.between(0.15, 0.9), k.between(0.15, 0.35)
        turn = i * 0.7854
        out = reach * lean.sin()
        at = (out * math.sin(turn), 2 * high + reach * lean.cos() * 0.8, out * math.cos(turn))
        k.add("ball", at, (0.045, reach, 0.012), 2, 4, turn=(lean, turn, 0))


def _house(k: Kit) -> None:
    long, wide, high = k.between(1.5, 3), k.between(1.3, 2), k.between(0.9, 2)
    top = k.between(0.5, 1.0)
    k.add("box", (0, high, 0), (wide, high, long), 1)
    k.add("roof", (0, 2 * high + top, 0), (wide * 1.15, top, long * 1.08), 2, 1, ends=(1, 0.02))
    k.add("box", (0, 0.55, long), (0.3, 0.55, 0.03), 3, 5)
    k.pair("box", (wide * 0.6, high * 1.2, long), (0.25, 0.3, 0.03), 3, 2)
    for z in (0.5, -0.5):
        k.pair("box", (wide, high * 1.2, long * z), (0.03, 0.3, 0.3), 3, 2)
    k.add("box", (wide * 0.5, 2 * high + top * 1.4, long * 0.3), (0.18, top * 0.6, 0.18), 2, 5)


def _ball(k: Kit) -> None:
    r = k.between(0.1, 0.2)
    k.add("ball", (0, r, 0), (r, r, r), 1)
    for turn in (AHEAD, ACROSS):
        k.add("tube", (0, r, 0), (r * 1.005, r * 0.16, r * 1.005), 2, 1, turn=turn)


def _boxes(k: Kit) -> None:
    y: Number = 0.0
    for i in range(4):
        w, h, d = k.between(0.1, 0.2), k.between(0.02, 0.1), k.between(0.1, 0.16)
        k.add("box", (k.between(-0.03, 0.03), y + h, 0), (w, h, d), 1 + i // 2, (0, 1, 5, 3)[i],
              turn=(0, k.between(-0.4, 0.4), 0))  # fmt: skip
        y = y + 2 * h


def _figure(k: Kit) -> None:
    r, y = k.between(0.3, 0.5), torch.zeros(k.variants)
    for share in (1, 0.72, 0.5):
        y = y + r * share * 0.85
        k.add("ball", (0, y, 0), (r * share, r * share * 0.95, r * share), 1, 0)
        y = y + r * share * 0.75
    k.add("cone", (0, y - r * 0.38, r * 0.6), (0.05, 0.14, 0.05), 2, 1, turn=AHEAD, ends=(1, 0.1))
    k.add("tube", (0, y + 0.02, 0), (r * 0.5, 0.03, r * 0.5), 2, 2)
    k.add("tube", (0, y + 0.18, 0), (r * 0.32, 0.16, r * 0.32), 2, 2)
    k.pair("limb", (r * 1.05, y - r * 1.0, 0), (0.04, r * 0.6, 0.04), 3, 5, turn=(0, 0, 0.9))


def _bicycle(k: Kit) -> None:
    r, gap = k.between(0.3, 0.36), k.between(0.45, 0.55)
    for z in (gap, -gap):
        k.add("tube", (0, r, z), (r, 0.03, r), 1, 2, turn=ACROSS, bore=0.25, spin=1)
        k.add("tube", (0, r, z), (0.05, 0.05, 0.05), 1, 1, turn=ACROSS, joined=1)
    k.add("tube", (0, r * 2, 0.05), (0.025, gap * 0.8, 0.025), 2, 0, turn=AHEAD)
    k.add("tube", (0, r * 1.5, -gap * 0.5), (0.025, r * 0.75, 0.025), 2, 0, turn=(-0.7, 0, 0))
    k.add("tube", (0, r * 1.45, gap * 0.3), (0.025, r * 0.8, 0.025), 2, 0, turn=(0.8, 0, 0))
    k.add("tube", (0, r * 1.85, gap * 0.9), (0.025, r * 0.95, 0.025), 2, 0, turn=(-0.3, 0, 0))
    k.add("tube", (0, r * 2.75, gap * 0.8), (0.02, 0.26, 0.02), 3, 2, turn=ACROSS)
    k.add("soft", (0, r * 2.4, -gap * 0.35), (0.06, 0.04, 0.14), 3, 2)
    k.add("tube", (0, r * 2.1, -gap * 0.4), (0.02, r * 0.3, 0.02), 2, 0)


# In which scenes: on a Street, in a Room, on a Laid table, in Company.
THINGS: dict[Callable[[Kit], None], str] = {
    _car: "S", _lorry: "S", _person: "SRCC", _animal: "SRCCC", _table: "R", _chair: "R", _sofa: "R",
    _lamp: "RL", _cup: "LL", _bottle: "LL", _bowl: "L", _teapot: "L", _tree: "S", _fir: "S",
    _plant: "RL", _house: "S", _ball: "RLC", _boxes: "RL", _figure: "SL", _bicycle: "S",
}  # fmt: skip
NAMES = [build.__name__.removeprefix("_") for build in THINGS]


def bank(seed: int, variants: int = 48) -> torch.Tensor:
    """All variants of all things: [THINGS, V, PARTS, FIELDS]."""
    random = torch.Generator().manual_seed(seed)
    made = []
    for build in THINGS:
        kit = Kit(random, variants)
        build(kit)
        made.append(kit.done())
    return torch.stack(made)
