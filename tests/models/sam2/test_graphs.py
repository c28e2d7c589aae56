"""The graphs of the model: open sizes, batches, ragged prompts, other image sizes, text."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from samgraph.errors import OptionError
from samgraph.graph import Array, parse_graph, print_graph
from samgraph.models.sam2 import graphs
from samgraph.models.sam2.attention_graphs import (
    attend_bank,
    attend_memory,
    attend_prepared,
    prepare_frame,
)
from samgraph.models.sam2.config import CONFIGS, Sam2Config, find_config, from_json
from samgraph.models.sam2.model import Sam2Model
from samgraph.runtime import CompileOptions
from tests import tolerances
from tests.golden.configs import CONFIGS as FIELDS
from tests.models.sam2 import wiring
from tests.models.sam2.bench import Bench, Outputs, config_from, known_weights

SEED = 21
TEST = config_from(FIELDS["test"], "test")
TEST2 = config_from(FIELDS["test2"], "test2")
ENGINES = ("reference", "openvino")

ABSOLUTE = {"ious", "best_iou", "object_score", "stability"}
LIMITS = {
    "masks": tolerances.DECODER,
    "best_mask": tolerances.DECODER,
    "pointer": tolerances.DECODER,
    "ious": tolerances.IOU,
    "best_iou": tolerances.IOU,
    "object_score": tolerances.OBJECT_SCORE,
    "stability": tolerances.STABILITY,
}


def bench_of(config: Sam2Config, engine: str, profile: str = "fused") -> Bench:
    return Bench(config, known_weights(config, SEED), engine, profile)


@pytest.fixture(scope="module", params=ENGINES)
def bench(request: pytest.FixtureRequest) -> Bench:
    return bench_of(TEST, request.param)


@pytest.fixture(scope="module")
def fast() -> Bench:
    return bench_of(TEST, "openvino")


def decode_inputs(config: Sam2Config, N: int, P: int, seed: int = 0) -> Outputs:
    """N prompts of P points, each of its own kind, on images of their own."""
    rng = np.random.default_rng(seed)
    C, E, L, S = config.channels, config.grid, config.mask_size, config.image_size

    def draw(*shape: int) -> Array:
        return rng.standard_normal(shape, np.float32)

    return {
        "embedding": draw(N, C, E, E),
        "fine_0": draw(N, C // 8, L, L),
        "fine_1": draw(N, C // 4, 2 * E, 2 * E),
        "points": rng.uniform(0, S, (N, P, 2)).astype(np.float32),
        "labels": rng.integers(-1, 4, (N, P)),
        "mask": draw(N, 1, L, L) * np.float32(5),
        "has_mask": np.arange(N) % 2 == 1,
        "no_memory": np.arange(N) % 3 == 0,
        "multimask": np.arange(N) % 2 == 0,
    }


def row(inputs: Outputs, i: int) -> Outputs:
    return {name: array[i : i + 1] for name, array in inputs.items()}


def assert_close(found: Outputs, wanted: Outputs, limits: Mapping[str, float] = LIMITS) -> None:
    for name, limit in limits.items():
        scale = 1.0 if name in ABSOLUTE else np.abs(wanted[name]).max()
        assert found[name].shape == wanted[name].shape
        assert np.abs(found[name] - wanted[name]).max() / scale < limit, name


def test_one_decode_graph_serves_any_number_of_prompts_and_points(bench: Bench) -> None:
    for N, P in ((1, 1), (2, 5), (3, 2)):
        inputs = decode_inputs(TEST, N, P, seed=P)

        together = bench.graph("decode", **inputs)

        alone = [bench.graph("decode", **row(inputs, i)) for i in range(N)]
        stacked = {name: np.concatenate([one[name] for one in alone]) for name in together}
        assert_close(together, stacked)


def test_absent_points_change_nothing(bench: Bench) -> None:
    inputs = decode_inputs(TEST, 3, 4, seed=7)
    inputs["labels"] = np.array([[1, -2, -2, -2], [2, 3, 0, -2], [-2, 1, -2, 0]])

    together = bench.graph("decode", **inputs)

    for i in range(3):
        one = row(inputs, i)
        there = one["labels"][0] != -2
        one |= {name: one[name][:, there] for name in ("points", "labels")}
        found = {name: array[i : i + 1] for name, array in together.items()}
        assert_close(found, bench.graph("decode", **one))


def test_where_absent_points_stand_changes_nothing(fast: Bench) -> None:
    inputs = decode_inputs(TEST, 1, 3, seed=8) | {"labels": np.array([[1, -2, 0]])}
    elsewhere = inputs | {"points": inputs["points"].copy()}
    elsewhere["points"][:, 1] = 1e6

    assert_close(fast.graph("decode", **elsewhere), fast.graph("decode", **inputs))


def test_a_mask_alone_is_a_list_of_absent_points(fast: Bench) -> None:
    """No point at all, not even the one that ends a list; `test_live_sam2` has the numbers."""
    inputs = decode_inputs(TEST, 1, 1) | {"has_mask": np.array([True])}
    absent, more = np.array([[-2]]), np.array([[-2, -2, -2]])

    found = fast.graph("decode", **inputs | {"labels": absent})

    longer = inputs | {"labels": more, "points": inputs["points"].repeat(3, axis=1)}
    assert_close(fast.graph("decode", **longer), found)
    ended = fast.graph("decode", **inputs | {"labels": np.array([[-1]])})
    assert np.abs(ended["masks"] - found["masks"]).max() > 0.1


def test_a_prepared_image_gives_the_same_masks(bench: Bench) -> None:
    inputs = decode_inputs(TEST, 3, 3, seed=9)
    for name in ("embedding", "fine_0", "fine_1"):
        inputs[name] = inputs[name][:1].repeat(3, axis=0)
    inputs |= {"has_mask": np.full(3, False), "no_memory": np.full(3, True)}
    image = {name: inputs[name][:1] for name in ("embedding", "fine_0", "fine_1")}
    prompt = {name: inputs[name] for name in ("points", "labels")}

    prepared = bench.graph("prepare_image", **image)
    found = bench.graph("decode_prepared", **prepared, **prompt)

    wanted = bench.graph("decode", **inputs)
    assert_close(found, wanted, {name: LIMITS[name] for name in found})


@pytest.mark.parametrize("config", [TEST, TEST2], ids=["2.1", "2.0"])
@pytest.mark.parametrize("engine", ENGINES)
def test_one_memory_graph_serves_any_bank(config: Sam2Config, engine: str) -> None:
    bench = bench_of(config, engine)

    for N, F, Q in ((1, 1, 0), (2, 3, 2), (1, 7, 16), (2, 1, 16), (2, 7, 0)):
        inputs = wiring.attention_inputs(config, N, F, Q, seed=F + Q)
        assert wiring.memory_attention(bench, inputs).check(bench).share < 1.0


@pytest.mark.parametrize("config", [TEST, TEST2], ids=["2.1", "2.0"])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_memory_is_of_the_enlarged_mask(config: Sam2Config, engine: str) -> None:
    bench = bench_of(config, engine)

    assert wiring.memory_encoder(bench).check(bench).share < 1.0


def test_hardening_looks_at_the_sign_alone(bench: Bench) -> None:
    """Zero is outside, like all below it."""
    given = wiring.memory_encoder(bench).inputs
    values = (-1e4, -5.0, -1e-20, 0.0, 1e-20, 5.0, 1e4)
    memories = [
        bench.graph(
            "memory_encoder",
            embedding=given["embedding"],
            mask=np.full_like(given["mask"][:1], value),
            object_score=np.ones((1, 1), np.float32),
            binary=np.ones(1, np.bool_),
        )["memory"]
        for value in values
    ]

    for i, value in enumerate(values):
        assert np.array_equal(memories[i], memories[-1 if value > 0 else 0])


@pytest.mark.parametrize("count", [1, 2])
def test_maps_leave_a_graph_as_the_next_one_reads_them(fast: Bench, count: int) -> None:
    """With their channels last in memory: otherwise each is moved whenever it is read."""
    size = TEST.image_size
    image = np.zeros((count, 3, size, size), np.float32)
    recalled = wiring.attention_inputs(TEST, count, 2, 4)

    found = fast.graph("image_encoder", image=image)
    remembering = fast.graph("memory_attention", **recalled)

    for array in (*found.values(), *remembering.values()):
        assert array.transpose(0, 2, 3, 1).flags.c_contiguous


def test_objects_remember_on_their_own(fast: Bench) -> None:
    inputs = wiring.attention_inputs(TEST, 3, 2, 4)
    limits = {"embedding": tolerances.MEMORY_ATTENTION}

    together = fast.graph("memory_attention", **inputs)

    for i in range(3):
        own = row(inputs, i) | {"embedding": inputs["embedding"]}
        found = {"embedding": together["embedding"][i : i + 1]}
        assert_close(found, fast.graph("memory_attention", **own), limits)


def test_images_are_encoded_on_their_own(fast: Bench) -> None:
    size = TEST.image_size
    images = np.random.default_rng(0).standard_normal((3, 3, size, size), np.float32)

    together = fast.graph("image_encoder", image=images)

    for i in range(3):
        alone = fast.graph("image_encoder", image=images[i : i + 1])
        found = {name: array[i : i + 1] for name, array in together.items()}
        assert_close(found, alone, dict.fromkeys(alone, tolerances.ENCODER))


@pytest.mark.parametrize("profile", ["projected-values", "plain", "split"])
def test_every_profile_remembers_alike(profile: str, fast: Bench) -> None:
    inputs = wiring.attention_inputs(TEST, 2, 3, 2)
    options = CompileOptions(engine="openvino", cache=False, profile=profile)
    model = Sam2Model(TEST, fast.weights, device="cpu", options=options)

    found = model.run("memory_attention", **inputs)

    wanted = fast.graph("memory_attention", **inputs)
    assert_close(found, wanted, {"embedding": tolerances.MEMORY_ATTENTION})


def test_the_value_projection_is_absorbed_unless_switched_off() -> None:
    """Attention over a memory of 64 channels, or over its projection to 256."""
    graph = attend_memory(TEST)

    widths = {}
    for profile in ("fused", "projected-values"):
        optimised = bench_of(TEST, "openvino", profile).session.optimise(graph)
        values = [node.inputs[2] for node in optimised if node.op.endswith("attention")]
        widths[profile] = [int(str(value.type.shape[-1])) for value in values]

    assert widths == {"fused": [256, 64] * 2, "projected-values": [256, 256] * 2}


@pytest.mark.parametrize("name", ["sam2-tiny", "sam2.1-tiny"])
def test_attention_in_two_parts_takes_what_it_takes_in_one(name: str) -> None:
    """Also pointer times, which SAM 2.0 does not read."""
    config = find_config(name).smallest()
    whole, first, rest = (
        {value.name for value in trace(config).inputs}
        for trace in (attend_bank, prepare_frame, attend_prepared)
    )

    assert first == {"embedding"}
    assert whole - first <= rest
    assert rest - whole == {name for name, _ in prepare_frame(config).outputs}


@pytest.mark.parametrize("size", [64, 320])
def test_the_model_runs_at_another_size(size: int) -> None:
    config = TEST.at_size(size)
    bench = bench_of(config, "openvino")
    image = np.random.default_rng(size).standard_normal((1, 3, size, size), np.float32)

    encoded = bench.graph("image_encoder", image=image)
    inputs = decode_inputs(config, 1, 2) | encoded
    decoded = bench.graph("decode", **inputs)
    remembered = wiring.memory_attention(bench, wiring.attention_inputs(config, 1, 2, 2))

    slow = bench_of(config, "reference")
    reference = slow.graph("image_encoder", image=image)
    assert encoded["embedding"].shape == (1, 256, size // 16, size // 16)
    assert_close(encoded, reference, dict.fromkeys(encoded, tolerances.ENCODER))
    assert_close(decoded, slow.graph("decode", **inputs))
    assert remembered.check(bench).share < 1.0
    assert wiring.memory_encoder(bench).check(bench).share < 1.0


def test_a_size_changes_no_weight() -> None:
    assert graphs.weight_shapes(TEST.at_size(512)) == graphs.weight_shapes(TEST)


def test_every_dimension_can_be_changed() -> None:
    config = find_config(
        {
            "image_size": 128,
            "embed_dim": 16,
            "heads": 2,
            "stages": [1, 1, 2, 1],
            "global_blocks": [3],
            "windows": [4, 4, 6, 3],
            "background_size": [5, 5],
            "mlp_ratio": 2,
            "channels": 64,
            "prompt_mask_channels": 8,
            "decoder_depth": 1,
            "decoder_heads": 4,
            "decoder_feedforward": 96,
            "memory_channels": 32,
            "memory_layers": 3,
            "memory_heads": 2,
            "memory_feedforward": 80,
            "memory_frames": 4,
            "fuser_layers": 1,
            "project_pointer_time": False,
        }
    )
    fast, slow = bench_of(config, "openvino"), bench_of(config, "reference")
    image = np.random.default_rng(0).standard_normal((2, 3, 128, 128), np.float32)
    inputs = decode_inputs(config, 2, 2)
    bank = wiring.attention_inputs(config, 2, 3, 3)

    encoded = fast.graph("image_encoder", image=image)
    decoded = fast.graph("decode", **inputs)
    remembered = fast.graph("memory_attention", **bank)

    limits = dict.fromkeys(encoded, tolerances.ENCODER)
    assert_close(encoded, slow.graph("image_encoder", image=image), limits)
    assert_close(decoded, slow.graph("decode", **inputs))
    limits = {"embedding": tolerances.MEMORY_ATTENTION}
    assert_close(remembered, slow.graph("memory_attention", **bank), limits)


@pytest.mark.parametrize("name", graphs.TRACES)
def test_a_graph_reads_back_from_its_text(name: str) -> None:
    graph = graphs.TRACES[name](TEST)

    assert parse_graph(print_graph(graph, data=True)) == graph


def test_sizes_that_vary_are_symbols() -> None:
    symbols = {name: trace(TEST).symbols for name, trace in graphs.TRACES.items()}

    assert symbols == {
        "image_encoder": ("B",),
        "decode": ("N", "P"),
        "memory_encoder": ("N",),
        "memory_attention": ("F", "N", "Q"),
        "mask_prompt": ("N",),
        "prepare_image": (),
        "decode_prepared": ("N", "P"),
    }


@pytest.mark.parametrize("config", CONFIGS.values(), ids=list(CONFIGS))
def test_a_config_reads_back_from_its_text(config: Sam2Config) -> None:
    assert from_json(config.to_json()) == config


def test_a_config_is_found_by_name_by_itself_and_by_its_fields() -> None:
    tiny = CONFIGS["sam2.1-tiny"]

    assert find_config("sam2.1-tiny") is tiny
    assert find_config(tiny) is tiny
    assert find_config({"name": "sam2.1-tiny"}) == tiny
    assert find_config({"stages": [1, 2, 11, 2], "global_blocks": [7, 10, 13]}).stages[2] == 11


def test_versions_differ_in_four_switches() -> None:
    new, old = (graphs.weight_shapes(CONFIGS[name]) for name in ("sam2.1-tiny", "sam2-tiny"))

    assert new.keys() - old.keys() == {
        "no_obj_embed_spatial",
        "obj_ptr_tpos_proj.weight",
        "obj_ptr_tpos_proj.bias",
    }
    assert old.items() <= new.items()


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"image_size": 1000}, "image size 1000 is not a multiple of 32"),
        ({"image_size": 32}, "`image_size` is 32, not within 64 and 4096"),
        ({"image_size": 96, "windows": (16, 4, 14, 7)}, "not a multiple of 64"),
        ({"stages": (1, 2, 7)}, "four stages"),
        ({"windows": (8, 4, 14)}, "as many windows"),
        ({"windows": (8, 4, 7, 7)}, "must be even before a pooling block"),
        ({"heads": 5}, "5 heads do not divide 96 channels"),
        ({"global_blocks": (3,)}, "a pooling block cannot have global attention"),
        ({"memory_heads": 3}, "memory heads or channels do not divide"),
        ({"memory_channels": 48}, "memory heads or channels do not divide"),
        ({"decoder_heads": 7}, "decoder heads do not divide half the channels"),
        ({"mask_stride": 2}, "a config has no field `mask_stride`"),
        ({"everything_iou": 1.5}, "`everything_iou` is 1.5, not within 0 and 1"),
        ({"everything_stability": float("nan")}, "`everything_stability` is nan, not within"),
        ({"colour": "red"}, "a config has no field `colour`"),
        ({"stages": 7}, "`stages` is not a list of numbers"),
    ],
)
def test_a_config_that_cannot_be_is_refused(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        find_config(fields)


def test_an_unknown_name_is_answered_with_its_neighbours() -> None:
    with pytest.raises(OptionError, match=r"there is no config `sam2\.1-tinny`") as caught:
        find_config("sam2.1-tinny")

    assert "sam2.1-tiny" in str(caught.value)


@pytest.mark.parametrize("text", ["{", "[1, 2]", '"tiny"'])
def test_a_config_that_is_no_json_object_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="the config is not"):
        from_json(text)
