"""Graphs for the passes that the mask decoder and prompts on one image need."""

from samgraph import ops
from samgraph.graph import Builder, Graph, Tensor, TensorType, emit
from tests.passes.golden_case import case


def _projected(builder: Builder, x: Tensor, name: str, out: int) -> Tensor:
    weight = builder.param(f"{name}.weight", TensorType((out, x.shape[-1])))
    return ops.linear(x, weight, builder.param(f"{name}.bias", TensorType((out,))))


@case("absorb_key_projection")
def absorb_key_projection_of_tokens_that_attend_to_an_image() -> Graph:
    builder = Builder("token_to_image")
    q = builder.input("tokens", "f32[N,P+7,128]")
    keys, image = (builder.input(name, "f32[N,4096,256]") for name in ("keys", "image"))
    k, v = _projected(builder, keys, "k", 128), _projected(builder, image, "v", 128)
    return builder.finish(y=ops.attention(q, k, v, heads=8, scale=0.25))


@case("absorb_key_projection")
def absorb_key_projection_leaves_many_queries_masks_and_second_readers() -> Graph:
    builder = Builder("no_gain")
    few, many = builder.input("few", "f32[N,3,8]"), builder.input("many", "f32[N,64,8]")
    x = builder.input("x", "f32[N,64,16]")

    def projections(name: str) -> tuple[Tensor, Tensor]:
        return _projected(builder, x, f"{name}.k", 8), _projected(builder, x, f"{name}.v", 8)

    read_twice, gelu = projections("read_twice"), projections("gelu")
    mask = builder.input("mask", "f32[N,1,1,64]")
    return builder.finish(
        many=ops.attention(many, *projections("many"), heads=2, scale=0.5),
        masked=ops.attention(few, *projections("masked"), mask, heads=2, scale=0.5),
        read_twice=ops.attention(few, *read_twice, heads=2, scale=0.5),
        values=read_twice[1],
        not_projected=ops.attention(few, many, ops.sin(many), heads=2, scale=0.5),
        after_an_activation=ops.attention(few, gelu[0], ops.gelu(gelu[1]), heads=2, scale=0.5),
    )


@case("absorb_query_projection")
def absorb_query_projection_of_an_image_that_attends_to_tokens() -> Graph:
    builder = Builder("image_to_token")
    image, mask = builder.input("image", "f32[N,4096,256]"), builder.input("mask", "f32[N,1,1,P+7]")
    k, v = (builder.input(name, "f32[N,P+7,128]") for name in "kv")
    q = _projected(builder, image, "q", 128)
    y = ops.attention(q, k, v, mask, heads=8, scale=0.25)
    return builder.finish(y=_projected(builder, y, "out", 256))


@case("absorb_query_projection")
def absorb_query_projection_of_one_image_for_all_prompts() -> Graph:
    builder = Builder("shared")
    k, v = (builder.input(name, "f32[N,P+7,128]") for name in "kv")
    q = builder.input("q", "f32[1,4096,128]")
    y = ops.attention(ops.expand(q, *k.shape[:1], 4096, 128), k, v, heads=8, scale=0.25)
    return builder.finish(y=ops.linear(y, builder.param("out", "f32[256,128]")))


@case("absorb_query_projection")
def absorb_query_projection_leaves_many_keys_other_masks_and_second_readers() -> Graph:
    builder = Builder("no_gain")
    x, few = builder.input("x", "f32[N,64,16]"), builder.input("few", "f32[N,3,8]")
    many, mask = builder.input("many", "f32[N,64,8]"), builder.input("mask", "f32[N,1,64,3]")

    def attended(name: str, k: Tensor, mask: Tensor | None = None) -> Tensor:
        q = _projected(builder, x, f"{name}.q", 8)
        return ops.attention(q, k, ops.sin(k), mask, heads=2, scale=0.5)

    output, w = attended("output", few), builder.param("w", "f32[16,8]")
    return builder.finish(
        many=_projected(builder, attended("many", many), "many.out", 16),
        a_mask_for_each_query=_projected(builder, attended("masked", few, mask), "masked.out", 16),
        output=output,
        read_twice=_projected(builder, output, "output.out", 16),
        no_output_projection=attended("alone", few) * 2,
        an_activation=emit("linear", attended("gelu", few), w, activation="gelu"),
    )


