"""Recorded sessions of the sister models, replayed call by call: `shared`, memory in float32.

EdgeTAM is held to SAM 2's session of an object each (`video_edgetam_perobj`), which is ours.
"""

import copy

import pytest

from samgraph.models.loading import find_config, load_model
from samgraph.runtime import CompileOptions
from tests.compat.sessions import Limits, faults, predictor_for, recorded_reads, replay
from tests.compat.test_video_goldens import bedroom
from tests.golden.reading import Golden, families_dir
from tests.models.sister_components import sister_weights
from tests.tolerances import VIDEO_LOGITS, VIDEO_PIXELS, VIDEO_SCORE
from tests.tolerances import VIDEO_MEMORY_SISTERS as MEMORY
from tests.tolerances import VIDEO_POINTER_SISTERS as POINTER

pytestmark = [pytest.mark.shared("golden-families"), pytest.mark.timeout(1800)]
LIMITS = Limits(VIDEO_LOGITS, VIDEO_SCORE, POINTER, MEMORY, VIDEO_PIXELS, is_absolute=True)
VIDEOS = {"edgetam_perobj": "edgetam", "efficienttam_s_512x512": "efficienttam-s-512x512"}


def first_frames(golden: Golden, count: int) -> Golden:
    """The session up to some frames of its first propagation."""
    short = copy.copy(golden)
    events = copy.deepcopy(golden.meta["events"][:3])
    events[2]["args"]["max_frame_num_to_track"] = count - 1
    events[2]["frames"] = events[2]["frames"][:count]
    short.meta = {**golden.meta, "events": events}
    return short


@pytest.mark.parametrize(
    ("video", "engine", "frames"),
    [
        ("efficienttam_s_512x512", "openvino", 0),
        ("efficienttam_s_512x512", "torch", 3),
        ("efficienttam_s_512x512", "onnxruntime", 3),
        ("edgetam_perobj", "openvino", 0),
        ("edgetam_perobj", "torch", 2),
        ("edgetam_perobj", "onnxruntime", 2),
    ],
)
def test_a_session_gives_every_recorded_number(video: str, engine: str, frames: int) -> None:
    pytest.importorskip(engine)
    pytest.importorskip(engine)
    golden = Golden(families_dir() / f"video_{video}.npz")
    config = find_config(VIDEOS[video])[1]
    weights = sister_weights(golden.meta["config"], golden.weights_seed)
    options = CompileOptions(engine=engine, threads=2)
    core = load_model(weights, config=config, device="cpu", options=options)
    predictor = predictor_for(core, "memory_precision=fp32")

    part = first_frames(golden, frames) if frames else golden
    arrays, reads = replay(predictor, bedroom(), part)

    recorded = {name: array for name, array in arrays.items() if name in golden.index}
    assert reads == recorded_reads(golden)[: len(reads)]
    assert frames or set(recorded) == set(golden.index)
    assert not faults(golden, recorded, LIMITS)
