"""Our graphs against the transformers library, run now, from picture to mask and over a video.

A second reference, written by other people; tiny, with the same known weights on both sides.
`pytest -rP` shows how far apart they are.
"""

from typing import Any

import numpy as np
import pytest

from samgraph.checkpoint.transformers_names import meta_name
from samgraph.graph import Array
from samgraph.models.sam2.config import CONFIGS
from tests import tolerances
from tests.models.sam2.bench import Bench, Outputs, known_weights, rows
from tests.models.sam2.decoder_parts import NOTHING, Points, uncovered

pytestmark = [pytest.mark.parity, pytest.mark.timeout(1200)]
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
library = pytest.importorskip("tests.parity.transformers_reference")

SEED = 330
# Added to the object score, so that the object of the video is seen on every frame.
SCORE_BIAS = ("sam_mask_decoder.pred_obj_score_head.layers.2.bias", 6.0)
CONFIG = CONFIGS["sam2.1-tiny"]
FRAMES = 4
CLICK: Points = (np.array([[[410.5, 300.0]]], np.float32), np.array([[1]], np.int64))
# Half a unit in the last place of bfloat16, in which the library keeps its memories.
BF16_ROUNDING = 2.0**-8


@pytest.fixture(scope="module")
def ours() -> Bench:
    name, bias = SCORE_BIAS
    weights = known_weights(CONFIG, SEED) | {name: np.full(1, bias, np.float32)}
    return Bench(CONFIG, weights, "openvino")


def video_frames() -> Array:
    """Frames that resemble each other: noise that fades into other noise."""
    rng = np.random.default_rng(0)
    first, last = rng.standard_normal((2, 3, 1024, 1024), np.float32)
    mixed = [first * np.cos(t * 0.2) + last * np.sin(t * 0.2) for t in range(FRAMES)]
    return np.stack(mixed).astype(np.float32)


def assert_close(name: str, found: Array, wanted: Array, limit: float, scale: float = 0.0) -> None:
    """Within `limit` of the largest value, or of `scale`."""
    error = float(np.abs(found - wanted).max() / (scale or np.abs(wanted).max()))
    print(f"{name}: {error:.1e}")
    assert found.shape == wanted.shape
    assert error < limit


def decode(
    bench: Bench, maps: Outputs, prompt: Points, *, no_memory: bool, multi: bool = True
) -> Outputs:
    count, side = len(prompt[0]), CONFIG.mask_size
    return bench.graph(
        "decode",
        **{name: rows(array, count) for name, array in maps.items()},
        points=prompt[0],
        labels=prompt[1],
        mask=np.zeros((count, 1, side, side), np.float32),
        has_mask=np.full(count, False),
        no_memory=np.full(count, no_memory),
        multimask=np.full(count, multi),
    )


# One image.


@pytest.fixture(scope="module")
def image_model(ours: Bench) -> Any:
    give = library.state_from_meta(ours.weights, meta_name)
    return library.build_transformers("sam2.1_tiny", state_for=give)


@pytest.mark.parametrize("multi", [True, False])
def test_masks_of_a_picture_agree(ours: Bench, image_model: Any, multi: bool) -> None:
    image = video_frames()[:1]
    xy = np.array([[[300, 400], [700, 20]], [[1000, 5], [512, 511]]], np.float32)
    labels = np.array([[1, 0], [1, 1]], np.int64)
    wanted = library.segment(image_model, image, xy, labels, multimask=multi)

    maps = ours.graph("image_encoder", image=image)
    found = decode(ours, maps, (xy, labels), no_memory=True, multi=multi)

    seen = found["object_score"] > 0
    masks = found["masks"][:, 1:] if multi else uncovered(found, seen)
    ious = found["ious"][:, 1:] if multi else found["best_iou"]
    assert_close("masks", masks, wanted["masks"], tolerances.DECODER)
    assert_close("ious", ious, wanted["ious"], tolerances.IOU, 1.0)
    assert_close("score", found["object_score"], wanted["score"], tolerances.OBJECT_SCORE, 1.0)


# A video.


