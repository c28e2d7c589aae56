"""Scenes of solids for ever: things beside each other, their groups and parts, at rest or moving.

What things are made of is in `things.py`, how they are set up in `stages.py`, how they are drawn in
`rays.py`. Masks count rays that end on a whole, a group (all wheels) or a part (one wheel), four
rays a pixel of the picture: they are exact.

Shapes: n scenes, B clips, T frames of each (N together), O things of PARTS solids (P together).
"""

import math

import torch
from torch.nn import functional

from training.rays import Stage, as_picture, pictured
from training.scenes import Film
from training.stages import OBJECTS, P, Stages
from training.things import PARTS

SMALL = 0.002  # of the picture


class Solids(Stages):
    """Draws scenes; `textures` uint8 [n, 3, h, w] are photographs for surfaces and backdrops."""

    def __init__(self, device: str, seed: int, textures: torch.Tensor | None = None) -> None:
        super().__init__(device, seed, textures)
        self.rays = 2**22 if self.device.type == "cuda" else 2**16  # followed at once

    def stills(
        self, n: int, side: int = 512, mask_side: int = 128
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Pictures uint8 [n, 3, side, side]; a part, a group and the whole of each thing.

        Masks: uint8 [n, 3 * OBJECTS, mask_side, mask_side].
        """
        images, chains = self.nested(n, side, mask_side)
        return images, chains.flatten(1, 2)

    def nested(self, n: int, side: int, mask_side: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Pictures, and a part in a group in a whole: uint8 [n, OBJECTS, 3, mask_side, mask_side].

        Empty where a thing cannot be seen.
        """
        stage, keys, paper, _ = self.staged(n, 1)
        images, cover = self.drawn(stage, paper, side, mask_side)
        area = cover.sum((2, 3))[:, :P] / cover[0].sum()
        thing, group, part = ((key[:, :, None] == key[:, None]).float() for key in keys)
        of_part, of_group, of_thing = (
            (same * area[:, None]).sum(2) for same in (part, group, thing)
        )
        worth = self.uniform(0, 1, n, P) + 3.0 * (of_part > SMALL / 2)
        worth = worth + (of_group > 1.15 * of_part) + 1.0 * (of_thing > 1.15 * of_group)
        best = worth.reshape(n, OBJECTS, PARTS).argmax(2)
        best = best + torch.arange(OBJECTS, device=self.device) * PARTS
        table = torch.stack([part, group, thing], 2)
        rows = table.gather(1, best[:, :, None, None].expand(-1, -1, 3, P))
        masks = torch.einsum("nkjp,npyx->nkjyx", rows, cover[:, :P])  # of whole numbers
        return images, _to_bytes(masks / cover.sum(1)[:, None, None])

    def clips(self, B: int, T: int, objects: int, side: int, mask_side: int) -> Film:
        """Clips of things that move before a camera that moves."""
        stage, _, paper, moving = self.staged(B, T)
        images, cover = self.drawn(stage, paper, side, mask_side)
        wholes = cover[:, :P].unflatten(1, (OBJECTS, PARTS)).sum(2) / cover.sum(1, keepdim=True)
        wholes = wholes.unflatten(0, (B, T)).transpose(1, 2)  # [B, O, T, m, m]
        seen = wholes[:, :, 0].mean((2, 3)) > SMALL
        order = (self.uniform(0, 1, B, OBJECTS) + moving + 3.0 * seen).argsort(1, descending=True)
        turn = torch.arange(objects, device=self.device) % seen.sum(1, keepdim=True).clamp(min=1)
        chosen = order.gather(1, turn)[:, :, None, None, None]
        masks = wholes.gather(1, chosen.expand(-1, -1, *wholes.shape[2:]))
        known = torch.ones(B, objects, T, dtype=torch.bool, device=self.device)
        return Film(images.unflatten(0, (B, T)), _to_bytes(masks), known)

    # ------------------------------------------------------------------ how it is drawn

    def drawn(
        self, stage: Stage, paper: torch.Tensor, side: int, mask_side: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Pictures uint8 [N, 3, side, side], rays on solids [N, P + 1, mask_side, mask_side]."""
        N, S = len(stage.eye), 2 * side
        t = math.gcd(S, 16)
        chunk = max(1, self.rays // S**2)
        cell = (torch.arange(S, device=self.device) * mask_side).div(S, rounding_mode="floor")
        cell = cell[:, None] * mask_side + cell  # [S, S]
        finish = self.finish(paper.shape[0], stage.scene)
        images, covers = [], []
        for start in range(0, N, chunk):
            some = slice(start, min(N, start + chunk))
            part = stage.part(some)
            mirror = any(i * len(paper) // N % 4 == 0 for i in range(some.start, some.stop))
            colour, who = pictured(part, paper[part.scene], S // t, t, mirror=mirror)
            picture = as_picture(colour.permute(0, 3, 1, 2), t)
            images.append(
                self.developed(functional.avg_pool2d(picture, 2), [x[some] for x in finish])
            )
            who = as_picture(who, t) * mask_side**2 + cell
            cover = torch.zeros(len(who), (P + 1) * mask_side**2, device=self.device)
            ones = torch.ones((), device=self.device).expand(len(who), S * S)
            cover = cover.scatter_add_(1, who.flatten(1), ones)
            cover = cover.unflatten(1, (P + 1, mask_side, mask_side))
            covers.append(cover)
        return torch.cat(images), torch.cat(covers)

    def finish(self, n: int, scene: torch.Tensor) -> list[torch.Tensor]:
        """Of each frame exposure, colours, curve, blur, sharpness, grain: each [N, ..., 1, 1]."""
        u = self.uniform
        gain = torch.exp(0.1 + 0.2 * self.normal(n, 1) + 0.06 * self.normal(n, 3))
        curve = torch.exp(0.2 * self.normal(n, 1))
        blur = u(-1.0, 1, n, 1).clamp(min=0) ** 2
        grain = u(-0.5, 1, n, 1).clamp(min=0) ** 2 * 0.045
        coarse = u(0, 1, n, 1)
        return [x[scene][..., None, None] for x in (gain, curve, blur, grain, coarse)]

    def developed(self, x: torch.Tensor, finish: list[torch.Tensor]) -> torch.Tensor:
        """Light as a camera records it: [N, 3, side, side] -> uint8."""
        gain, curve, blur, grain, coarse = finish
        x = (x * gain).clamp(min=1e-4)
        x = torch.where(x > 0.8, 1 - 0.2 * torch.exp(-(x - 0.8) / 0.2), x) ** curve
        soft = functional.avg_pool2d(x, 3, 1, 1, count_include_pad=False)
        soft = functional.avg_pool2d(soft, 3, 1, 1, count_include_pad=False)
        x = x + blur * (soft - x)
        noise = self.normal(*x.shape)
        wide = functional.avg_pool2d(noise, 3, 1, 1) * 2
        return _to_bytes(x + grain * (noise + coarse * (wide - noise)))


def _to_bytes(x: torch.Tensor) -> torch.Tensor:
    return (x.clamp(0, 1) * 255).round().to(torch.uint8)
