"""Options and profiles: every wrong value is refused with what is right."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from samgraph import ops
from samgraph.errors import OptionError
from samgraph.graph import Builder
from samgraph.runtime import PROFILES, CompileOptions, Profile, Session, core_count, read_profiles
from tests.runtime.graphs import mlp

CORES = core_count()
TOO_MANY = (
    f"cannot use {CORES + 1} threads\n  expected: 1 to {CORES}, the cores this process may use"
)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "tpu"}, "there is no engine `tpu`"),
        ({"precision": "int8"}, "there is no precision `int8`\n  expected: fp32, tf32, bf16, fp16"),
        ({"threads": CORES + 1}, TOO_MANY),
        ({"threads": 0}, "cannot use 0 threads"),
        ({"threads": -1}, "cannot use -1 threads"),
        ({"threads": True}, "cannot use True threads"),
        ({"threads": 1.5}, "cannot use 1.5 threads"),
        ({"threads": "2"}, "cannot use 2 threads"),
        ({"profile": "fast"}, "there is no profile `fast`\n  expected: fused, split, plain"),
        ({"profile": 3}, "there is no profile `3`"),
        ({"profile": ["fused"]}, "there is no profile"),
    ],
)
def test_a_wrong_option_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        CompileOptions(**options)

    assert str(caught.value).startswith(message)


def test_what_is_left_alone_is_chosen() -> None:
    options = CompileOptions()

    assert options.chosen_threads == CORES
    assert options.chosen_profile is PROFILES["fused"]
    assert CompileOptions(threads=1).chosen_threads == 1


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "profiles.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_profiles_are_read_from_a_file(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
        [profile.careful]
        without = ["fuse_linear_activation"]
        stages = "split"

        [profile.eager]
        also = ["merge_projections"]
        """,
    )

    found = read_profiles(path)

    assert found == {
        "careful": Profile("careful", without=("fuse_linear_activation",), stages="split"),
        "eager": Profile("eager", also=("merge_projections",)),
    }
    options = CompileOptions(profile=found["careful"], cache=False)
    after = Session("cpu", options).optimise(mlp()[0])
    assert [node.op for node in after] == ["linear", "gelu", "linear"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[profile", "is not a TOML file"),
        ("", "has no profile"),
        ("profile = 3", "has no profile"),
        ("[profile]", "has no profile"),
        ("[profiles.a]", "has no profile"),
        ("profile.a = 3", "profile `a` of"),
        ("[profile.a]\nfaster = true", "has an unknown key\n  got:      `faster`"),
        ("[profile.a]\nwithout = 'drop_unused'", "needs lists of pass names"),
        ("[profile.a]\nwithout = [1]", "needs lists of pass names"),
        ("[profile.a]\nstages = 'both'", "has unknown stages `both`\n  expected: fused, split"),
        ("[profile.a]\nstages = 3", "has unknown stages `3`"),
        ("x = " + "[" * 10_000, "is not a TOML file"),
    ],
)  # fmt: skip
def test_a_bad_file_is_refused_with_its_reason(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        read_profiles(write(tmp_path, text))

    assert message in str(caught.value)


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "profiles.toml"
    path.write_bytes(b"\xff\xfe\x00")

    with pytest.raises(OptionError, match="is not a TOML file"):
        read_profiles(path)


def test_a_file_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(OptionError) as caught:
        read_profiles(tmp_path / "none.toml")
    with pytest.raises(OptionError, match="cannot be read"):
        read_profiles(tmp_path)

    assert str(caught.value) == (
        f"`{tmp_path / 'none.toml'}` cannot be read\n  got:      No such file or directory"
    )


@pytest.mark.parametrize("field", ["without", "also"])
@pytest.mark.parametrize("engine", ["openvino", "reference"])
def test_a_pass_that_the_engine_has_not_is_refused_by_name(engine: str, field: str) -> None:
    profile = Profile("mine", **{field: ("drop_used",)})  # type: ignore[arg-type]  # one of two

    with pytest.raises(OptionError) as caught:
        Session("cpu", CompileOptions(engine=engine, profile=profile, cache=False))

    lines = str(caught.value).splitlines()
    wrong = f"profile `mine` does not fit engine `{engine}`: there is no pass `drop_used`"
    assert lines[0] == wrong
    assert "drop_unused" in lines[1]
    assert ("linear_to_pointwise" in lines[1]) == (engine == "openvino")


def test_a_pass_that_the_engine_needs_cannot_be_left_out() -> None:
    profile = Profile("mine", without=("decompose_axial_rope",))

    with pytest.raises(OptionError, match="this engine cannot compile without the pass"):
        Session("cpu", CompileOptions(profile=profile, cache=False))


def test_params_are_folded_unless_a_profile_says_otherwise() -> None:
    builder = Builder("table")
    x, table = builder.input("x", "f32[M,4]"), builder.param("table", "f32[4]")
    graph = builder.finish(y=x + ops.sin(table))
    nodes = {}
    for without in ((), ("fold_params",), ("all",)):
        options = CompileOptions(profile=Profile("mine", without=without), cache=False)
        session = Session("cpu", options)
        nodes[without] = [node.op for node in session.optimise(graph)]
        y = session.compile(graph, {"table": np.ones(4, np.float32)}).run(
            x=np.zeros((1, 4), np.float32)
        )
        np.testing.assert_allclose(y["y"], np.sin(np.ones((1, 4))), rtol=1e-6)

    assert nodes == {(): ["add"], ("fold_params",): ["sin", "add"], ("all",): ["sin", "add"]}
