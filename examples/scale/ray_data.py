"""Masks of boxes in many images with Ray Data: a dataset in, a Parquet folder out.

    python examples/scale/ray_data.py OUT IMAGE...

Every actor loads one model. On GPUs: `map_batches(..., num_gpus=1)`. On a cluster, connect first:
`ray.init("auto")`. Instead of paths, `ray.data.read_images(folder)` gives a column `image`.
"""

import sys

import ray

from samgraph.media.image.reading import image_size
from samgraph.scale import SegmentBatch


def main(out: str, paths: list[str]) -> None:
    """Segment the middle of every image and write a table."""
    rows = []
    for path in paths:
        height, width = image_size(path)
        box = [width / 4, height / 4, 3 * width / 4, 3 * height / 4]
        rows.append({"path": path, "box": box})
    masks = ray.data.from_items(rows).map_batches(
        SegmentBatch,
        fn_constructor_kwargs={"model": "samgraph-nano", "threads": 1},
        concurrency=1,
        batch_size=8,
    )
    masks.write_parquet(out)
    print(f"{len(paths)} images in {out}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
