"""What holds for all readers."""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from samgraph.errors import ImageError
from samgraph.formats import coco_document, read_coco, read_label_studio, read_labelme
from samgraph.formats.label_studio import label_studio_result
from samgraph.formats.labelme import labelme_document
from tests.formats.scenes import ring_scene

JUNK: list[Any] = [
    None, -1, 0, 10**20, 10**400, 1e308, True, "", "x", [], [[]], {}, [None], [1, "a"], [10**400]
]  # fmt: skip


def positions(value: Any) -> list[tuple[Any, Any]]:
    """Every container in a document with every key or index into it."""
    keys = (
        list(value)
        if isinstance(value, dict)
        else range(len(value))
        if isinstance(value, list)
        else ()
    )
    return [found for key in keys for found in [(value, key), *positions(value[key])]]


@pytest.mark.parametrize(
    ("document", "read"),
    [
        (coco_document([ring_scene()]), read_coco),
        (coco_document([ring_scene()], polygons=True), read_coco),
        (labelme_document(ring_scene()), read_labelme),
        (labelme_document(ring_scene(), polygons=True), read_labelme),
        (
            [
                {
                    "data": {"image": "a"},
                    "predictions": [{"result": label_studio_result(ring_scene())}],
                }
            ],
            read_label_studio,
        ),
    ],
)
def test_junk_anywhere_in_a_document_is_read_or_refused(
    document: Any, read: Callable[[Path], object], tmp_path: Path
) -> None:
    path, text = tmp_path / "a.json", json.dumps(document)
    rng = np.random.default_rng(0)
    count = len(positions(document))
    for index in range(count):
        for junk in rng.permutation(len(JUNK))[:4]:
            damaged = json.loads(text)
            container, key = positions(damaged)[index]
            container[key] = JUNK[junk]
            path.write_text(json.dumps(damaged))
            with suppress(ImageError):
                read(path)
