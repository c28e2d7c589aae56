"""The words of a SAM 2 manifest: graphs, values, and the steps of a click, a mask and a video."""

from typing import Any

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
}

VALUES = {
    "image": "RGB, see `preprocessing`",
    "embedding": "features at 1/16 of the image size",
    "fine_0": "high-resolution features at 1/4",
    "fine_1": "high-resolution features at 1/8",
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

_DECODE = {
    "embedding": "image_encoder.embedding",
    "fine_0": "image_encoder.fine_0",
    "fine_1": "image_encoder.fine_1",
}

STEPS: dict[str, list[dict[str, Any]]] = {
    "click": [
        {"run": "image_encoder", "inputs": {"image": "the image, preprocessed"}},
        {
            "run": "decode_points",
            "inputs": {**_DECODE, "points": "[N,P,2]", "labels": "[N,P]; pad with -2"},
            "then": "ambiguous prompt: the mask of 1 to 3 with the largest iou; else mask 0, or, "
            "where its stability is below `stability_wanted`, the best of 1 to 3",
        },
        {"then": "resize logits to the image (bilinear, half-pixel centres); above 0 is the mask"},
    ],
    "prompted frame": [
        {"run": "image_encoder", "inputs": {"image": "the frame, preprocessed"}},
        {
            "run": "decode",
            "inputs": {
                **_DECODE,
                "points": "the clicks; without any [[[0,0]]]",
                "labels": "their labels; without clicks [[-1]]",
                "mask": "zeros, or earlier best_mask clamped to +-`mask_prompt_clamp`",
                "has_mask": "whether there is one",
                "no_memory": "true",
                "multimask": "true for a single click, false for more, and for a box",
            },
            "then": "best_mask is the result; keep pointer",
        },
        {
            "run": "memory_encoder",
            "inputs": {
                "embedding": "image_encoder.embedding",
                "mask": "decode.best_mask",
                "object_score": "decode.object_score",
                "binary": "true",
            },
            "then": "keep memory as that of a prompted frame, with pointer",
        },
    ],
    "corrected frame": [
        {"run": "image_encoder", "inputs": {"image": "the frame, preprocessed"}},
        {"then": "select memories and pointers as on a tracked frame"},
        {
            "run": "memory_attention",
            "inputs": {
                "embedding": "image_encoder.embedding",
                "memory": "the selected memories",
                "slots": "their slots",
                "pointers": "the selected pointers",
                "pointer_times": "their times",
            },
        },
        {
            "run": "decode",
            "inputs": {
                **_DECODE,
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
        {
            "run": "memory_encoder",
            "inputs": {
                "embedding": "image_encoder.embedding",
                "mask": "decode.best_mask",
                "object_score": "decode.object_score",
                "binary": "true",
            },
            "then": "keep memory as that of a prompted frame, with pointer",
        },
    ],
    "frame with a mask": [
        {"run": "image_encoder", "inputs": {"image": "the frame, preprocessed"}},
        {
            "run": "mask_prompt",
            "inputs": {"mask": "[N,1,S,S] of 0 and 1"},
            "then": "logits is the result",
        },
        {
            "run": "decode",
            "inputs": {
                **_DECODE,
                "points": "[[[0,0]]]",
                "labels": "[[-1]]",
                "mask": "mask_prompt.prompt",
                "has_mask": "true",
                "no_memory": "false",
                "multimask": "false",
            },
            "then": "keep pointer; of an empty mask `absent_pointer`",
        },
        {
            "run": "memory_encoder",
            "inputs": {
                "embedding": "image_encoder.embedding",
                "mask": "mask_prompt.logits",
                "object_score": "`mask_object_score`; of an empty mask its negative",
                "binary": "true",
            },
            "then": "keep memory as that of a prompted frame, with pointer",
        },
    ],
    "tracked frame": [
        {"run": "image_encoder", "inputs": {"image": "the frame, preprocessed"}},
        {
            "then": "select memories of frame t, in this order: every prompted frame with slot "
            "`memory_frames`-1; then the tracked frames t-`memory_frames`+1 to t-1, oldest first, "
            "where they exist, frame t-d with slot d-1"
        },
        {
            "then": "select pointers: of prompted frames not after t; then of the tracked frames "
            "t-1, t-2, ... back to t-`longest`, where `longest` is min(number of frames, "
            "`max_pointers`)-1, at least 1; pointer_times is the distance to t / `longest`"
        },
        {
            "run": "track",
            "inputs": {
                **_DECODE,
                "memory": "the selected memories",
                "slots": "their slots",
                "pointers": "the selected pointers",
                "pointer_times": "their times",
            },
            "then": "best_mask is the result; keep new_memory and pointer, of a tracked frame",
        },
    ],
}
