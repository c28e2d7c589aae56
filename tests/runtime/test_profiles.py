"""Profiles by name, from a file, and from the file next to the weights."""

from pathlib import Path

import pytest

from samgraph.errors import OptionError
from samgraph.runtime import PROFILES, CompileOptions, Profile, Session, find_profile
from samgraph.runtime.profiles import profiles_beside

SEVERAL = """
[profile.default]
precision = "bf16"
[profile.careful]
without = ["linear_to_pointwise"]
"""
ONE = """
[profile.only]
stages = "split"
precision = "fp32"
"""


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_a_profile_is_found_by_name_in_a_file_or_is_one(tmp_path: Path) -> None:
    one, several = write(tmp_path / "one.toml", ONE), write(tmp_path / "two.toml", SEVERAL)

    assert find_profile(None) is PROFILES["fused"]
    assert find_profile("split") is PROFILES["split"]
    assert find_profile(Profile("mine")) == Profile("mine")
    assert find_profile(one) == Profile("only", stages="split", precision="fp32")
    assert find_profile(str(one)) == find_profile(f"{one}#only")
    assert find_profile(f"{several}#careful") == Profile(
        "careful", without=("linear_to_pointwise",)
    )


def test_a_file_of_several_wants_a_name(tmp_path: Path) -> None:
    path = write(tmp_path / "two.toml", SEVERAL)

    with pytest.raises(OptionError) as several:
        find_profile(path)
    with pytest.raises(OptionError) as unknown:
        find_profile(f"{path}#fast")

    expected = f"  expected: {path}#default, {path}#careful"
    assert str(several.value) == f"`{path}` has several profiles\n{expected}"
    assert str(unknown.value) == f"`{path}` has no profile `fast`\n{expected}"


def test_the_file_next_to_the_weights_has_names_and_a_default(tmp_path: Path) -> None:
    write(tmp_path / "sam2.1_tiny.profiles.toml", SEVERAL)
    weights = tmp_path / "sam2.1_tiny.pt"

    assert find_profile(None, weights).precision == "bf16"
    assert find_profile("careful", weights).without == ("linear_to_pointwise",)
    assert find_profile("split", weights) is PROFILES["split"]
    assert find_profile(None, tmp_path / "other.pt") is PROFILES["fused"]
    assert profiles_beside(tmp_path / "other.pt") == {}
    assert profiles_beside(".") == {}
    with pytest.raises(OptionError) as caught:
        find_profile("fast", weights)
    assert "split, plain, projected-values, default, careful" in str(caught.value)


def test_a_damaged_file_next_to_the_weights_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "a.profiles.toml", "[profile")

    with pytest.raises(OptionError, match="is not a TOML file"):
        find_profile(None, tmp_path / "a.pt")
    path.write_bytes(b"#" * (1 << 20) + b"\n")
    with pytest.raises(OptionError, match="is too large for a file of profiles"):
        find_profile(None, tmp_path / "a.pt")


def test_the_precision_of_a_profile_counts_unless_another_is_asked_for(tmp_path: Path) -> None:
    half = Profile("half", precision="bf16")

    assert CompileOptions(profile=half).asked_precision == "bf16"
    assert CompileOptions(profile=half, precision="fp32").asked_precision == "fp32"
    assert CompileOptions(precision="bf16").asked_precision == "bf16"
    assert CompileOptions().asked_precision is None
    path = write(tmp_path / "one.toml", ONE)
    assert CompileOptions(profile=path).chosen_profile.name == "only"
    with pytest.raises(OptionError, match="profile `odd` has unknown precision `fp8`"):
        Profile("odd", precision="fp8")  # type: ignore[arg-type]  # a mistake


def test_a_session_names_a_profile_that_is_not_the_usual_one() -> None:
    options = CompileOptions(profile="plain", threads=1, cache=False)

    assert Session("cpu", options).reason == "openvino on the cpu, 1 thread, fp32; profile plain"


def test_a_name_with_a_zero_in_it_is_refused() -> None:
    with pytest.raises(OptionError, match="cannot be read"):
        find_profile("a\0.toml")
