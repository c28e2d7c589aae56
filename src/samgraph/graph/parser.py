"""Text back to a graph: the inverse of `printer.print_graph`. Bad text is a `GraphError`."""

import ast
import base64
import math
import re
import zlib
from collections.abc import Iterator, Mapping

import numpy as np

from samgraph.errors import GraphError
from samgraph.graph.dims import parse_dim
from samgraph.graph.graph import Attribute, Graph, Literal, Node, Value
from samgraph.graph.types import INTEGERS, Array, TensorType, numpy_dtype, parse_type
from samgraph.graph.verifier import verify
from samgraph.untrusted.text import shown

_HEAD = re.compile(r"graph ([\w.\-]+)\(")
_DECLARED = re.compile(r"(param )?%([\w.\-/]+): (\w+\[.*\]),")
_NODE = re.compile(r"%([\w.\-/]+): (\w+\[[^\]]*\]) = (exact )?(\w+)\((.*)\)")
_MARK = re.compile(r"mark ([\w.\-/]+)=%([\w.\-/]+)")
_RETURN = re.compile(r"return (.*)")
_DATA = re.compile(r"#([0-9a-f]+) (\w+\[[\d,]*\]) (\S*)")
_LITERAL = re.compile(r"(\w+\[[\d,]*\])\{(.*)\}")
_KEYWORD = re.compile(r"(\w+)=(.*)", re.DOTALL)
_TRUTH = {"True": True, "False": False}

# Well above any graph: a text of 64 MB, a constant's shape in it, the bytes it decompresses to.
MOST_TEXT, LONGEST_ATTRIBUTE, DEEPEST, MOST_CONSTANTS = 64 << 20, 10_000, 8, 128 << 20


