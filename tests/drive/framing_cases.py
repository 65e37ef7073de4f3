"""Answers as servers send them, as they may send them, and broken ones; all from one generator.

An answer is made of parts (start line, header lines, chunk lines, data ...), each drawn from a
table that has the usual and the odd; then whole parts, and bytes, are put out of order.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

_STARTS = (b"HTTP/1.1 ",) * 24 + (b"HTTP/1.0 ",) * 4
_ODD_STARTS = (
    b"HTTP/0.9 ",
    b"HTTP/2.0 ",
    b"HTTP/1.2 ",
    b"HTTP/1.11 ",
    b"HTTP/1 ",
    b"HTTP/1.1",
    b"HTTP/1.1  ",
    b"HTTP/1.1\t",
    b"http/1.1 ",
    b"RTSP/1.0 ",
    b"ICE/1.0 ",
    b"HTTPS/1.1 ",
    b"\r\nHTTP/1.1 ",
    b"\nHTTP/1.1 ",
    b" HTTP/1.1 ",
    b"\xef\xbb\xbfHTTP/1.1 ",
    b"SSH-2.0-",
    b"\x15\x03\x01\x00\x02\x02",
    b"",
)
_STATUSES = (b"200",) * 20 + (b"204", b"304", b"206", b"301", b"404", b"429", b"500", b"503")
_ODD_STATUSES = (
    b"100",
    b"101",
    b"102",
    b"103",
    b"150",
    b"099",
    b"000",
    b"600",
    b"999",
    b"20",
    b"2000",
    b"+20",
    b"2 0",
    b"0x1",
    b"\xb2\xb3\xb9",
    b"",
)
_REASONS = (b" OK",) * 8 + (b"", b" ", b" Too Many Requests", b" \xc3\xa9t\xe9", b" a\tb", b"  ")
_ODD_REASONS = (b"OK", b" a\x00b", b" a\x7fb", b" a\rb", b" a\nb", b"\t", b"\x0b", b" \r")

_PLAIN = (
    b"content-type: text/event-stream",
    b"Content-Type: application/json; charset=utf-8",
    b"date: Tue, 03 Mar 2026 10:11:12 GMT",
    b"Server: uvicorn",
    b"x-accel-buffering:no",
    b"cache-control:\tno-cache",
    b"x-empty:",
    b"x-empty: \t ",
    b"x-trailing: value \t",
    b"x-colons: a:b::c",
    b"x-latin: caf\xe9 \xc3\xa9",
    b"!#$%&'*+-.^_`|~0: token",
    b"Set-Cookie: a=b",
    b"Set-Cookie: c=d",
    b"Upgrade: h2c",
    b"Connection-Duration: 5",
    b"Content-Lengths: 5",
    b"Transfer: chunked",
    b"conn: close",
    b"content: 4",
)
_ODD_LINES = (
    b" folded",
    b"\tfolded",
    b"x-space : a",
    b"x-tab\t: a",
    b": no name",
    b"no colon",
    b"x nul: a",
    b"x-nul: a\x00b",
    b"x-bell: a\x07b",
    b"x-del: a\x7fb",
    b"x-cr: a\rb",
    b"x-cr: a\r",
    b"x-lf: a\nb",
    b"x-lf: a\n",
    b"x-lf:\nb",
    b"x-cr:\rb",
    b"x-folded: a\r\n b",
    b"x-folded:\r\n\tb",
    b"x\xe9: a",
    b"x(y): a",
    b'"x": a',
    b"x-ff: \xff\x80",
    b"Content-Length : 5",
    b"Transfer-Encoding : chunked",
    b"Connection : close",
)
_CONNECTIONS = (
    b"Connection: close",
    b"connection: keep-alive",
    b"Connection: Keep-Alive",
    b"CONNECTION: CLOSE",
    b"Connection: close, keep-alive",
    b"Connection: keep-alive,close",
    b"Connection: clos",
    b"Connection: closed",
    b"Connection: close x",
    b"Connection: x close",
    b"Connection: x, close",
    b"Connection: clo,close",
    b"Connection: keep,keep-alive",
    b"Connection: ,,close,",
    b"Connection: close\t",
    b"Connection: close \t, x",
    b"Connection: keep-alive\t",
    b"Connection:\tclose",
    b"Connection:",
    b"Connection: upgrade",
    b"Connection: Upgrade, close",
    b"Connection: upgrade, keep-alive",
    b'Connection: "close"',
    b"Connection: close;q=1",
    b"Connection: keep-alive, keep-alive",
    b"Proxy-Connection: close",
    b"Proxy-Connection: keep-alive",
)
_LENGTHS = (
    b"%d",
    b"%d",
    b"%d",
    b"%d",
    b"%d ",
    b"%d\t ",
    b"0%d",
    b"000000000000000000000000000%d",
    b"+%d",
    b"-%d",
    b"%d,",
    b"%d, %d",
    b"%d %d",
    b"0x%x",
    b"%d.0",
    b"%d_0",
    b"%da",
    b" %d",
    b'"%d"',
    b"\x0b%d",
    b"",
    b" ",
    b"18446744073709551615",
    b"18446744073709551616",
    b"18446744073709551617",
    b"9223372036854775808",
    b"99999999999999999999999",
    b"\xb2",
)
_CODINGS = (
    b"chunked",
    b"Chunked",
    b"CHUNKED",
    b" chunked",
    b"\tchunked",
    b"chunked ",
    b"chunked\t",
    b"chunked \t ",
    b"gzip, chunked",
    b"gzip,\tchunked",
    b"chunked, chunked",
    b"chunked,chunked",
    b"chunked, gzip",
    b"chunked;q=1",
    b"xchunked",
    b"chunkedx",
    b"chunk",
    b"chunk, chunked",
    b"identity",
    b"gzip",
    b"",
    b",chunked",
    b"chunked,",
    b'"chunked"',
    b"chu\rnked",
    b"chunked\x00",
    b"\x0bchunked",
)
_EXTENSIONS = (
    b";a",
    b";a=b",
    b";a=b;c=d",
    b';a="b c"',
    b';a="b\\"c"',
    b';a="b;\\\\";d',
    b';a=b"c"',
    b";=b",
    b";a=",
    b";;a",
    b";a;;",
    b"; a",
    b";",
    b" ;a",
    b";a b",
    b";a =b",
    b";a= b",
    b';a="b',
    b';a="b"c',
    b';a="b\x00"',
    b';a="b\\\x01"',
    b';a="\x7f"',
    b';a="\xe9\t"',
    b";\xe9",
    b";a=\xe9",
    b";a\x00",
    b";a\r",
    b";a\nb",
    b";a=b=c",
    b";a,b",
    b";" + b"a" * 1018,
    b";" + b"a" * 1019,
    b";" + b"a" * 1022,
    b";" + b"a" * 1023,
    b";" + b"a" * 2000,
)
_ODD_SIZES = (
    b"+%x",
    b"-%x",
    b"%x ",
    b" %x",
    b"\t%x",
    b"%x\t",
    b"%x_0",
    b"0x%x",
    b"0X%x",
    b"%xh",
    b"%xg",
    b"%x\x00",
    b"%x.",
    b"%x,%x",
    b"",
    b"ffffffffffffffff",
    b"FFFFFFFFFFFFFFFF",
    b"10000000000000000",
    b"00000000000000000000000000000000%x",
    b"8000000000000000",
    b"7fffffffffffffff",
    b"fffffffffffffffff",
    b"\xb2",
)
_ODD_ENDS = (b"\n", b"\r", b"\n\r", b"\r\r\n", b"", b"\r\n ", b" \r\n", b"\r\n\r\n", b"\x00\r\n")
_ODD_BYTES = b'\r\n\r\n\r\n\t :;,\x00\x7f\xff0159aAfFgGxX-+_="\\'
_DATA = (
    b'data:{"token":{"id":1,"text":" a"}}\n\n',
    b"data: [DONE]\n\n",
    b": keep-alive\n\n",
    b"\r\n",
    b"\r",
    b"\n",
    b"0\r\n\r\n",
    b"5\r\nhello\r\n",
    b"\x00\xff\xfe",
    b"HTTP/1.1 200 OK\r\n\r\n",
    b"x" * 15,
    b"y" * 16,
    b"z" * 17,
    b"w" * 300,
)
_AFTER = (
    b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx",
    b"\r\n",
    b"\n",
    b"0\r\n\r\n",
    b"x",
    b"\x00",
)


def answer(rng: random.Random) -> bytes:
    """One case. About a third are right, the others have from one to a few things amiss."""
    oddness = rng.choice((0.0, 0.0, 0.0, 0.02, 0.05))
    parts: list[bytes] = []
    while rng.random() < 0.04 + oddness:
        parts += _interim(rng, oddness)
    _final(rng, oddness, parts)
    if rng.random() < 0.15:
        parts.append(rng.choice(_AFTER))
    breakage = rng.random()
    if breakage < 0.12:
        _break_parts(rng, parts)
    data = b"".join(parts)
    if breakage > 0.7:
        data = _break_bytes(rng, data)
    return data


def reads_of(rng: random.Random, data: bytes) -> list[bytes]:
    """The same bytes in one read, in a few, or each alone."""
    how = rng.random()
    if how < 0.15 and len(data) < 2000:
        return [data[at : at + 1] for at in range(len(data))]
    if how < 0.25:
        step = rng.randint(1, 40) if len(data) < 5000 else rng.randint(500, 5000)
        return [data[at : at + step] for at in range(0, len(data), step)]
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randint(0, 6)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def _pick(
    rng: random.Random, oddness: float, usual: Sequence[bytes], odd: Sequence[bytes]
) -> bytes:
    return rng.choice(odd if rng.random() < oddness else usual)


def _end(rng: random.Random, oddness: float) -> bytes:
    return rng.choice(_ODD_ENDS) if rng.random() < oddness / 3 else b"\r\n"


def _start_line(rng: random.Random, oddness: float, statuses: Sequence[bytes]) -> bytes:
    return (
        _pick(rng, oddness, _STARTS, _ODD_STARTS)
        + _pick(rng, oddness, statuses, _ODD_STATUSES)
        + _pick(rng, oddness, _REASONS, _ODD_REASONS)
        + _end(rng, oddness)
    )


def _interim(rng: random.Random, oddness: float) -> list[bytes]:
    parts = [_start_line(rng, oddness, (b"100", b"102", b"103", b"199"))]
    lines = [rng.choice(_PLAIN) for _ in range(rng.randint(0, 2))]
    if rng.random() < oddness * 4:
        lines.append(rng.choice((b"Content-Length: 0", b"Transfer-Encoding: chunked")))
    if rng.random() < oddness * 4:
        lines.append(rng.choice(_CONNECTIONS))
    parts += [line + _end(rng, oddness) for line in lines]
    parts.append(b"\r\n")
    return parts


def _final(rng: random.Random, oddness: float, parts: list[bytes]) -> None:
    body = [rng.choice(_DATA) for _ in range(rng.randint(0, 6))]
    length = sum(map(len, body))
    lines = [_pick(rng, oddness, _PLAIN, _ODD_LINES) for _ in range(rng.randint(0, 5))]
    if rng.random() < 0.25:
        lines.append(rng.choice(_CONNECTIONS))
    shape = rng.random()
    chunked = shape < 0.55
    if chunked:
        lines.append(b"Transfer-Encoding:" + _pick(rng, oddness, _CODINGS[:5], _CODINGS))
    elif shape < 0.85:
        lines.append(b"Content-Length: " + _length(rng, oddness, length))
    if rng.random() < oddness:
        lines.append(b"transfer-encoding: " + rng.choice(_CODINGS))
    if rng.random() < oddness:
        lines.append(b"content-length: " + _length(rng, 0.5, length))
    if rng.random() < 0.0005:
        lines.append(b"x-long: " + b"v" * rng.choice((60_000, 65_300, 65_400, 65_500, 70_000)))
    rng.shuffle(lines)
    parts.append(_start_line(rng, oddness, _STATUSES))
    parts += [line + _end(rng, oddness) for line in lines]
    parts.append(_end(rng, oddness))
    if chunked:
        _chunks(rng, oddness, body, parts)
    else:
        parts += body


def _length(rng: random.Random, oddness: float, length: int) -> bytes:
    form = rng.choice(_LENGTHS) if rng.random() < oddness * 2 else b"%d"
    wanted = length + rng.choice((-1, 1, 5)) if rng.random() < oddness else length
    return form.replace(b"%d", b"%d" % max(wanted, 0)).replace(b"%x", b"%x" % max(wanted, 0))


def _chunks(rng: random.Random, oddness: float, body: list[bytes], parts: list[bytes]) -> None:
    for data in body:
        parts += [_size_line(rng, oddness, len(data)), data, _end(rng, oddness)]
    parts.append(_size_line(rng, oddness, 0))
    if rng.random() < 0.1:
        trailers = [_pick(rng, oddness, _PLAIN, _ODD_LINES) for _ in range(rng.randint(1, 3))]
        if rng.random() < 0.1:
            trailers.append(rng.choice((*_CONNECTIONS[:4], b"Content-Length: 0", b"trailer: x")))
        if rng.random() < 0.02:
            trailers += [b"x-long: " + b"v" * 5400] * rng.choice((2, 3, 4))
        parts += [line + _end(rng, oddness) for line in trailers]
    parts.append(_end(rng, oddness))


def _size_line(rng: random.Random, oddness: float, size: int) -> bytes:
    if rng.random() < oddness:
        line = rng.choice(_ODD_SIZES).replace(b"%x", b"%x" % size)
    else:
        line = (b"%x" if rng.random() < 0.7 else rng.choice((b"%X", b"0%x", b"%04x"))) % size
    if rng.random() < 0.03 + oddness:
        line += rng.choice(_EXTENSIONS)
    return line + _end(rng, oddness)


def _break_parts(rng: random.Random, parts: list[bytes]) -> None:
    at = rng.randrange(len(parts))
    match rng.randrange(4):
        case 0:
            del parts[at]
        case 1:
            parts.insert(at, parts[at])
        case 2:
            parts.insert(at, parts[rng.randrange(len(parts))])
        case _:
            other = rng.randrange(len(parts))
            parts[at], parts[other] = parts[other], parts[at]


def _break_bytes(rng: random.Random, data: bytes) -> bytes:
    broken = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        at = rng.randrange(len(broken) + 1)
        odd = rng.choice(_ODD_BYTES) if rng.random() < 0.7 else rng.randrange(256)
        match rng.randrange(6):
            case 0:
                del broken[at : at + 1]
            case 1:
                broken.insert(at, odd)
            case 2:
                broken[at : at + 1] = bytes((odd,))
            case 3:
                broken[at : at + 1] = bytes(
                    b ^ (1 << rng.randrange(8)) for b in broken[at : at + 1]
                )
            case 4:
                del broken[at:]
            case _:
                end = at + rng.randint(1, 12)
                broken[at:at] = broken[at:end]
    return bytes(broken)
