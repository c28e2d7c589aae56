"""Dimensions: an int, or a polynomial of named symbols such as ``4096*F+N``.

A symbol stands for a length that is known only when a graph runs: `M` memory tokens, `P`
points. Shape rules add, multiply and divide dimensions; the result is in a canonical form, so that
two dimensions are equal exactly when they print the same.

Dimensions are also parsed from text, so their size is limited: at most 1024 terms of degree 32,
coefficients of 63 bits, and floors nested eight deep. Those of real graphs have a few terms.
"""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from samgraph.errors import GraphError, ShapeError
from samgraph.untrusted.text import shown


@dataclass(frozen=True, slots=True)
class Floor:
    """The floor of a polynomial over an int, where the division is not exact."""

    over: Expr
    by: int

    def __str__(self) -> str:
        return f"(({self.over})//{self.by})"


Atom: TypeAlias = str | Floor
Monomial: TypeAlias = tuple[Atom, ...]


@dataclass(frozen=True, slots=True)
class Expr:
    """A polynomial with integer coefficients: ``{(): 1, ("F",): 4096}`` is ``4096*F+1``."""

    terms: tuple[tuple[Monomial, int], ...]

    def __add__(self, other: Dim) -> Dim:
        total = dict(self.terms)
        for monomial, factor in _terms(other):
            total[monomial] = total.get(monomial, 0) + factor
        return _make(total)

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return _make({monomial: -factor for monomial, factor in self.terms})

    def __sub__(self, other: Dim) -> Dim:
        return self + (-other)

    def __rsub__(self, other: Dim) -> Dim:
        return -self + other

    def __mul__(self, other: Dim) -> Dim:
        if len(self.terms) * len(_terms(other)) > _MOST_TERMS:
            raise ShapeError("a dimension has too many terms", expected=f"at most {_MOST_TERMS}")
        total: dict[Monomial, int] = {}
        for left, a in self.terms:
            for right, b in _terms(other):
                monomial = tuple(sorted(left + right, key=str))
                total[monomial] = total.get(monomial, 0) + a * b
        return _make(total)

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        exact = divide(self, other)
        if exact is not None:
            return exact
        if not isinstance(other, int) or other <= 0:
            raise ShapeError(f"`{self}` cannot be divided by `{other}`")
        whole = {m: f // other for m, f in self.terms if m and f % other == 0}
        rest = _make({m: f for m, f in self.terms if not m or f % other})
        if isinstance(rest, int):
            return _make(whole) + rest // other
        if _depth(rest) >= _DEEPEST:
            raise ShapeError("a dimension has floors within floors", expected=f"{_DEEPEST} deep")
        return _make(whole) + _make({(Floor(rest, other),): 1})

    def __str__(self) -> str:
        text = ""
        for monomial, factor in self.terms:
            names = "*".join(map(str, monomial))
            size = abs(factor)
            part = names if names and size == 1 else f"{size}*{names}" if names else str(size)
            text += ("-" if factor < 0 else "+" if text else "") + part
        return text

    def __repr__(self) -> str:
        return str(self)

    @property
    def symbols(self) -> frozenset[str]:
        """The symbols this dimension depends on."""
        return frozenset(_symbols(self))

    def evaluate(self, bindings: Mapping[str, int]) -> int:
        """The value, given those of all symbols."""
        total = 0
        for monomial, factor in self.terms:
            for atom in monomial:
                if isinstance(atom, str):
                    factor *= bindings[atom]
                else:
                    factor *= atom.over.evaluate(bindings) // atom.by
            total += factor
        return total


Dim: TypeAlias = int | Expr
Shape: TypeAlias = tuple[Dim, ...]

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MOST_TERMS, _HIGHEST_DEGREE, _LARGEST, _DEEPEST = 1024, 32, 1 << 63, 8
_LONGEST_TEXT = 10_000


def symbol(name: str) -> Expr:
    """A named dimension."""
    if not _WORD.fullmatch(name) or keyword.iskeyword(name):
        raise GraphError(f"`{name}` cannot name a dimension", expected="a word such as `M`")
    return Expr((((name,), 1),))


def divide(dim: Dim, by: Dim) -> Dim | None:
    """The exact quotient, or None if the division leaves a remainder."""
    if by == 0:
        return None
    if isinstance(dim, int) and isinstance(by, int):
        return dim // by if dim % by == 0 else None
    divisor = _terms(by)
    if len(divisor) != 1:
        return 1 if dim == by else _factor_out(dim, by)
    (monomial, factor) = divisor[0]
    quotient: dict[Monomial, int] = {}
    for left, a in _terms(dim):
        rest = list(left)
        for atom in monomial:
            if atom not in rest:
                return None
            rest.remove(atom)
        if a % factor:
            return None
        quotient[tuple(rest)] = a // factor
    return _make(quotient)


def floor_divide(dim: Dim, by: Dim) -> Dim:
    """The quotient rounded down; an error where the divisor is symbolic and does not divide."""
    if isinstance(dim, int) and isinstance(by, int):
        if by == 0:
            raise ShapeError(f"`{dim}` cannot be divided by zero")
        return dim // by
    return Expr(_terms(dim)) // by


def product(shape: Shape) -> Dim:
    """The number of elements."""
    total: Dim = 1
    for dim in shape:
        total = total * dim
    return total


def evaluate(dim: Dim, bindings: Mapping[str, int]) -> int:
    """The value of a dimension, given those of all symbols."""
    return dim if isinstance(dim, int) else dim.evaluate(bindings)


def known(dim: Dim) -> int:
    """A dimension as an int; `ShapeError` if it is symbolic."""
    if isinstance(dim, Expr):
        raise ShapeError("a length that must be known is symbolic", got=f"`{dim}`")
    return dim


def parse_dim(text: str) -> Dim:
    """Parse a dimension."""
    try:
        if len(text) > _LONGEST_TEXT:
            raise ValueError("a dimension is short")
        return _read(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ShapeError, RecursionError, MemoryError) as error:
        raise GraphError(
            f"`{shown(text)}` is not a dimension", expected="such as `4096*F+N`"
        ) from error


def _read(tree: ast.expr) -> Dim:
    dim = _computed(tree)
    if isinstance(dim, int) and abs(dim) >= _LARGEST:
        raise ValueError("a dimension has 63 bits")
    return dim


def _computed(tree: ast.expr) -> Dim:
    match tree:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return value
        case ast.Name(id=name):
            return symbol(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_read(operand)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _read(left) + _read(right)
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            return _read(left) - _read(right)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _read(left) * _read(right)
        case ast.BinOp(left=left, op=ast.FloorDiv(), right=right):
            return floor_divide(_read(left), _read(right))
    raise ValueError(ast.unparse(tree))


def _terms(dim: Dim) -> tuple[tuple[Monomial, int], ...]:
    return (((), dim),) if isinstance(dim, int) else dim.terms


def _make(terms: Mapping[Monomial, int]) -> Dim:
    kept = {monomial: factor for monomial, factor in terms.items() if factor}
    if set(kept) <= {()}:
        return kept.get((), 0)
    if len(kept) > _MOST_TERMS or max(map(len, kept)) > _HIGHEST_DEGREE:
        raise ShapeError("a dimension has too many terms, or of too high a degree")
    if max(map(abs, kept.values())) >= _LARGEST:
        raise ShapeError("a dimension has a factor of more than 63 bits")
    order = sorted(kept.items(), key=lambda term: (-len(term[0]), str(term[0])))
    return Expr(tuple(order))


def _factor_out(dim: Dim, by: Dim) -> Dim | None:
    """The quotient by a sum, if it is a single term: ``(2*B*P+2*B) / (P+1) = 2*B``."""
    head, lead = _terms(dim)[0], _terms(by)[0]
    trial = divide(_make({head[0]: head[1]}), _make({lead[0]: lead[1]}))
    return trial if trial is not None and trial * by == dim else None


def _depth(dim: Expr) -> int:
    """The nesting depth of floors."""
    floors = [atom for monomial, _ in dim.terms for atom in monomial if isinstance(atom, Floor)]
    return max((1 + _depth(floor.over) for floor in floors), default=0)


def _symbols(dim: Expr) -> Iterator[str]:
    for monomial, _ in dim.terms:
        for atom in monomial:
            if isinstance(atom, str):
                yield atom
            else:
                yield from _symbols(atom.over)
