"""Shards: what is in them, and that numbers go on from one to the next."""

import importlib.util
import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from samgraph.errors import OptionError
from samgraph.formats import Segment, read_coco
from samgraph.jobs.batch.records import Result
from samgraph.jobs.batch.shards import Destination, Totals, find_shard_format
from samgraph.jobs.batch.tasks import described

MASK = np.zeros((4, 6), np.bool_)
MASK[1:3, 2:5] = True


def result(name: str, *labels: str | None) -> Result:
    masks = [described(Segment.from_mask(MASK, label=label, score=0.5)) for label in labels]
    body: dict[str, Any] = {"height": 4, "width": 6, "annotations": masks}
    return Result("0" * 16, "1" * 16, name, 1, body)


def test_coco_shards_have_ids_that_go_on(tmp_path: Path) -> None:
    totals = Totals(images=10, annotations=30)
    totals.add_categories(["dog", "cat"])

    data = find_shard_format("coco").encode([result("a", "cat"), result("b", "cat", "cat")], totals)

    document = json.loads(data)
    assert [image["id"] for image in document["images"]] == [11, 12]
    assert [mask["id"] for mask in document["annotations"]] == [31, 32, 33]
    assert document["categories"] == [{"id": 2, "name": "cat"}]
    (tmp_path / "a.json").write_bytes(data)
    first, second = read_coco(tmp_path / "a.json")
    assert (first.segments[0].label, len(second.segments)) == ("cat", 2)
    assert (first.segments[0].mask == MASK).all()


@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="pyarrow is missing")
def test_parquet_has_a_row_per_image_and_lists_of_masks() -> None:
    from pyarrow import parquet

    from samgraph.scale import decode_masks

    data = find_shard_format("parquet").encode([result("a", "cat", None), result("b")], Totals())

    first, second = parquet.read_table(io.BytesIO(data)).to_pylist()
    assert (decode_masks(first["rle"], first["height"], first["width"]) == MASK).all()
    assert first["mask_box"] == [[2, 1, 5, 3]] * 2
    assert (first["label"], first["score"], first["area"]) == (["cat", None], [0.5, 0.5], [6, 6])
    assert (second["path"], second["rle"]) == ("b", [])


@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="pyarrow is missing")
def test_parquet_takes_names_that_are_not_utf_8() -> None:
    from pyarrow import parquet

    name = os.fsdecode(b"caf\xe9.jpg")
    data = find_shard_format("parquet").encode([result(name, name)], Totals())

    (row,) = parquet.read_table(io.BytesIO(data)).to_pylist()
    assert (row["path"], row["label"]) == (r"caf\udce9.jpg", [r"caf\udce9.jpg"])


def test_json_lines_are_the_results() -> None:
    data = find_shard_format("jsonl").encode([result("a", "cat")], Totals())

    assert json.loads(data)["path"] == "a"
    with pytest.raises(OptionError, match="no format"):
        find_shard_format("xml")


@pytest.mark.skipif(importlib.util.find_spec("fsspec") is None, reason="fsspec is missing")
def test_a_destination_may_be_an_address() -> None:
    import fsspec

    destination = Destination("memory://masks/run/")
    destination.write("a/b.json", b"{}")

    assert destination.is_remote
    assert fsspec.filesystem("memory").cat("/masks/run/a/b.json") == b"{}"
