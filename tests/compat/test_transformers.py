"""The calls of transformers' documentation of SAM 2, on images, videos and streams."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from samgraph.compat.tensor import Tensor
from samgraph.compat.transformers import (
    Sam2ImageProcessor,
    Sam2ImageProcessorFast,
    Sam2Model,
    Sam2Processor,
    Sam2VideoInferenceSession,
    Sam2VideoModel,
    Sam2VideoProcessor,
    infer_device,
    pipeline,
)
from samgraph.errors import CheckpointError, OptionError, PromptError, VideoError
from tests import tolerances
from tests.golden import scenes

NANO = "samgraph-nano"
FRAMES = 5
IMAGE = Image.fromarray(scenes.frame(0))
VIDEO = [Image.fromarray(frame) for frame in scenes.frames(FRAMES)]
DISC, SQUARE = [40, 50], [118, 84]
DISC_BOX, SQUARE_BOX = [17, 27, 63, 73], [100, 66, 136, 102]


def on_disc(mask: Any, t: int = 0) -> bool:
    return bool(mask[50 + t * t // 3, 40 + 9 * t]) and not mask[84 - 6 * t, 118]


def on_square(mask: Any, t: int = 0) -> bool:
    return bool(mask[84 - 6 * t, 118]) and not mask[50 + t * t // 3, 40 + 9 * t]


@pytest.fixture(scope="module")
def model() -> Sam2Model:
    return Sam2Model.from_pretrained(NANO, device_map="cpu").to("cpu").eval()


@pytest.fixture(scope="module")
def processor() -> Any:
    return Sam2Processor.from_pretrained(NANO)


def test_a_click(model: Sam2Model, processor: Any) -> None:
    inputs = processor(
        images=IMAGE, input_points=[[[DISC]]], input_labels=[[[1]]], return_tensors="pt"
    ).to(model.device)

    outputs = model(**inputs)

    masks = processor.post_process_masks(outputs.pred_masks.cpu(), inputs["original_sizes"])[0]
    assert masks.shape == (1, 3, 120, 160)
    assert masks.dtype == np.bool_
    assert outputs.iou_scores.shape == (1, 1, 3)
    assert outputs.object_score_logits.shape == (1, 1, 1)
    assert on_disc(masks[0, int(outputs.iou_scores.squeeze().argmax())])
    assert outputs[0] is outputs.iou_scores is outputs["iou_scores"]
    assert model(**inputs.data).pred_masks.shape == outputs.pred_masks.shape
    assert outputs.keys()[:2] == ["iou_scores", "pred_masks"]


def test_several_objects_and_clicks_per_object(model: Sam2Model, processor: Any) -> None:
    inputs = processor(
        images=IMAGE,
        input_points=[[[DISC, [48, 56]], [SQUARE]]],
        input_labels=[[[1, 1], [1]]],
        return_tensors="pt",
    )
    assert inputs["input_labels"].tolist() == [[[1, 1], [1, -10]]]

    outputs = model(**inputs, multimask_output=False)

    masks = processor.post_process_masks(outputs.pred_masks, inputs["original_sizes"])[0]
    alone = processor(images=IMAGE, input_points=[[[SQUARE]]], input_labels=[[[1]]])
    expected = model(**alone, multimask_output=False).pred_masks[0, 0]
    assert masks.shape == (2, 1, 120, 160)
    assert on_disc(masks[0, 0])
    assert on_square(masks[1, 0])
    assert (
        np.abs(outputs.pred_masks[0, 1] - expected).max() < tolerances.IMAGE_LOGITS
    )  # padding counts as nothing


def test_boxes_and_a_mask(model: Sam2Model, processor: Any) -> None:
    inputs = processor(images=IMAGE, input_boxes=[[DISC_BOX, SQUARE_BOX]], return_tensors="pt")
    outputs = model(**inputs, multimask_output=False)
    masks = processor.post_process_masks(outputs.pred_masks, inputs["original_sizes"])[0]
    assert on_disc(masks[0, 0])
    assert on_square(masks[1, 0])

    again = processor(images=IMAGE, input_points=[[[DISC]]], input_labels=[[[1]]])
    refined = model(**again, input_masks=outputs.pred_masks[:, 0], multimask_output=False)

    assert refined.pred_masks.shape == (1, 1, 1, 256, 256)
    assert not np.array_equal(refined.pred_masks, model(**again, multimask_output=False).pred_masks)


def test_a_batch_of_images(model: Sam2Model, processor: Any) -> None:
    images = [IMAGE, VIDEO[4]]
    inputs = processor(
        images=images,
        input_points=[[[DISC]], [[[76, 55]]]],
        input_labels=[[[1]], [[1]]],
        return_tensors="pt",
    )

    outputs = model(**inputs, multimask_output=False)

    found = processor.post_process_masks(outputs.pred_masks, inputs["original_sizes"])
    assert [mask.shape for mask in found] == [(1, 1, 120, 160)] * 2
    assert on_disc(found[0][0, 0])
    assert on_disc(found[1][0, 0], 4)


def test_embeddings_are_computed_once(model: Sam2Model, processor: Any) -> None:
    inputs = processor(images=IMAGE, input_points=[[[DISC]]], input_labels=[[[1]]])
    embeddings = model.get_image_embeddings(inputs["pixel_values"])

    outputs = model(
        image_embeddings=embeddings,
        input_points=inputs["input_points"],
        input_labels=inputs["input_labels"],
    )

    assert [e.shape[1] for e in embeddings] == [8, 32, 64, 256]
    assert np.abs(outputs.pred_masks - model(**inputs).pred_masks).max() < tolerances.IMAGE_LOGITS


def test_automatic_masks_in_a_pipeline() -> None:
    generator = pipeline("mask-generation", model=NANO, device=-1)

    outputs = generator(
        IMAGE, points_per_batch=64, points_per_crop=6, pred_iou_thresh=0.5,
        stability_score_thresh=0.5, output_bboxes_mask=True, output_rle_mask=True,
    )  # fmt: skip

    count = len(outputs["masks"])
    assert count > 3
    assert outputs["masks"][0].shape == (120, 160)
    assert outputs["scores"].shape == (count,)
    assert outputs["bounding_boxes"].shape == (count, 4)
    assert len(outputs["rle_mask"]) == count
    with pytest.raises(OptionError, match="no option `points_per_croop`"):
        generator(IMAGE, points_per_croop=6)
    with pytest.raises(OptionError, match="no pipeline `depth`"):
        pipeline("depth")


@pytest.fixture(scope="module")
def video_model() -> Sam2VideoModel:
    return Sam2VideoModel.from_pretrained(NANO)


@pytest.fixture(scope="module")
def video_processor() -> Any:
    return Sam2VideoProcessor.from_pretrained(NANO)


def masks_of(processor: Any, output: Any, session: Sam2VideoInferenceSession) -> Tensor:
    sizes = [[session.video_height, session.video_width]]
    found: Tensor = processor.post_process_masks(
        [output.pred_masks], original_sizes=sizes, binarize=False
    )[0]
    return found


def test_a_click_is_tracked(video_model: Sam2VideoModel, video_processor: Any) -> None:
    session = video_processor.init_video_session(video=VIDEO, inference_device="cpu")
    video_processor.add_inputs_to_inference_session(
        inference_session=session,
        frame_idx=0,
        obj_ids=1,
        input_points=[[[DISC]]],
        input_labels=[[[1]]],
    )

    outputs = video_model(inference_session=session, frame_idx=0)
    assert masks_of(video_processor, outputs, session).shape == (1, 1, 120, 160)

    segments = {}
    for output in video_model.propagate_in_video_iterator(session):
        segments[output.frame_idx] = masks_of(video_processor, output, session)
    assert list(segments) == list(range(FRAMES))
    for t in (0, 1, 3):
        assert on_disc(segments[t][0, 0] > 0, t)


def test_objects_together_then_refined(video_model: Sam2VideoModel, video_processor: Any) -> None:
    session = video_processor.init_video_session(video=np.stack(scenes.frames(FRAMES)))
    video_processor.add_inputs_to_inference_session(
        inference_session=session,
        frame_idx=0,
        obj_ids=[2, 3],
        input_points=[[[DISC, [48, 56]], [SQUARE]]],
        input_labels=[[[1, 1], [1]]],
    )
    outputs = video_model(inference_session=session, frame_idx=0)
    assert outputs.object_ids == [2, 3]
    assert outputs.object_score_logits.shape == (2, 1)
    first = {o.frame_idx: o for o in video_model.propagate_in_video_iterator(session)}
    masks = masks_of(video_processor, first[3], session) > 0
    assert on_disc(masks[0, 0], 3)
    assert on_square(masks[1, 0], 3)

    video_processor.add_inputs_to_inference_session(
        inference_session=session, frame_idx=3, obj_ids=3, input_points=[[[[118, 40]]]],
        input_labels=[[[0]]],
    )  # fmt: skip
    refined = video_model(inference_session=session, frame_idx=3)
    assert not np.array_equal(refined.pred_masks[1], first[3].pred_masks[1])
    assert session.frames_tracked_per_obj[1].keys() == {1, 2, 3, 4}

    session.reset_inference_session()
    assert session.obj_ids == []
    with pytest.raises(PromptError, match="no frame to start from"):
        next(video_model.propagate_in_video_iterator(session))


def test_boxes_and_masks_on_a_video(video_model: Sam2VideoModel, video_processor: Any) -> None:
    session = video_processor.init_video_session(video=VIDEO)
    y, x = np.mgrid[:120, :160]
    disc = (x - 40) ** 2 + (y - 50) ** 2 < 22**2
    video_processor.add_inputs_to_inference_session(session, 0, 1, input_boxes=[[SQUARE_BOX]])
    video_processor.add_inputs_to_inference_session(session, 0, 2, input_masks=disc)

    frames = list(video_model.propagate_in_video_iterator(session, max_frame_num_to_track=2))

    assert [output.frame_idx for output in frames] == [0, 1, 2]
    found = masks_of(video_processor, frames[2], session) > 0
    assert on_square(found[0, 0], 2)
    assert on_disc(found[1, 0], 2)
    back = video_model.propagate_in_video_iterator(session, start_frame_idx=2, reverse=True)
    assert [output.frame_idx for output in back] == [2, 1, 0]


def test_a_stream_is_tracked(video_model: Sam2VideoModel, video_processor: Any) -> None:
    session = video_processor.init_video_session(inference_device="cpu")
    for t, frame in enumerate(VIDEO):
        inputs = video_processor(images=frame, device="cpu", return_tensors="pt")
        if t == 0:
            video_processor.add_inputs_to_inference_session(
                inference_session=session,
                frame_idx=0,
                obj_ids=1,
                input_points=[[[DISC, [48, 56]]]],
                input_labels=[[[1, 1]]],
                original_size=inputs.original_sizes[0],
            )
        output = video_model(inference_session=session, frame=inputs.pixel_values[0])
        masks = video_processor.post_process_masks(
            [output.pred_masks], original_sizes=inputs.original_sizes, binarize=False
        )[0]
        assert output.frame_idx == t
        assert masks[0, 0, 50 + t * t // 3, 40 + 9 * t - 10] > 0
    assert session.num_frames == FRAMES
    assert session.get_frame(1).shape == (3, 512, 512)


def test_a_session_gives_what_it_keeps(video_model: Any, video_processor: Any) -> None:
    session = video_processor.init_video_session(video=VIDEO)
    prompt = {"input_points": [[[DISC]]], "input_labels": [[[1]]]}
    video_processor.add_inputs_to_inference_session(session, 0, 1, **prompt)
    video_processor.add_inputs_to_inference_session(session, 1, 1, **prompt)
    session.remove_point_inputs(0, 1)
    output = video_model(session, frame_idx=0)
    later = video_model(session, frame_idx=1)

    assert np.array_equal(session.get_output(0, 0, "pred_masks"), output.pred_masks)
    assert session.get_output(0, 1, "pred_masks") is None  # without its prompt it is tracked
    tracked = session.get_output(0, 1, "pred_masks", is_conditioning_frame=False)
    assert np.array_equal(tracked, later.pred_masks)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"input_points": [[DISC]]}, "nested 4 levels"),
    ({"input_points": [[[[1, 2, 3]]]]}, "rows of 2 numbers"),
    ({"input_labels": [[1]]}, "nested 3 levels"),
    ({"input_boxes": [[[1, 2, 3]]]}, "rows of 4 numbers"),
    ({"input_points": [[[DISC]]], "input_labels": [[[1, 1]]]}, "points and labels do not fit"),
    ({"input_points": [[[DISC]], [[DISC]]]}, "prompts for each image|as many|fit"),
    ({"images": None}, "either `images` or"),
]


@pytest.mark.parametrize(("given", "message"), WRONG)
def test_prompts_without_sense_are_refused(
    given: dict[str, Any], message: str, model: Sam2Model, processor: Any
) -> None:
    with pytest.raises(PromptError, match=message):
        model(**processor(**{"images": IMAGE, **given}))


def test_what_a_session_lacks_is_said(video_model: Any, video_processor: Any) -> None:
    session = video_processor.init_video_session(video=VIDEO)
    with pytest.raises(PromptError, match="no objects to track"):
        video_model(session, frame_idx=0)
    with pytest.raises(PromptError, match="there is no prompt"):
        video_processor.add_inputs_to_inference_session(session, 0, 1)
    with pytest.raises(PromptError, match="a prompt for each object id"):
        video_processor.add_inputs_to_inference_session(
            session, 0, [1, 2], input_boxes=[[DISC_BOX]]
        )
    stream = video_processor.init_video_session()
    with pytest.raises(PromptError, match="`original_size` must be given"):
        video_processor.add_inputs_to_inference_session(stream, 0, 1, input_boxes=[[DISC_BOX]])
    with pytest.raises(VideoError):
        video_processor.init_video_session(video=[])


def test_models_are_read_from_folders(tmp_path: Path, model: Sam2Model) -> None:
    model.save_pretrained(tmp_path / "new")
    tmp_path /= "new"

    loaded = Sam2Model.from_pretrained(tmp_path, torch_dtype="auto", local_files_only=True)

    assert loaded.config.name == NANO
    assert Sam2Processor.from_pretrained(str(tmp_path)).target_size == 512
    assert Sam2Processor.from_pretrained("facebook/sam2.1-hiera-tiny").target_size == 1024
    assert Sam2ImageProcessor.from_pretrained(NANO).size == {"height": 512, "width": 512}
    assert Sam2ImageProcessorFast is Sam2ImageProcessor
    assert infer_device() == str(Sam2Model.from_pretrained(NANO).device)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="holds no weights"):
        Sam2Model.from_pretrained(tmp_path)


def test_names_that_are_not_here_say_why() -> None:
    with pytest.raises(ImportError, match=r"`AutoProcessor` is not in .*: name the class"):
        from samgraph.compat.transformers import AutoProcessor  # noqa: F401
    with pytest.raises(ImportError, match="cannot import name 'Nothing'"):
        from samgraph.compat.transformers import Nothing  # noqa: F401


def test_neither_torch_nor_transformers_is_imported() -> None:
    code = (
        "import sys; import samgraph.compat.transformers, samgraph.compat.ultralytics; "
        "print(sorted({'torch', 'transformers', 'ultralytics'} & sys.modules.keys()))"
    )
    child = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(p for p in sys.path if p), "PATH": "/usr/bin:/bin"},
    )
    assert child.stdout.strip() == "[]"
