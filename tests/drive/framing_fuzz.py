"""http_framing.py against llhttp (as httptools has it), on generated and broken answers.

    python -m tests.drive.framing_fuzz --cases 2000000 --seed 0

Case `index` of a seed is always the same, so that `--first INDEX --cases 1` shows one again.
Each case is parsed whole and in random reads by ours, and by llhttp. They must agree on whether
it is an answer, on status, headers, body, its last byte, and whether the connection is kept;
of a refused one, on the body before the fault. What may differ is in DIFFERENCES, and no more.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import httptools

from tests.drive.framing_cases import answer, reads_of
from tgi_bench.drive.http_framing import FramingError, ResponseFraming

TAB = "a tab after `chunked`"
CLOSE_AND_KEEP = "HTTP/1.0 with both close and keep-alive"
DIFFERENCES: dict[str, str] = {
    r"the status line (is|begins) .(?!HTTP/1\.[01] )": "HTTP/1.0 and 1.1 only: llhttp takes "
    "HTTP/0.9 and 2.0, RTSP and ICE, and blank lines before it, which after a kept answer are "
    "stray bytes",
    "the status is 0": "below 100 means nothing; llhttp takes any three digits",
    "an interim answer .* announces a body": "1xx has none (RFC 9110, 15.2); llhttp reads it",
    "an interim answer .* closes": "it says close, and keep-alive: as in the last row",
    "Transfer-Encoding is (?!'[Cc][Hh][Uu][Nn][Kk][Ee][Dd]'$)": "we ask for no other coding and "
    "could undo none; llhttp reads others until the connection ends and ignores an empty one",
    "the head has two Transfer-Encoding": "chunked is applied once (RFC 9112, 6.1); llhttp takes "
    "it twice",
    "a trailer says": "framing and Connection come too late in a trailer; llhttp obeys them",
    "the head is over": "64 KiB; llhttp has no limit",
    "a chunk's size line is over": "1 KiB; llhttp has no limit",
    "the trailers are over": "16 KiB; llhttp has no limit",
    TAB: "a blank around a value is no part of it (RFC 9110, 5.5); llhttp takes it for another "
    "coding than chunked, and a blank there for none",
    CLOSE_AND_KEEP: "close wins (RFC 9112, 9.3); llhttp keeps the connection",
}
"""What may differ -> why. All but the last two are patterns of sentences of ours: we refuse
there what llhttp takes."""

_TAB = re.compile(rb"transfer-encoding:[ \t]*chunked *\t", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Seen:
    """What a parser made of a case.

    refused: its sentence, None where the answer was whole. used: bytes up to its end.
    status, headers: of what came, where the head was whole; None and () else.
    """

    refused: str | None
    status: int | None
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    used: int
    kept: bool


def ours(reads: Iterable[bytes], framing: ResponseFraming) -> Seen:
    """Our parser, on the connection's reads and then its end."""
    framing.reset()
    body = []
    used = 0
    refused = None
    try:
        for data in reads:
            body.append(framing.feed(data))
            used += len(data) - len(framing.rest)
            if framing.done:
                break
        framing.eof()
    except FramingError as error:
        body.append(error.body)
        refused = str(error)
    return Seen(refused, framing.status, framing.headers, b"".join(body), used, framing.keep_alive)


class Llhttp:
    """llhttp's view of the first answer that is not interim."""

    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self.body: list[bytes] = []
        self.status: int | None = None
        self.ended = False
        self.kept = False
        self._trailing = False
        self._parser = httptools.HttpResponseParser(self)

    def on_message_begin(self) -> None:
        if not self.ended:
            self.headers = []
            self.status = None

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.ended and self.status is None:
            self.headers.append((name.lower(), value.strip(b" \t")))

    def on_headers_complete(self) -> None:
        if not self.ended:
            self.status = self._parser.get_status_code()

    def on_body(self, data: bytes) -> None:
        if not self.ended:
            self.body.append(data)

    def on_message_complete(self) -> None:
        if not self.ended and self.status is not None and (self.status >= 200 or self.status < 100):
            self.ended = True
            self.kept = self._parser.should_keep_alive()

    def refuses(self, data: bytes) -> str | None:
        """Its sentence for the next read; None where there was no fault before the end."""
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            # After the end it has begun to read an answer that we leave alone.
            return None if self.ended else f"llhttp: {error}"
        return None

    def until_close(self) -> bool:
        """True where the body ends with the connection."""
        if self.status is None or self.ended:
            return False
        names = {name for name, _ in self.headers}
        if b"transfer-encoding" in names or b"content-length" in names:
            return False
        junk = b"\r\n0\r\n\r\n\x00HTTP"
        before = len(self.body)
        taken = self.refuses(junk) is None and b"".join(self.body[before:]) == junk
        del self.body[before:]
        return taken


