"""Our graphs against Meta's code, run now, for all eight released models with known weights.

`pytest -rP` shows how far apart they are.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from samgraph.graph import Array
from samgraph.models.sam2.config import CONFIGS
from samgraph.models.sam2.tracker_config import TrackerConfig
from tests import tolerances
from tests.golden.configs import OFFICIAL
from tests.models.sam2.bench import Bench, Outputs, known_weights
from tests.models.sam2.wiring import attention_inputs, pointer_positions

pytestmark = [pytest.mark.parity, pytest.mark.timeout(1200)]
torch = pytest.importorskip("torch")
pytest.importorskip("sam2")
reference = pytest.importorskip("tests.parity.reference")

# Not the seeds of the golden files, and another one for each model: the parts after the encoder
# have the same shapes in all of them, and would have the same weights.
FIRST_SEED = 300


@dataclass(frozen=True, slots=True)
class Pair:
    """The same model twice: Meta's, and ours on OpenVINO."""

    config: TrackerConfig
    theirs: Any
    ours: Bench

    def on_reference_engine(self) -> Bench:
        """Ours again, on the reference engine."""
        return Bench(self.config, self.ours.weights, "reference")


def make_pair(name: str) -> Pair:
    config = CONFIGS[name.replace("_", "-")]
    state = known_weights(config, FIRST_SEED + list(OFFICIAL).index(name))
    known_weights.cache_clear()  # those of large are a gigabyte each
    theirs = reference.build_reference(name, state=state)
    return Pair(config, theirs, Bench(config, state, "openvino"))


@pytest.fixture(scope="module", params=OFFICIAL)
def pair(request: pytest.FixtureRequest) -> Pair:
    return make_pair(request.param)


@pytest.fixture(scope="module", params=["sam2.1_tiny", "sam2_tiny"])
def tiny(request: pytest.FixtureRequest) -> Pair:
    return make_pair(request.param)


def draw(seed: int, *shape: int, scale: float = 1.0) -> Array:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def assert_close(
    found: Mapping[str, Array], wanted: Mapping[str, Array], limits: Mapping[str, float]
) -> None:
    """Every array of `limits` within its limit: absolute for scores, else of the largest value."""
    for name, limit in limits.items():
        a, b = found[name], wanted[name]
        assert a.shape == b.shape, name
        absolute = name in ("ious", "score", "stability")
        error = float(np.abs(a - b).max() / (1.0 if absolute else np.abs(b).max()))
        print(f"{name}: {error:.1e}")
        assert error < limit, name


ENCODED = {
    "vision_features": tolerances.ENCODER_1024,
    "conv_s0": tolerances.ENCODER_1024,
    "conv_s1": tolerances.ENCODER_1024,
}


def encode(bench: Bench, image: Array) -> Outputs:
    found = bench.graph("image_encoder", image=image)
    names = {"vision_features": "embedding", "conv_s0": "fine_0", "conv_s1": "fine_1"}
    return {name: found[key] for name, key in names.items()}


def test_image_encoders_agree(pair: Pair) -> None:
    image = draw(1, 1, 3, 1024, 1024)

    wanted = reference.image_encoder(pair.theirs, image)

    assert_close(encode(pair.ours, image), wanted, ENCODED)


DECODED = {
    "masks": tolerances.DECODER,
    "ious": tolerances.IOU,
    "score": tolerances.OBJECT_SCORE,
    "stability": tolerances.STABILITY,
}
# Two prompts of the same length: clicks, a box and a click, nothing at all.
PROMPTS = {
    "clicks": ([[(300.5, 400), (700, 20)], [(1023, 0), (512, 511)]], [[1, 0], [1, 1]]),
    "box": ([[(10, 20), (600, 900), (50, 60)], [(0, 0), (1024, 1024), (1, 2)]], [[2, 3, 0]] * 2),
    "nothing": ([[(0, 0)], [(9, 9)]], [[-1], [-1]]),
    "absent": ([[(0, 0)], [(9, 9)]], [[-2], [-2]]),
}


