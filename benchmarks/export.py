"""Exported files against the conversions of the reference, in the same runtimes.

    python benchmarks/export.py [--model sam2.1-tiny] [--rounds 7] [--jobs decode_points]

Peers, each in a process of its own, two threads, float32, the model's own size, random weights:

    ours, ONNX Runtime       `samgraph export --to onnx`
    torch, ONNX Runtime      the reference by `torch.onnx.export`
    script, ONNX Runtime     the reference by its older exporter, as the public exporters do
    ours, OpenVINO           `samgraph export --to openvino`
    torch, OpenVINO          the reference by `openvino.convert_model`

One click on an encoded image, memory attention with seven frames and 16 pointers. No converter
takes the reference's complex numbers: it rotates in real ones here, as public exporters have it.
What a converter refuses is said and left out.
Needs onnx, onnxruntime, torch and the `sam2` package.
"""

import argparse
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from side_by_side import Peer, compare, serve

Jobs = dict[str, Callable[[], object]]
Arrays = dict[str, np.ndarray]
JOBS = ("image_encoder", "decode_points", "memory_encoder", "memory_attention")
PEERS = ("ours-onnx", "torch-onnx", "script-onnx", "ours-openvino", "torch-openvino")
SEED, FRAMES, POINTERS = 7, 7, 16


def main() -> None:
    """Write the files, then start the peers; or be one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="sam2.1-tiny")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--kind", default="wall", choices=("wall", "cpu"))
    parser.add_argument("--jobs", default=",".join(JOBS))
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--folder", help="where the files are kept; what is there is not rewritten")
    parser.add_argument("--peer", choices=PEERS)
    arguments = parser.parse_args()
    folder = Path(arguments.folder or tempfile.mkdtemp())
    if arguments.peer:
        serve(_jobs(folder, arguments.peer, arguments.threads))
    else:
        _drive(arguments, folder)


def _drive(arguments: argparse.Namespace, folder: Path) -> None:
    jobs, names = arguments.jobs.split(","), arguments.peers.split(",")
    for name in names:
        write(name, arguments.model, jobs, folder / name)
    settings = f"{arguments.threads} threads, {arguments.kind}, {arguments.rounds} rounds"
    print(f"{arguments.model}, {settings}")
    print(f"{'graph':18}" + "".join(f"{name:>16}" for name in names))
    for job in jobs:
        able = [name for name in names if _path(folder, name, job).exists()]
        peers = [_start(arguments, folder, name) for name in able]
        found = compare(peers, [job], arguments.rounds, arguments.kind)[job]
        for peer in peers:
            peer.close()
        cells = [f"{found[n] * 1e3:13.1f} ms" if n in found else f"{'-':>16}" for n in names]
        print(f"{job:18}" + "".join(cells), flush=True)


def _start(arguments: argparse.Namespace, folder: Path, name: str) -> Peer:
    options = ["--folder", str(folder), "--threads", str(arguments.threads), "--peer", name]
    return Peer(name, [sys.executable, str(Path(__file__)), *options])


def _path(folder: Path, peer: str, job: str) -> Path:
    return folder / peer / f"{job}.{'xml' if peer.endswith('-openvino') else 'onnx'}"


def _jobs(folder: Path, peer: str, threads: int) -> Jobs:
    """Runs of every file of a peer, loaded when it is first asked for."""
    open_file = _open_onnx if peer.endswith("-onnx") else _open_openvino
    loaded: dict[str, Callable[[], object]] = {}

    def job(name: str) -> object:
        if name not in loaded:
            loaded[name] = open_file(_path(folder, peer, name), name, threads)
        return loaded[name]()

    return {name: lambda name=name: job(name) for name in JOBS}


def _open_onnx(path: Path, name: str, threads: int) -> Callable[[], object]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feed = _feed(name, [value.name for value in session.get_inputs()])
    return lambda: session.run(None, feed)


def _open_openvino(path: Path, name: str, threads: int) -> Callable[[], object]:
    import openvino

    hints = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads}
    compiled = openvino.Core().compile_model(path, "CPU", hints)
    feed = _feed(name, [value.get_any_name() for value in compiled.inputs])
    request = compiled.create_infer_request()
    return lambda: request.infer(feed, share_inputs=True, share_outputs=True)


def _feed(name: str, wanted: list[str]) -> Arrays:
    return {key: array for key, array in inputs_of(name).items() if key in wanted}


def inputs_of(name: str) -> Arrays:
    """Inputs of a graph of ours, and of the reference's part under the same names."""
    rng = np.random.default_rng(0)

    def random(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, np.float32)

    features = {
        "embedding": random(1, 256, 64, 64),
        "fine_0": random(1, 32, 256, 256),
        "fine_1": random(1, 64, 128, 128),
    }
    if name == "image_encoder":
        return {"image": random(1, 3, 1024, 1024)}
    if name == "decode_points":
        return {
            **features,
            "points": np.full((1, 1, 2), 500, np.float32),
            "labels": np.ones((1, 1), np.int64),
        }
    if name == "memory_encoder":
        return {
            "embedding": features["embedding"],
            "mask": random(1, 1, 256, 256),
            "object_score": np.ones((1, 1), np.float32),
            "binary": np.zeros(1, bool),
        }
    tokens = 4096 * FRAMES + 4 * POINTERS
    return {
        "embedding": features["embedding"],
        "memory": random(1, FRAMES, 4096, 64),
        "slots": np.arange(FRAMES)[None],
        "pointers": random(1, POINTERS, 256),
        "pointer_times": np.linspace(0, 1, POINTERS, dtype=np.float32)[None],
        "current": random(4096, 1, 256),
        "position": random(4096, 1, 256),
        "tokens": random(tokens, 1, 64),
        "tokens_position": random(tokens, 1, 64),
    }


