"""Every field of a config has a type and a range, and a config of a file costs next to nothing."""

import json
import re
import resource
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from samgraph import checkpoint
from samgraph.errors import CheckpointError, OptionError
from samgraph.models.loading import load_model
from samgraph.models.sam2.config import CONFIGS, Sam2Config, find_config, from_json
from samgraph.models.sam2.config_rules import RANGES, field_problems
from samgraph.models.sam2.graphs import weight_shapes

PLAIN = json.loads(CONFIGS["sam2.1-tiny"].to_json())
WRONG: tuple[object, ...] = (
    None, True, "7", -1, 0, 0.5, float("nan"), float("inf"), 2**30, 2**40, 10**6, 10**400, [], {},
    [[]], [10**6] * 4, [1] * 1000, [True], ["a"], "x" * 100, "a\x1b[2J", "\ud800", 1e308,
)  # fmt: skip
MOST_BYTES = 64 << 10  # KB, as the system counts


def test_every_number_of_a_config_has_a_range_of_its_own() -> None:
    numbers = {f.name for f in fields(Sam2Config) if f.type not in ("str", "bool", str, bool)}

    assert numbers == set(RANGES)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=lambda config: config.name)
def test_the_models_are_far_within_the_ranges(config: Sam2Config) -> None:
    shares = {"everything_iou", "everything_stability"}  # of 1, and there is no more
    for name in RANGES.keys() - shares:
        value, (_, high) = getattr(config, name), RANGES[name]
        assert 1.5 * max(value if isinstance(value, tuple) else (value,)) <= high, name


def refusal(wanted: dict[str, Any]) -> str:
    """The message of a config that is refused; nothing for one that makes sense."""
    try:
        find_config(wanted)
    except OptionError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", sorted(PLAIN))
def test_a_wrong_value_is_an_option_error_at_once(name: str) -> None:
    for value in WRONG:
        start = time.process_time()
        message = refusal({**PLAIN, name: value})
        assert len(message) < 400
        assert message.replace("\n", "").isprintable()
        assert time.process_time() - start < 0.1


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"heads": 0}, "`heads` is 0, not within 1 and 64"),
        ({"memory_layers": 10**6}, "`memory_layers` is 1000000, not within 1 and 16"),
        ({"stages": [1, 2, 10**6, 2]}, "`stages` is 1000000, not within 1 and 128"),
        ({"stages": [100, 100, 100, 100]}, "400 blocks are more than 128"),
        ({"image_size": 65536}, "`image_size` is 65536, not within 64 and 4096"),
        ({"image_size": 4096, "channels": 512}, "512 channels are too many at 4096 pixels"),
        ({"channels": 2**40}, "`channels` is 1099511627776, not within 8 and 2048"),
        ({"windows": []}, "needs four stages and as many windows"),
        ({"background_size": [7, 7, 7]}, "`background_size` has 3 entries"),
        ({"rope_theta": "big"}, "`rope_theta` is not a number: 'big'"),
        ({"pointer_time": 1}, "`pointer_time` is not true or false: 1"),
        ({"heads": True}, "`heads` is not a whole number: True"),
        ({"name": "a\x1b[2J"}, "`name` is not a short printable text"),
    ],
)
def test_problems_are_named(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(OptionError, match=re.escape(problem)):
        find_config({**PLAIN, **fields})


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"heads": NaN}', '{"heads": 1, "heads": 2}', '{"heads": 1e999}', "7"]
)
def test_text_that_is_no_config_is_an_option_error(text: str) -> None:
    with pytest.raises(OptionError, match="the config is not"):
        from_json(text)


def test_a_new_field_is_checked_by_its_annotation() -> None:
    """The table need not know it: what it is annotated as decides."""

    @dataclass
    class More:
        count: int = 3
        share: float = 0.5
        works: bool = True
        sides: tuple[int, int] = (1, 2)

    assert not list(field_problems(More()))
    for wrong in (More(count=-1), More(share=1e9), More(works=1), More(sides=(1, -2))):  # type: ignore[arg-type]
        assert len(list(field_problems(wrong))) == 1


def written(path: Path, config: dict[str, Any], tensors: dict[str, Any] | None = None) -> Path:
    """A checkpoint of next to nothing with a config in its metadata."""
    metadata = {"samgraph.config": json.dumps({**PLAIN, **config})}
    checkpoint.save(path, tensors or {"x": np.zeros(1, np.float32)}, metadata=metadata)
    return path


HOSTILE: dict[str, dict[str, Any]] = {
    "layers": {"memory_layers": 10**6},
    "stages": {"stages": [10**6, 2, 7, 2]},
    "fuser": {"fuser_layers": 2**30},
    "depth": {"decoder_depth": 10**6},
    "size": {"image_size": 65536},
    "channels": {"channels": 2**40},
    "no heads": {"heads": 0},
    "text": {"heads": "\x1b[2J"},
    "just within": {
        "image_size": 4096,
        "memory_layers": 16,
        "fuser_layers": 16,
        "decoder_depth": 16,
        "stages": [10, 10, 98, 10],
        "global_blocks": [],
    },
    "odd shapes": {"channels": 20, "memory_channels": 5, "decoder_heads": 5, "memory_heads": 1},
    "odd heads": {"memory_heads": 4, "channels": 16, "memory_channels": 16, "decoder_heads": 1},
}


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_a_hostile_config_in_a_file_is_refused_quickly(name: str, tmp_path: Path) -> None:
    path = written(tmp_path / "model.safetensors", HOSTILE[name])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    start = time.process_time()
    with pytest.raises(CheckpointError) as caught:
        load_model(path)

    assert time.process_time() - start < 2  # most of it to compare with the known models
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MOST_BYTES
    assert "model.safetensors" in str(caught.value)
    assert str(caught.value).replace("\n", "").isprintable()


def test_a_model_of_its_own_config_still_loads(tmp_path: Path, rng: np.random.Generator) -> None:
    small = {
        "name": "mine", "image_size": 128, "embed_dim": 16, "stages": [1, 1, 2, 1],
        "global_blocks": [3], "channels": 32, "memory_channels": 16, "decoder_feedforward": 32,
    }  # fmt: skip
    config = find_config({**PLAIN, **small})
    tensors = {
        name: rng.standard_normal(shape).astype(np.float32)
        for name, shape in weight_shapes(config).items()
    }
    path = written(tmp_path / "model.safetensors", small, tensors)

    assert asdict(load_model(path).config) == asdict(config)
