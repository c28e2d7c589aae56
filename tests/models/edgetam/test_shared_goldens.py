"""EdgeTAM against recorded numbers of its reference: every component at 1024 pixels."""

from collections.abc import Iterator
from itertools import chain

import pytest

from samgraph.graph import Array
from samgraph.models.edgetam.config import EDGETAM
from samgraph.models.edgetam.graphs import GRAPHS
from tests.golden.reading import Golden
from tests.models.edgetam.parts import (
    encoder,
    image_encoder,
    memory_attention,
    memory_encoder,
    perceiver_steps,
    tables,
)
from tests.models.sam2.bench import Bench
from tests.models.sam2.comparing import compare_all, recorded, wrong
from tests.models.sister_components import known, released_shapes, run_shared, sister_bench

pytestmark = [pytest.mark.shared("golden-families"), pytest.mark.timeout(900)]


def components(golden: Golden, bench: Bench) -> Iterator[tuple[str, Array]]:
    yield from tables(golden, bench)
    yield from perceiver_steps(golden, bench)
    yield from encoder(golden, bench)
    yield from run_shared(golden, bench, ("points", "dense", "decoder", "heads"))
    yield from known(golden, memory_encoder(golden, bench))
    yield from memory_attention(golden, bench)


def test_the_config_has_the_released_keys_and_shapes() -> None:
    assert GRAPHS.weight_shapes(EDGETAM) == released_shapes("edgetam")


def test_every_component_is_computed_alike() -> None:
    golden, bench = sister_bench("edgetam", EDGETAM, GRAPHS, "openvino")

    found = compare_all(golden, components(golden, bench))

    assert set(found) == recorded(golden)
    assert not wrong(found)


@pytest.mark.parametrize("engine", ["reference", "torch", "onnxruntime"])
def test_other_engines_agree(engine: str) -> None:
    if engine != "reference":
        pytest.importorskip(engine)
    if engine == "torch":
        pytest.importorskip("torch")
    golden, bench = sister_bench("edgetam", EDGETAM, GRAPHS, engine)
    parts = [
        tables(golden, bench),
        perceiver_steps(golden, bench),
        run_shared(golden, bench, ("points", "dense")),
    ]
    if engine != "reference":  # numpy takes its time at 1024 pixels
        parts += [image_encoder(golden, bench), memory_attention(golden, bench, "f")]

    assert not wrong(compare_all(golden, chain(*parts)))