def features(config: TrackerConfig, count: int) -> tuple[Array, Array, Array]:
    """Image embeddings and fine maps of `count` images."""
    C, E = config.channels, config.grid
    return (
        draw(2, count, C, E, E),
        draw(3, count, C // 8, 4 * E, 4 * E),
        draw(4, count, C // 4, 2 * E, 2 * E),
    )


def decode(bench: Bench, prompt: str, mask: Array | None, *, multi: bool) -> Outputs:
    xy, labels = PROMPTS[prompt]
    embedding, fine_0, fine_1 = features(bench.config, 2)
    side = bench.config.mask_size
    return bench.graph(
        "decode",
        embedding=embedding,
        fine_0=fine_0,
        fine_1=fine_1,
        points=np.array(xy, np.float32),
        labels=np.array(labels, np.int64),
        mask=np.zeros((2, 1, side, side), np.float32) if mask is None else mask,
        has_mask=np.full(2, mask is not None),
        no_memory=np.full(2, False),
        multimask=np.full(2, multi),
    )


def check_masks(theirs: Any, bench: Bench, prompt: str, mask: Array | None) -> None:
    """All four masks of the decoder."""
    xy, labels = PROMPTS[prompt]
    points = (np.array(xy, np.float32), np.array(labels, np.int32))
    if prompt == "absent":  # a mask alone, as the image predictor gives it
        sparse, dense = reference.prompt_encoder(theirs, masks=mask)
    else:
        sparse, dense = reference.prompt_encoder(theirs, *points, masks=mask)
    wanted = reference.mask_decoder(
        theirs, *_in_order(features(bench.config, 2), sparse, dense), multimask=True
    )
    for name, key in (("masks", "all_masks"), ("ious", "all_ious"), ("score", "object_score")):
        wanted[name] = wanted[key]

    found = decode(bench, prompt, mask, multi=True)

    assert_close(found | {"score": found["object_score"]}, wanted, DECODED)


def _in_order(maps: tuple[Array, Array, Array], sparse: Array, dense: Array) -> tuple[Array, ...]:
    embedding, fine_0, fine_1 = maps
    return embedding, sparse, dense, fine_0, fine_1


def check_answer(theirs: Any, bench: Bench, prompt: str, mask: Array | None, multi: bool) -> None:
    """What video makes of the masks: the best one, and its pointer, where the object is seen."""
    xy, labels = PROMPTS[prompt]
    points = {"coords": np.array(xy, np.float32), "labels": np.array(labels, np.int32)}
    wanted = reference.sam_heads(
        theirs, *features(bench.config, 2), **points, mask=mask, multimask=multi
    )

    found = decode(bench, prompt, mask, multi=multi)

    named = {"low": found["best_mask"], "ptr": found["pointer"], "score": found["object_score"]}
    limits = {"low": tolerances.DECODER, "ptr": tolerances.DECODER, "score": DECODED["score"]}
    assert_close(named, wanted, limits)


@pytest.mark.parametrize("prompt", ["clicks", "box", "nothing"])
def test_all_masks_agree(pair: Pair, prompt: str) -> None:
    check_masks(pair.theirs, pair.ours, prompt, None)


@pytest.mark.parametrize("prompt", ["clicks", "absent"])
def test_all_masks_agree_with_a_mask_prompt(pair: Pair, prompt: str) -> None:
    check_masks(pair.theirs, pair.ours, prompt, draw(5, 2, 1, 256, 256, scale=5))


@pytest.mark.parametrize(
    ("prompt", "multi"), [("nothing", True), ("clicks", False), ("box", False)]
)
def test_the_answers_agree(pair: Pair, prompt: str, multi: bool) -> None:
    check_answer(pair.theirs, pair.ours, prompt, None, multi)


def test_mask_prompts_agree(pair: Pair) -> None:
    size = pair.config.image_size
    mask = (draw(6, 2, 1, 16, 16) > 0).repeat(64, 2).repeat(64, 3).astype(np.float32)
    maps = features(pair.config, 2)
    wanted = reference.mask_as_output(pair.theirs, *maps, mask)

    shape = pair.ours.graph("mask_prompt", mask=mask)
    found = decode(pair.ours, "nothing", shape["prompt"], multi=False)

    assert mask.shape == (2, 1, size, size)
    limits = {"low": tolerances.DECODER, "ptr": tolerances.DECODER}
    assert_close({"low": shape["logits"], "ptr": found["pointer"]}, wanted, limits)


def check_memory_encoder(theirs: Any, bench: Bench) -> None:
    """Two objects of one image, the second occluded; soft and hard masks."""
    C, E, side = bench.config.channels, bench.config.grid, bench.config.mask_size
    embedding, mask = draw(7, 1, C, E, E), draw(8, 2, 1, side, side, scale=5)
    score = np.array([[0.5], [-0.5]], np.float32)
    full = torch.nn.functional.interpolate(
        torch.from_numpy(mask), size=(4 * side, 4 * side), mode="bilinear", align_corners=False
    ).numpy()
    pixels = embedding.reshape(1, C, -1).transpose(2, 0, 1).repeat(2, axis=1)
    for hard in (False, True):
        wanted = reference.memory_encoder(theirs, pixels, full, score, binarize=hard)
        found = bench.graph(
            "memory_encoder",
            embedding=embedding,
            mask=mask,
            object_score=score,
            binary=np.full(2, hard),
        )
        memory = found["memory"].transpose(0, 2, 1).reshape(wanted["features"].shape)
        limits = {"features": tolerances.MEMORY_ENCODER}
        assert_close({"features": memory}, wanted, limits)


def test_memory_encoders_agree(pair: Pair) -> None:
    check_memory_encoder(pair.theirs, pair.ours)


def check_memory_attention(theirs: Any, bench: Bench, N: int, F: int, Q: int) -> None:
    """N objects with F frames and Q pointers; positions as `_prepare_memory_...` makes them."""
    config = bench.config
    inputs = attention_inputs(config, N, F, Q, seed=9)
    C, E, small = config.channels, config.grid, config.memory_channels
    embedding = theirs.memory_encoder.position_encoding(torch.zeros(1, small, E, E))
    embedding = embedding.flatten(2).permute(2, 0, 1).numpy()  # [E*E, 1, 64]
    times = theirs.maskmem_tpos_enc.numpy()[inputs["slots"]].reshape(N, F, 1, small)
    frames = (times + embedding[None, None, :, 0]).reshape(N, -1, small)
    position = np.concatenate([frames, pointer_positions(bench, inputs)], axis=1)
    tokens = inputs["pointers"].reshape(N, -1, small)
    memory = np.concatenate([inputs["memory"].reshape(N, -1, small), tokens], axis=1)
    current = inputs["embedding"].reshape(1, C, -1).transpose(2, 0, 1)
    current_place = theirs.image_encoder.neck.position_encoding(torch.zeros(1, C, E, E))
    current_place = current_place.flatten(2).permute(2, 0, 1).numpy()
    wanted = reference.memory_attention(
        theirs,
        current.repeat(N, axis=1),
        current_place.repeat(N, axis=1),
        memory.transpose(1, 0, 2),
        position.transpose(1, 0, 2),
        tokens.shape[1],
    )

    found = bench.graph("memory_attention", **inputs)["embedding"]

    found = found.reshape(N, C, -1).transpose(2, 0, 1)
    assert_close({"out": found}, wanted, {"out": tolerances.MEMORY_ATTENTION})


@pytest.mark.parametrize(("F", "Q"), [(1, 0), (3, 2), (7, 16)])
def test_memory_attentions_agree(pair: Pair, F: int, Q: int) -> None:
    check_memory_attention(pair.theirs, pair.ours, 2, F, Q)


# Tiny, both versions: the reference engine, and the reference's own bookkeeping of memories.


def test_the_reference_engine_agrees_on_an_image(tiny: Pair) -> None:
    image = draw(1, 1, 3, 1024, 1024)

    wanted = reference.image_encoder(tiny.theirs, image)

    assert_close(encode(tiny.on_reference_engine(), image), wanted, ENCODED)


def test_the_reference_engine_agrees_on_prompts(tiny: Pair) -> None:
    bench = tiny.on_reference_engine()

    check_masks(tiny.theirs, bench, "clicks", draw(5, 2, 1, 256, 256, scale=5))
    check_answer(tiny.theirs, bench, "box", None, multi=False)


def test_the_reference_engine_agrees_on_memories(tiny: Pair) -> None:
    bench = tiny.on_reference_engine()

    check_memory_encoder(tiny.theirs, bench)
    check_memory_attention(tiny.theirs, bench, 1, 1, 0)
    check_memory_attention(tiny.theirs, bench, 1, 2, 3)


@dataclass(frozen=True, slots=True)
class Past:
    """Frames remembered before frame `now` of a video of `length` frames."""

    now: int
    length: int
    conditioning: tuple[int, ...]
    tracked: tuple[int, ...]
    reverse: bool = False


PASTS = {
    "a bank that is full": Past(20, 30, (0,), tuple(range(1, 20))),
    "two prompts, one of them in the future": Past(6, 9, (0, 8), (3, 4, 5)),
    "only the future": Past(2, 5, (4,), ()),
    "backwards": Past(3, 12, (9,), (4, 5, 6, 8), reverse=True),
    "a short video": Past(2, 3, (0,), (1,)),
}


@pytest.mark.parametrize("case", PASTS)
def test_remembering_agrees_from_slots_and_times(tiny: Pair, case: str) -> None:
    """The whole of the reference's `_prepare_memory_conditioned_features`."""
    past, config, side = PASTS[case], tiny.config, tiny.config.grid
    frames = (*past.conditioning, *past.tracked)
    memories = {t: draw(100 + t, 1, config.memory_channels, side, side) for t in frames}
    pointers = {t: draw(200 + t, 1, config.channels) for t in frames}
    embedding = draw(10, 1, config.channels, side, side)
    wanted = _their_features(tiny.theirs, past, embedding, memories, pointers)

    remembered, sources = _remembered(past), _pointer_sources(past)
    longest = min(past.length, config.max_pointers) - 1
    times = [[distance / longest for _, distance in sources]]
    stacked = [pointers[t] for t, _ in sources]
    found = tiny.ours.graph(
        "memory_attention",
        embedding=embedding,
        memory=np.stack(
            [memories[t].reshape(1, config.memory_channels, -1) for t, _ in remembered], axis=1
        ).transpose(0, 1, 3, 2),
        slots=np.array([[slot for _, slot in remembered]], np.int64),
        pointers=np.stack([np.zeros_like(pointers[frames[0]]), *stacked], axis=1)[:, 1:],
        pointer_times=np.array(times, np.float32).reshape(1, -1),
    )

    assert_close(found, wanted, {"embedding": tolerances.MEMORY_ATTENTION})


def _remembered(past: Past) -> list[tuple[int, int]]:
    """Each remembered frame and its slot: prompted frames, then six more, oldest first."""
    step = 1 if past.reverse else -1
    nearer = [(past.now + step * back, back - 1) for back in range(6, 0, -1)]
    return [
        *((t, 6) for t in past.conditioning),
        *((t, slot) for t, slot in nearer if t in past.tracked),
    ]


def _pointer_sources(past: Past) -> list[tuple[int, int]]:
    """Each frame that lends its pointer, with its distance, which counts up into the past."""
    sign = -1 if past.reverse else 1
    prompted = [(t, (past.now - t) * sign) for t in past.conditioning if (past.now - t) * sign >= 0]
    limit = min(past.length, 16)
    nearer = [(past.now - sign * back, back) for back in range(1, limit)]
    return [*prompted, *((t, back) for t, back in nearer if t in past.tracked)]


def _their_features(
    theirs: Any,
    past: Past,
    embedding: Array,
    memories: Mapping[int, Array],
    pointers: Mapping[int, Array],
) -> Outputs:
    """The reference's features of the current frame, after memory attention."""
    side, small = embedding.shape[-1], theirs.mem_dim
    embedding = theirs.memory_encoder.position_encoding(torch.zeros(1, small, side, side))
    kept = {
        t: {
            "maskmem_features": torch.from_numpy(memories[t]),
            "maskmem_pos_enc": [embedding],
            "obj_ptr": torch.from_numpy(pointers[t]),
        }
        for t in memories
    }
    current = torch.from_numpy(embedding)
    position = theirs.image_encoder.neck.position_encoding(current)
    with torch.inference_mode():
        features = theirs._prepare_memory_conditioned_features(
            frame_idx=past.now,
            is_init_cond_frame=False,
            current_vision_feats=[current.flatten(2).permute(2, 0, 1)],
            current_vision_pos_embeds=[position.flatten(2).permute(2, 0, 1)],
            feat_sizes=[(side, side)],
            output_dict={
                "cond_frame_outputs": {t: kept[t] for t in past.conditioning},
                "non_cond_frame_outputs": {t: kept[t] for t in past.tracked},
            },
            num_frames=past.length,
            track_in_reverse=past.reverse,
        )
    return {"embedding": features.numpy()}
