"""`samgraph.compat.transformers` beside the library itself: the same calls, the same weights.

The library's processors need torchvision for pictures, so both sides get the same pixels; its
handling of prompts and sessions is its own. Objects have equal numbers of clicks: where lists are
filled up, the library's decoder attends to tokens of zeros, ours to nothing.
"""

from functools import cache
from typing import Any

import numpy as np
import pytest

from samgraph.checkpoint.transformers_names import meta_name
from samgraph.compat import transformers as ours
from samgraph.compat.host import to_host
from samgraph.media.image.preprocess import resize_image
from samgraph.models.family import SegmentationModel
from samgraph.models.loading import load_model
from tests import tolerances
from tests.golden import scenes
from tests.golden.configs import CONFIGS
from tests.predict.models import small_model

pytestmark = [pytest.mark.parity, pytest.mark.timeout(600)]
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
library = pytest.importorskip("tests.parity.transformers_reference")

SEED = 14
SCORE_BIAS = ("sam_mask_decoder.pred_obj_score_head.layers.2.bias", 9.0)
SIZE, FRAMES = 256, 6
DISC, SQUARE = [40, 50], [118, 84]


def pixels(count: int) -> Any:
    return np.stack([resize_image(frame, SIZE) for frame in scenes.frames(count)])


@cache
def core() -> SegmentationModel:
    """The small test model, made to see its objects on every frame."""
    small, (name, bias) = small_model(SEED), SCORE_BIAS
    weights = small.checkpoint() | {name: np.full(1, bias, np.float32)}
    return load_model(weights, config=small.config, options=small.session.options)


@cache
def their_image_model() -> Any:
    give = library.state_from_meta(core().checkpoint(), meta_name)
    return library.build_transformers("test", state_for=give)


@cache
def their_video_model() -> Any:
    fields = CONFIGS["test"]
    settings = library._settings(fields) | {
        "image_size": fields.image_size,
        "memory_attention_num_layers": fields.num_memory_layers,
        "memory_attention_feed_forward_hidden_size": fields.dim_feedforward,
        "memory_attention_rope_feat_sizes": [fields.embedding_size, fields.embedding_size],
    }
    model = transformers.Sam2VideoModel(transformers.Sam2VideoConfig(**settings)).eval()
    names = list(model.state_dict())
    state = library.state_from_meta(core().checkpoint(), meta_name)(names)
    model.load_state_dict({name: torch.from_numpy(np.array(state[name])) for name in names})
    return model


def their_processor(kind: Any) -> Any:
    """A processor that was not told how to read pictures."""
    made = kind.__new__(kind)
    made.image_processor = type("Pictures", (), {"size": {"height": SIZE, "width": SIZE}})()
    made.point_pad_value, made.target_size = -10, SIZE
    return made


PROMPTS: dict[str, dict[str, Any]] = {
    "a click": {"input_points": [[[DISC]]], "input_labels": [[[1]]]},
    "clicks of two objects": {
        "input_points": [[[DISC, [48, 56]], [SQUARE, [10, 20]]]],
        "input_labels": [[[1, 0], [1, 0]]],
    },
    "boxes": {"input_boxes": [[[17, 27, 63, 73], [100, 66, 136, 102]]]},
    "a box with a click": {
        "input_points": [[[DISC]]],
        "input_labels": [[[1]]],
        "input_boxes": [[[17, 27, 63, 73]]],
    },
    "no prompt": {},
}


@pytest.mark.parametrize("name", PROMPTS)
def test_prompts_are_scaled_as_there(name: str) -> None:
    given = {"original_sizes": [[120, 160]], "return_tensors": "pt", **PROMPTS[name]}

    wanted = their_processor(transformers.Sam2Processor)(**given)
    found = ours.Sam2Processor(target_size=SIZE)(**given)

    assert wanted.keys() == found.keys()
    for key in wanted:
        np.testing.assert_allclose(found[key], wanted[key].numpy(), rtol=tolerances.COMPAT_METHODS)
        assert str(found[key].dtype) == str(wanted[key].dtype).removeprefix("torch.")


