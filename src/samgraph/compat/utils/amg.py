"""The reference's functions on masks, run-length encodings, boxes and crops, by its names.

Masks may be arrays or torch's tensors. Where the reference gives a tensor, what was given as one of
torch's comes back as one, anything else as an array with a tensor's methods.

Differs from the original: nothing needs OpenCV or pycocotools; the stability score of a mask with
no pixels is 0, not NaN.
"""

from collections.abc import ItemsView, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from samgraph.compat.host import to_host
from samgraph.compat.tensor import like
from samgraph.errors import OptionError, PromptError
from samgraph.media.mask import rle as run_lengths
from samgraph.media.mask.components import connected_components
from samgraph.media.mask.geometry import masks_to_boxes, stability_score
from samgraph.predict.everything.candidates import EDGE
from samgraph.predict.everything.grids import crops_of, layer_grids, point_grid


class MaskData:
    """Lists, arrays and tensors of one length, by name, filtered and joined together."""

    def __init__(self, **kwargs: Any) -> None:
        self._stats = dict(kwargs)

    def __setitem__(self, key: str, item: Any) -> None:
        self._stats[key] = item

    def __delitem__(self, key: str) -> None:
        del self._stats[key]

    def __getitem__(self, key: str) -> Any:
        return self._stats[key]

    def items(self) -> ItemsView[str, Any]:
        """Names and values."""
        return self._stats.items()

    def filter(self, keep: Any) -> None:
        """Keep some rows: indices, or a bool per row."""
        rows = np.asarray(to_host(keep))
        indices = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        for key, value in self._stats.items():
            if isinstance(value, list):
                self._stats[key] = [value[i] for i in indices]
            elif value is not None:
                self._stats[key] = like(value, np.asarray(to_host(value))[indices])

    def cat(self, new_stats: "MaskData") -> None:
        """Add the rows of another."""
        for key, value in new_stats.items():
            own = self._stats.get(key)
            if own is None or isinstance(value, list):
                self._stats[key] = value if own is None else own + value
            else:
                joined = np.concatenate([np.asarray(to_host(part)) for part in (own, value)])
                self._stats[key] = like(own, joined)

    def to_numpy(self) -> None:
        """Tensors as plain arrays."""
        for key, value in self._stats.items():
            if not isinstance(value, list) and value is not None:
                self._stats[key] = np.asarray(to_host(value))


def mask_to_rle_pytorch(tensor: Any) -> list[dict[str, Any]]:
    """Uncompressed run-length encodings of masks [N, H, W]."""
    masks = np.asarray(to_host(tensor)).astype(np.bool_)
    return [run_lengths.uncompressed(rle) for rle in run_lengths.encode_many(masks)]


def rle_to_mask(rle: dict[str, Any]) -> NDArray[np.bool_]:
    """The mask [H, W] of an encoding, compressed or not."""
    return run_lengths.decode(rle)


def area_from_rle(rle: dict[str, Any]) -> int:
    """The number of pixels of an encoded mask."""
    return run_lengths.area(rle)


def coco_encode_rle(uncompressed_rle: dict[str, Any]) -> dict[str, Any]:
    """The compressed form of an encoding, fit for JSON."""
    return run_lengths.to_json(uncompressed_rle)


def batched_mask_to_box(masks: Any) -> Any:
    """The box of each mask [..., H, W], the last pixels included: [..., 4]; zeros where empty."""
    given = np.asarray(to_host(masks)).astype(np.bool_)
    if given.size == 0:
        return like(masks, np.zeros((*given.shape[:-2], 4), np.int64))
    return like(masks, masks_to_boxes(given, inclusive=True))


def calculate_stability_score(masks: Any, mask_threshold: float, threshold_offset: float) -> Any:
    """How little masks of logits [..., H, W] change with their threshold: [...]."""
    logits = np.asarray(to_host(masks))
    return like(masks, stability_score(logits, mask_threshold, threshold_offset))


