"""Parts on inputs so small that the epsilon of each norm shows: see `tests/golden/quiet.py`."""

from collections.abc import Iterator

from samgraph.graph import Array, Scope, Tensor
from samgraph.models.sam2 import hiera, mask_decoder, memory_attention, memory_encoder, prompts
from samgraph.models.sam2.config import Sam2Config
from samgraph.models.sam2.layers import to_tokens
from samgraph.models.sam2.two_way import two_way
from tests.golden.quiet import POINTERS, quietened
from tests.golden.reading import Golden, golden
from tests.models.sam2.bench import Bench, config_of, known_weights
from tests.models.sam2.decoder_parts import points_of, start_tokens

Named = Iterator[tuple[str, Array]]


def quiet_bench(engine: str) -> tuple[Golden, Bench]:
    """The golden file, and a bench with the weights behind it."""
    file = golden("quiet_test")
    config = config_of(file.meta)
    return file, Bench(config, quietened(known_weights(config, file.weights_seed)), engine)


def run_quiet(file: Golden, bench: Bench) -> Named:
    """Name and value of everything in the file."""
    yield from bench.run(_blocks, x=file.input("in_quiet_patches")).items()
    given = {name: file.input(f"in_quiet_{name}") for name in ("current", "memory", "memory_pos")}
    yield from bench.run(_memory_layer, **given).items()
    yield from bench.run(_fuser, x=file.input("in_quiet_fuser")).items()
    names = ("mask", "image", "fine_0", "fine_1")
    given = {name: file.input(f"in_quiet_{name}") for name in names}
    xy, labels = points_of(file, "pe_quiet")
    yield from bench.run(_decoder, **given, xy=xy, labels=labels).items()


def _blocks(at: Scope, config: Sam2Config, x: Tensor) -> dict[str, Tensor]:
    found = {}
    for i, (stage, window, pools) in enumerate(hiera.block_plan(config)[:2]):
        block = at / "image_encoder" / "trunk" / "blocks" / i
        found[f"enc_quiet_block{i}"] = hiera.block(block, config, x, stage, window, pools)
    return found


def _memory_layer(
    at: Scope, config: Sam2Config, current: Tensor, memory: Tensor, memory_pos: Tensor
) -> dict[str, Tensor]:
    layer = at / "memory_attention" / "layers" / 0
    nowhere = at.builder.constant(0.0, "f32")  # positions are not added in a layer
    x = memory_attention.memory_layer(layer, config, current, nowhere, memory, memory_pos, POINTERS)
    return {"attn_quiet_layer0": x}


def _fuser(at: Scope, config: Sam2Config, x: Tensor) -> dict[str, Tensor]:
    layer = at / "memory_encoder" / "fuser" / "layers" / 0
    return {"mem_quiet_fuser0": memory_encoder.fuse(layer, config, x)}


def _decoder(
    at: Scope,
    config: Sam2Config,
    mask: Tensor,
    image: Tensor,
    fine_0: Tensor,
    fine_1: Tensor,
    xy: Tensor,
    labels: Tensor,
) -> dict[str, Tensor]:
    encoder, scope = at / "sam_prompt_encoder", at / "sam_mask_decoder"
    dense = prompts.mask(encoder, config, mask)
    cells = to_tokens(image + dense)
    sparse = prompts.points(encoder, config, xy, labels)
    positions = prompts.dense_positions(encoder, config)
    tokens, seen = two_way(
        scope / "transformer",
        config,
        start_tokens(scope, config, sparse),
        cells,
        positions,
        None,
    )
    decoded = mask_decoder.decode(scope, config, cells, (fine_0, fine_1), sparse, positions)
    return {
        "pe_quiet_dense": dense,
        "dec_quiet_tokens_out": tokens,
        "dec_quiet_src_out": seen,
        "dec_quiet_all_masks": decoded.masks,
    }
