"""Finding exporters; an exporter that writes texts stands for real exporters."""

import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from samgraph.engines.protocol import Listing
from samgraph.errors import EngineError, OptionError
from samgraph.exporters import Exporter, ExportOptions, exporter_names, find_exporter
from samgraph.exporters import protocol as protocol_module
from samgraph.graph import Graph
from samgraph.graph.types import Array
from samgraph.passes import COMMON, Step, optimise, passes_for
from tests.runtime.graphs import mlp


class TextExporter:
    """Writes what the passes made of each graph, and the weights as an npz."""

    name = "text"
    passes: tuple[Step, ...] = COMMON

    def export(
        self,
        graphs: Mapping[str, Graph],
        weights: Mapping[str, Array],
        folder: Path,
        options: ExportOptions,
    ) -> list[Path]:
        written = [folder / "weights.npz"]
        np.savez(written[0], allow_pickle=False, **dict(weights))
        for name, graph in graphs.items():
            after = optimise(graph, passes_for(self.passes, options.precision))
            written.append(folder / f"{name}.txt")
            written[-1].write_text(str(after), encoding="utf-8")
        return written


def test_an_exporter_is_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(protocol_module._FOLDERS, "text", Listing("text_exporter"))
    monkeypatch.setitem(sys.modules, "text_exporter", SimpleNamespace(exporter=TextExporter()))
    graph, weights = mlp()

    exporter: Exporter = find_exporter("text")
    written = exporter.export({"mlp": graph}, weights, tmp_path, ExportOptions())

    assert "text" in exporter_names()
    assert [path.name for path in written] == ["weights.npz", "mlp.txt"]
    assert 'activation="gelu"' in written[1].read_text(encoding="utf-8")


def test_an_unknown_exporter_is_refused_by_name() -> None:
    with pytest.raises(OptionError, match="there is no exporter `pdf`\n  expected: "):
        find_exporter("pdf")


def test_an_exporter_whose_library_is_missing_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listing = Listing("samgraph.exporters.absent", extra="onnx")
    monkeypatch.setitem(protocol_module._FOLDERS, "absent", listing)

    with pytest.raises(EngineError) as caught:
        find_exporter("absent")

    assert str(caught.value).splitlines()[0] == "exporter `absent` cannot be loaded"
    assert caught.value.hint == "pip install samgraph[onnx]"