def remove_small_regions(
    mask: Any, area_thresh: float, mode: str
) -> tuple[NDArray[np.bool_], bool]:
    """A mask [H, W] without small `holes` or `islands`, and whether it was changed.

    Where every island is small, the largest stays.
    """
    if mode not in ("holes", "islands"):
        raise OptionError(f"there is no mode `{mode}`", expected="holes or islands")
    given = np.asarray(to_host(mask)).astype(np.bool_)
    regions, sizes = connected_components(given ^ (mode == "holes"), 8)
    small = sizes < area_thresh
    small[0] = False
    if not small.any():
        return given, False
    if mode == "holes":
        return given | small[regions], True
    kept = ~small
    kept[0] = False
    if not kept.any():
        kept[1 + int(np.argmax(sizes[1:]))] = True
    return np.asarray(kept[regions]), True


def build_point_grid(n_per_side: int) -> NDArray[np.float64]:
    """Points evenly spaced in the unit square: [n * n, 2]."""
    return point_grid(n_per_side)


def build_all_layer_point_grids(
    n_per_side: int, n_layers: int, scale_per_layer: int
) -> list[NDArray[np.float64]]:
    """A grid of points for the image and for each layer of crops."""
    return layer_grids(n_per_side, n_layers, scale_per_layer)


def generate_crop_boxes(
    im_size: tuple[int, ...], n_layers: int, overlap_ratio: float
) -> tuple[list[list[int]], list[int]]:
    """Boxes of the image and of its overlapping crops, and the layer of each."""
    crops = crops_of((int(im_size[0]), int(im_size[1])), n_layers, overlap_ratio)
    return [list(crop.box_xyxy) for crop in crops], [crop.layer for crop in crops]


def box_xyxy_to_xywh(box_xyxy: Any) -> Any:
    """A box as left, top, width, height; a list stays a list."""
    left, top, right, bottom = box_xyxy
    box = [left, top, right - left, bottom - top]
    if isinstance(box_xyxy, list | tuple):
        return type(box_xyxy)(box)
    return like(box_xyxy, np.array([to_host(number) for number in box]))


def uncrop_boxes_xyxy(boxes: Any, crop_box: Sequence[int]) -> Any:
    """Boxes [N, 4] of a crop as boxes of the image."""
    return like(boxes, np.asarray(to_host(boxes)) + np.array([*crop_box[:2], *crop_box[:2]]))


def uncrop_points(points: Any, crop_box: Sequence[int]) -> Any:
    """Points [N, 2] of a crop as points of the image."""
    return like(points, np.asarray(to_host(points)) + np.array(crop_box[:2]))


def uncrop_masks(masks: Any, crop_box: Sequence[int], orig_h: int, orig_w: int) -> Any:
    """Masks [N, h, w] of a crop as masks of the image, [N, H, W]."""
    left, top, right, bottom = crop_box
    given = np.asarray(to_host(masks))
    sides = ((top, orig_h - bottom), (left, orig_w - right))
    return like(masks, np.pad(given, ((0, 0),) * (given.ndim - 2) + sides))


def is_box_near_crop_edge(
    boxes: Any, crop_box: Sequence[int], orig_box: Sequence[int], atol: float = EDGE
) -> Any:
    """Whether each box [N, 4] ends at an edge of its crop that is not an edge of the image: [N]."""
    placed = np.asarray(to_host(boxes)) + np.array([*crop_box[:2], *crop_box[:2]])
    near_crop = np.abs(placed - np.array(crop_box)) <= atol
    near_image = np.abs(placed - np.array(orig_box)) <= atol
    return like(boxes, (near_crop & ~near_image).any(axis=1))


def batch_iterator(batch_size: int, *args: Any) -> Iterator[list[Any]]:
    """The rows of several sequences of one length, `batch_size` at a time."""
    if not args or any(len(values) != len(args[0]) for values in args):
        raise PromptError("batches need sequences of one length", got=str([len(a) for a in args]))
    for start in range(0, len(args[0]), batch_size):
        yield [values[start : start + batch_size] for values in args]
