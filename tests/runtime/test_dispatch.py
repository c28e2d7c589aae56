"""Dispatch: which ops an engine computes, and which passes rewrite the others."""

from samgraph import ops
from samgraph.graph import Builder, Graph
from samgraph.runtime import CompileOptions, Session
from samgraph.runtime.dispatch import Dispatch, dispatch


def rotated() -> Graph:
    builder = Builder("rotated")
    tokens = builder.input("tokens", "f32[B,4,8]")
    return builder.finish(y=ops.relu(ops.axial_rope(tokens, grid=(2, 2), theta=100.0)))


def rows(engine: str) -> dict[str, Dispatch]:
    session = Session("cpu", CompileOptions(engine=engine, cache=False))
    return {row.op: row for row in dispatch(session, rotated())}


def test_the_reference_engine_computes_every_op() -> None:
    found = rows("reference")

    assert sorted(found) == ["axial_rope", "relu"]
    assert {row.how for row in found.values()} == {"native"}
    assert found["relu"].precisions == {"fp32": 1}


def test_an_op_without_a_rule_names_the_pass_and_its_ops() -> None:
    found = rows("openvino")

    rope = found["axial_rope"]
    assert (rope.traced, rope.compiled, rope.has_rule, rope.precisions) == (1, 0, False, {})
    assert set(rope.rewritten) == {"decompose_axial_rope"}
    assert {"mul", "add"} <= set(rope.rewritten["decompose_axial_rope"])
    assert rope.how.startswith("no rule; decompose_axial_rope -> ")
    assert (found["mul"].traced, found["mul"].compiled, found["mul"].how) == (0, 2, "native")
