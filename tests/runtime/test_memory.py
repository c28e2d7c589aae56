"""Attention over a full memory bank does not hold the matrix of scores."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
QUERIES, KEYS, WIDTH, VALUE_WIDTH = 2048, 28736, 256, 64
SCORES_MB = QUERIES * KEYS * 4 / 1e6  # 235

CHILD = f"""
import json, resource
import numpy as np
from samgraph import ops
from samgraph.graph import Builder
from samgraph.runtime import CompileOptions, Session

builder = Builder("cross")
q = builder.input("q", "f32[1,{QUERIES},{WIDTH}]")
k = builder.input("k", "f32[1,M,{WIDTH}]")
m = builder.input("m", "f32[1,M,{VALUE_WIDTH}]")
graph = builder.finish(y=ops.attention(q, k, m, heads=1, scale=0.0625))
compiled = Session("cpu", CompileOptions(cache=False)).compile(graph)
rng = np.random.default_rng(0)
small = dict(q=rng.standard_normal((1, {QUERIES}, {WIDTH}), np.float32),
             k=rng.standard_normal((1, 64, {WIDTH}), np.float32),
             m=rng.standard_normal((1, 64, {VALUE_WIDTH}), np.float32))
compiled.run_numpy(small)
large = dict(small, k=rng.standard_normal((1, {KEYS}, {WIDTH}), np.float32),
             m=rng.standard_normal((1, {KEYS}, {VALUE_WIDTH}), np.float32))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
y = compiled.run_numpy(large)["y"]
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rows = slice(0, 3)
scores = large["q"][0, rows] @ large["k"][0].T * 0.0625
weights = np.exp(scores - scores.max(-1, keepdims=True))
want = weights / weights.sum(-1, keepdims=True) @ large["m"][0]
print(json.dumps(dict(grown=(after - before) / 1e3, error=float(np.abs(y[0, rows] - want).max()))))
"""


def test_attention_over_a_full_bank_keeps_no_score_matrix() -> None:
    child = subprocess.run(
        [sys.executable, "-c", CHILD],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin"},
    )

    found = json.loads(child.stdout)

    assert found["error"] < 1e-5
    assert found["grown"] < SCORES_MB / 2, f"grew by {found['grown']} MB"
