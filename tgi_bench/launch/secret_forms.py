"""A secret's value as it may stand in a text: as it is, escaped, encoded, in another case."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import quote, quote_plus

_LEAST_ENCODED = 8
"""Characters of a value whose encodings are looked for: those of a shorter one are in any text."""

_WRAPPED = (64, 76)
"""Characters of a line of base64, as `openssl` and `base64` write it."""

_LEAST_WRAPPED = 16
_HOW = ("surrogateescape", "surrogatepass")
_GROUP_BYTES, _GROUP_CHARACTERS = 3, 4
_CUT_BEFORE = (0, 2, 3)
"""Characters of base64 that hold bits of the 0, 1 or 2 bytes before a value."""


@dataclass(frozen=True, slots=True)
class Form:
    """One way to write a value. text: as it stands there. any_case: in whatever case."""

    text: bytes
    any_case: bool


def forms_of(value: str) -> frozenset[Form]:
    """Every form that is known; of a short value only those that keep its characters."""
    raw = value.encode("utf-8", "surrogateescape")  # as in a log; in a str as surrogates
    long = len(value) >= _LEAST_ENCODED
    escaped = {json.dumps(value, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)}
    slashes = {text.replace("/", "\\/") for text in escaped}
    kept = {value, *escaped, *slashes, repr(value)[1:-1], html.escape(value)}
    plain = {text.encode("utf-8", how) for text in kept for how in _HOW}
    plain |= {quote(raw, safe=safe).encode() for safe in ("", "/", "!*'()~", "!*'()~;,/?:@&=+$#")}
    plain.add(quote_plus(raw).encode())
    forms = {Form(text, long) for text in plain}
    if long:
        forms.add(Form(raw.hex().encode(), any_case=True))
        forms |= {Form(text, any_case=False) for text in _base64_forms(raw)}
    return frozenset(forms)


def _base64_forms(raw: bytes) -> Iterator[bytes]:
    """Whole, with and without padding, in lines, and within a longer text at any place.

    Of the last at most two bytes at either end stay, whose bits share a character with others.
    """
    for encoded in (base64.b64encode(raw), base64.urlsafe_b64encode(raw)):
        bare = encoded.rstrip(b"=")
        yield from (encoded, bare)
        for width in _WRAPPED:
            lines = (bare[begin : begin + width] for begin in range(0, len(bare), width))
            yield from (line for line in lines if len(line) >= _LEAST_WRAPPED)
    for before, cut in enumerate(_CUT_BEFORE):
        whole = (before + len(raw)) // _GROUP_BYTES * _GROUP_CHARACTERS
        padded = b"\0" * before + raw
        for encoded in (base64.b64encode(padded), base64.urlsafe_b64encode(padded)):
            yield encoded[cut:whole]


class FormsPattern:
    """Finds forms in texts. Searching costs next to nothing where there are none.

    longest: bytes of the longest form; 0 where there is none.
    """

    def __init__(self, forms: Iterable[Form]) -> None:
        # The longest first: a form that holds another must not leave its ends behind.
        ordered = sorted({f for f in forms if f.text}, key=lambda f: (-len(f.text), f.text))
        self.longest = max((len(form.text) for form in ordered), default=0)
        self._needles = tuple({form.text.lower() for form in ordered})
        alternatives = (
            b"(?i:%b)" % re.escape(form.text) if form.any_case else re.escape(form.text)
            for form in ordered
        )
        self._pattern = re.compile(b"|".join(alternatives)) if ordered else None

    def sub(self, mask: bytes, data: bytes) -> bytes:
        """The data with the mask in place of each form."""
        if self._pattern is None:
            return data
        # Plain searches first: they are a hundred times as quick as the pattern.
        lower = data.lower()
        if not any(needle in lower for needle in self._needles):
            return data
        return self._pattern.sub(mask, data)
