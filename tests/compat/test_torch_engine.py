"""The same calls where values are tensors of the engine: what is returned is in main memory."""

from functools import cache
from typing import Any

import numpy as np
import pytest

from samgraph.compat import SAM2ImagePredictor, SAM2VideoPredictor
from samgraph.compat import transformers as library
from samgraph.compat.modeling.sam2_base import SAM2Base
from samgraph.compat.tensor import Tensor
from samgraph.models.family import SegmentationModel
from samgraph.models.loading import load_model
from samgraph.runtime import CompileOptions
from tests import tolerances
from tests.golden import scenes
from tests.predict.models import tiny_model
from tests.predict.pictures import picture

pytest.importorskip("torch")


# Added to the object score, so that the object is seen on every frame.
SCORE_BIAS = ("sam_mask_decoder.pred_obj_score_head.layers.2.bias", 9.0)


@cache
def core_on(engine: str) -> SegmentationModel:
    small, (name, bias) = tiny_model(), SCORE_BIAS
    weights = small.checkpoint() | {name: np.full(1, bias, np.float32)}
    options = CompileOptions(engine=engine, threads=2)
    return load_model(weights, config=small.config, device="cpu", options=options)


CORES = ("openvino", "torch")


def test_images_agree() -> None:
    found = []
    for core in map(core_on, CORES):
        predictor = SAM2ImagePredictor(SAM2Base(core))
        predictor.set_image(picture())
        assert type(predictor.get_image_embedding()) is Tensor
        predictor._features, predictor._orig_hw = predictor._features, predictor._orig_hw
        found.append(predictor.predict([[40, 50]], [1])[2])

    assert np.abs(found[0] - found[1]).max() < tolerances.IMAGE_LOGITS


def test_videos_agree() -> None:
    found: list[list[Any]] = []
    for core in map(core_on, CORES):
        predictor = SAM2VideoPredictor(core)
        state = predictor.init_state(scenes.frames(3))
        predictor.add_new_points_or_box(state, 0, 1, box=(17, 27, 63, 73))
        found.append([masks for _, _, masks in predictor.propagate_in_video(state)])
        assert {type(masks) for masks in found[-1]} == {Tensor}

    for one, another in zip(*found, strict=True):
        assert np.abs(one - another).max() < tolerances.COMPAT_TRACKED_LOGITS


def test_sessions_of_transformers_agree() -> None:
    found = []
    processor = library.Sam2VideoProcessor(target_size=128)
    for core in map(core_on, CORES):
        model = library.Sam2VideoModel(core)
        session = processor.init_video_session(video=scenes.frames(3))
        processor.add_inputs_to_inference_session(session, 0, 1, input_boxes=[[[17, 27, 63, 73]]])
        outputs = list(model.propagate_in_video_iterator(session))
        found.append([output.pred_masks for output in outputs])
        inputs = processor(images=picture(), input_boxes=[[[17, 27, 63, 73]]])
        maps = library.Sam2Model(core).get_image_embeddings(inputs.pixel_values)
        again = library.Sam2Model(core)(image_embeddings=maps, input_boxes=inputs.input_boxes)
        assert again.pred_masks.shape == (1, 1, 3, 32, 32)

    for one, another in zip(*found, strict=True):
        assert np.abs(one - another).max() < tolerances.COMPAT_TRACKED_LOGITS


def test_a_model_moves_between_devices() -> None:
    model = SAM2Base(core_on("torch"))

    assert model.to("cpu").core is core_on("torch")
    assert model.core.session.options.engine == "torch"
