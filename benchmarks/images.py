"""Clicks and automatic masks against the reference in torch and against ONNX Runtime.

    python benchmarks/images.py [--image photo.jpg] [--rounds 7] [--jobs click,box,rle]

    click        a click on an encoded image, from the prompt to three masks at image size
    box          the same for a box, one mask
    everything   automatic masks with the default 32 x 32 grid, from the image to the list of dicts;
                 two rounds at most, as each takes the reference a minute or two
    rle          run-length encoding of 1000 masks of 1024 x 1024, against pycocotools
    memory       what automatic masks of a 12 megapixel photograph take beyond encoding it (ours
                 alone: the reference holds 192 masks of that size as floats, which is 9 GB)

All on two threads, float32, 1024 pixels, the same random weights. The peers are the reference's
own predictor in torch, and ONNX Runtime running torch's export of prompt encoder and decoder;
`onnxruntime` grows masks inside its graph, `onnxruntime+` the way we do, which is faster. Needs
torch, `sam2`, `onnx`, `onnxscript`, `onnxruntime` and `pycocotools` for the peers.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from side_by_side import Peer, compare, serve

PEERS = {
    "click": ("samgraph", "torch", "onnxruntime", "onnxruntime+"),
    "box": ("samgraph", "torch", "onnxruntime", "onnxruntime+"),
    "everything": ("samgraph", "torch"),
    "rle": ("samgraph", "pycocotools"),
    "memory": ("samgraph",),
}
POINT, BOX = (500.0, 375.0), (425.0, 600.0, 700.0, 875.0)
SEED = 13
# With random weights nothing passes the default thresholds, and every mask has pixels all over the
# image. With these, a third of the 3072 masks is looked at in full size,
# a third of those is steady enough, and some sixty are left when boxes have been compared.
THRESHOLDS = {
    "pred_iou_thresh": 0.5,
    "stability_score_thresh": 0.2,
    "mask_threshold": 7.0,
    "box_nms_thresh": 0.98,
}
EVERYTHING_ROUNDS = 2
LARGE_HW = (3000, 4000)


def main() -> None:
    """Start the peers, or be one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="sam2.1-tiny")
    parser.add_argument("--image", help="A photograph; a drawn one of 1800 x 1200 if not given.")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--jobs", default="click,box,rle")
    parser.add_argument("--kind", default="wall", choices=("wall", "cpu"))
    parser.add_argument("--torch-python", default=sys.executable)
    parser.add_argument("--peer", choices=sorted({name for row in PEERS.values() for name in row}))
    arguments = parser.parse_args()
    if arguments.peer:
        serve_peer(arguments)
    else:
        drive(arguments)


def drive(arguments: argparse.Namespace) -> None:
    """Run every job on its peers."""
    print(f"{arguments.model}, {arguments.threads} threads, {arguments.kind} time, medians")
    for job in arguments.jobs.split(","):
        peers = [_start(arguments, name) for name in PEERS[job]]
        if job == "memory":
            report_memory(peers[0])
        else:
            report_times(arguments, job, peers)
        for peer in peers:
            peer.close()


def report_times(arguments: argparse.Namespace, job: str, peers: list[Peer]) -> None:
    """Print the median of each peer, how much slower it is than we are, and its memory."""
    if job == "everything":
        times = time_everything(arguments, peers)
    else:
        times = compare(peers, [job], arguments.rounds, arguments.kind)[job]
    for peer in peers:
        ratio = times[peer.name] / times["samgraph"]
        peak = peer.ask("memory")["peak"]
        print(
            f"{job:12} {peer.name:14} {times[peer.name] * 1e3:10.1f} ms {ratio:6.2f}x"
            f" {peak:8.0f} MB",
            flush=True,
        )


def time_everything(arguments: argparse.Namespace, peers: list[Peer]) -> dict[str, float]:
    """Minutes a round, so only a few, after a click that gets things ready."""
    for peer in peers:
        peer.ask("click")
    times: dict[str, list[float]] = {peer.name: [] for peer in peers}
    for _ in range(min(arguments.rounds, EVERYTHING_ROUNDS)):
        for peer in peers:
            times[peer.name].append(peer.ask("everything")[arguments.kind])
    return {name: statistics.median(values) for name, values in times.items()}


def report_memory(peer: Peer) -> None:
    """Print the peak after encoding a large photograph, and after finding everything in it."""
    peaks = []
    for job in ("large_image", "large_everything"):
        peer.ask(job)
        peaks.append(peer.ask("memory")["peak"])
    print(
        f"{'memory':12} {peer.name:14} {peaks[0]:8.0f} MB encoding, {peaks[1]:8.0f} MB everything,"
        f" {peaks[1] - peaks[0]:8.0f} MB more",
        flush=True,
    )


