"""SAM 2 of the transformers library, by its names: `from samgraph.compat.transformers import ...`.

    model = Sam2Model.from_pretrained("facebook/sam2.1-hiera-tiny")
    processor = Sam2Processor.from_pretrained("facebook/sam2.1-hiera-tiny")
    inputs = processor(images=image, input_points=[[[[500, 375]]]], return_tensors="pt")
    outputs = model(**inputs)
    masks = processor.post_process_masks(outputs.pred_masks.cpu(), inputs["original_sizes"])[0]

Arguments, shapes and order are those of its documentation. Neither torch nor transformers is
needed: what is a tensor there is an array with a tensor's methods here, whatever `return_tensors`.
`samgraph-nano`, files and folders with `model.safetensors` can be loaded, too.

Differs from the original: nothing is trained, and attentions and hidden states are not returned;
clicks that pad shorter lists are ignored, where the original attends to tokens of zeros;
prompts of several calls of `add_inputs_to_inference_session` are all used; a correction of one
object does not harden what is remembered of the others; images are resized as floats, as Meta's
code does it.
"""

from typing import Any

from samgraph.compat.transformers.encoding import BatchEncoding, ModelOutput
from samgraph.compat.transformers.generation import MaskGenerationPipeline, pipeline
from samgraph.compat.transformers.modeling import Sam2ImageSegmentationOutput, Sam2Model
from samgraph.compat.transformers.processing import (
    Sam2ImageProcessor,
    Sam2ImageProcessorFast,
    Sam2Processor,
)
from samgraph.compat.transformers.sources import infer_device
from samgraph.compat.transformers.video import Sam2VideoModel, Sam2VideoSegmentationOutput
from samgraph.compat.transformers.video_processing import Sam2VideoProcessor
from samgraph.compat.transformers.video_session import Sam2VideoInferenceSession

__all__ = [
    "BatchEncoding",
    "MaskGenerationPipeline",
    "ModelOutput",
    "Sam2ImageProcessor",
    "Sam2ImageProcessorFast",
    "Sam2ImageSegmentationOutput",
    "Sam2Model",
    "Sam2Processor",
    "Sam2VideoInferenceSession",
    "Sam2VideoModel",
    "Sam2VideoProcessor",
    "Sam2VideoSegmentationOutput",
    "infer_device",
    "pipeline",
]

_CLASSES = "name the class, such as Sam2Model or Sam2VideoProcessor"
_CONFIG = "the config of a model is `model.config`, recognised from its weights"
# Names of the library that are not here, and why.
_ABSENT = {
    "AutoImageProcessor": _CLASSES,
    "AutoModel": _CLASSES,
    "AutoModelForMaskGeneration": _CLASSES,
    "AutoProcessor": _CLASSES,
    "Sam2Config": _CONFIG,
    "Sam2VideoConfig": _CONFIG,
    "SamModel": "SAM 1 is not here; use Sam2Model",
    "SamProcessor": "SAM 1 is not here; use Sam2Processor",
}


def __getattr__(name: str) -> Any:
    if name in _ABSENT:  # not an AttributeError: `from ... import` would hide its text
        raise ImportError(f"`{name}` is not in samgraph.compat.transformers: {_ABSENT[name]}")
    raise AttributeError(f"module `samgraph.compat.transformers` has no `{name}`")
