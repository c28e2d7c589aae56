"""Masks of boxes in many images with Daft: a table in, a Parquet folder out.

    python examples/scale/daft_batches.py OUT IMAGE...

Every worker of Daft loads one model; `@daft.cls(gpus=1)` gives each a GPU. The masks of an image
are one column, a struct of lists; see `samgraph.scale`.
"""

import sys
from typing import Any

import daft
from daft import DataType

from samgraph.media.image.reading import image_size
from samgraph.scale import SegmentBatch

MASKS = DataType.struct(
    {
        "height": DataType.int32(),
        "width": DataType.int32(),
        "rle": DataType.list(DataType.string()),
        "score": DataType.list(DataType.float32()),
        "error": DataType.string(),
    }
)


@daft.cls
class Segment:
    """Prompts in, masks out, a batch at a time."""

    def __init__(self, model: str = "samgraph-nano") -> None:
        self.segment = SegmentBatch(model)

    @daft.method.batch(return_dtype=MASKS)
    def masks(self, path: daft.Series, box: daft.Series) -> list[dict[str, Any]]:
        """A struct per image."""
        made = self.segment({"path": path.to_pylist(), "box": box.to_pylist()})
        names = ("height", "width", "rle", "score", "error")
        rows = zip(*(made[name].tolist() for name in names), strict=True)
        return [dict(zip(names, row, strict=True)) for row in rows]


def main(out: str, paths: list[str]) -> None:
    """Segment the middle of every image and write a table."""
    boxes = []
    for path in paths:
        height, width = image_size(path)
        boxes.append([width / 4, height / 4, 3 * width / 4, 3 * height / 4])
    table = daft.from_pydict({"path": paths, "box": boxes})
    table = table.with_column("masks", Segment().masks(table["path"], table["box"]))
    table.write_parquet(out)
    print(f"{len(paths)} images in {out}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