@pytest.mark.parametrize("multimask", [True, False])
@pytest.mark.parametrize("name", PROMPTS)
def test_masks_agree(name: str, multimask: bool) -> None:
    prompts = their_processor(transformers.Sam2Processor)(
        original_sizes=[[120, 160]], return_tensors="pt", **PROMPTS[name]
    )
    prompts.pop("original_sizes")
    given = torch.from_numpy(pixels(1))

    with torch.inference_mode():
        wanted = their_image_model()(given, multimask_output=multimask, **prompts)
        found = ours.Sam2Model(core())(given, multimask_output=multimask, **prompts)

    for field, limit in (
        ("pred_masks", tolerances.IMAGE_LOGITS),
        ("iou_scores", tolerances.IOU),
        ("object_score_logits", tolerances.OBJECT_SCORE),
    ):
        theirs, mine = getattr(wanted, field).numpy(), getattr(found, field)
        assert mine.shape == theirs.shape
        assert np.abs(mine - theirs).max() < limit, field


def test_a_mask_prompt_agrees() -> None:
    given, low = torch.from_numpy(pixels(1)), torch.randn(1, 1, SIZE // 4, SIZE // 4)
    prompts = {
        "input_points": torch.tensor([[[[64.0, 106.0]]]]),
        "input_labels": torch.tensor([[[1]]]),
        "input_masks": low,
        "multimask_output": False,
    }

    with torch.inference_mode():
        wanted = their_image_model()(given, **prompts).pred_masks.numpy()
        found = ours.Sam2Model(core())(given, **prompts).pred_masks

    assert np.abs(found - wanted).max() < tolerances.IMAGE_LOGITS


def calls(processor: Any, model: Any, session: Any) -> list[tuple[int, Any, Any]]:
    """A session of its documentation: two objects, tracking, a correction, and back."""
    found = []

    def keep(output: Any) -> None:
        masks, scores = to_host(output.pred_masks), to_host(output.object_score_logits)
        found.append((output.frame_idx, masks.copy(), scores.copy()))

    processor.add_inputs_to_inference_session(
        inference_session=session,
        frame_idx=0,
        obj_ids=[2, 3],
        input_points=[[[DISC, [48, 56]], [SQUARE, [112, 80]]]],
        input_labels=[[[1, 1], [1, 1]]],
        original_size=[120, 160],
    )
    keep(model(inference_session=session, frame_idx=0))
    for output in model.propagate_in_video_iterator(session):
        keep(output)
    processor.add_inputs_to_inference_session(
        inference_session=session,
        frame_idx=3,
        obj_ids=2,
        input_points=[[[[70, 52]]]],
        input_labels=[[[1]]],
    )
    keep(model(inference_session=session, frame_idx=3))
    for output in model.propagate_in_video_iterator(session, start_frame_idx=4):
        keep(output)
    for output in model.propagate_in_video_iterator(session, start_frame_idx=2, reverse=True):
        keep(output)
    return found


def test_a_session_agrees() -> None:
    video = pixels(FRAMES)
    session = _their_session()
    with torch.inference_mode():
        wanted = calls(
            their_processor(transformers.Sam2VideoProcessor),
            their_video_model(),
            session(torch.from_numpy(video), 120, 160, dtype=torch.float32),
        )
    mine = ours.Sam2VideoProcessor(target_size=SIZE)
    found = calls(
        mine,
        ours.Sam2VideoModel(core()),
        mine.init_video_session(video=scenes.frames(FRAMES)),
    )

    assert [frame for frame, _, _ in found] == [frame for frame, _, _ in wanted]
    pairs = zip(found, wanted, strict=True)
    for number, ((frame, masks, scores), (_, their_masks, their_scores)) in enumerate(pairs):
        assert masks.shape == their_masks.shape
        assert scores.shape == their_scores.shape
        assert (their_scores > 0).all()
        # The library hardens what it remembers of all objects where one is corrected.
        same = slice(0, 1 if number > FRAMES + 1 else 2)
        difference = np.sqrt(np.mean((masks - their_masks)[same] ** 2))
        rms = float(difference / their_masks[same].std())
        print(f"frame {frame}: rms {rms:.1e} of the deviation")
        assert rms < tolerances.TRANSFORMERS_LOGITS_RMS
        assert np.abs(scores - their_scores)[same].max() < tolerances.TRANSFORMERS_SCORE


def _their_session() -> Any:
    module = __import__(transformers.Sam2VideoModel.__module__, fromlist=["_"])
    return module.Sam2VideoInferenceSession
