"""Exports of a small model: files that check, the numbers of our own engine, a true manifest."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from samgraph.checkpoint.match import MEMORY
from samgraph.errors import CheckpointError, OptionError, OutputError
from samgraph.exporters import ExportOptions
from samgraph.models.exporting import export_model, export_plan
from samgraph.models.loading import load_model
from tests import tolerances
from tests.models.exported import SIZES, manifest_of, random_inputs, run_onnx
from tests.models.sisters import SISTERS, small_sister
from tests.predict.models import tiny_model

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
GRAPHS = (
    "image_encoder", "decode_points", "decode", "mask_prompt", "memory_encoder",
    "memory_attention", "track",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("export")
    export_model(tiny_model(), "onnx", target)
    return target


@pytest.mark.parametrize("name", GRAPHS)
def test_a_file_passes_the_checker_and_strict_shape_inference(folder: Path, name: str) -> None:
    model = onnx.load(folder / f"{name}.onnx")

    onnx.checker.check_model(model, full_check=True)
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)

    assert {node.domain for node in inferred.graph.node} == {""}
    declared = manifest_of(folder)["graphs"][name]
    for key, values in (("inputs", inferred.graph.input), ("outputs", inferred.graph.output)):
        shapes = {v.name: [d.dim_param or d.dim_value for d in dims(v)] for v in values}
        assert shapes == {v["name"]: v["shape"] for v in declared[key]}


def dims(value: Any) -> list[Any]:
    return list(value.type.tensor_type.shape.dim)


def difference(key: str, found: Any, want: Any) -> float:
    """The largest, as a share of what is allowed."""
    scale = max(1.0, float(np.abs(want).max(initial=0)))
    limit = tolerances.EXPORTED * scale
    if key == "stability":
        limit = tolerances.EXPORTED_STABILITY
    return float(np.abs(found - want).max(initial=0)) / limit


@pytest.mark.parametrize("name", GRAPHS)
def test_onnx_runtime_computes_what_our_engine_does(folder: Path, name: str) -> None:
    model, rng = tiny_model(), np.random.default_rng(1)
    graph = export_plan(model, ExportOptions()).graphs[name]
    compiled = model.session.compile(graph, model.weights)

    for sizes in SIZES:
        inputs = random_inputs(manifest_of(folder)["graphs"][name], sizes, rng)
        expected = compiled.run_numpy(inputs)
        found = run_onnx(folder / f"{name}.onnx", inputs)

        assert found.keys() == expected.keys()
        for key, want in expected.items():
            assert difference(key, found[key], want) <= 1, (key, sizes)


@pytest.mark.parametrize("name", SISTERS)
def test_sister_models_are_exported_whole(name: str, tmp_path: Path) -> None:
    model, rng = small_sister(name).core, np.random.default_rng(9)
    export_model(model, "onnx", tmp_path)
    manifest, graphs = manifest_of(tmp_path), export_plan(model, ExportOptions()).graphs

    is_pooled = name.endswith(("1", "2"))
    ones = ("memory_attention_one", "track_one")
    assert tuple(manifest["graphs"]) == tuple(graphs) == (*GRAPHS, *ones * is_pooled)
    assert manifest["constants"]["memory_tokens"] == model.config.memory_tokens
    assert_explained(manifest)
    for key in ("image_encoder", "memory_encoder", "memory_attention", *ones):
        if key not in graphs:
            continue
        path = tmp_path / manifest["graphs"][key]["file"]
        onnx.checker.check_model(onnx.load(path), full_check=True)
        frames = 1 if key.endswith("_one") else 3
        inputs = random_inputs(manifest["graphs"][key], {**SIZES[1], "F": frames}, rng)
        expected = model.session.compile(graphs[key], model.weights).run_numpy(inputs)
        found = run_onnx(path, inputs)
        assert all(difference(name, found[name], want) <= 1 for name, want in expected.items())


def test_an_image_only_checkpoint_is_exported_as_far_as_images_need(
    folder: Path, tmp_path: Path
) -> None:
    whole = tiny_model()
    kept = {name: x for name, x in whole.weights.items() if not name.startswith(MEMORY)}
    model = load_model(kept, config=whole.config, device="cpu", threads=2)
    export_model(model, "onnx", tmp_path)

    manifest = manifest_of(tmp_path)
    assert tuple(manifest["graphs"]) == GRAPHS[:4]
    outputs = {value["name"] for value in manifest["graphs"]["decode"]["outputs"]}
    assert "pointer" not in outputs
    assert tuple(manifest["steps"]) == ("click",)
    inputs = random_inputs(manifest["graphs"]["decode_points"], SIZES[0], np.random.default_rng(6))
    expected, found = (run_onnx(w / "decode_points.onnx", inputs) for w in (folder, tmp_path))
    assert all(np.array_equal(found[name], want) for name, want in expected.items())
    with pytest.raises(CheckpointError, match="no weights for `memory_encoder`"):
        export_model(model, "onnx", tmp_path, only=("memory_encoder",))
    with pytest.raises(OptionError, match="the page needs all graphs"):
        export_model(model, "web", tmp_path)


def test_the_manifest_says_what_is_there(folder: Path) -> None:
    manifest = manifest_of(folder)

    assert (manifest["format"], manifest["version"], manifest["opset"]) == ("samgraph-onnx", 1, 21)
    assert tuple(manifest["graphs"]) == GRAPHS
    for name, file in manifest["files"].items():
        data = (folder / name).read_bytes()
        assert file == {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    present = {path.name for path in folder.iterdir()}
    assert present == {*manifest["files"], "manifest.json"}
    assert len(manifest["constants"]["absent_pointer"]) == manifest["constants"]["channels"]


def test_every_value_and_step_of_the_manifest_is_explained(folder: Path) -> None:
    assert_explained(manifest_of(folder))


def test_steps_run_graphs_that_are_there(tmp_path: Path) -> None:
    names = ("image_encoder", "decode_points", "memory_encoder")
    export_model(tiny_model(), "onnx", tmp_path, only=names)

    assert tuple(manifest_of(tmp_path)["steps"]) == ("click",)


def assert_explained(manifest: Any) -> None:
    """Every graph and value has a text; steps name the inputs of their graphs."""
    for graph in manifest["graphs"].values():
        assert graph["about"]
        assert all(value["about"] for value in (*graph["inputs"], *graph["outputs"]))
    for steps in manifest["steps"].values():
        for step in steps:
            for run in (step[key] for key in ("run", "run_with_one_memory") if key in step):
                wanted = {value["name"] for value in manifest["graphs"][run]["inputs"]}
                assert set(step["inputs"]) == wanted
            for source in step.get("inputs", {}).values():
                graph, dot, output = source.partition(".")
                if dot and graph in manifest["graphs"]:
                    outputs = {v["name"] for v in manifest["graphs"][graph]["outputs"]}
                    assert output in outputs


def test_weights_beside_are_stored_once_and_give_the_same_numbers(
    folder: Path, tmp_path: Path
) -> None:
    names = ("decode", "track")
    export_model(tiny_model(), "onnx", tmp_path, ExportOptions(weights="beside"), only=names)

    inside = sum((folder / f"{name}.onnx").stat().st_size for name in names)
    beside = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert (tmp_path / "weights.bin").stat().st_size > 0.9 * beside
    assert beside < 0.75 * inside
    onnx.checker.check_model(tmp_path / "decode.onnx")
    inputs = random_inputs(
        manifest_of(tmp_path)["graphs"]["decode"], SIZES[0], np.random.default_rng(2)
    )
    expected, found = (run_onnx(where / "decode.onnx", inputs) for where in (folder, tmp_path))
    assert all(np.array_equal(found[key], expected[key]) for key in expected)


def test_fixed_lengths_are_numbers_in_the_file(folder: Path, tmp_path: Path) -> None:
    options = ExportOptions(fixed={"N": 1, "F": 2})
    export_model(tiny_model(), "onnx", tmp_path, options, only=("memory_attention",))

    model = onnx.load(tmp_path / "memory_attention.onnx")
    shapes = {v.name: [d.dim_param or d.dim_value for d in dims(v)] for v in model.graph.input}
    assert shapes["memory"][:2] == [1, 2]
    assert shapes["pointers"][:2] == [1, "Q"]
    manifest = manifest_of(tmp_path)
    assert manifest["fixed"] == {"N": 1, "F": 2}
    assert set(manifest["symbols"]) == {"B", "P", "Q"}
    sizes = {**SIZES[0], "F": 2}
    inputs = random_inputs(manifest["graphs"]["memory_attention"], sizes, np.random.default_rng(3))
    expected, found = (run_onnx(w / "memory_attention.onnx", inputs) for w in (folder, tmp_path))
    assert np.allclose(found["conditioned"], expected["conditioned"], atol=tolerances.EXPORTED)


def test_opset_23_has_its_own_attention_and_rotation(folder: Path, tmp_path: Path) -> None:
    name = "memory_attention"
    export_model(tiny_model(), "onnx", tmp_path, ExportOptions(opset=23), only=(name,))

    model = onnx.load(tmp_path / f"{name}.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert {"Attention", "RotaryEmbedding"} <= {node.op_type for node in model.graph.node}
    assert manifest_of(tmp_path)["opset"] == 23
    for sizes in SIZES:
        graph = manifest_of(tmp_path)["graphs"][name]
        inputs = random_inputs(graph, sizes, np.random.default_rng(8))
        expected, found = (
            run_onnx(where / f"{name}.onnx", inputs)["conditioned"] for where in (folder, tmp_path)
        )
        assert np.abs(found - expected).max() <= tolerances.EXPORTED * np.abs(expected).max()


@pytest.mark.parametrize(
    ("options", "only", "message"),
    [
        (ExportOptions(fixed={"X": 1}), (), "no graph has a length `X`"),
        (ExportOptions(fixed={"N": 0}), (), "at least 1, not N=0"),
        (ExportOptions(opset=12), (), "opset 12 cannot be written"),
        (ExportOptions(precision="bf16"), (), "not written in bf16"),
        (ExportOptions(), ("encoder",), "there is no graph `encoder`"),
    ],
)
def test_bad_options_are_refused(
    tmp_path: Path, options: ExportOptions, only: tuple[str, ...], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        export_model(tiny_model(), "onnx", tmp_path, options, only=only)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(OutputError, match="cannot be made"):
        export_model(tiny_model(), "onnx", tmp_path / "file" / "below")
