"""What a scripted server does, as a value: an honest server, and the same with one thing wrong.

An honest one answers each request by itself: `first_s` after it came the first token, and one
every `step_s` after that. Times of `Pace` and `stalls` are from the load's first request.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

MODEL = "org/tiny"


@dataclass(frozen=True, slots=True)
class Pace:
    """From from_s to until_s whatever takes a second takes `factor` seconds."""

    from_s: float
    until_s: float
    factor: float


@dataclass(frozen=True, slots=True)
class Script:
    """engine: "tgi", "vllm", "llamacpp" or "" for none that says so. per_word_s: of the prompt, to
    the first token.

    Of answers: first_tokens, each_tokens: tokens of the first event and of each other.
    empty_first: an event without text is sent as soon as a request comes. role_first: so is the
    role, alone. held: this many events are sent together once the last of them is there; 0: none,
    -1: all. in_one_write: those that are held go out in one piece. made: the share of the tokens
    asked that is sent; said: the tokens that usage tells of those asked, None: as many as were
    sent. each_told: usage comes with each event where that is asked for. names: the models that
    answers name, one after the other; () is the server's own. two_names: in each answer.
    ended_by: the finish reason.

    Of prompts: most_words: longer ones are cut. cached: the share of a prompt's time that goes
    away where its text came before; cached_said: the share of every prompt that usage calls
    cached, None: it tells nothing of a cache.

    Of all: first_pace and step_pace, stalls (from, length) in which nothing goes out. slots: more
    requests at once are refused with 503. failing: every so many requests get a 500; 0: none.
    closes: after each answer, without a word. jitter: of every time, up to this share.
    """

    engine: str = "vllm"
    model: str = MODEL
    version: str = ""
    first_s: float = 0.03
    per_word_s: float = 0.0
    step_s: float = 0.008
    first_tokens: int = 1
    each_tokens: int = 1
    empty_first: bool = False
    role_first: bool = False
    held: int = 0
    in_one_write: bool = False
    made: float = 1.0
    said: float | None = None
    each_told: bool = False
    names: tuple[str, ...] = ()
    two_names: bool = False
    ended_by: str = "length"
    most_words: int | None = None
    cached: float = 0.0
    cached_said: float | None = None
    first_pace: tuple[Pace, ...] = ()
    step_pace: tuple[Pace, ...] = ()
    stalls: tuple[tuple[float, float], ...] = ()
    slots: int | None = None
    failing: int = 0
    closes: bool = False
    jitter: float = 0.0


def after(at_s: float, took_s: float, paces: tuple[Pace, ...]) -> float:
    """When what begins at at_s, and takes took_s at an even pace, is done."""
    left = took_s
    while left > 0:
        factor, until = _pace(at_s, paces)
        if at_s + left * factor <= until:
            return at_s + left * factor
        left -= (until - at_s) / factor
        at_s = until
    return at_s


def _pace(at_s: float, paces: tuple[Pace, ...]) -> tuple[float, float]:
    """(factor, until when)."""
    for pace in paces:
        if pace.from_s <= at_s < pace.until_s:
            return pace.factor, pace.until_s
    return 1.0, min((pace.from_s for pace in paces if pace.from_s > at_s), default=inf)
