"""Symbolic dimensions inside an OpenVINO model: small computations on the inputs' shapes."""

from collections.abc import Mapping, Sequence
from functools import reduce

import numpy as np

from samgraph.engines.openvino.library import Port, opset15
from samgraph.graph.binding import plan_symbols
from samgraph.graph.dims import Dim, Expr, Floor, Shape
from samgraph.graph.graph import Value


class SymbolTable:
    """Lowers dimensions to OpenVINO constants, or to arithmetic where they are symbolic."""

    def __init__(self, inputs: Sequence[Value], parameters: Mapping[str, Port]) -> None:
        self._plan = plan_symbols(inputs)
        self._parameters = parameters
        self._made: dict[Dim | Floor, Port] = {}

    def shape(self, shape: Shape) -> Port:
        """A shape as a vector for reshape, with -1 for a single symbolic length."""
        unknown = [dim for dim in shape if isinstance(dim, Expr)]
        if len(unknown) == 1 and 0 not in shape:
            return _constant([-1 if isinstance(dim, Expr) else dim for dim in shape])
        return self.vector(list(shape))

    def vector(self, dims: Sequence[Dim]) -> Port:
        """Dimensions as a vector of i64."""
        known = [dim for dim in dims if isinstance(dim, int)]
        if len(known) == len(dims):
            return _constant(known)
        return opset15.concat([self._dim(dim) for dim in dims], 0)

    def number(self, dim: Dim) -> Port:
        """One dimension as a scalar of i64."""
        if isinstance(dim, int):
            return opset15.constant(np.int64(dim))
        return opset15.squeeze(self._dim(dim), _constant([0]))

    def _dim(self, dim: Dim) -> Port:
        """One dimension as a vector of one element."""
        if isinstance(dim, int):
            return _constant([dim])
        if dim not in self._made:
            self._made[dim] = self._sum(dim)
        return self._made[dim]

    def _sum(self, dim: Expr) -> Port:
        terms: list[Port] = []
        for monomial, factor in dim.terms:
            parts = [_constant([factor])] if factor != 1 or not monomial else []
            parts += [self._atom(atom) for atom in monomial]
            terms.append(reduce(opset15.multiply, parts))
        return reduce(opset15.add, terms)

    def _atom(self, atom: str | Floor) -> Port:
        if isinstance(atom, Floor):
            return opset15.divide(self._dim(atom.over), _constant([atom.by]))
        key = Expr((((atom,), 1),))
        if key not in self._made:
            name, axis, rest, factor = self._plan[atom]
            shape = opset15.shape_of(self._parameters[name], "i64")
            length = opset15.gather(shape, _constant([axis]), opset15.constant(np.int64(0)))
            if rest != 0:
                length = opset15.subtract(length, self._dim(rest))
            if factor != 1:
                length = opset15.divide(length, _constant([factor]))
            self._made[key] = length
        return self._made[key]


def _constant(values: Sequence[int]) -> Port:
    return opset15.constant(np.array(values, np.int64))
