import json
from pathlib import Path

import pytest

from samgraph.checkpoint import best_match, check, describe_foreign
from samgraph.errors import CheckpointError
from tests.checkpoint.tables import all_tables, meta_shapes

KNOWN = all_tables()
TINY = meta_shapes("2.1", "tiny")


def refusal(expected: str, found: dict[str, tuple[int, ...]]) -> str:
    with pytest.raises(CheckpointError) as caught:
        check(KNOWN[expected], found, source="a.pt", known=KNOWN)
    return str(caught.value)


def test_a_checkpoint_that_fits_passes_in_silence() -> None:
    check(TINY, dict(reversed(TINY.items())), source="a.pt", known=KNOWN)


def test_the_wrong_size_gives_counts_examples_and_the_right_name() -> None:
    assert refusal("sam2.1-tiny", KNOWN["sam2.1-small"]) == (
        "`a.pt` does not fit the model (2 missing, 50 unexpected, 22 of another shape)\n"
        "  missing:    `image_encoder.trunk.blocks.10.proj.weight`, "
        "`image_encoder.trunk.blocks.10.proj.bias`\n"
        "  unexpected: `image_encoder.trunk.blocks.12.norm1.weight`, "
        "`image_encoder.trunk.blocks.12.norm1.bias`, "
        "`image_encoder.trunk.blocks.12.attn.qkv.weight` and 47 more\n"
        "  shape:      `image_encoder.trunk.blocks.10.attn.qkv.weight` is 1152x384, not 2304x384, "
        "`image_encoder.trunk.blocks.10.attn.qkv.bias` is 1152, not 2304, "
        "`image_encoder.trunk.blocks.10.attn.proj.weight` is 384x384, not 768x768 and 19 more\n"
        "  hint: this is a checkpoint of `sam2.1-small`: load it as that"
    )


@pytest.mark.parametrize("expected", KNOWN)
@pytest.mark.parametrize("given", KNOWN)
def test_each_release_is_told_from_each_other(expected: str, given: str) -> None:
    if expected == given:
        check(KNOWN[expected], KNOWN[given], source="a.pt", known=KNOWN)
    else:
        assert f"this is a checkpoint of `{given}`" in refusal(expected, KNOWN[given])


def test_one_missing_tensor_is_named_with_the_closest_model() -> None:
    found = dict(TINY)
    del found["sam_mask_decoder.iou_token.weight"]

    message = refusal("sam2.1-tiny", found)

    assert "1 missing, 0 unexpected, 0 of another shape" in message
    assert "missing:    `sam_mask_decoder.iou_token.weight`\n" in message
    assert "closest to `sam2.1-tiny`: 99 % of the tensors agree" in message


def test_a_checkpoint_without_memory_is_of_an_image_only_model() -> None:
    away = ("memory_", "maskmem_", "mask_downsample", "obj_ptr_", "no_obj_", "no_mem_pos")
    found = {name: shape for name, shape in TINY.items() if not name.startswith(away)}

    report = check(TINY, found, source="a.pt", known=KNOWN)

    assert set(report.missing) == TINY.keys() - found.keys()
    assert not report.unexpected


def test_unless_strict_only_shapes_must_agree() -> None:
    found = {**TINY, "ema.decay": (1,)}
    del found["sam_mask_decoder.iou_token.weight"]

    report = check(TINY, found, source="a.pt", known=KNOWN, strict=False)

    assert str(report) == (
        "1 missing, 1 unexpected\n"
        "  missing:    `sam_mask_decoder.iou_token.weight`\n"
        "  unexpected: `ema.decay`"
    )
    found["no_mem_embed"] = (7,)
    with pytest.raises(CheckpointError, match="1 of another shape"):
        check(TINY, found, source="a.pt", known=KNOWN, strict=False)


@pytest.mark.parametrize("name", ["maskmem_tpos_enc", "obj_ptr_proj.layers.0.weight"])
def test_one_missing_tensor_of_the_memory_is_just_missing(name: str) -> None:
    found = dict(TINY)
    del found[name]

    message = refusal("sam2.1-tiny", found)

    assert f"missing:    `{name}`\n" in message
    assert "no video memory" not in message
    assert "closest to `sam2.1-tiny`" in message


def test_nothing_in_common_gives_no_guess() -> None:
    assert "hint" not in refusal("sam2.1-tiny", {"x": (1,)})
    assert best_match({"x": (1,)}, {}) is None


FOREIGN = {
    "SAM (the first)": ["image_encoder.blocks.0.x", "prompt_encoder.point_embeddings.0.weight"],
    "MobileSAM": ["image_encoder.patch_embed.seq.0.c.weight", "mask_decoder.iou_token.weight"],
    "HQ-SAM": ["image_encoder.blocks.0.norm1.weight", "mask_decoder.hf_token.weight"],
    "SAM 3": ["detector.backbone.x", "tracker.maskmem_tpos_enc"],
    "SAM 3, saved by transformers": ["detector_model.x", "tracker_model.y"],
    "SAM (the first), saved by transformers": ["vision_encoder.layers.0.attn.qkv.weight"],
    "a ViT": ["cls_token", "pos_embed", "patch_embed.proj.weight", "blocks.0.attn.qkv.weight"],
    "DINOv2": ["cls_token", "mask_token", "patch_embed.proj.weight", "blocks.0.ls1.gamma"],
    "a ResNet": ["conv1.weight", "bn1.weight", "layer1.0.conv1.weight"],
    "a language model": ["model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight"],
    "a LoRA adapter, not a whole model": ["unet.down.lora_up.weight"],
}  # fmt: skip


@pytest.mark.parametrize("kind", FOREIGN)
def test_other_models_are_called_by_their_names(kind: str) -> None:
    assert describe_foreign(FOREIGN[kind]) == kind
    assert f"this looks like {kind}" in refusal("sam2.1-tiny", dict.fromkeys(FOREIGN[kind], (1,)))


def test_our_own_models_are_not_foreign() -> None:
    assert all(describe_foreign(shapes) is None for shapes in KNOWN.values())


@pytest.mark.shared
def test_the_tables_are_those_of_the_reference() -> None:
    path = Path(__file__).resolve().parents[3] / "shared" / "golden" / "manifest.json"
    if not path.is_file():
        pytest.skip("the reference data is not here")
    manifest = json.loads(path.read_text())

    for name, shapes in KNOWN.items():
        recorded = manifest[name.replace("-", "_")]["keys"]
        assert shapes == {key: tuple(shape) for key, shape in recorded.items()}
