"""The page without a server as files: weights in 16 bits, the runtime, the service worker."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from samgraph.errors import EngineError, OptionError
from samgraph.exporters import ExportOptions
from samgraph.models.exporting import export_model
from tests import tolerances
from tests.models.exported import manifest_of, random_inputs, run_onnx
from tests.predict.models import tiny_model

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from samgraph.exporters.web import runtime, site  # noqa: E402
from samgraph.exporters.web.weights import HalfWeights, to_halves  # noqa: E402


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files called like those of the runtime."""
    folder = tmp_path_factory.mktemp("runtime")
    for name in runtime.FILES:
        (folder / name).write_text(name)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, installed: Path) -> Path:
    target = tmp_path_factory.mktemp("site") / "deep" / "er"
    export_model(tiny_model(), "web", target, ExportOptions(runtime=installed))
    return target


def test_the_folder_holds_page_engine_runtime_and_model(folder: Path) -> None:
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}

    assert {"index.html", "sw.js", "info.json", "static/js/main.js", "engine/worker.js"} <= files
    assert {f"runtime/{name}" for name in runtime.FILES} <= files
    assert "model/weights.f16" in files
    assert "model/track.onnx" not in files
    assert (folder / "static/js/transport.js").read_text() != (
        site.PAGE / "js/transport.js"
    ).read_text()
    listed = manifest_of(folder)
    assert files == set(listed["files"]) | {"manifest.json"}
    assert listed["graphs"]["decode"]["file"] == "model/decode.onnx"
    assert listed["weights"] == "fp16"


def test_graphs_with_weights_in_16_bits_give_nearly_the_same(folder: Path, tmp_path: Path) -> None:
    """The file of weights is expanded here as the page does it."""
    halves = np.frombuffer((folder / "model/weights.f16").read_bytes(), "<f2")
    (tmp_path / "weights.bin").write_bytes(halves.astype("<f4").tobytes())
    export_model(tiny_model(), "onnx", tmp_path / "exact", only=("decode_points",))
    (tmp_path / "model.onnx").write_bytes((folder / "model/decode_points.onnx").read_bytes())
    graph = manifest_of(folder)["graphs"]["decode_points"]
    inputs = random_inputs(graph, {"N": 2, "P": 3}, np.random.default_rng(0))

    found = run_onnx(tmp_path / "model.onnx", inputs)

    wanted = run_onnx(tmp_path / "exact" / "decode_points.onnx", inputs)
    for name, values in wanted.items():
        off = np.abs(found[name] - values).max() / np.abs(values).max()
        assert off < tolerances.HALF_WEIGHTS


def test_the_service_worker_keeps_every_file_but_the_runtime(folder: Path) -> None:
    text = (folder / "sw.js").read_text()
    page, rest = (
        json.loads(found) for found in re.findall(r"^const (?:PAGE|REST) = (.*);$", text, re.M)
    )
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}

    assert {*page, *rest} == {name for name in files if not name.startswith("runtime/")} - {
        "sw.js"
    } | {"./"}
    assert all(name.startswith(("model/", "samples/")) for name in rest)
    assert "@" not in re.findall(r"^const VERSION = (.*);$", text, re.M)[0]


def test_another_model_is_another_version(folder: Path) -> None:
    files = {"a.js": b"1", "model/weights.f16": b"2"}

    first = site.service_worker(files, ())

    assert site.service_worker(dict(files), ()) == first
    assert site.service_worker({**files, "model/weights.f16": b"3"}, ()) != first


def test_info_is_what_the_server_says() -> None:
    """The page draws effects by these numbers, wherever they come from."""
    pytest.importorskip("msgspec")
    pytest.importorskip("starlette")
    import msgspec

    from samgraph.serve.effects import effect_list
    from samgraph.serve.exports import formats_info
    from samgraph.serve.samples import SAMPLES

    info = json.loads(site.page_files()["info.json"])

    assert info["effects"] == msgspec.to_builtins(effect_list())
    known = msgspec.to_builtins(formats_info())
    for kind in ("image", "video"):
        extensions = {entry["name"]: entry["extension"] for entry in known[kind]}
        for entry in info["formats"][kind]:
            assert extensions[entry["name"]] == entry["extension"]
    assert [(s["id"], s["title"], s["kind"]) for s in info["samples"]] == [
        (sample.id, sample.title, sample.kind) for sample in SAMPLES.values()
    ]


