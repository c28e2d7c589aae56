"""Pixels and masks on a GPU: frames resized on the device, masks downloaded as bits.

Everything here is started on the stream of the calling thread; only what gives host arrays waits.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from samgraph.engines.buffers import BestMasks, MaskFilter, PassedMasks
from samgraph.engines.torch import bicubic, measuring, screening
from samgraph.engines.torch.kernels import has_kernels
from samgraph.engines.torch.memory import reports_full
from samgraph.engines.torch.screening import Screened

Rgb = tuple[float, float, float]
Bytes = NDArray[np.uint8]
# The most pixels of masks enlarged at once.
_PIXELS_AT_ONCE = 1 << 28


class TorchImages:
    """What `DeviceImages` asks for, on one device."""

    frames_at_once = 4  # of 1, 2, 4 and 8: 1.21, 1.06, 0.98 and 0.97 ms per frame (H200, tiny)

    def __init__(self, device: torch.device) -> None:
        self.device = device

    @reports_full
    def frame_pixels(self, frame: Bytes, size: int, mean: Rgb, std: Rgb) -> torch.Tensor:
        """To the bit what the host makes of a frame: [3, S, S]."""
        return self._resize(self._sent(frame), size, bicubic.Normalisation(mean, std))

    @reports_full
    def image_pixels(self, image: Bytes, size: int, mean: Rgb, std: Rgb) -> torch.Tensor:
        """As the host, within rounding: [3, S, S]."""
        values = self._sent(image).permute(2, 0, 1)[None].float() / 255.0
        small = functional.interpolate(
            values, (size, size), mode="bilinear", align_corners=False, antialias=True
        )[0]
        mean_, std_ = (  # filled on the device: sending them would wait for it
            torch.stack([torch.full((1, 1), x, device=self.device) for x in rgb])
            for rgb in (mean, std)
        )
        return (small - mean_) / std_

    @reports_full
    def masks(
        self, logits: torch.Tensor, size_hw: tuple[int, int], threshold: float
    ) -> NDArray[np.bool_]:
        """Masks [N, H, W] of logits [N, L, L], downloaded as bits."""
        height, width = size_hw
        out = np.empty((len(logits), height, width), np.bool_)
        step = max(1, _PIXELS_AT_ONCE // (height * width))
        for start in range(0, len(logits), step):
            part = logits[start : start + step].contiguous()
            packed = self._pack(part, size_hw, threshold).cpu().numpy()
            bits = np.unpackbits(packed, axis=-1, count=width, bitorder="little")
            out[start : start + step] = bits.view(np.bool_)
        return out

    @reports_full
    def screen(
        self, masks: torch.Tensor, ious: torch.Tensor, stability: torch.Tensor, rule: MaskFilter
    ) -> Screened:
        """Start to filter masks [N, M, L, L]; waits for nothing where there are kernels."""
        return screening.screen(masks, ious, stability, rule, self._measure)

    @reports_full
    def passed(self, screened: Screened) -> PassedMasks:
        """The masks that passed, on the device."""
        return screening.passed(screened, self._sent)

    @reports_full
    def best(self, parts: Sequence[PassedMasks], iou_threshold: float) -> BestMasks:
        """The masks that non-maximum suppression keeps."""
        return screening.best(parts, iou_threshold, self._sent)

    @reports_full
    def changes(
        self, logits: torch.Tensor, size_hw: tuple[int, int], threshold: float
    ) -> list[NDArray[np.int64]]:
        """Where each of the masks [N, L, L] begins and ends, column by column."""
        found = torch.cat(measuring.changes(logits, size_hw, threshold)).cpu().numpy()
        ends = np.cumsum(found[: len(logits)])[:-1]
        return np.split(found[len(logits) :], ends) if len(logits) else []

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Work of this thread on a separate stream; complete when the block is left."""
        if self.device.type == "cpu":
            yield
            return
        stream = self._side
        with torch.cuda.device(self.device), torch.cuda.stream(stream):
            yield
        stream.synchronize()

    @cached_property
    def _side(self) -> torch.cuda.Stream:
        return torch.cuda.Stream(self.device)

    @cached_property
    def _resize(self) -> Callable[[torch.Tensor, int, bicubic.Normalisation], torch.Tensor]:
        if not has_kernels():
            return bicubic.frame_pixels
        from samgraph.engines.torch.kernels.bicubic import frame_pixels

        return frame_pixels

    @cached_property
    def _pack(self) -> Callable[[torch.Tensor, tuple[int, int], float], torch.Tensor]:
        if not has_kernels():
            return measuring.mask_bits
        from samgraph.engines.torch.kernels.masks import mask_bits

        return mask_bits

    @cached_property
    def _measure(self) -> screening.Measure:
        if not has_kernels():
            return measuring.measure
        from samgraph.engines.torch.kernels.measure import measure

        return measure

    def _sent(self, array: "Bytes | NDArray[np.int64]") -> torch.Tensor:
        """An array on the device, through pinned memory that torch keeps for the next."""
        kind = torch.uint8 if array.dtype == np.uint8 else torch.int64
        pinned = torch.empty(array.shape, dtype=kind, pin_memory=self.device.type == "cuda")
        pinned.numpy()[...] = array
        return pinned.to(self.device, non_blocking=True)
