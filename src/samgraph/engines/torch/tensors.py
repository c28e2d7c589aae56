"""Between arrays and tensors: dtypes, and how the elements get across."""

import numpy as np
import torch

from samgraph.graph.types import Array, DType, numpy_dtype

TORCH_DTYPES: dict[DType, torch.dtype] = {
    "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64,
    "i64": torch.int64, "i32": torch.int32, "u8": torch.uint8, "bool": torch.bool,
}  # fmt: skip
HALVES = (torch.float16, torch.bfloat16)


def widen(x: torch.Tensor) -> torch.Tensor:
    """Half precision as float32; anything else as it is."""
    return x.float() if x.dtype in HALVES else x


def to_tensor(array: Array, device: torch.device) -> torch.Tensor:
    """The array as a tensor; on the CPU they share memory, unless the array is read-only."""
    plain = np.asarray(array, order="C")
    if plain.dtype.name == "bfloat16":
        return to_tensor(plain.view(np.int16), device).view(torch.bfloat16)
    own = plain if plain.flags.writeable else plain.copy()  # torch has no read-only tensors
    return torch.from_numpy(own).to(device)


def to_array(tensor: torch.Tensor) -> Array:
    """The tensor as an array of the caller's own."""
    here = tensor.detach().cpu().contiguous()
    if here.dtype == torch.bfloat16:
        bits: Array = here.view(torch.int16).numpy()
        return np.array(bits.view(numpy_dtype("bf16")))
    return np.array(here.numpy())
