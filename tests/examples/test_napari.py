"""The napari recipe on napari's own layers, without a window."""

import importlib.util
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.checkpoint.built_in import needs_built_in
from tests.serve.protocols.drawn import GOOD, click, drawn, iou, shapes
from tests.serve.serving import nano

SOURCE = Path(__file__).parents[2] / "examples" / "napari" / "click.py"


def recipe() -> Any:
    spec = importlib.util.spec_from_file_location("napari_click", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@needs_built_in
@pytest.mark.filterwarnings("ignore")
def test_points_become_labels_as_they_are_added_and_removed() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        components = pytest.importorskip(
            "napari.components", reason="napari is not installed", exc_type=ImportError
        )
    first, second = shapes()[0], shapes()[1]
    viewer = components.ViewerModel()
    clicking = recipe().Clicking(viewer, nano().image(drawn(0)[0]))

    clicking.points.add(np.array(click(first))[::-1])
    clicking.next_object()
    clicking.points.add(np.array(click(second))[::-1])
    both = clicking.labels.data.copy()
    clicking.outside()
    clicking.points.add(np.array(click(first))[::-1])
    signs = list(clicking.points.features["inside"])
    clicking.points.selected_data = {0}
    clicking.points.remove_selected()

    assert iou(both == 1, first) >= GOOD
    assert iou(both == 2, second) >= GOOD
    assert signs == [True, True, False]
    assert not (clicking.labels.data == 1).any()
    assert iou(clicking.labels.data == 2, second) >= GOOD
    assert "object" in viewer.status
