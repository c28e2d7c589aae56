"""Recognition of other models by their tensor names, for error messages."""

import re
from collections.abc import Collection
from dataclasses import dataclass

from samgraph.checkpoint.transformers_names import is_transformers


@dataclass(frozen=True, slots=True)
class Family:
    """A model family: its name, and patterns that each match at least one tensor name."""

    description: str
    signs: tuple[str, ...]


# The first family all of whose patterns match is returned, so specific families come first.
FAMILIES: tuple[Family, ...] = (
    Family("SAM 3", (r"^detector\.", r"^tracker\.")),
    Family("SAM 3, saved by transformers", (r"^(detector_model|tracker_model|tracker_neck)\.",)),
    Family("SAM 3, saved by transformers", (r"^detr_(encoder|decoder)\.", r"^vision_encoder\.")),
    Family("HQ-SAM", (r"^mask_decoder\.(hf_token|compress_vit_feat)\b",)),
    Family("MobileSAM", (r"^image_encoder\.patch_embed\.seq\.0\.c\.", r"^mask_decoder\.")),
    Family("EdgeSAM", (r"^image_encoder\.features\.", r"^mask_decoder\.")),
    Family("EfficientSAM", (r"^image_encoder\.blocks\.", r"^mask_decoder\.final_output_ups")),
    Family("SAM (the first)", (r"^image_encoder\.blocks\.", r"^prompt_encoder\.point_emb")),
    Family("SAM (the first), saved by transformers", (r"^vision_encoder\.layers\.\d+\.attn\.",)),
    Family("a YOLO model (FastSAM is one)", (r"^model\.0\.conv\.weight$", r"^model\.2\.cv1\.")),
    Family("Stable Diffusion", (r"^model\.diffusion_model\.",)),
    Family("a LoRA adapter, not a whole model", (r"\.?lora_(A|B|up|down)\b",)),
    Family("CLIP", (r"^(visual\.conv1\.weight|text_model\.embeddings\.)",)),
    Family("DINOv2", (r"^mask_token$", r"^blocks\.\d+\.ls1\.gamma$")),
    Family("a Hiera classifier", (r"^(pos_embed_spatial$|encoder_norm\.)", r"^blocks\.\d+\.")),
    Family("a ViT", (r"^cls_token$", r"^patch_embed\.proj\.weight$")),
    Family("a ViT, saved by transformers", (r"^(vit\.)?embeddings\.cls_token$",)),
    Family("a ResNet", (r"^layer1\.0\.conv1\.weight$", r"^bn1\.")),
    Family("a language model", (r"^model\.layers\.\d+\.self_attn\.", r"^model\.embed_tokens\.")),
    Family("weights wrapped by DataParallel: take `module.` off their names", (r"^module\.",)),
)


def describe_foreign(keys: Collection[str]) -> str | None:
    """The name of a known but unsupported model with these tensor names; None if unknown."""
    if is_transformers(keys):
        memory = any(key.startswith("memory_attention.") for key in keys)
        return "SAM 2, saved by transformers" + ("" if memory else " without its video memory")
    for family in FAMILIES:
        if all(any(re.search(sign, key) for key in keys) for sign in family.signs):
            return family.description
    return None