@pytest.fixture(scope="module")
def tracked(ours: Bench) -> dict[int, dict[str, Array]]:
    """What the library keeps of each frame: a click on the first, then tracking."""
    model = transformers.Sam2VideoModel(transformers.Sam2VideoConfig()).eval()
    names = list(model.state_dict())
    state = library.state_from_meta(ours.weights, meta_name)(names)
    model.load_state_dict({name: torch.from_numpy(np.array(state[name])) for name in names})
    module = __import__(model.__module__, fromlist=["Sam2VideoInferenceSession"])
    session = module.Sam2VideoInferenceSession(
        video=torch.from_numpy(video_frames()),
        video_height=1024,
        video_width=1024,
        dtype=torch.float32,
    )
    session.obj_id_to_idx(1)
    coords, labels = (torch.from_numpy(array)[None] for array in CLICK)
    session.add_point_inputs(0, 0, {"point_coords": coords, "point_labels": labels})
    session.obj_with_new_inputs = [1]
    for t in range(FRAMES):
        model(session, frame_idx=t)
    kept = session.output_dict_per_obj[0]
    frames = kept["cond_frame_outputs"] | kept["non_cond_frame_outputs"]
    assert list(kept["cond_frame_outputs"]) == [0]
    return {t: _arrays(frame) for t, frame in frames.items()}


def _arrays(frame: dict[str, Any]) -> dict[str, Array]:
    wanted = ("pred_masks", "object_pointer", "object_score_logits", "maskmem_features")
    return {name: frame[name].float().numpy().copy() for name in wanted}


def follow(bench: Bench, t: int, memories: list[Array], pointers: list[Array]) -> Outputs:
    """Frame t from the memories [HW, 64] and pointers [1, 256] of all frames before it."""
    maps = bench.graph("image_encoder", image=video_frames()[t : t + 1])
    if t == 0:
        return decode(bench, maps, CLICK, no_memory=True)
    order = [0, *range(t - 1, 0, -1)]  # the prompted frame, then the nearest first
    times = [t, *range(1, t)]
    remembered = bench.graph(
        "memory_attention",
        embedding=maps["embedding"],
        memory=np.stack(memories)[None],
        slots=np.array([[6, *range(t - 2, -1, -1)]]),
        pointers=np.stack([pointers[i] for i in order], axis=1),
        pointer_times=np.array([times], np.float32) / np.float32(FRAMES - 1),
    )
    return decode(bench, maps | remembered, NOTHING, no_memory=False)


def remember(bench: Bench, t: int, mask: Array, score: Array) -> Array:
    """The memory [HW, 64] of frame t with this mask [1, 1, 256, 256]."""
    maps = bench.graph("image_encoder", image=video_frames()[t : t + 1])
    memory = bench.graph(
        "memory_encoder",
        embedding=maps["embedding"],
        mask=mask,
        object_score=score,
        binary=np.array([t == 0]),
    )
    first: Array = memory["memory"][0]
    return first


def test_each_frame_agrees_from_the_same_memories(
    ours: Bench, tracked: dict[int, dict[str, Array]]
) -> None:
    memories = [tracked[t]["maskmem_features"][:, 0] for t in range(FRAMES)]
    pointers = [tracked[t]["object_pointer"].reshape(1, -1) for t in range(FRAMES)]
    for t in range(FRAMES):
        wanted = tracked[t]
        found = follow(ours, t, memories[:t], pointers[:t])

        limit = tolerances.VIDEO_LOGITS_1024
        assert wanted["object_score_logits"] > 0
        assert_close(f"{t} mask", found["best_mask"][0], wanted["pred_masks"][0], limit, 1.0)
        assert_close(f"{t} pointer", found["pointer"], pointers[t], tolerances.DECODER * 5)
        score = wanted["object_score_logits"].reshape(1, 1)
        limit = tolerances.VIDEO_SCORE_1024
        assert_close(f"{t} score", found["object_score"], score, limit, 1.0)
        # From the library's mask: hardened, a logit near zero may fall on either side.
        memory = remember(ours, t, wanted["pred_masks"], score)
        assert_close(f"{t} memory", memory, memories[t], BF16_ROUNDING)


def test_a_video_agrees_from_its_own_memories(
    ours: Bench, tracked: dict[int, dict[str, Array]]
) -> None:
    memories: list[Array] = []
    pointers: list[Array] = []
    for t in range(FRAMES):
        found = follow(ours, t, memories, pointers)
        memory = remember(ours, t, found["best_mask"], found["object_score"])
        rounded = torch.from_numpy(memory).bfloat16().float().numpy()
        memories, pointers = [*memories, rounded], [*pointers, found["pointer"]]

        wanted = tracked[t]["pred_masks"][0]
        rms = float(np.sqrt(np.mean((found["best_mask"][0] - wanted) ** 2)) / wanted.std())
        print(f"{t}: rms {rms:.1e} of the deviation")
        assert rms < tolerances.VIDEO_BF16_LOGITS_RMS
