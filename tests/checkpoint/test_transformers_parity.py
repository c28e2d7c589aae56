"""The renamed weights of transformers, compared with the reference: names, bits and outputs."""

from typing import Any

import numpy as np
import pytest

from samgraph.checkpoint import check, from_mapping, with_meta_names
from samgraph.checkpoint.transformers_names import to_meta
from tests.checkpoint.tables import meta_shapes

pytestmark = pytest.mark.parity
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SHARED = "shared_image_embedding.positional_embedding"
KEPT = "prompt_encoder.shared_embedding.positional_embedding"
ROUNDING = 1e-5  # float32, of the largest value; measured 7e-7


def random_state(config: Any, generator: Any) -> dict[str, Any]:
    """A state dict of a video model with known random values, the two shared tensors equal."""
    with torch.device("meta"):
        empty = transformers.Sam2VideoModel(config).state_dict()
    state = {}
    for name, tensor in empty.items():
        scale = 0.3 if tensor.ndim < 2 else tensor[0].numel() ** -0.5
        centre = 1.0 if "norm" in name and name.endswith("weight") else 0.0
        state[name] = torch.randn(tensor.shape, generator=generator) * scale + centre
    state[SHARED] = state[KEPT]
    return state


@pytest.mark.parametrize("version", ["2", "2.1"])
def test_a_video_model_gives_exactly_metas_tensors(version: str) -> None:
    newer = version == "2.1"
    config = transformers.Sam2VideoConfig(
        enable_temporal_pos_encoding_for_object_pointers=newer,
        enable_occlusion_spatial_embedding=newer,
    )
    state = random_state(config, torch.Generator().manual_seed(0))

    checkpoint = with_meta_names(from_mapping(state))

    assert checkpoint.shapes == meta_shapes(version, "tiny")
    pieces = {array.tobytes() for array in checkpoint.tensors.values()}
    for name, tensor in state.items():
        rows = tensor.split(1) if name.endswith("point_embed.weight") else [tensor]
        assert all(row.numpy().tobytes() in pieces for row in rows)


def test_an_image_model_lacks_only_its_memory() -> None:
    with torch.device("meta"):
        empty = transformers.Sam2Model(transformers.Sam2Config()).state_dict()
    found = to_meta({name: np.zeros(tuple(t.shape), np.int8) for name, t in empty.items()}, "a")
    shapes = {name: array.shape for name, array in found.items()}

    report = check(meta_shapes("2.1", "tiny"), shapes, source="a")

    assert report.missing
    assert not report.unexpected


@pytest.fixture(scope="module")
def models() -> tuple[Any, Any]:
    """A video model of transformers, and the reference with its renamed weights."""
    pytest.importorskip("sam2")
    from tests.parity.reference import build_reference

    config = transformers.Sam2VideoConfig()
    model = transformers.Sam2VideoModel(config).eval().requires_grad_(False)
    model.load_state_dict(random_state(config, torch.Generator().manual_seed(1)))
    state = with_meta_names(from_mapping(model.state_dict())).tensors
    return model, build_reference("sam2.1_tiny", state=state)


def draw(seed: int, *shape: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def assert_close(found: Any, wanted: Any) -> None:
    error = (found.reshape(wanted.shape) - wanted).abs().max() / wanted.abs().max()
    assert float(error) < ROUNDING


def test_the_image_encoders_agree(models: tuple[Any, Any]) -> None:
    model, reference = models
    image = draw(0, 1, 3, 256, 256)

    found = model.vision_encoder(image).fpn_hidden_states

    for a, b in zip(found, reference.image_encoder(image)["backbone_fpn"], strict=True):
        assert_close(a, b)


def test_the_memories_agree(models: tuple[Any, Any]) -> None:
    model, reference = models
    features, mask = draw(1, 1, 256, 16, 16), draw(2, 1, 1, 256, 256)
    now, now_position = draw(3, 4096, 1, 256), draw(4, 4096, 1, 256)
    memory, memory_position = draw(5, 4100, 1, 64), draw(6, 4100, 1, 64)
    pointer = draw(7, 3, 256)

    encoded = reference.memory_encoder(features, mask, skip_mask_sigmoid=True)
    attended = reference.memory_attention(
        curr=now,
        curr_pos=now_position,
        memory=memory,
        memory_pos=memory_position,
        num_obj_ptr_tokens=4,
    )

    assert_close(model.memory_encoder(features, mask)[0], encoded["vision_features"])
    assert_close(model.memory_attention(now, memory, now_position, memory_position, 4), attended)
    assert_close(model.object_pointer_proj(pointer), reference.obj_ptr_proj(pointer))
    time = model.temporal_positional_encoding_projection_layer(pointer)
    assert_close(time, reference.obj_ptr_tpos_proj(pointer))


def test_the_prompts_and_decoders_agree(models: tuple[Any, Any]) -> None:
    model, reference = models
    points = torch.tensor([[[200.0, 300.0], [500.0, 100.0]]])
    labels = torch.tensor([[1, 0]], dtype=torch.int32)
    mask, image = draw(8, 1, 1, 256, 256), draw(9, 1, 256, 64, 64)
    fine = [draw(10, 1, 32, 256, 256), draw(11, 1, 64, 128, 128)]

    sparse, dense = reference.sam_prompt_encoder(points=(points, labels), boxes=None, masks=mask)
    position = reference.sam_prompt_encoder.get_dense_pe()
    wanted = reference.sam_mask_decoder(
        image_embeddings=image,
        image_pe=position,
        sparse_prompt_embeddings=sparse,
        dense_prompt_embeddings=dense,
        multimask_output=True,
        repeat_image=False,
        high_res_features=fine,
    )

    found_sparse, found_dense = model.prompt_encoder(
        input_points=points[None], input_labels=labels[None], input_boxes=None, input_masks=mask
    )
    assert_close(found_sparse, sparse)
    assert_close(found_dense, dense)
    assert_close(model.get_image_wide_positional_embeddings(), position)
    found = model.mask_decoder(image, position, found_sparse, found_dense, True, fine)
    for a, b in zip(found, wanted, strict=True):
        assert_close(a, b)
