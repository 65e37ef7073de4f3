"""Lengths: how many tokens or turns, as a file says it, as a plan holds it, and as it is drawn."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate, repeat
from math import ceil, exp, log
from statistics import NormalDist
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, model_validator

from tgi_bench.sections.section import FromYaml, Positive, Section, Value, refused, refused_value
from tgi_bench.trials.draws import Draw, below
from tgi_bench.words import shown

MOST_TOKENS = 10_000_000
_BOUND_SIGMAS = 4

Tokens = Annotated[int, Field(ge=1, le=MOST_TOKENS)]
_Middle = Annotated[float, Field(gt=0, le=MOST_TOKENS, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class Fixed(Value):
    """Always the same number."""

    kind: Literal["fixed"] = field(default="fixed", kw_only=True)
    tokens: int


@dataclass(frozen=True, slots=True)
class Uniform(Value):
    """Every whole number from lowest to highest, both included, alike."""

    kind: Literal["uniform"] = field(default="uniform", kw_only=True)
    lowest: int
    highest: int


@dataclass(frozen=True, slots=True)
class Normal(Value):
    """Rounded; a draw outside lowest..highest is drawn again."""

    kind: Literal["normal"] = field(default="normal", kw_only=True)
    mean: float
    deviation: float
    lowest: int
    highest: int


@dataclass(frozen=True, slots=True)
class LogNormal(Value):
    """exp of a normal: median tokens, sigma of the logarithm; bounds as Normal."""

    kind: Literal["lognormal"] = field(default="lognormal", kw_only=True)
    median: float
    sigma: float
    lowest: int
    highest: int


@dataclass(frozen=True, slots=True)
class Empirical(Value):
    """One of the values, with probability weight / sum of weights; () weighs all alike."""

    kind: Literal["empirical"] = field(default="empirical", kw_only=True)
    values: tuple[int, ...]
    weights: tuple[float, ...] = ()


def _below_middle(lowest: int, info: ValidationInfo) -> int:
    middle = info.data.get("mean", info.data.get("median"))
    if middle is not None and lowest > middle:
        raise refused(f"must be at most {middle:g}, the middle, not {lowest}")
    return lowest


def _above_middle(highest: int | None, info: ValidationInfo) -> int | None:
    middle = info.data.get("mean", info.data.get("median"))
    if middle is not None and highest is not None and highest < middle:
        raise refused(f"must be at least {middle:g}, the middle, not {highest}")
    return highest


class NormalKeys(Section):
    """A normal distribution, rounded and kept between its bounds."""

    mean: _Middle
    """The mean before the bounds cut it."""
    deviation: _Middle
    """The standard deviation before the bounds cut it."""
    lowest: Annotated[Tokens, AfterValidator(_below_middle)] = 1
    """The least number of tokens."""
    highest: Annotated[Tokens | None, AfterValidator(_above_middle)] = None
    """The greatest number of tokens; the mean and 4 deviations by default."""


class LogNormalKeys(Section):
    """A log-normal distribution, rounded and kept between its bounds."""

    median: _Middle
    """The median before the bounds cut it."""
    sigma: Annotated[float, Field(gt=0, le=10, allow_inf_nan=False)]
    """The standard deviation of the natural logarithm."""
    lowest: Annotated[Tokens, AfterValidator(_below_middle)] = 1
    """The least number of tokens."""
    highest: Annotated[Tokens | None, AfterValidator(_above_middle)] = None
    """The greatest number of tokens; the median times e to the 4 sigma by default."""


def _ascending(bounds: list[int]) -> list[int]:
    if bounds[0] > bounds[1]:
        raise refused(f"must ascend: [lowest, highest], not {shown(bounds)}")
    return bounds


def _one_for_each(weights: list[float] | None, info: ValidationInfo) -> object:
    values = info.data.get("values", ())  # none where they were refused themselves
    if weights is not None and values is None:
        raise refused("is read with `values` only")
    if weights is not None and values and len(weights) != len(values):
        counts = f"{len(values)} values and {len(weights)} weights"
        raise refused(f"must hold a weight for each value: there are {counts}")
    return weights


class LengthKeys(Section):
    """How many, drawn for each request. A plain number stands for `fixed`."""

    fixed: Tokens | None = None
    """Always the same number."""
    uniform: (
        Annotated[
            list[Tokens],
            Field(min_length=2, max_length=2),
            AfterValidator(_ascending),
        ]
        | None
    ) = None
    """Every whole number from the first to the second alike, both included."""
    normal: NormalKeys | None = None
    """From a normal distribution."""
    lognormal: LogNormalKeys | None = None
    """From a log-normal distribution."""
    values: Annotated[list[Tokens], Field(min_length=1, max_length=10_000)] | None = None
    """One of these."""
    weights: Annotated[
        Annotated[list[Positive], Field(min_length=1, max_length=10_000)] | None,
        AfterValidator(_one_for_each),
    ] = None
    """How often each of `values` comes, relative to the others; alike by default."""

    @model_validator(mode="after")
    def _of_one_form(self) -> LengthKeys:
        forms = {
            "fixed": self.fixed,
            "uniform": self.uniform,
            "normal": self.normal,
            "lognormal": self.lognormal,
            "values": self.values,
        }
        given = [name for name, value in forms.items() if value is not None]
        if len(given) != 1:
            said = " and ".join(given) or "none"
            raise refused(f"must hold one of {', '.join(forms)}, not {said}")
        return self


def _made(keys: LengthKeys) -> Fixed | Uniform | Normal | LogNormal | Empirical:
    """The distribution of the keys; a highest that is not given is 4 deviations away."""
    if keys.fixed is not None:
        return Fixed(keys.fixed)
    if keys.uniform is not None:
        return Uniform(keys.uniform[0], keys.uniform[1])
    if (normal := keys.normal) is not None:
        far = ceil(normal.mean + _BOUND_SIGMAS * normal.deviation)
        highest = normal.highest or min(far, MOST_TOKENS)
        return Normal(normal.mean, normal.deviation, normal.lowest, highest)
    if (lognormal := keys.lognormal) is not None:
        far = ceil(lognormal.median * exp(_BOUND_SIGMAS * lognormal.sigma))
        highest = lognormal.highest or min(far, MOST_TOKENS)
        return LogNormal(lognormal.median, lognormal.sigma, lognormal.lowest, highest)
    return Empirical(tuple(keys.values or ()), tuple(keys.weights or ()))


def _of(what: str) -> Callable[[object], object]:
    """A reader of lengths, to which a lone number is the fixed one."""

    def read(value: object) -> object:
        if isinstance(value, dict):
            return value
        if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_TOKENS:
            return {"fixed": value}
        raise refused_value(
            f"must be a number of {what} from 1 to {MOST_TOKENS}, or {{uniform: [100, 1000]}}, "
            "{normal: ...}, {lognormal: ...} or {values: [...]}",
            value,
        )

    return read


def _from_keys(what: str) -> FromYaml:
    form = BeforeValidator(_of(what), json_schema_input_type=Tokens | LengthKeys)
    return FromYaml(Annotated[LengthKeys, form], _made)


Length = Annotated[
    Fixed | Uniform | Normal | LogNormal | Empirical,
    Field(discriminator="kind"),
    _from_keys("tokens"),
]
"""How many tokens, drawn for each request."""
RequestCount = Annotated[
    Fixed | Uniform | Normal | LogNormal | Empirical,
    Field(discriminator="kind"),
    _from_keys("requests"),
]


def least_tokens(length: Length) -> int:
    """The least number that may come."""
    match length:
        case Fixed(tokens):
            return tokens
        case Empirical(values):
            return min(values)
        case _:
            return length.lowest


_STANDARD = NormalDist()
_LEAST_PROBABILITY = 1e-300
_MOST_PROBABILITY = 1.0 - 2.0**-53


def lengths(length: Length, draw: Draw) -> Iterator[int]:
    """Endless draws. Normal and log-normal ones take one number each, whatever the bounds are."""
    match length:
        case Fixed(tokens):
            return repeat(tokens)
        case Uniform(lowest, highest):
            return (lowest + below(draw, highest - lowest + 1) for _ in repeat(None))
        case Normal(mean, deviation, lowest, highest):
            low = _STANDARD.cdf((lowest - 0.5 - mean) / deviation)
            high = _STANDARD.cdf((highest + 0.5 - mean) / deviation)
            return (
                _within(round(mean + deviation * _between(low, high, draw())), lowest, highest)
                for _ in repeat(None)
            )
        case LogNormal(median, sigma, lowest, highest):
            low = _STANDARD.cdf((log(lowest - 0.5) - log(median)) / sigma)
            high = _STANDARD.cdf((log(highest + 0.5) - log(median)) / sigma)
            return (
                _within(round(median * exp(sigma * _between(low, high, draw()))), lowest, highest)
                for _ in repeat(None)
            )
        case Empirical(values, weights):
            sums = list(accumulate(weights or [1.0] * len(values)))
            return (
                values[min(bisect_right(sums, draw() * sums[-1]), len(values) - 1)]
                for _ in repeat(None)
            )


def _between(low: float, high: float, number: float) -> float:
    """The standard normal's quantile at `number` of the way from probability low to high.

    The same distribution as drawing again whatever falls outside, without the loop.
    """
    probability = low + (high - low) * number
    return _STANDARD.inv_cdf(min(max(probability, _LEAST_PROBABILITY), _MOST_PROBABILITY))


def _within(tokens: int, lowest: int, highest: int) -> int:
    return min(max(tokens, lowest), highest)


def mean_tokens(length: Length) -> float:
    """The mean of a length; of Normal and LogNormal as it is before the bounds cut it."""
    match length:
        case Fixed(tokens):
            return tokens
        case Uniform(lowest, highest):
            return (lowest + highest) / 2
        case Normal(mean):
            return mean
        case LogNormal(median, sigma, lowest, highest):
            return min(max(median * exp(sigma * sigma / 2), lowest), highest)
        case Empirical(values, weights):
            shares = weights or (1.0,) * len(values)
            return sum(v * w for v, w in zip(values, shares, strict=True)) / sum(shares)