def write(peer: str, model: str, jobs: list[str], folder: Path) -> None:
    """Write the files of a peer that are not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = [job for job in jobs if not _path(folder.parent, peer, job).exists()]
    if not missing:
        return
    if peer.startswith("ours-"):
        _write_ours(model, peer.removeprefix("ours-"), missing, folder)
        return
    for job in missing:
        target = _path(folder.parent, peer, job)
        try:
            _write_theirs(model, peer, job, target)
        except Exception as error:  # whatever a converter raises
            line = (
                str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            )
            print(f"{peer}: {job} is refused: {line[:120]}", flush=True)


def _write_ours(model: str, to: str, jobs: list[str], folder: Path) -> None:
    from samgraph.exporters import ExportOptions
    from samgraph.models.exporting import export_model
    from samgraph.models.loading import load_model
    from samgraph.models.sam2.config import CONFIGS
    from samgraph.models.sam2.graphs import weight_shapes
    from tests.weights import tensor

    shapes = weight_shapes(CONFIGS[model])
    weights = {key: tensor(key, shape, SEED) for key, shape in shapes.items()}
    fixed = {"B": 1, "N": 1, "P": 1}
    loaded = load_model(weights, device="cpu")
    export_model(loaded, to, folder, ExportOptions(fixed=fixed), only=tuple(jobs))


def _write_theirs(model: str, peer: str, job: str, target: Path) -> None:
    import torch

    module, names = _reference_part(model, job)
    if job == "memory_attention":
        _rotate_in_real_numbers(module)
    example = tuple(torch.from_numpy(inputs_of(job)[name]) for name in names)
    warnings.simplefilter("ignore")
    if peer == "script-onnx":
        torch.onnx.export(
            module, example, target, dynamo=False, opset_version=17, input_names=names
        )
        return
    if peer == "torch-onnx":
        program = torch.onnx.export(module, example, dynamo=True, verbose=False, input_names=names)
        if program is None:
            raise SystemExit("torch exported nothing")
        program.optimize()
        program.save(str(target))
        return
    import openvino

    converted = openvino.convert_model(module, example_input=example)
    for port, name in zip(converted.inputs, names, strict=True):
        port.get_tensor().set_names({name})
    shapes = {port: list(x.shape) for port, x in zip(converted.inputs, example, strict=True)}
    converted.reshape(shapes)
    openvino.save_model(converted, target, compress_to_fp16=False)


def _rotate_in_real_numbers(module: Any) -> None:
    """Replace the reference's rotation, which multiplies complex numbers."""
    import torch
    from sam2.modeling.sam import transformer

    for part in module.modules():
        if isinstance(part, transformer.RoPEAttention):
            part.freqs_cis = torch.view_as_real(part.freqs_cis).clone()

    def rotated(x: Any, angles: Any) -> Any:
        cos, sin = angles.repeat(x.shape[-2] // angles.shape[0], 1, 1).unbind(-1)
        a, b = x.reshape(*x.shape[:-1], -1, 2).unbind(-1)
        return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(3)

    def apply(q: Any, k: Any, freqs_cis: Any, repeat_freqs_k: bool = False) -> Any:
        return rotated(q, freqs_cis), rotated(k, freqs_cis)

    transformer.apply_rotary_enc = apply


def _reference_part(model: str, job: str) -> tuple[Any, list[str]]:
    """A part of the reference as a module of tensors alone, and the names of its inputs."""
    import torch

    from tests.parity.reference import build_reference

    whole = build_reference(model.replace("-", "_"), SEED)

    class Encode(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.whole = whole

        def forward(self, image: Any) -> Any:
            maps = self.whole.image_encoder(image)["backbone_fpn"]
            decoder = self.whole.sam_mask_decoder
            return maps[2], decoder.conv_s0(maps[0]), decoder.conv_s1(maps[1])

    class Decode(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.prompts, self.decoder = whole.sam_prompt_encoder, whole.sam_mask_decoder

        def forward(
            self, embedding: Any, fine_0: Any, fine_1: Any, points: Any, labels: Any
        ) -> Any:
            sparse, dense = self.prompts((points, labels), None, None)
            position = self.prompts.get_dense_pe()
            fine = [fine_0, fine_1]
            return self.decoder(embedding, position, sparse, dense, True, False, fine)

    class EncodeMemory(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = whole.memory_encoder

        def forward(self, embedding: Any, mask: Any) -> Any:
            large = torch.nn.functional.interpolate(mask, (1024, 1024), mode="bilinear")
            masks = torch.sigmoid(large) * 20.0 - 10.0
            return self.encoder(embedding, masks, skip_mask_sigmoid=True)["vision_features"]

    class Attend(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = whole.memory_attention

        def forward(self, current: Any, position: Any, tokens: Any, tokens_position: Any) -> Any:
            return self.attention(current, tokens, position, tokens_position, 4 * POINTERS)

    return {
        "image_encoder": (Encode().eval(), ["image"]),
        "decode_points": (Decode().eval(), ["embedding", "fine_0", "fine_1", "points", "labels"]),
        "memory_encoder": (EncodeMemory().eval(), ["embedding", "mask"]),
        "memory_attention": (
            Attend().eval(),
            ["current", "position", "tokens", "tokens_position"],
        ),
    }[job]


if __name__ == "__main__":
    main()
