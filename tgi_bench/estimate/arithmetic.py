"""What the formulas need that numbers and arrays do differently.

A formula takes a number for one configuration, or an array of shape (n,) for n of them. numpy is
imported by whoever makes an array, and here by what is then done to it: never for numbers alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar, overload

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]
    BoolArray = NDArray[np.bool_]

N = TypeVar("N", float, "FloatArray")
"""A number, or an array of shape (n,)."""


def column(values: Sequence[float]) -> FloatArray:
    """Numbers as an array of shape (n,)."""
    import numpy as np

    return np.array(values, dtype=np.float64)


@overload
def larger(one: float, other: float) -> float: ...
@overload
def larger(one: FloatArray, other: FloatArray | float) -> FloatArray: ...
def larger(one: FloatArray | float, other: FloatArray | float) -> FloatArray | float:
    """The larger of two numbers, or of each two."""
    if isinstance(one, float | int) and isinstance(other, float | int):
        return max(one, other)
    import numpy as np

    return np.maximum(one, other)


@overload
def smaller(one: float, other: float) -> float: ...
@overload
def smaller(one: FloatArray, other: FloatArray | float) -> FloatArray: ...
def smaller(one: FloatArray | float, other: FloatArray | float) -> FloatArray | float:
    """The smaller of two numbers, or of each two."""
    if isinstance(one, float | int) and isinstance(other, float | int):
        return min(one, other)
    import numpy as np

    return np.minimum(one, other)


@overload
def chosen(yes: bool, one: float, other: float) -> float: ...
@overload
def chosen(yes: BoolArray, one: FloatArray, other: FloatArray) -> FloatArray: ...
def chosen(
    yes: BoolArray | bool, one: FloatArray | float, other: FloatArray | float
) -> FloatArray | float:
    """`one` where yes, else `other`."""
    if isinstance(yes, bool):
        return one if yes else other
    import numpy as np

    return np.where(yes, one, other)


def extremes(sizes: FloatArray | float) -> tuple[float, float]:
    """The least and the most of an array of whole numbers; a number twice."""
    if isinstance(sizes, float | int):
        return sizes, sizes
    return int(sizes.min()), int(sizes.max())
