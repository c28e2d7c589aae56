"""Finding exporters; an exporter that writes texts stands for real exporters."""

import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from samgraph.engines.protocol import Listing
from samgraph.errors import EngineError, OptionError, OutputError
from samgraph.exporters import (
    Exporter,
    ExportOptions,
    Written,
    exporter_names,
    find_exporter,
    write_file,
)
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
    ) -> Written:
        shared = folder / "weights.npz"
        np.savez(shared, allow_pickle=False, **dict(weights))
        written = {}
        for name, graph in graphs.items():
            after = optimise(graph, passes_for(self.passes, options.precision))
            text = str(after).encode()
            written[name] = write_file(folder / f"{name}.txt", text)
        return Written(written, (shared,))


def test_an_exporter_is_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(protocol_module._FOLDERS, "text", Listing("text_exporter"))
    monkeypatch.setitem(sys.modules, "text_exporter", SimpleNamespace(exporter=TextExporter()))
    graph, weights = mlp()

    exporter: Exporter = find_exporter("text")
    written = exporter.export({"mlp": graph}, weights, tmp_path, ExportOptions())

    assert "text" in exporter_names()
    assert [path.name for path in written.files] == ["mlp.txt", "weights.npz"]
    assert 'activation="gelu"' in written.graphs["mlp"].read_text(encoding="utf-8")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mlp.txt", "weights.npz"]


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


def test_a_file_that_cannot_be_written_says_why(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot be written"):
        write_file(tmp_path / "absent" / "a.txt", b"")