def _start(arguments: argparse.Namespace, name: str) -> Peer:
    python = sys.executable if name == "samgraph" else arguments.torch_python
    options = ["--model", arguments.model, "--threads", str(arguments.threads)]
    options += ["--image", arguments.image] if arguments.image else []
    return Peer(name, [python, str(Path(__file__)), "--peer", name, *options])


def serve_peer(arguments: argparse.Namespace) -> None:
    """Answer the driver with the jobs of one peer, prepared when first asked for."""
    if arguments.peer == "samgraph":
        jobs = Samgraph(arguments)
    elif arguments.peer == "torch":
        jobs = Torch(arguments)
    elif arguments.peer == "pycocotools":
        jobs = Pycocotools(arguments)
    else:
        jobs = OnnxRuntime(arguments)
    names = [name for name in (*PEERS, "large_image", "large_everything") if hasattr(jobs, name)]
    serve({name: getattr(jobs, name) for name in names})


def photograph(path: str | None, size_hw: tuple[int, int] = (1200, 1800)) -> np.ndarray:
    """The image, or a drawn one with objects of many sizes."""
    if path:
        from PIL import Image

        return np.asarray(Image.open(path).convert("RGB"))
    rng = np.random.default_rng(0)
    height, width = size_hw
    scale = height / 1200
    y, x = np.mgrid[:height, :width].astype(np.int32)
    image = np.stack([x // 8, y // 6, (x + y) // 12], -1).astype(np.uint8)
    for _ in range(60):
        cy, cx, radius = rng.integers(0, 1200), rng.integers(0, 1800), rng.integers(10, 160)
        inside = np.hypot(y - cy * scale, x - cx * scale) < radius * scale
        image[inside] = rng.integers(0, 255, 3)
    return image


def _large_photograph() -> bytes:
    """A file, made by another process: drawing takes more memory than what is measured."""
    script = f"import images, sys; images.write_photograph({LARGE_HW}, sys.stdout.buffer)"
    return subprocess.run([sys.executable, "-c", script], check=True, capture_output=True).stdout


def write_photograph(size_hw: tuple[int, int], target: Any) -> None:
    """A drawn photograph as a JPEG file."""
    from PIL import Image

    Image.fromarray(photograph(None, size_hw)).save(target, "JPEG", quality=95)


@cache
def thousand_masks() -> np.ndarray:
    """Blobs of every size, with holes: [1000, 1024, 1024]."""
    y, x = np.mgrid[:1024, :1024]
    rng = np.random.default_rng(0)
    kinds = []
    for _ in range(50):
        mask = np.zeros((1024, 1024), np.bool_)
        for _ in range(4):
            cy, cx, radius = *rng.integers(0, 1024, 2), rng.integers(20, 300)
            mask ^= (y - cy) ** 2 + (x - cx) ** 2 < radius**2
        kinds.append(mask)
    return np.stack([kinds[i % 50] for i in range(1000)])


class Samgraph:
    """Ours."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments

    @property
    def model(self) -> Any:
        """The model, loaded once."""
        return _our_model(self.arguments.model, self.arguments.threads)

    @cache  # noqa: B019  (lives as long as the process)
    def _image(self) -> Any:
        return self.model.image(photograph(self.arguments.image))

    def click(self) -> None:
        """Prompt to three masks."""
        assert self._image().predict(points=[POINT], labels=[1]).masks.shape[0] == 3

    def box(self) -> None:
        """Prompt to one mask."""
        assert self._image().predict(box=BOX, multimask=False).masks.shape[0] == 1

    def everything(self) -> None:
        """Image to list of dicts."""
        image = photograph(self.arguments.image)
        found = self.model.everything(image, progress=False, **THRESHOLDS)
        print(f"samgraph: {len(found.to_sam_dicts())} masks", file=sys.stderr)

    def large_image(self) -> None:
        """A 12 megapixel photograph, encoded."""
        self.model.image(_large_photograph())

    def large_everything(self) -> None:
        """Everything in it."""
        found = self.model.everything(_large_photograph(), progress=False, **THRESHOLDS)
        print(f"samgraph: {len(found)} masks", file=sys.stderr)

    def rle(self) -> None:
        """A thousand masks."""
        from samgraph.media.mask.rle import encode_many

        assert len(encode_many(thousand_masks())) == 1000


@cache
def _our_model(name: str, threads: int) -> Any:
    from samgraph.models.sam2.config import CONFIGS
    from samgraph.models.sam2.graphs import weight_shapes
    from samgraph.predict.model import load
    from samgraph.runtime import CompileOptions
    from tests.weights import tensor

    weights = {key: tensor(key, s, SEED) for key, s in weight_shapes(CONFIGS[name]).items()}
    return load(weights, options=CompileOptions(threads=threads, cache=False))


class Torch:
    """The reference."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        import torch

        torch.set_num_threads(arguments.threads)
        torch.set_grad_enabled(False)
        self.arguments = arguments

    @cache  # noqa: B019  (lives as long as the process)
    def _predictor(self) -> Any:
        from tests.golden.image import image_predictor
        from tests.parity.reference import build_reference

        return image_predictor(build_reference(self.arguments.model.replace("-", "_"), SEED))

    @cache  # noqa: B019  (lives as long as the process)
    def _ready(self) -> Any:
        predictor = self._predictor()
        predictor.set_image(photograph(self.arguments.image))
        return predictor

    def click(self) -> None:
        """Prompt to three masks."""
        self._ready().predict(np.array([POINT]), np.array([1]), multimask_output=True)

    def box(self) -> None:
        """Prompt to one mask."""
        self._ready().predict(box=np.array(BOX), multimask_output=False)

    def everything(self) -> None:
        """Image to list of dicts."""
        from tests.parity import torchvision_stand_in

        with torchvision_stand_in.installed():
            from sam2.automatic_mask_generator import SAM2AutomaticMaskGenerator
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            generator = SAM2AutomaticMaskGenerator(self._predictor().model, **THRESHOLDS)
        found = generator.generate(photograph(self.arguments.image))
        print(f"torch: {len(found)} masks", file=sys.stderr)


class OnnxRuntime:
    """Torch's export of prompt encoder and mask decoder, run by ONNX Runtime."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.grows_inside = arguments.peer == "onnxruntime"
        self.torch = Torch(arguments)

    def _run(self, points: np.ndarray, labels: np.ndarray, masks: slice) -> None:
        session, features, size_hw = self._session(points.shape[1], masks.start, masks.stop)
        found = session.run(None, {**features, "points": points, "labels": labels})
        if not self.grows_inside:
            from samgraph.media.image.preprocess import upscale_masks

            upscale_masks(found[0][0], size_hw)

    @cache  # noqa: B019  (lives as long as the process)
    def _session(self, count: int, first: int, last: int) -> tuple[Any, dict[str, Any], Any]:
        import onnxruntime

        predictor = self.torch._ready()
        size_hw = tuple(int(n) for n in predictor._orig_hw[0])
        features = {"embedding": predictor._features["image_embed"].numpy()}
        for i, fine in enumerate(predictor._features["high_res_feats"]):
            features[f"fine_{i}"] = fine.numpy()
        path = export_decoder(
            predictor.model, features, count, (first, last), size_hw if self.grows_inside else None
        )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.arguments.threads
        return onnxruntime.InferenceSession(path, options), features, size_hw

    def click(self) -> None:
        """Prompt to three masks."""
        points = (np.array([[POINT]]) / [1800, 1200] * 1024).astype(np.float32)
        self._run(points, np.ones((1, 1), np.int32), slice(1, 4))

    def box(self) -> None:
        """Prompt to one mask."""
        points = (np.array([BOX]).reshape(1, 2, 2) / [1800, 1200] * 1024).astype(np.float32)
        self._run(points, np.array([[2, 3]], np.int32), slice(0, 1))


def export_decoder(
    model: Any, features: dict[str, Any], count: int, which: tuple[int, int], size_hw: Any
) -> str:
    """Write the decoder as ONNX, with fixed shapes, which is what ONNX Runtime likes best."""
    import torch

    class Decoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.prompt_encoder, self.decoder = model.sam_prompt_encoder, model.sam_mask_decoder
            self.register_buffer("position", self.prompt_encoder.get_dense_pe())

        def forward(
            self, embedding: Any, fine_0: Any, fine_1: Any, points: Any, labels: Any
        ) -> tuple[Any, Any]:
            sparse, dense = self.prompt_encoder(points=(points, labels), boxes=None, masks=None)
            masks, ious, _, _ = self.decoder.predict_masks(
                image_embeddings=embedding,
                image_pe=self.position,
                sparse_prompt_embeddings=sparse,
                dense_prompt_embeddings=dense,
                repeat_image=False,
                high_res_features=[fine_0, fine_1],
            )
            masks = masks[:, which[0] : which[1]]
            if size_hw is not None:
                masks = torch.nn.functional.interpolate(
                    masks, size_hw, mode="bilinear", align_corners=False
                )
                masks = masks > 0
            return masks, ious

    given = tuple(torch.from_numpy(features[name]) for name in ("embedding", "fine_0", "fine_1"))
    given += (torch.zeros(1, count, 2), torch.ones(1, count, dtype=torch.int32))
    path = str(Path(tempfile.mkdtemp()) / "decoder.onnx")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            Decoder().eval(),
            given,
            input_names=["embedding", "fine_0", "fine_1", "points", "labels"],
            dynamo=True,
            verbose=False,
        )
        program.optimize()
        program.save(path)
    return path


class Pycocotools:
    """COCO's own C code."""

    def __init__(self, _: argparse.Namespace) -> None:
        self._masks: Any = None

    def rle(self) -> None:
        """A thousand masks, one by one as its wrapper takes them."""
        from pycocotools import mask as coco

        for mask in thousand_masks():
            coco.encode(np.asfortranarray(mask))


if __name__ == "__main__":
    main()
