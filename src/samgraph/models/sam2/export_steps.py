"""The words of a SAM 2 manifest: graphs, values, and the steps of a click, a mask and a video."""

from collections.abc import Sequence
from typing import Any, TypeAlias

# The end of the names of graphs for a single remembered frame.
ONE = "_one"

SYMBOLS = {
    "B": "images",
    "N": "prompts or objects",
    "P": "points of a prompt",
    "F": "remembered frames",
    "Q": "object pointers",
}

GRAPHS = {
    "image_encoder": "features of images; once per image or frame",
    "decode_points": "four masks for each of N prompts on one still image",
    "decode": "four masks and the selected one, of any prompt; features of one image per prompt",
    "mask_prompt": "a mask given by a user, as result and as prompt of `decode`",
    "memory_encoder": "memories of N objects on one frame",
    "memory_attention": "features of one frame, conditioned on the memories of each of N objects",
    "track": "one tracked frame of N objects: memory_attention, decode, memory_encoder in one",
    f"memory_attention{ONE}": "memory_attention where a single frame is remembered",
    f"track{ONE}": "track where a single frame is remembered",
}

VALUES = {
    "image": "RGB, see `preprocessing`",
    "embedding": "features at 1/16 of the image size",
    "fine_0": "high-resolution features at 1/4",
    "fine_1": "high-resolution features at 1/8",
    "finest": "high-resolution features at 1/2",
    "points": "(x, y) in pixels of the model's input: x * image_size / width of the image",
    "labels": "one of `constants.labels` per point; a box is two points",
    "has_mask": "whether `mask` is a prompt",
    "no_memory": "true where the embedding comes from image_encoder, without memory_attention",
    "multimask": "select one of masks 1 to 3 by predicted IoU, else mask 0 unless unstable",
    "masks": "logits of four masks: 0 for clear prompts, 1 to 3 alternatives for ambiguous ones",
    "ious": "predicted IoU of each mask",
    "stability": "share of a mask that stays when its threshold moves",
    "object_score": "above 0 where the object is visible",
    "best_mask": "logits of the selected mask; `absent_logit` where occluded or absent",
    "best_iou": "predicted IoU of the selected mask",
    "pointer": "object pointer, for the memory",
    "logits": "the mask as logits, plus or minus ten",
    "prompt": "the `mask` input of `decode`",
    "binary": "true on prompted frames: the mask is thresholded first",
    "memory": "memory tokens: of one frame from memory_encoder, of F frames as input",
    "new_memory": "memory tokens of this frame",
    "conditioned": "the `embedding` of `decode`, with `no_memory` false",
    "slots": "row of the temporal encoding of each remembered frame",
    "pointers": "object pointers",
    "pointer_times": "distance of each pointer in frames, divided by `longest`",
    "mask": "low-resolution mask logits; of mask_prompt a mask of 0 and 1 at the image size",
}

Step: TypeAlias = dict[str, Any]
Features: TypeAlias = dict[str, str]
_ENCODE: Step = {"run": "image_encoder", "inputs": {"image": "the frame, preprocessed"}}
_MASK: Step = {
    "then": "resize logits to the frame (bilinear, half-pixel centres); above 0 is the mask"
}
_REMEMBERED = {
    "memory": "the selected memories",
    "slots": "their slots",
    "pointers": "the selected pointers",
    "pointer_times": "their times",
}
_SELECT: list[Step] = [
    {
        "then": "select memories of frame t, in this order: every prompted frame with slot "
        "`memory_frames`-1; then the tracked frames t-`memory_frames`+1 to t-1, oldest first, "
        "where they exist, frame t-d with slot d-1; a frame that was prompted counts as that alone"
    },
    {
        "then": "select pointers: of prompted frames not after t; then of the tracked frames "
        "t-1, t-2, ... back to t-`longest`, where `longest` is min(number of frames, "
        "`max_pointers`)-1, at least 1; pointer_times is the distance to t / `longest`. Backward "
        "in time, distances and `not after` count the other way"
    },
]


