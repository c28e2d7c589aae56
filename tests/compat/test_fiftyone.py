"""What FiftyOne's model zoo calls, call by call: private names of the predictors among them."""

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from samgraph.compat import automatic_mask_generator, build_sam, sam2_image_predictor
from samgraph.compat.utils import misc
from tests import tolerances
from tests.golden import scenes

torch = pytest.importorskip("torch")

BOXES = np.array([[17, 27, 63, 73], [100, 66, 136, 102]], np.float64)


@pytest.fixture(scope="module")
def model() -> Any:
    """As the zoo loads it: an entry point, then `to` and `eval`."""
    device = torch.device("cpu")
    built = build_sam.build_sam2("samgraph-nano", ckpt_path=None, device=device)
    return built.to(device).eval()


@pytest.fixture(scope="module")
def processor(model: Any) -> Any:
    return sam2_image_predictor.SAM2ImagePredictor(model)


def chosen(masks: Any, scores: Any) -> tuple[Any, Any]:
    """The best mask of each prompt, as the zoo takes it."""
    if masks.shape[1] > 1:
        rows = torch.arange(masks.shape[0], device=masks.device)
        best = scores.argmax(dim=1)
        return masks[rows, best], scores[rows, best]
    return masks.squeeze(1), scores.squeeze(1)


def test_boxes_on_a_batch_of_images(processor: Any) -> None:
    images = [scenes.frame(0), scenes.frame(1)]
    size_hw = images[0].shape[:2]
    boxes = processor._transforms.transform_boxes(
        torch.tensor(BOXES, dtype=torch.float), normalize=True, orig_hw=size_hw
    )
    assert isinstance(boxes, torch.Tensor)
    assert boxes.shape == (2, 2, 2)
    resolution = processor._transforms.resolution
    assert float(boxes[0, 0, 0]) == pytest.approx(17 / 160 * resolution)

    processor.set_image_batch(images)

    assert processor._is_image_set
    assert processor._orig_hw == [size_hw, size_hw]
    for index in range(len(images)):
        masks, scores, _ = processor._predict(
            point_coords=None, point_labels=None, boxes=boxes.to(processor.device),
            mask_input=None, multimask_output=False, img_idx=index,
        )  # fmt: skip
        found, sure = chosen(masks, scores)
        arrays = found.float().detach().cpu().numpy()
        sure = sure.clamp(max=1).float().detach().cpu().numpy()
        assert masks.dtype == np.bool_
        assert arrays.shape == (2, *size_hw)
        assert arrays[0, 50, 40 + 9 * index] == 1
        assert arrays[1, 84, 118] == 1
        assert (sure > 0.5).all()


def test_the_image_of_a_batch_is_the_one_asked_for(processor: Any) -> None:
    images = [scenes.frame(0), scenes.frame(5)]
    processor.set_image_batch(images)
    corners = np.array([[[17, 27], [63, 73]]]) / (160, 120) * processor._transforms.resolution

    first, last = (
        processor._predict(None, None, corners, multimask_output=False, img_idx=index)[2]
        for index in (0, -1)
    )

    processor.set_image(images[0])
    alone = processor._predict(None, None, corners, multimask_output=False)[2]
    assert np.abs(first - alone).max() < tolerances.IMAGE_LOGITS
    assert np.abs(last - alone).max() > 1


def test_keypoints_relative_to_the_image(processor: Any) -> None:
    processor.set_image_batch([scenes.frame(0)])
    shares = np.array([[40 / 160, 50 / 120], [48 / 160, 56 / 120]], np.float32)
    coords = torch.tensor(processor._transforms.transform_coords(shares))
    labels = torch.tensor(np.ones(2, np.uint32))
    padded = torch.nn.functional.pad(labels.int(), (0, 1), value=-1)
    points = torch.nn.functional.pad(coords, (0, 0, 0, 1), value=0.0)

    masks, scores, low = processor._predict(
        point_coords=points[None], point_labels=padded[None], boxes=None, multimask_output=True
    )

    found, _ = chosen(masks, scores)
    assert masks.shape == (1, 3, 120, 160)
    assert low.shape[1] == 3
    assert found[0, 50, 40]


def test_automatic_masks(model: Any) -> None:
    generator = automatic_mask_generator.SAM2AutomaticMaskGenerator(
        model, points_per_side=4, pred_iou_thresh=0.5, stability_score_thresh=0.5
    )

    for record in generator.generate(scenes.frame(0)):
        assert record["segmentation"].shape == (120, 160)
        assert 0 <= record["predicted_iou"] <= 1.1
        assert "stability_score" in record


def load_frames(
    video_path: Any,
    image_size: int,
    offload_video_to_cpu: bool,
    async_loading_frames: bool = False,
    compute_device: Any = None,
) -> tuple[Any, int, int]:
    """A loader such as FiftyOne puts in the place of the reference's."""
    _, reader = video_path
    mean, std = (
        torch.tensor(v)[:, None, None] for v in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    )
    images = torch.zeros(len(reader), 3, image_size, image_size)
    for index, frame in enumerate(reader):
        pixels = torch.from_numpy(frame / 255.0).permute(2, 0, 1)[None].float()
        images[index] = torch.nn.functional.interpolate(pixels, (image_size, image_size))[0]
    return (images - mean) / std, frame.shape[0], frame.shape[1]


def test_a_video_with_a_loader_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:  # only while the model is built
        patch.setattr(sys.modules[misc.__name__], "load_video_frames", load_frames)
        model = build_sam.build_sam2_video_predictor("samgraph-nano", None, torch.device("cpu"))
    assert isinstance(misc, ModuleType)

    state = model.init_state(("sample", scenes.frames(4)))
    box = np.round(BOXES[1]).astype(int)
    model.add_new_points_or_box(inference_state=state, frame_idx=0, obj_id=0, box=box)
    for t, ids, logits in model.propagate_in_video(state):
        mask = np.squeeze((logits[0] > 0.0).cpu().numpy(), axis=0)
        assert ids == [0]
        assert mask[84 - 6 * t, 118]
        assert not mask[50, 40 + 9 * t]
