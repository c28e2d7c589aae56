"""Memory attention as a graph a stage, for looking inside; equal to the fused graph.

    tokens              embedding and memory as tokens with their positions
    layer i  project    norm and q, k, v projections         self, then cross
             turn       axial RoPE of q and k
             attend     attention, output projection, shortcut
             feedforward
    finish              last norm, back to an image

Each stage is compiled by itself; what flows between them can be read from `run(..., keep=True)`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from samgraph import ops
from samgraph.graph import Array, Builder, Dim, Graph, Scope, Tensor, symbol
from samgraph.models.sam2 import memory_bank
from samgraph.models.sam2.config import Sam2Config
from samgraph.models.sam2.layers import layer_norm, linear, to_image, to_tokens
from samgraph.models.sam2.memory_attention import feedforward_step, with_position
from samgraph.models.sam2.positions import sine_grid
from samgraph.runtime import CompiledGraph

_EPS = 1e-5
Compile = Callable[[Graph], CompiledGraph]


@dataclass(frozen=True, slots=True)
class Stage:
    """A graph, where its inputs come from, and what its outputs are called afterwards."""

    name: str
    graph: Graph
    reads: Mapping[str, str]
    writes: Mapping[str, str]


class SplitMemoryAttention:
    """Runs the stages one after another, with the inputs and output of the fused graph."""

    def __init__(self, config: Sam2Config, compile: Compile) -> None:
        self.stages = stages(config)
        self._compiled = [compile(stage.graph) for stage in self.stages]

    def run(
        self, inputs: Mapping[str, Array] | None = None, /, *, keep: bool = False, **named: Array
    ) -> dict[str, Array]:
        """The conditioned embedding; with `keep`, also every value between stages."""
        values: dict[str, Array] = {**(inputs or {}), **named}
        for stage, compiled in zip(self.stages, self._compiled, strict=True):
            given = {name: values[source] for name, source in stage.reads.items()}
            outputs = compiled.run(given)
            values |= {name: outputs[key] for key, name in stage.writes.items()}
        return values if keep else {"embedding": values["conditioned"]}


def stages(config: Sam2Config) -> list[Stage]:
    """All stages in the order they run."""
    found = [_tokens(config)]
    for i in range(config.memory_layers):
        for kind in ("self", "cross"):
            found += [_project(config, i, kind), _turn(config, i, kind), _attend(config, i, kind)]
        found.append(_feedforward(config, i))
    return [*found, _finish(config)]


def _tokens(config: Sam2Config) -> Stage:
    builder = Builder("tokens")
    C, E, T, small = config.channels, config.grid, config.grid**2, config.memory_channels
    N, F = symbol("N"), symbol("F")
    embedding = builder.input("embedding", f"f32[1,{C},{E},{E}]")
    frames = builder.input("memory", f"f32[N,F,{T},{small}]")
    slots = builder.input("slots", "i64[N,F]")
    pointers = builder.input("pointers", f"f32[N,Q,{C}]")
    times = builder.input("pointer_times", "f32[N,Q]")
    at = builder.scope()
    place = builder.constant(sine_grid(C, E, E).reshape(1, C, T).transpose(0, 2, 1))
    pointer_tokens = memory_bank.pointer_tokens(config, pointers)
    frame_tokens = frames.reshape(N, F * T, small)
    outputs = {
        "x": ops.expand(with_position(to_tokens(embedding), place), N, T, C),
        "frames": frame_tokens,
        "frame_keys": frame_tokens + memory_bank.frame_positions(at, config, slots),
        "pointers": pointer_tokens,
        "pointer_keys": pointer_tokens
        + memory_bank.pointer_positions(at, config, times).reshape(*pointer_tokens.shape),
    }
    inputs = ("embedding", "memory", "slots", "pointers", "pointer_times")
    names = {"pointers": "pointer_tokens"}
    return Stage(
        "tokens",
        builder.finish(outputs),
        {name: name for name in inputs},
        {name: names.get(name, name) for name in outputs},
    )


def _layer(builder: Builder, i: int) -> Scope:
    return builder.scope() / "memory_attention" / "layers" / i


def _attention_scope(layer: Scope, kind: str) -> Scope:
    return layer / ("self_attn" if kind == "self" else "cross_attn_image")


def _memory_inputs(builder: Builder, config: Sam2Config) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    T, small = config.grid**2, config.memory_channels
    split = memory_bank.tokens_per_pointer(config)
    frames, frame_keys = (
        builder.input(name, f"f32[N,{T}*F,{small}]") for name in ("frames", "frame_keys")
    )
    pointers, pointer_keys = (
        builder.input(name, f"f32[N,{split}*Q,{small}]")
        for name in ("pointer_tokens", "pointer_keys")
    )
    return frames, frame_keys, pointers, pointer_keys


def _project(config: Sam2Config, i: int, kind: str) -> Stage:
    builder = Builder(f"layer{i}_{kind}_project")
    C, T = config.channels, config.grid**2
    x = builder.input("x", f"f32[N,{T},{C}]")
    layer = _layer(builder, i)
    at = _attention_scope(layer, kind)
    normal = layer_norm(layer / ("norm1" if kind == "self" else "norm2"), x, eps=_EPS)
    keys = values = normal
    reads = {"x": "x"}
    if kind == "cross":
        frames, frame_keys, pointers, pointer_keys = _memory_inputs(builder, config)
        keys = ops.concat([frame_keys, pointer_keys], axis=1)
        values = ops.concat([frames, pointers], axis=1)
        reads |= {n: n for n in ("frames", "frame_keys", "pointer_tokens", "pointer_keys")}
    outputs = {
        name: linear(at / f"{name}_proj", source, C)
        for name, source in (("q", normal), ("k", keys), ("v", values))
    }
    prefix = f"layer{i}.{kind}."
    return Stage(builder.name, builder.finish(outputs), reads, {n: prefix + n for n in outputs})


def _turn(config: Sam2Config, i: int, kind: str) -> Stage:
    builder = Builder(f"layer{i}_{kind}_turn")
    C, T = config.channels, config.grid**2
    split = memory_bank.tokens_per_pointer(config)
    grid, prefix = (config.grid, config.grid), f"layer{i}.{kind}."
    q = builder.input("q", f"f32[N,{T},{C}]")
    reads = {"q": prefix + "q", "k": prefix + "k"}
    unrotated: Dim = 0
    if kind == "self":
        k = builder.input("k", f"f32[N,{T},{C}]")
    else:
        builder.input("pointer_keys", f"f32[N,{split}*Q,{config.memory_channels}]")
        k = builder.input("k", f"f32[N,{T}*F+{split}*Q,{C}]")
        unrotated = split * symbol("Q")
        reads["pointer_keys"] = "pointer_keys"
    turned = {
        name: ops.axial_rope(
            tensor, grid=grid, theta=config.rope_theta, heads=config.memory_heads, unrotated=rest
        )
        for name, tensor, rest in (("q", q, 0), ("k", k, unrotated))
    }
    return Stage(
        builder.name, builder.finish(turned), reads, {n: f"{prefix}{n}.turned" for n in turned}
    )


def _attend(config: Sam2Config, i: int, kind: str) -> Stage:
    builder = Builder(f"layer{i}_{kind}_attend")
    C, T, heads = config.channels, config.grid**2, config.memory_heads
    x, q = (builder.input(name, f"f32[N,{T},{C}]") for name in ("x", "q"))
    k, v = (builder.input(name, f"f32[N,M,{C}]") for name in ("k", "v"))
    at = _attention_scope(_layer(builder, i), kind)
    y = ops.attention(q, k, v, heads=heads, scale=(C // heads) ** -0.5)
    prefix = f"layer{i}.{kind}."
    reads = {"x": "x", "q": f"{prefix}q.turned", "k": f"{prefix}k.turned", "v": prefix + "v"}
    return Stage(
        builder.name, builder.finish(x=x + linear(at / "out_proj", y, C)), reads, {"x": "x"}
    )


def _feedforward(config: Sam2Config, i: int) -> Stage:
    builder = Builder(f"layer{i}_feedforward")
    x = builder.input("x", f"f32[N,{config.grid**2},{config.channels}]")
    graph = builder.finish(x=feedforward_step(_layer(builder, i), config, x))
    return Stage(builder.name, graph, {"x": "x"}, {"x": "x"})


def _finish(config: Sam2Config) -> Stage:
    builder = Builder("finish")
    x = builder.input("x", f"f32[N,{config.grid**2},{config.channels}]")
    normal = layer_norm(builder.scope() / "memory_attention" / "norm", x, eps=_EPS)
    image = to_image(normal, config.grid, config.grid)
    return Stage(
        "finish", builder.finish(embedding=image), {"x": "x"}, {"embedding": "conditioned"}
    )