def test_a_transport_has_what_the_page_imports() -> None:
    def exported(text: str) -> set[str]:
        return set(re.findall(r"^export (?:async )?(?:const|function) (\w+)", text, re.M))

    ours = (site.HERE / "page/static/js/transport.js").read_text(encoding="utf-8")
    theirs = (site.PAGE / "js/transport.js").read_text(encoding="utf-8")
    assert exported(ours) == exported(theirs) != set()


def test_weights_that_16_bits_cannot_hold_stay_floats() -> None:
    values = np.linspace(-1, 1, 1000, dtype=np.float32)

    halves = to_halves(values)

    assert halves is not None
    assert np.abs(halves.astype(np.float32) - values).max() < 1e-3
    assert to_halves(np.array([1e6, 1], np.float32)) is None
    assert to_halves(np.array([-1e30], np.float32)) is None
    assert to_halves(np.full(3, 1e-9, np.float32)) is None


def test_equal_weights_are_stored_once() -> None:
    values = np.random.default_rng(0).standard_normal(600).astype(np.float32)
    halves, models = HalfWeights(), []
    for name in "ab":
        tensor = onnx.numpy_helper.from_array(values, name)
        models.append(onnx.helper.make_model(onnx.helper.make_graph([], name, [], [], [tensor])))
        halves.take(models[-1])

    assert len(halves.data()) == 1200
    places = [str(model.graph.initializer[0].external_data) for model in models]
    assert places[0] == places[1]


def test_the_runtime_is_found_where_npm_puts_it(tmp_path: Path, installed: Path) -> None:
    target = tmp_path / "node_modules" / runtime.PACKAGE / "dist"
    target.mkdir(parents=True)
    for name in runtime.FILES:
        (target / name).write_bytes((installed / name).read_bytes())

    assert runtime.read_runtime(tmp_path) == runtime.read_runtime(installed)


def test_a_folder_without_the_runtime_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="does not hold onnxruntime-web"):
        runtime.read_runtime(tmp_path)


def test_without_npm_the_hint_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)

    with pytest.raises(EngineError, match="npm is not there") as raised:
        runtime.read_runtime(None)

    assert "--runtime DIR" in (raised.value.hint or "")


def test_npm_that_fails_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    npm = tmp_path / "npm"
    npm.write_text("#!/bin/sh\necho 'no such host' >&2\nexit 1\n")
    npm.chmod(0o755)
    monkeypatch.setattr("shutil.which", lambda name: str(npm))

    with pytest.raises(EngineError, match="npm cannot fetch onnxruntime-web") as raised:
        runtime.read_runtime(None)

    assert "no such host" in str(raised.value)


def test_npm_gives_an_archive_of_which_the_files_are_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, installed: Path
) -> None:
    import tarfile

    archive = tmp_path / "package.tgz"
    with tarfile.open(archive, "w:gz") as package:
        for name in (*runtime.FILES, "../../evil.mjs"):
            source = installed / runtime.FILES[0] if "evil" in name else installed / name
            package.add(source, f"package/dist/{name}")
    npm = tmp_path / "npm"
    npm.write_text(f"#!/bin/sh\ncp {archive} onnxruntime-web.tgz\n")
    npm.chmod(0o755)
    monkeypatch.setattr("shutil.which", lambda name: str(npm))

    assert runtime.read_runtime(None) == runtime.read_runtime(installed)


def test_computing_in_fp16_is_refused(installed: Path, tmp_path: Path) -> None:
    options = ExportOptions(runtime=installed, precision="fp16")

    with pytest.raises(OptionError, match="the page computes in float32"):
        export_model(tiny_model(), "web", tmp_path, options)


def test_a_graph_left_out_and_fixed_lengths_are_refused(installed: Path, tmp_path: Path) -> None:
    model = tiny_model()

    for options, only in (
        (ExportOptions(runtime=installed), ("decode",)),
        (ExportOptions(runtime=installed, fixed={"N": 1}), ()),
    ):
        with pytest.raises(OptionError, match="the page needs all graphs"):
            export_model(model, "web", tmp_path, options, only=only)
