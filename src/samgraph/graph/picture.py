"""Drawings of a graph: DOT for Graphviz, or SVG without any other program.

Nodes are in rows by depth, inputs at the top; params and constants are written inside the node that
reads them, so that the drawing shows the data flow.
"""

from html import escape

from samgraph.graph.graph import Graph, Node

_COLOURS = {
    "input": "#dbeafe",
    "output": "#dcfce7",
    "heavy": "#fde68a",
    "move": "#f3f4f6",
    "other": "#ffffff",
}
_HEAVY = {"linear", "matmul", "conv2d", "conv_transpose2d", "attention"}
_MOVE = {"reshape", "transpose", "concat", "slice", "pad", "expand", "tile", "gather", "cast"}
_BOX_WIDTH, _BOX_HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 190, 44, 24, 30, 20


def to_dot(graph: Graph) -> str:
    """The graph as DOT, the language of Graphviz."""
    lines = [f'digraph "{graph.name}" {{', "  node [shape=box, style=filled, fontname=monospace];"]
    for name, (title, detail, kind) in _boxes(graph).items():
        colour = _COLOURS[kind]
        lines.append(f'  "{name}" [label="{title}\\n{detail}", fillcolor="{colour}"];')
    lines += [f'  "{start}" -> "{end}";' for start, end in _edges(graph)]
    return "\n".join([*lines, "}"])


def to_svg(graph: Graph) -> str:
    """The graph as an SVG document."""
    boxes, edges = _boxes(graph), _edges(graph)
    positions = _layout(boxes, edges)
    width = max(x for x, _ in positions.values()) + _BOX_WIDTH + _MARGIN
    height = max(y for _, y in positions.values()) + _BOX_HEIGHT + _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="monospace" font-size="12">',
        f"<title>{escape(graph.name)}</title>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    parts += [_draw_edge(positions[start], positions[end]) for start, end in edges]
    parts += [_draw_box(positions[name], *box) for name, box in boxes.items()]
    return "\n".join([*parts, "</svg>"])


def _boxes(graph: Graph) -> dict[str, tuple[str, str, str]]:
    """Title, detail and kind of every box, by the name of its value."""
    boxes = {v.name: (f"%{v.name}", str(v.type), "input") for v in graph.inputs}
    for node in graph:
        if node.op != "constant":
            boxes[node.result.name] = (_title(node), str(node.result.type), _kind(node))
    for name, value in graph.outputs:
        boxes[f"return {name}"] = (f"return {name}", str(value.type), "output")
    return boxes


def _title(node: Node) -> str:
    named = [value.name for value in node.inputs if not value.name.isdigit()]
    owner = next((name.rsplit(".", 1)[0] for name in named if "." in name), "")
    return f"{node.op} {owner[-16:]}".strip()


def _kind(node: Node) -> str:
    return "heavy" if node.op in _HEAVY else "move" if node.op in _MOVE else "other"


def _edges(graph: Graph) -> list[tuple[str, str]]:
    shown = {value.name for value in graph.inputs}
    shown |= {node.result.name for node in graph if node.op != "constant"}
    edges = [
        (value.name, node.result.name)
        for node in graph
        for value in dict.fromkeys(node.inputs)
        if value.name in shown and node.op != "constant"
    ]
    return edges + [(v.name, f"return {name}") for name, v in graph.outputs if v.name in shown]


def _layout(
    boxes: dict[str, tuple[str, str, str]], edges: list[tuple[str, str]]
) -> dict[str, tuple[int, int]]:
    """The corner of every box: its row is its depth, its column the next free one."""
    sources: dict[str, list[str]] = {}
    for start, end in edges:
        sources.setdefault(end, []).append(start)
    depth: dict[str, int] = {}
    used: dict[int, int] = {}
    positions: dict[str, tuple[int, int]] = {}
    for name in boxes:
        row = max((depth[source] + 1 for source in sources.get(name, ())), default=0)
        depth[name], column = row, used.get(row, 0)
        used[row] = column + 1
        x = _MARGIN + column * (_BOX_WIDTH + _GAP_X)
        positions[name] = (x, _MARGIN + row * (_BOX_HEIGHT + _GAP_Y))
    return positions


def _draw_edge(start: tuple[int, int], end: tuple[int, int]) -> str:
    x0, y0 = start[0] + _BOX_WIDTH // 2, start[1] + _BOX_HEIGHT
    x1, y1 = end[0] + _BOX_WIDTH // 2, end[1]
    middle = (y0 + y1) // 2
    path = f"M{x0},{y0} C{x0},{middle} {x1},{middle} {x1},{y1}"
    return f'<path d="{path}" fill="none" stroke="#9ca3af"/>'


def _draw_box(corner: tuple[int, int], title: str, detail: str, kind: str) -> str:
    x, y = corner
    return (
        f'<rect x="{x}" y="{y}" width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}" rx="6" '
        f'fill="{_COLOURS[kind]}" stroke="#6b7280"/>'
        f'<text x="{x + 8}" y="{y + 18}">{escape(title[:25])}</text>'
        f'<text x="{x + 8}" y="{y + 35}" fill="#4b5563">{escape(detail[:25])}</text>'
    )
