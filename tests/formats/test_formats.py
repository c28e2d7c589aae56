"""What holds for all the formats."""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from samgraph.errors import ImageError, OptionError, OutputError
from samgraph.formats import (
    FORMATS,
    coco_document,
    read_coco,
    read_label_studio,
    read_labelme,
    write,
)
from samgraph.formats.label_studio import label_studio_result
from samgraph.formats.labelme import labelme_document
from tests.formats.scenes import ring_scene, scene

JUNK: list[Any] = [
    None, -1, 0, 10**20, 10**400, 1e308, True, "", "x", [], [[]], {}, [None], [1, "a"], [10**400]
]  # fmt: skip


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_writes_into_a_folder(kind: str, tmp_path: Path) -> None:
    target = write(kind, tmp_path, [scene(), ring_scene()])

    assert target.exists()
    assert any(tmp_path.iterdir())
    assert not any(path.name.endswith(".part") for path in tmp_path.iterdir())


@pytest.mark.parametrize("kind", FORMATS)
def test_a_missing_folder_is_an_output_error(kind: str, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot be written"):
        write(kind, tmp_path / "none", [ring_scene()])


def test_an_unknown_format_is_named_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="unknown format `voc`"):
        write("voc", tmp_path, [])


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container in a document with every key or index into it."""
    keys = (
        list(value)
        if isinstance(value, dict)
        else range(len(value))
        if isinstance(value, list)
        else ()
    )
    return [place for key in keys for place in [(value, key), *places(value[key])]]


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
    count = len(places(document))
    for index in range(count):
        for junk in rng.permutation(len(JUNK))[:4]:
            damaged = json.loads(text)
            container, key = places(damaged)[index]
            container[key] = JUNK[junk]
            path.write_text(json.dumps(damaged))
            with suppress(ImageError):
                read(path)