def theirs(data: bytes, used: int | None) -> Seen:
    """llhttp on the same bytes and then the connection's end.

    used: where ours saw the end, so that the last byte can be fed alone: llhttp does not say
    where it saw it.
    """
    parser = Llhttp()
    if used is not None:
        refused = parser.refuses(data[: used - 1])
        early = parser.ended
        refused = refused or parser.refuses(data[used - 1 : used])
        end = -1 if early else used
    else:
        refused = parser.refuses(data)
        end = len(data)
    if refused is None and not parser.ended and not parser.until_close():
        refused = "llhttp: the connection ended within the answer"
    return Seen(
        refused, parser.status, tuple(parser.headers), b"".join(parser.body), end, parser.kept
    )


def difference(data: bytes, mine: Seen, other: Seen) -> str | None:
    """What the two disagree on; the key of DIFFERENCES where that is allowed; None: nothing."""
    found = _disagreement(mine, other)
    if found is None or found in DIFFERENCES:
        return found
    return TAB if _TAB.search(data) else found


def _disagreement(mine: Seen, other: Seen) -> str | None:
    if mine.refused is not None and other.refused is None:
        return _known(mine.refused) or f"ours refuses alone: {mine.refused}"
    if mine.refused is None and other.refused is not None:
        return f"theirs refuses alone: {other.refused}"
    if mine.status is None:
        return None  # both refused the head, or what came before it
    if (mine.status, mine.headers) != (other.status, other.headers):
        return f"heads differ: {mine} and {other}"
    if mine.body != other.body and not (_ours_alone(mine) and other.body.startswith(mine.body)):
        return f"bodies differ: {mine.body[:80]!r} and {other.body[:80]!r} ({mine.refused})"
    if mine.refused is not None:
        return None
    if mine.used != other.used:
        return f"they end at different bytes: {mine.used} and {other.used}"
    if mine.kept != other.kept:
        options = b",".join(v.lower() for name, v in mine.headers if name.endswith(b"connection"))
        both = not mine.kept and b"close" in options and b"keep-alive" in options
        return CLOSE_AND_KEEP if both else f"kept differs: {mine} and {other}"
    return None


def _known(sentence: str) -> str | None:
    """The key of DIFFERENCES that our sentence belongs to."""
    return next((pattern for pattern in DIFFERENCES if re.match(pattern, sentence)), None)


def _ours_alone(mine: Seen) -> bool:
    """We refused for a reason of DIFFERENCES: llhttp went on, to a later fault."""
    return mine.refused is not None and _known(mine.refused) is not None


def case_of(seed: int, index: int) -> tuple[bytes, list[bytes]]:
    """The bytes that a connection brings, and the reads they come in."""
    rng = random.Random((seed << 48) | index)
    data = answer(rng)
    return data, reads_of(rng, data)


def compare(seed: int, index: int, framing: ResponseFraming) -> tuple[Seen, str | None]:
    """Ours, and the difference: from llhttp, or between the case whole and in reads."""
    data, reads = case_of(seed, index)
    split = ours(reads, framing)
    whole = ours([data], framing)
    if (split.refused is None, split.status, split.headers, split.body, split.kept) != (
        whole.refused is None,
        whole.status,
        whole.headers,
        whole.body,
        whole.kept,
    ) or (split.refused is None and split.used != whole.used):
        return split, f"reads change the answer: {split} and {whole}"
    other = theirs(data, whole.used if whole.refused is None else None)
    return whole, difference(data, whole, other)


@dataclass(frozen=True, slots=True)
class Tally:
    """How many cases were whole answers, refused, or differed as DIFFERENCES allows; and those
    that differed otherwise, by index."""

    accepted: int
    refused: int
    allowed: Counter[str]
    wrong: dict[int, str]


def run(seed: int, indexes: Iterable[int]) -> Tally:
    """Compare every case; stops at 20 wrong ones."""
    framing = ResponseFraming()
    outcomes: Counter[bool] = Counter()
    allowed: Counter[str] = Counter()
    wrong: dict[int, str] = {}
    for index in indexes:
        mine, found = compare(seed, index, framing)
        outcomes[mine.refused is None] += 1
        if found is None:
            continue
        if found in DIFFERENCES:
            allowed[found] += 1
        else:
            wrong[index] = found
            if len(wrong) == 20:
                break
    return Tally(outcomes[True], outcomes[False], allowed, wrong)


def _lines(tally: Tally, seed: int, seconds: float) -> Iterator[str]:
    cases = tally.accepted + tally.refused
    yield f"{cases} cases of seed {seed} in {seconds:.0f} s, {tally.accepted} of them accepted"
    for what, count in tally.allowed.most_common():
        yield f"{count:9d}  {what}: {DIFFERENCES[what]}"
    for index, what in tally.wrong.items():
        data, reads = case_of(seed, index)
        yield f"WRONG: case {index}: {what}\n    {data[:600]!r}\n    in {len(reads)} reads"
    yield f"{len(tally.wrong)} cases differ where they must not"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=2_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, metavar="INDEX")
    given = parser.parse_args()
    began = time.monotonic()
    tally = run(given.seed, range(given.first, given.first + given.cases))
    print("\n".join(_lines(tally, given.seed, time.monotonic() - began)))
    return 1 if tally.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
