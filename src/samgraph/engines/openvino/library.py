"""Types of the parts of OpenVINO used here: its own stubs are ignored by type checkers."""

from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from typing import Any, Protocol, TypeAlias

import numpy as np
from openvino import opset15 as _opset15

from samgraph.graph.types import Array

Hints: TypeAlias = Mapping[str, str | int]


class Port(Protocol):
    """A node with one output, or one output of a node: input and result of a lowering rule."""

    def output(self, index: int) -> "Port":
        """One of the outputs of a node."""
        ...

    def set_friendly_name(self, name: str) -> None:
        """Name a node in OpenVINO's messages."""
        ...


class Opset(Protocol):
    """A table of node makers by name."""

    def __getattr__(self, name: str) -> Callable[..., Port]:
        """Constructs a node from other nodes and attributes."""
        ...


opset15: Opset = _opset15


class ElementType(Protocol):
    """A dtype."""

    def to_string(self) -> str:
        """Its name, as `convert` takes it."""
        ...

    def to_dtype(self) -> np.dtype[Any]:
        """The numpy dtype."""
        ...


class PartialShape(Protocol):
    """A shape that may have unknown lengths."""

    @property
    def is_dynamic(self) -> bool:
        """Whether a length is unknown."""
        ...

    def to_shape(self) -> Sequence[int]:
        """The lengths, all of them known."""
        ...


class Result(Protocol):
    """An output of a compiled model."""

    def get_partial_shape(self) -> PartialShape:
        """Its shape."""
        ...

    def get_element_type(self) -> ElementType:
        """Its dtype."""
        ...


class Request(Protocol):
    """A run of a compiled model, one at a time."""

    def set_output_tensor(self, index: int, tensor: object) -> None:
        """Where to write an output."""
        ...

    def infer(
        self, inputs: Sequence[Array], *, share_inputs: bool, share_outputs: bool
    ) -> Mapping[int, Array]:
        """The outputs by number."""
        ...


class CompiledModel(Protocol):
    """A model that can run."""

    @property
    def inputs(self) -> Sequence[Result]:
        """Its inputs."""
        ...

    @property
    def outputs(self) -> Sequence[Result]:
        """Its outputs."""
        ...

    def create_infer_request(self) -> Request:
        """A new request with its own memory."""
        ...

    def export_model(self, stream: BytesIO) -> None:
        """Write what `Core.import_model` reads."""
        ...

    def release_memory(self) -> None:
        """Free intermediate values until the next run; `RuntimeError` while one is under way."""
        ...


class Core(Protocol):
    """OpenVINO itself."""

    @property
    def available_devices(self) -> Sequence[str]:
        """Its devices on this machine, such as `CPU`, `GPU.0` and `NPU`."""
        ...

    def get_property(self, device: str, name: str) -> Any:
        """A property of a device."""
        ...

    def compile_model(self, model: object, device: str, hints: Hints) -> CompiledModel:
        """Compile; `RuntimeError` where it cannot."""
        ...

    def import_model(self, tensor: object, device: str, hints: Hints) -> CompiledModel:
        """A model from the bytes of `export_model`; `RuntimeError` if they are invalid."""
        ...
