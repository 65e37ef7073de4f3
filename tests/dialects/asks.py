"""Asks, abilities and answers that the tests of the dialects share."""

from __future__ import annotations

from collections.abc import Iterable

from tgi_bench.dialects import speaking
from tgi_bench.dialects.answer import Answer
from tgi_bench.dialects.dialect import Abilities, Ask
from tgi_bench.load_observation import RequestOutcome
from tgi_bench.sections.section import Sampling

GREEDY = Sampling(False, None, None, None, None, None, False)
ASK = Ask(prompt="a b", messages=(), prompt_tokens=2, output_tokens=3)
EVENT_STREAM = "text/event-stream"
JSON = "application/json"


def able(
    spoken: str,
    engine: str = "",
    *,
    truncates: bool = False,
    ignores_eos: str | None = None,
    usage: bool = False,
    tokenize_path: str | None = None,
) -> Abilities:
    return Abilities(
        speaking(spoken)[0], "m", engine, truncates, tokenize_path, ignores_eos, usage, None
    )


TGI = able("tgi", "tgi", truncates=True)
COMPLETIONS = able("completions", usage=True)
CHAT = able("chat", usage=True)


def answer(
    *pieces: bytes | tuple[int, bytes],
    kind: str | None = EVENT_STREAM,
    status: int | None = 200,
    headers: Iterable[tuple[str, str]] = (),
    failure: RequestOutcome | None = None,
    reason: str = "",
) -> Answer:
    """Pieces arrive at 1, 2, ...; the body ends at 99."""
    said = [*headers, *([] if kind is None else [("content-type", kind)])]
    return Answer(
        status=status,
        headers=tuple((name.encode(), value.encode()) for name, value in said),
        pieces=tuple(
            piece if isinstance(piece, tuple) else (at, piece)
            for at, piece in enumerate(pieces, start=1)
        ),
        head_ns=None if status is None else 0,
        ended_ns=99,
        failure=failure,
        reason=reason,
    )