def steps(maps: Sequence[str], *, has_one: bool) -> dict[str, list[Step]]:
    """The calling order of each task, of a model whose image encoder gives these feature maps.

    `has_one`: graphs that attend exist once more, for a single remembered frame.
    """
    features = {name: f"image_encoder.{name}" for name in maps}
    return {
        "click": _click(features),
        "prompted frame": _prompted(features),
        "corrected frame": _corrected(features, _ones("memory_attention", has_one)),
        "frame with a mask": _given_mask(features),
        "tracked frame": _tracked(features, _ones("track", has_one)),
    }


def _ones(graph: str, has_one: bool) -> Step:
    return {"run_with_one_memory": f"{graph}{ONE}"} if has_one else {}


def _click(features: Features) -> list[Step]:
    return [
        {"run": "image_encoder", "inputs": {"image": "the image, preprocessed"}},
        {
            "run": "decode_points",
            "inputs": {**features, "points": "[N,P,2]", "labels": "[N,P]; pad with -2"},
            "then": "ambiguous prompt: the mask of 1 to 3 with the largest iou; else mask 0, "
            "or, where its stability is below `stability_wanted`, the best of 1 to 3",
        },
        {"then": _MASK["then"].replace("frame", "image")},
    ]


def _prompted(features: Features) -> list[Step]:
    return [
        _ENCODE,
        {
            "run": "decode",
            "inputs": {
                **features,
                "points": "the clicks; without any [[[0,0]]]",
                "labels": "their labels; without clicks [[-1]]",
                "mask": "zeros, or earlier best_mask clamped to +-`mask_prompt_clamp`",
                "has_mask": "whether there is one",
                "no_memory": "true",
                "multimask": "true for a single click, false for more, and for a box",
            },
            "then": "best_mask is the result; keep pointer",
        },
        _MASK,
        _remember("decode.best_mask", "decode.object_score"),
    ]


def _corrected(features: Features, one: Step) -> list[Step]:
    return [
        {"then": "first as a tracked frame, for its best_mask, if that has not been done"},
        _ENCODE,
        *_SELECT,
        {
            "run": "memory_attention",
            **one,
            "inputs": {"embedding": "image_encoder.embedding", **_REMEMBERED},
        },
        {
            "run": "decode",
            "inputs": {
                **features,
                "embedding": "memory_attention.conditioned",
                "points": "the clicks",
                "labels": "their labels",
                "mask": "the best_mask found before, clamped to +-`mask_prompt_clamp`",
                "has_mask": "true",
                "no_memory": "false",
                "multimask": "true for a single click, false for more",
            },
            "then": "best_mask is the result; keep pointer",
        },
        _MASK,
        _remember("decode.best_mask", "decode.object_score"),
    ]


def _given_mask(features: Features) -> list[Step]:
    return [
        _ENCODE,
        {
            "run": "mask_prompt",
            "inputs": {"mask": "[N,1,S,S] of 0 and 1"},
            "then": "logits is the result",
        },
        {
            "run": "decode",
            "inputs": {
                **features,
                "points": "[[[0,0]]]",
                "labels": "[[-1]]",
                "mask": "mask_prompt.prompt",
                "has_mask": "true",
                "no_memory": "false",
                "multimask": "false",
            },
            "then": "keep pointer; of an empty mask `absent_pointer`",
        },
        _remember("mask_prompt.logits", "`mask_object_score`; of an empty mask its negative"),
    ]


def _tracked(features: Features, one: Step) -> list[Step]:
    return [
        _ENCODE,
        *_SELECT,
        {
            "run": "track",
            **one,
            "inputs": {**features, **_REMEMBERED},
            "then": "best_mask is the result; keep new_memory and pointer, of a tracked frame",
        },
        _MASK,
    ]


def _remember(mask: str, score: str) -> Step:
    """The step that makes the memory of a prompted frame."""
    return {
        "run": "memory_encoder",
        "inputs": {
            "embedding": "image_encoder.embedding",
            "mask": mask,
            "object_score": score,
            "binary": "true",
        },
        "then": "keep memory as that of a prompted frame, with pointer",
    }
