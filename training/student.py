"""The student: the graphs that are served, evaluated with torch so that they can learn.

Where the weights start: the prompt encoder and the mask decoder from MobileSAM, what SAM 2 added
to the decoder as nothing (zero), the rest random.
"""

import math
from collections.abc import Mapping

import numpy as np
import torch

from samgraph.engines.protocol import Precision
from samgraph.engines.torch import Evaluator
from samgraph.graph import Array
from samgraph.models.nano.config import NanoConfig
from samgraph.models.nano.graphs import GRAPHS, image_encoder
from samgraph.models.sam2 import graphs
from samgraph.models.sam2.attention_graphs import attend_memory

Tensors = dict[str, torch.Tensor]


class Student:
    """Weights, and the four parts of SAM 2 as functions of them."""

    def __init__(self, config: NanoConfig, weights: Mapping[str, Array], device: str) -> None:
        self.config, self.device = config, device
        self.weights = {
            name: torch.from_numpy(np.array(array, np.float32)).to(device).requires_grad_()
            for name, array in weights.items()
        }
        half: Precision = "bf16" if device == "cuda" else "fp32"
        self._encode = Evaluator(image_encoder(config), half)
        self._decode = Evaluator(graphs.decode(config), "fp32")
        self._remember = Evaluator(graphs.encode_memory(config, images="N"), half)
        self._recall = Evaluator(attend_memory(config, images="N"), half)
        self._mask_prompt = Evaluator(graphs.mask_prompt(config), "fp32")

    def encode(self, images: torch.Tensor) -> Tensors:
        """Model input [B, 3, S, S] -> embedding, fine_0, fine_1."""
        return self._encode({**self.weights, "image": images})

    def decode(
        self,
        features: Tensors,
        points: torch.Tensor,
        labels: torch.Tensor,
        mask: torch.Tensor | None = None,
        *,
        multimask: torch.Tensor,
        no_memory: bool = True,
    ) -> Tensors:
        """Answers to N prompts, each on features of its own."""
        N, L = len(points), self.config.mask_size
        flag = torch.ones(N, dtype=torch.bool, device=points.device)
        given = {
            "points": points,
            "labels": labels,
            "mask": points.new_zeros(N, 1, L, L) if mask is None else mask,
            "has_mask": flag & (mask is not None),
            "no_memory": flag & no_memory,
            "multimask": multimask,
        }
        return self._decode({**self.weights, **features, **given})

    def mask_prompt(self, masks: torch.Tensor) -> Tensors:
        """Full-size masks as prompts -> logits, prompt."""
        return self._mask_prompt({**self.weights, "mask": masks})

    def remember(
        self, embedding: torch.Tensor, mask: torch.Tensor, score: torch.Tensor, *, binary: bool
    ) -> torch.Tensor:
        """The memory of a frame: [N, cells, 64]."""
        hard = torch.full((len(mask),), binary, device=mask.device)
        values = {"embedding": embedding, "mask": mask, "object_score": score, "binary": hard}
        return self._remember({**self.weights, **values})["memory"]

    def recall(
        self,
        embedding: torch.Tensor,
        memory: torch.Tensor,
        slots: torch.Tensor,
        pointers: torch.Tensor,
        times: torch.Tensor,
    ) -> torch.Tensor:
        """The embedding of a frame that remembers: [N, C, E, E]."""
        values = {
            "embedding": embedding,
            "memory": memory,
            "slots": slots,
            "pointers": pointers,
            "pointer_times": times,
        }
        return self._recall({**self.weights, **values})["embedding"]


def first_weights(config: NanoConfig, teacher: Mapping[str, Array], seed: int) -> dict[str, Array]:
    """Weights to start from."""
    random = np.random.default_rng(seed)
    weights = {}
    for name, shape in sorted(GRAPHS.weight_shapes(config).items()):
        known = taught_name(name)
        if known.endswith("attention_biases") and known in teacher:
            weights[name] = widened(teacher[known], shape)
        elif known in teacher:
            weights[name] = np.asarray(teacher[known], np.float32)
        else:
            weights[name] = _first(name, shape, random)
    return weights


def taught_name(name: str) -> str:
    """The name that the teacher has for a weight."""
    for own, known in (("sam_", ""), ("image_encoder.trunk.", "image_encoder.")):
        name = name.replace(own, known)
    return name


def widened(table: Array, shape: tuple[int, ...]) -> Array:
    """Biases of a larger window: offsets that the smaller has not are given its farthest."""
    small, large = (round(size**0.5) for size in (table.shape[1], shape[1]))
    near = np.minimum(np.arange(large), small - 1)
    square = np.asarray(table, np.float32).reshape(-1, small, small)
    return np.ascontiguousarray(square[:, near][:, :, near]).reshape(shape)


def _first(name: str, shape: tuple[int, ...], random: np.random.Generator) -> Array:
    """Ones for norms, zeros for biases and what the teacher's decoder lacks, else random."""
    starts_as_nothing = name == "no_mem_embed" or ".conv_s" in name or ".conv_finest" in name
    starts_as_nothing |= ".refinement.hypernetworks" in name and ".layers.2." in name
    if starts_as_nothing or name.endswith("bias") or "no_mem_pos" in name:
        return np.zeros(shape, np.float32)
    if name.endswith("gamma"):
        return np.full(shape, 0.1, np.float32)
    if len(shape) == 1:
        return np.ones(shape, np.float32)
    if name.endswith(".weight") and len(shape) >= 2 and shape[0] > 1:
        inside, outside = math.prod(shape[1:]), shape[0] * math.prod(shape[2:])
        size = math.sqrt(2 / (inside + outside))
    elif name.startswith("mask_downsample"):
        return np.full(shape, 1 / math.prod(shape), np.float32)
    else:
        size = 0.02
    return np.clip(random.standard_normal(shape), -2, 2).astype(np.float32) * np.float32(size)