def parse_graph(text: str, constants: Mapping[str, Array] | None = None) -> Graph:
    """Parse a printed graph.

    `constants` gives, by digest, the arrays that are not in the text.
    """
    if len(text) > MOST_TEXT:
        raise GraphError("the text of a graph is too long", expected=f"at most {MOST_TEXT:,}")
    lines = [(n, line.strip()) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
    literals = {digest: Literal(array) for digest, array in (constants or {}).items()}
    literals |= _read_data(lines)
    body = iter([(n, line) for n, line in lines if not line.startswith("#")])
    name = _expect(_HEAD, body, "graph NAME(")[1]
    inputs, params = _read_declarations(body)
    values = {value.name: value for value in (*inputs, *params)}
    nodes: list[Node] = []
    marks: list[tuple[str, Value]] = []
    for number, line in body:
        ending = _RETURN.fullmatch(line)
        if ending:
            outputs = _read_outputs(ending[1], values, number)
            if next(body, (0, ""))[1] != "}":
                raise GraphError("the text ends without a closing brace", expected="`}`")
            number, line = next(body, (0, ""))
            if line:
                raise GraphError(f"line {number} is after the closing brace", got=_quoted(line))
            graph = Graph(name, inputs, params, tuple(nodes), outputs, tuple(marks))
            verify(graph)
            return graph
        mark = _MARK.fullmatch(line)
        if mark:
            marks += _read_outputs(f"{mark[1]}=%{mark[2]}", values, number, "marks")
            continue
        node = _read_node(line, number, values, literals)
        values[node.result.name] = node.result
        nodes.append(node)
    raise GraphError(f"graph `{name}` has no `return` line")


def _expect(pattern: re.Pattern[str], body: Iterator[tuple[int, str]], want: str) -> re.Match[str]:
    number, line = next(body, (0, ""))
    found = pattern.fullmatch(line)
    if found is None:
        raise GraphError(f"line {number} cannot be read", got=_quoted(line), expected=f"`{want}`")
    return found


def _read_declarations(
    body: Iterator[tuple[int, str]],
) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
    inputs: list[Value] = []
    params: list[Value] = []
    for number, line in body:
        if line == ") {":
            return tuple(inputs), tuple(params)
        found = _DECLARED.fullmatch(line)
        if found is None:
            raise GraphError(f"line {number} is not a declaration", got=_quoted(line))
        value = Value(found[2], parse_type(found[3]))
        (params if found[1] else inputs).append(value)
    raise GraphError("the text ends inside the declarations", expected="`) {`")


def _read_outputs(
    text: str, values: Mapping[str, Value], number: int, does: str = "returns"
) -> tuple[tuple[str, Value], ...]:
    outputs = []
    for part in text.split(", "):
        name, _, value = part.partition("=%")
        if value not in values:
            raise GraphError(f"line {number} {does} an unknown value", got=_quoted(part))
        outputs.append((name, values[value]))
    return tuple(outputs)


def _read_node(
    line: str, number: int, values: Mapping[str, Value], literals: Mapping[str, Literal]
) -> Node:
    found = _NODE.fullmatch(line)
    if found is None:
        raise GraphError(f"line {number} is not a node", got=_quoted(line))
    inputs: list[Value] = []
    attributes: dict[str, Attribute] = {}
    for part in split_arguments(found[5]):
        keyword = _KEYWORD.fullmatch(part)
        if part.startswith("%"):
            if part[1:] not in values:
                raise GraphError(f"line {number}: {shown(part)} is used before it is defined")
            inputs.append(values[part[1:]])
        elif keyword and keyword[1] in attributes:
            raise GraphError(f"line {number} gives `{keyword[1]}` twice")
        elif keyword:
            attributes[keyword[1]] = _read_attribute(keyword[2], number, literals)
        else:
            raise GraphError(
                f"line {number} has an argument that cannot be read", got=_quoted(part)
            )
    result = Value(found[1], parse_type(found[2]))
    return Node(found[4], tuple(inputs), attributes, result, bool(found[3]))


def split_arguments(text: str) -> list[str]:
    """Split at the commas that are not inside brackets or quotes."""
    parts, depth, start, quoted = [], 0, 0, False
    for at, letter in enumerate(text):
        if letter == '"':
            quoted = not quoted
        elif not quoted:
            depth += (letter in "([{") - (letter in ")]}")
            if letter == "," and depth == 0:
                parts.append(text[start:at].strip())
                start = at + 1
    return [*parts, text[start:].strip()] if text.strip() else []


def _read_attribute(
    text: str, number: int, literals: Mapping[str, Literal], depth: int = 0
) -> Attribute:
    if depth > DEEPEST:
        raise GraphError(f"line {number} has lists within lists", expected=f"{DEEPEST} deep")
    if text.startswith("#"):
        if text[1:] not in literals:
            raise GraphError(
                f"line {number}: the bytes of constant {text} are not in the text",
                hint="print the graph with `data=True`, or pass `constants=`",
            )
        return literals[text[1:]]
    literal = _LITERAL.fullmatch(text)
    if literal:
        return _read_literal(literal, number)
    if text.startswith("(") and text.endswith(")"):
        parts = [part for part in split_arguments(text[1:-1]) if part]
        if len(parts) != 1 or text.endswith(",)"):
            return tuple(_read_attribute(part, number, literals, depth + 1) for part in parts)
    if len(text) > LONGEST_ATTRIBUTE:
        raise GraphError(f"line {number} has an attribute that is too long", got=_quoted(text))
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        if text in ("inf", "-inf", "nan"):
            return float(text)
        return parse_dim(text)
    is_long = isinstance(value, int) and abs(value) >= 1 << 63
    if not isinstance(value, bool | int | float | str) or is_long:
        raise GraphError(f"line {number} has an attribute that cannot be read", got=_quoted(text))
    return value


def _read_literal(found: re.Match[str], number: int) -> Literal:
    type = parse_type(found[1])
    texts = [part for part in found[2].split(",") if part]
    try:
        if type.dtype in INTEGERS:
            array = np.array([int(part) for part in texts], numpy_dtype(type.dtype))
        elif type.dtype == "bool":
            array = np.array([_TRUTH[part] for part in texts], bool)
        else:
            with np.errstate(over="ignore"):
                array = np.array([float(part) for part in texts], numpy_dtype(type.dtype))
        return Literal(array.reshape(_lengths(type)))
    except (ValueError, OverflowError, KeyError) as error:
        raise GraphError(f"line {number} has a bad constant", got=_quoted(found[0])) from error


def _read_data(lines: list[tuple[int, str]]) -> dict[str, Literal]:
    found: dict[str, Literal] = {}
    left = MOST_CONSTANTS
    for number, line in lines:
        if not line.startswith("#"):
            continue
        data = _DATA.fullmatch(line)
        if data is None:
            raise GraphError(f"line {number} is not a constant's bytes")
        type = parse_type(data[2])
        try:
            dtype, lengths = numpy_dtype(type.dtype), _lengths(type)
            size = math.prod(lengths) * dtype.itemsize
            left -= size
            if left < 0:
                raise GraphError(
                    "the constants of a graph are too large", expected=f"{MOST_CONSTANTS:,} bytes"
                )
            raw = zlib.decompressobj().decompress(base64.b85decode(data[3]), size + 1)
            array = np.frombuffer(raw, dtype).reshape(lengths)
        except (ValueError, OverflowError, zlib.error) as error:
            if isinstance(error, GraphError):
                raise
            raise GraphError(f"line {number}: the bytes of #{data[1]} are damaged") from error
        literal = Literal(array)
        if literal.digest != data[1]:
            raise GraphError(f"line {number}: the bytes of #{data[1]} are of another constant")
        found[data[1]] = literal
    return found


def _quoted(text: str) -> str:
    return f"`{shown(text)}`"


def _lengths(type: TensorType) -> tuple[int, ...]:
    return tuple(dim for dim in type.shape if isinstance(dim, int))
