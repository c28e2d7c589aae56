"""bf16 on OpenVINO: numbers, exact nodes, and the probe that decides whether it may be used.

The kernels run in a child process, told to leave out the matrix instructions that kill it on some
virtual machines (`ONEDNN_MAX_CPU_ISA`).
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from samgraph.engines.openvino import bf16
from samgraph.errors import SamgraphWarning
from samgraph.runtime import CompileOptions, Session
from tests.checkpoint.built_in import needs_built_in
from tests.tolerances import EMBEDDING_BF16, EXACT_NODE, MASK_IOU_BF16, WORST_MASK_IOU_BF16

ROOT = Path(__file__).resolve().parents[3]
VERSION = "test"


@pytest.fixture(scope="module")
def in_bf16() -> dict[str, Any]:
    """What the child found."""
    return run_child("bf16_child.py")


@pytest.fixture(scope="module")
def masks_in_bf16() -> dict[str, Any]:
    """What the child found that runs the built-in model."""
    return run_child("bf16_masks_child.py")


def run_child(name: str) -> dict[str, Any]:
    """The JSON object that a script next to this file prints last."""
    try:
        features = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        features = ""
    if "avx512_bf16" not in features:
        pytest.skip("this processor has no bf16 instructions")
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    child = subprocess.run(
        [sys.executable, str(Path(__file__).with_name(name))],
        env={**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert child.returncode == 0, child.stderr[-2000:]
    found: dict[str, Any] = json.loads(child.stdout.splitlines()[-1])
    return found


def test_every_op_is_within_the_tolerance_of_bf16(in_bf16: dict[str, Any]) -> None:
    assert in_bf16["problems"] == []


def test_exact_nodes_stay_in_float32_and_others_do_not(in_bf16: dict[str, Any]) -> None:
    assert in_bf16["exact"] <= EXACT_NODE
    assert in_bf16["rest"] > 1e-3
    assert in_bf16["mixed"] > 1e-3


@needs_built_in
def test_bf16_keeps_masks_of_photographs_and_scenes(masks_in_bf16: dict[str, Any]) -> None:
    errors, overlaps = masks_in_bf16["errors"], masks_in_bf16["overlaps"]

    assert max(errors.values()) <= EMBEDDING_BF16, errors
    assert max(errors.values()) > 1e-4, "nothing ran in bf16"
    assert np.mean(list(overlaps.values())) >= MASK_IOU_BF16, overlaps
    assert min(overlaps.values()) >= WORST_MASK_IOU_BF16, overlaps


@needs_built_in
def test_bf16_keeps_a_tracked_object(masks_in_bf16: dict[str, Any]) -> None:
    assert min(masks_in_bf16["tracked"]) >= WORST_MASK_IOU_BF16, masks_in_bf16["tracked"]


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "machine.json"


def test_the_answer_is_remembered(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gains = iter([2.5])  # there is no second
    monkeypatch.setattr(bf16, "_probe", lambda: next(gains))

    answers = [bf16.bf16_verdict(memory, VERSION) for _ in range(3)]

    assert answers == [(True, "bf16 runs at 2.50 times the speed of fp32 on this machine")] * 3


def test_another_version_is_asked_again(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gains = iter([2.0, -1.0])
    monkeypatch.setattr(bf16, "_probe", lambda: next(gains))

    assert bf16.bf16_verdict(memory, "1")[0]
    assert not bf16.bf16_verdict(memory, "2")[0]
    assert bf16.bf16_verdict(memory, "1")[0]


@pytest.mark.parametrize(
    "damage",
    ["", "{", "[]", "3", '{"a": "b"}', "\udcff", '{"KEY": NaN}', '{"KEY": Infinity}',
     '{"KEY": true}', '{"KEY": "2.0"}', '{"KEY": null}', "[" * 100_000],
)  # fmt: skip
def test_a_damaged_memory_is_asked_again(
    damage: str, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bf16, "_probe", lambda: -1.0)
    bf16.bf16_verdict(memory, VERSION)
    (key,) = json.loads(memory.read_text(encoding="utf-8"))
    escaped = json.dumps(key)[1:-1]
    memory.write_bytes(damage.replace("KEY", escaped).encode(errors="surrogateescape"))

    assert bf16.bf16_verdict(memory, VERSION) == (
        False,
        "bf16 killed a test process on this machine",
    )
    assert json.loads(memory.read_text(encoding="utf-8")) == {key: -1.0}


def test_a_memory_that_is_a_pipe_is_not_waited_for(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.parent.mkdir()
    os.mkfifo(memory)
    monkeypatch.setattr(bf16, "_probe", lambda: 2.0)

    assert bf16.bf16_verdict(memory, VERSION)[0]
    assert memory.is_file()


def test_a_memory_that_cannot_be_written_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bf16, "_probe", lambda: 1.5)
    (tmp_path / "file").write_text("not a folder")

    assert bf16.bf16_verdict(tmp_path / "file" / "machine.json", VERSION)[0]
    assert bf16.bf16_verdict(None, VERSION)[0]


@pytest.mark.parametrize(
    ("child", "gain"),
    [
        ("print('gain', 3.14159)", 3.142),
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", -1.0),
        ("print('gain', 3.0); import sys; sys.exit(3)", -1.0),
        ("print('hello')", -1.0),
        ("print('gain', 'fast')", -1.0),
        ("print('gain', float('nan'))", -1.0),
        ("raise RuntimeError", -1.0),
        ("import time; time.sleep(60)", -1.0),
    ],
)
def test_a_child_that_does_not_answer_counts_as_dead(
    child: str, gain: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bf16, "_CHILD", child)
    monkeypatch.setattr(bf16, "_TIMEOUT_SECONDS", 1 if "sleep" in child else 60)

    assert bf16._probe() == gain


def test_the_real_probe_leaves_this_process_alive() -> None:
    gain = bf16._probe()

    assert gain == -1.0 or gain > 0


@pytest.mark.parametrize(
    ("gain", "why"),
    [
        (-1.0, "bf16 killed a test process on this machine"),
        (0.52, "bf16 runs at 0.52 times the speed of fp32 on this machine"),
    ],
)
def test_bf16_that_is_not_worth_it_becomes_fp32_with_a_warning(
    gain: float, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bf16, "_probe", lambda: gain)

    with pytest.warns(SamgraphWarning, match=f"using fp32: {why}"):
        session = Session("cpu", CompileOptions(precision="bf16", threads=1, cache_dir=tmp_path))

    assert session.reason == f"openvino on the cpu, 1 thread, fp32: {why}"


def test_bf16_that_gains_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bf16, "_probe", lambda: 2.0)

    session = Session("cpu", CompileOptions(precision="bf16", threads=1, cache_dir=tmp_path))

    assert session.reason == (
        "openvino on the cpu, 1 thread, bf16: "
        "bf16 runs at 2.00 times the speed of fp32 on this machine"
    )
