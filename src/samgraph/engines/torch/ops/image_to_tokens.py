"""image_to_tokens: image-to-token cross-attention, residual and layer norm, for few tokens.

    y = layer_norm(image + sum over heads of softmax(queries @ keys.T + scores) @ values)

image and queries [N, I, C], keys and values [N, T, h*C], scores [N, T, h], scale and shift [C].
The softmax of each head is over the tokens. Gives [N, I, C].
"""

import numpy as np

from samgraph.graph.dims import Dim, product
from samgraph.graph.registry import ENGINE_OPS, OPS, expect, register
from samgraph.graph.types import Array, TensorType
from samgraph.ops.rules import need_float, widen


def infer(
    image: TensorType,
    queries: TensorType,
    keys: TensorType,
    scores: TensorType,
    values: TensorType,
    scale: TensorType,
    shift: TensorType,
    *,
    heads: int,
    eps: float,
) -> TensorType:
    """The type of the image."""
    need_float("image_to_tokens", image, queries, keys, scores, values, scale, shift)
    OPS["layer_norm"].infer(image, scale, shift, eps=eps)
    shapes = f"image: {image}, queries: {queries}, keys: {keys}, values: {values}"
    ok = image.rank == keys.rank == 3 and image == queries and keys == values and heads >= 1
    expect(ok, "image_to_tokens", "inputs do not fit", got=shapes, want="[N, I, C], [N, T, h*C]")
    ok = keys.shape[2] == image.shape[2] * heads and keys.shape[0] == image.shape[0]
    expect(ok, "image_to_tokens", "heads do not fit", got=shapes, want=f"{heads} heads of C")
    want = keys.reshaped((*keys.shape[:2], heads))
    expect(scores == want, "image_to_tokens", "scores do not fit", got=scores, want=want)
    return image


def reference(
    image: Array,
    queries: Array,
    keys: Array,
    scores: Array,
    values: Array,
    scale: Array,
    shift: Array,
    *,
    heads: int,
    eps: float,
) -> Array:
    """Head by head."""
    y = widen(image)
    N, T, _ = keys.shape
    split = [widen(x).reshape(N, T, heads, -1) for x in (keys, values)]
    for head in range(heads):
        key, value = (x[:, :, head] for x in split)
        fit = widen(queries) @ key.transpose(0, 2, 1) + widen(scores)[:, None, :, head]
        powers = np.exp(fit - fit.max(-1, keepdims=True))
        y = y + (powers / powers.sum(-1, keepdims=True)) @ value
    result: Array = OPS["layer_norm"].reference(y, widen(scale), widen(shift), eps=eps)
    return result.astype(image.dtype)


def work(result: TensorType, image: TensorType, _: TensorType, keys: TensorType, *__: TensorType,
         **___: object) -> Dim:  # fmt: skip
    """Scores, and the weighted average."""
    return 2 * product(keys.shape) * image.shape[1]


register(
    "image_to_tokens",
    infer=infer,
    reference=reference,
    work=work,
    meaning=__doc__,
    table=ENGINE_OPS,
)
