"""Hiera, the trunk of the image encoder (section 4, "image encoder"; Ryali et al. 2023).

    image -> patches + position -> blocks in four stages -> one feature map for each stage

A block is attention, windowed or global, then an MLP, both with a residual connection. The first
block of a stage halves the grid: its queries and its residual are max-pooled 2 x 2, and its width
doubles. Windows that do not divide the grid are padded with zeros after the norm; padded tokens
are attended to.

Shapes: B images, H W grid, C channels, T tokens of a window.
"""

from samgraph import ops
from samgraph.graph import Scope, Tensor
from samgraph.models.sam2.config import Sam2Config
from samgraph.models.sam2.layers import conv2d, layer_norm, linear, mlp, width
from samgraph.models.sam2.windows import partition, unpartition


def hiera(at: Scope, config: Sam2Config, image: Tensor) -> list[Tensor]:
    """The last map of every stage, finest first: [B, 3, S, S] -> [B, H, W, C] each."""
    x = patches(at / "patch_embed", config, image)
    x = x + positions(at, config)
    maps = []
    for i, (stage, window, pools) in enumerate(block_plan(config)):
        x = at.mark(f"blocks.{i}", block(at / "blocks" / i, config, x, stage, window, pools))
        if i + 1 == sum(config.stages[: stage + 1]):
            maps.append(x)
    return maps


def patches(at: Scope, config: Sam2Config, image: Tensor) -> Tensor:
    """A 7 x 7 convolution with stride 4: [B, 3, S, S] -> [B, S/4, S/4, C]."""
    return conv2d(at / "proj", image, config.embed_dim, 7, stride=4, padding=3).transpose(
        0, 2, 3, 1
    )


def positions(at: Scope, config: Sam2Config) -> Tensor:
    """Position embedding: background, bicubically resized, plus window, tiled: [1, S/4, S/4, C]."""
    side, window = config.image_size // 4, config.windows[0]
    background = at.weight("pos_embed", 1, config.embed_dim, *config.background_size)
    local = at.weight("pos_embed_window", 1, config.embed_dim, window, window)
    repeated = ops.tile(local, 1, 1, side // window, side // window)
    whole = ops.resize(background, (side, side), how="bicubic") + repeated
    return whole.transpose(0, 2, 3, 1)


def block_plan(config: Sam2Config) -> list[tuple[int, int, bool]]:
    """Stage, window (0: global) and whether it pools, for every block.

    A pooling block has the window size of the previous stage.
    """
    plan: list[tuple[int, int, bool]] = []
    for stage, count in enumerate(config.stages):
        for i in range(count):
            pools = stage > 0 and i == 0
            window = config.windows[stage - 1 if pools else stage]
            number = len(plan)
            plan.append((stage, 0 if number in config.global_blocks else window, pools))
    return plan


def block(at: Scope, config: Sam2Config, x: Tensor, stage: int, window: int, pools: bool) -> Tensor:
    """One block: [B, H, W, C] -> [B, H, W, C], or [B, H/2, W/2, 2C] where it pools."""
    channels, heads = config.stage_channels[stage], config.heads * 2**stage
    B, H, W = x.shape[0], width(x, 1), width(x, 2)
    h, w = (window, window) if window else (H, W)
    normal = layer_norm(at / "norm1", x, eps=config.norm_eps)
    windows = partition(normal, h, w, quads=pools)
    y = attention(at / "attn", windows, channels, heads, pools)
    if pools:
        y = y + pool(linear(at / "proj", windows, channels))
        x = unpartition(y, h // 2, w // 2, B, H // 2, W // 2)
    else:
        x = x + unpartition(y, h, w, B, H, W)
    normal = layer_norm(at / "norm2", x, eps=config.norm_eps)
    return x + mlp(at / "mlp", normal, (channels * config.mlp_ratio, channels), gelu=True)


def attention(at: Scope, x: Tensor, channels: int, heads: int, pools: bool) -> Tensor:
    """Attention inside each window: [n, T, C] or, to pool, [n, 4, T/4, C] -> [n, T or T/4, C].

    Attention is invariant to the order of its tokens, so pooled windows stay in quads.
    """
    q, k, v = projections(at / "qkv", x, channels)
    if pools:
        q, k, v = pool(q), *(y.reshape(x.shape[0], -1, channels) for y in (k, v))
    y = ops.attention(q, k, v, heads=heads, scale=(channels // heads) ** -0.5)
    return linear(at / "proj", y, channels)


def projections(at: Scope, x: Tensor, channels: int) -> list[Tensor]:
    """Queries, keys and values; the checkpoint stores their three projections as one (`qkv`)."""
    weight, bias = at.weight("weight", 3 * channels, width(x)), at.weight("bias", 3 * channels)
    parts = [slice(i * channels, (i + 1) * channels) for i in range(3)]
    return [ops.linear(x, weight[part], bias[part]) for part in parts]


def pool(x: Tensor) -> Tensor:
    """The largest of each quad: [n, 4, T/4, C] -> [n, T/4, C]."""
    return ops.reduce(x, (1,), how="max")