@case("conv_transpose_to_linear")
def conv_transpose_to_linear_twice_and_a_product() -> Graph:
    builder = Builder("upscale")
    x, nets = builder.input("x", "f32[N,6,8]"), builder.input("nets", "f32[N,5,2]")
    fine_0, fine_1 = (
        builder.input("fine_0", "f32[1,2,8,12]"),
        builder.input("fine_1", "f32[N,4,4,6]"),
    )
    scale, shift = builder.param("scale", "f32[4]"), builder.param("shift", "f32[4]")
    N = x.shape[0]
    image = ops.transpose(x.reshape(N, 2, 3, 8), 0, 3, 1, 2)
    weight, bias = builder.param("w1", "f32[8,4,2,2]"), builder.param("b1", "f32[4]")
    y = ops.conv_transpose2d(image, weight, bias, stride=(2, 2)) + fine_1
    y = ops.gelu(ops.layer_norm_2d(y, scale, shift, eps=1e-6))
    y = ops.conv_transpose2d(y, builder.param("w2", "f32[4,2,2,2]"), stride=(2, 2))
    y = ops.gelu(fine_0 + y)
    masks = ops.matmul(nets, y.reshape(N, 2, 96)).reshape(N, 5, 8, 12)
    return builder.finish(masks=masks)


@case("conv_transpose_to_linear")
def conv_transpose_to_linear_leaves_overlaps_and_gives_images_back() -> Graph:
    builder = Builder("others")
    x, image = builder.input("x", "f32[N,2,3,8]"), builder.input("image", "f32[N,8,2,3]")
    moved = ops.transpose(x, 0, 3, 1, 2)
    w2, w3 = builder.param("w2", "f32[8,4,2,2]"), builder.param("w3", "f32[8,4,3,3]")
    large = ops.relu(ops.conv_transpose2d(moved, w2, stride=(2, 2)) * 0.5)
    return builder.finish(
        overlapping=ops.conv_transpose2d(moved, w3, stride=(2, 2)),
        channels_second=ops.conv_transpose2d(image, w2, stride=(2, 2)),
        an_image=large,
        convolved=ops.conv2d(large, builder.param("k", "f32[2,4,3,3]")),
    )


@case("sink_expand")
def sink_expand_below_projections_and_attention() -> Graph:
    builder = Builder("one_image")
    image, tokens = builder.input("image", "f32[1,64,8]"), builder.input("tokens", "f32[N,3,8]")
    each = ops.expand(image, *tokens.shape[:1], 64, 8)
    keys = each + builder.param("position", "f32[1,64,8]")
    k, v = _projected(builder, keys, "k", 8), _projected(builder, each, "v", 8)
    y = ops.attention(tokens, k, v, heads=2, scale=0.5)
    q = ops.gelu(_projected(builder, keys, "q", 8))
    z = ops.attention(q, tokens, tokens, heads=2, scale=0.5)
    return builder.finish(tokens=y, image=each + z)


@case("sink_expand")
def sink_expand_stays_above_what_mixes_rows() -> Graph:
    builder = Builder("mixed")
    row, x = builder.input("row", "f32[1,4,8]"), builder.input("x", "f32[N,4,8]")
    N = x.shape[0]
    each = ops.expand(row, N, 4, 8)
    channels = ops.expand(builder.input("narrow", "f32[1,4,1]"), 1, 4, 8)
    return builder.finish(
        over_rows=ops.reduce(each, (0,), how="sum"),
        moved=ops.transpose(each, 1, 0, 2),
        joined=each.reshape(N * 4, 8),
        other_axis=ops.relu(channels),
        concatenated=ops.concat([each, x], axis=1),
        masked=ops.attention(
            x, each, each, builder.input("mask", "f32[N,1,1,4]"), heads=1, scale=1.0
        ),
    )


@case("tile_sums")
def tile_sums_of_a_convolution() -> Graph:
    builder = Builder("sums")
    one, many = builder.input("one", "f32[1,4,8,8]"), builder.input("many", "f32[N,4,8,8]")
    w = builder.param("w", "f32[4,4,1,1]")
    return builder.finish(
        y=ops.conv2d(one, w) + ops.conv2d(many, w),
        z=ops.conv2d(many, w) + one,
        not_of_a_convolution=one + ops.relu(many),
        a_bias=ops.conv2d(many, w) + builder.param("b", "f32[1,4,1,1]"),
        the_same_batch=ops.conv2d(many, w) + many,
    )
