"""Values of named variables: handed on, and written nowhere."""

from __future__ import annotations

import base64
import html
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.launch.deployments import attach, deployment
from tgi_bench.engines.engine import Engine
from tgi_bench.errors import InputError
from tgi_bench.launch.secrets import (
    MASK,
    RedactedStream,
    Redactor,
    handed_on,
    headers_of,
    redact,
    require_set,
    secret_names,
)
from tgi_bench.plan.plan import Deployment

TOKEN = 'hf_a"b\\cdéf/+='
ENVIRON = {"HF_TOKEN": TOKEN, "HF_HUB_OFFLINE": "1", "HF_HOME": "/srv/models", "EMPTY": ""}


@pytest.mark.parametrize(
    "form",
    [TOKEN, json.dumps(TOKEN), json.dumps(TOKEN, ensure_ascii=False), quote(TOKEN, safe="")],
)
def test_every_form_of_a_value_goes(form: str) -> None:
    said = redact(f"GET /?t={form}x 1", ENVIRON, ENVIRON)
    assert MASK in said
    assert said.endswith("x 1")
    assert "hf_a" not in said


LONG = "hf_AbC/def+GHI?xyz~0123456789 '\""
RAW = LONG.encode()


def _within(before: int, after: int) -> str:
    """Base64 of it in a longer text, as of a login."""
    return base64.b64encode(b"u" * before + RAW + b"p" * after).decode()


@pytest.mark.parametrize(
    "form",
    [
        LONG.upper(),
        LONG.lower(),
        LONG.swapcase(),
        repr(LONG)[1:-1],
        html.escape(LONG),
        json.dumps(LONG).replace("/", "\\/"),
        base64.b64encode(RAW).decode(),
        base64.b64encode(RAW).decode().rstrip("="),
        base64.urlsafe_b64encode(RAW).decode(),
        base64.urlsafe_b64encode(RAW).decode().rstrip("="),
        *(_within(before, after) for before in range(1, 4) for after in range(3)),
        RAW.hex(),
        RAW.hex().upper(),
        quote(LONG),
        quote(LONG, safe="").lower(),
        quote_plus(LONG),
        quote(LONG, safe="!*'()~"),
    ],
)
def test_every_form_of_a_long_value_goes(form: str) -> None:
    said = redact(f"<{form}>", ["HF_TOKEN"], {"HF_TOKEN": LONG})
    assert MASK in said
    assert len(said) < len(MASK) + 16  # of what stood around it, and two bytes at either end
    stream = RedactedStream(Redactor(["HF_TOKEN"], {"HF_TOKEN": LONG}))
    assert stream.feed(f"<{form}>\n".encode()) + stream.end() == f"{said}\n".encode()


@pytest.mark.parametrize("width", [64, 76])
def test_a_long_value_in_lines_of_base64(width: int) -> None:
    value = "eyJhbGciOiJIUzI1NiJ9." + "".join(chr(97 + n % 26) for n in range(200))
    encoded = base64.b64encode(value.encode()).decode()
    lines = "\n".join(encoded[n : n + width] for n in range(0, len(encoded), width))
    said = redact(lines, ["A_TOKEN"], {"A_TOKEN": value})
    assert all(line == MASK or len(line) < 16 for line in said.splitlines())


@pytest.mark.parametrize("word", ["EMPTY", "none", "test", "token", "true", "1"])
def test_a_word_that_stands_for_no_secret_stays(word: str) -> None:
    line = f"{word} {word.upper()} of it"
    assert redact(line, ["API_KEY"], {"API_KEY": word}) == line


def test_a_short_value_goes_as_it_is_and_not_in_other_forms() -> None:
    """Its encodings are in any text."""
    environ = {"API_KEY": "secure"}
    assert redact("secure, Secure, SECURE", environ, environ) == f"{MASK}, Secure, SECURE"
    encoded = base64.b64encode(b"secure").decode()
    assert redact(encoded, environ, environ) == encoded


def test_the_password_of_a_proxy_goes_and_its_address_stays() -> None:
    environ = {"HTTPS_PROXY": "http://me:p%40ss@proxy:3128", "https_proxy": "http://proxy"}
    said = redact("http://me:p%40ss@proxy:3128 p@ss http://proxy", [], environ)
    assert said == f"http://me:{MASK}@proxy:3128 {MASK} http://proxy"


def test_bytes_that_are_no_text() -> None:
    environ = {"A_TOKEN": b"hunter\xff22".decode("utf-8", "surrogateescape")}
    redactor = Redactor(environ, environ)
    assert redactor.bytes(b"<hunter\xff22>") == f"<{MASK}>".encode()
    assert redactor.text(f"<{environ['A_TOKEN']}> \ud800") == f"<{MASK}> \ud800"


def test_what_is_too_short_to_be_a_secret_stays() -> None:
    assert redact("1 of 11 in /srv/models", ENVIRON, ENVIRON) == f"1 of 11 in {MASK}"
    assert redact("k9 and 9", ["API_KEY"], {"API_KEY": "k9"}) == f"{MASK} and 9"
    assert redact("nothing", ["EMPTY", "UNSET"], ENVIRON) == "nothing"


def test_a_value_within_another_and_one_of_many_lines() -> None:
    environ = {"A_TOKEN": "secret", "B_TOKEN": "secret-and-more", "C_KEY": "line one\nline two"}
    assert redact("secret-and-more secret", environ, environ) == f"{MASK} {MASK}"
    assert redact("x line two y", environ, environ) == f"x {MASK} y"


WORDS = ["a", "hunter22", "HUNTER", "22", "aHVudGVy", "MjI", "\n", "\r", "é"]


@given(
    st.lists(st.sampled_from(WORDS), max_size=40),
    st.lists(st.integers(1, 12), min_size=1, max_size=10),
)
def test_a_stream_in_pieces_is_the_text(words: list[str], sizes: list[int]) -> None:
    redactor = Redactor(["TOKEN"], {"TOKEN": "hunter22"})
    data = "".join(words).encode()
    stream, written, position, turn = RedactedStream(redactor), b"", 0, 0
    while position < len(data):
        size = sizes[turn % len(sizes)]
        written += stream.feed(data[position : position + size])
        position, turn = position + size, turn + 1
    written += stream.end()
    assert written == redactor.bytes(data)
    assert b"hunter22" not in written.lower()
    assert b"aHVudGVyMjI" not in written


def test_a_line_without_end_is_not_held_back_for_ever() -> None:
    stream = RedactedStream(Redactor(["TOKEN"], {"TOKEN": "hunter22"}))
    written = stream.feed(b"x" * 70_000 + b"hunt")
    assert len(written) > 60_000
    written += stream.feed(b"er22" + b"y" * 70_000) + stream.end()
    assert written == b"x" * 70_000 + MASK.encode() + b"y" * 70_000


@pytest.mark.parametrize(
    ("version", "named", "given"),
    [
        ("3.3.7", "HF_TOKEN", {"HF_TOKEN"}),
        ("2.1.0", "HF_TOKEN", {"HF_TOKEN"}),
        ("2.0.4", "HF_TOKEN", {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}),
        ("0.9.4", "HF_TOKEN", {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}),
        ("0.9.4", "HUGGING_FACE_HUB_TOKEN", {"HUGGING_FACE_HUB_TOKEN"}),
        ("3.3.7", "HUGGING_FACE_HUB_TOKEN", {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}),
        ("3.3.7", "OTHER", {"OTHER"}),
    ],
)
def test_the_hubs_token_goes_by_the_name_that_the_version_reads(
    version: str, named: str, given: set[str]
) -> None:
    passed = handed_on(deployment(version=version, env=(named,)), {named: "v", "MORE": "w"})
    assert passed == dict.fromkeys(given, "v")


def test_other_engines_get_what_is_named() -> None:
    asked = deployment(engine=Engine.VLLM, version="", env=("HUGGING_FACE_HUB_TOKEN", "UNSET"))
    assert handed_on(asked, {"HUGGING_FACE_HUB_TOKEN": "v"}) == {"HUGGING_FACE_HUB_TOKEN": "v"}
    assert "VLLM_API_KEY" in secret_names(asked)


def test_a_variable_that_is_not_set() -> None:
    with pytest.raises(InputError, match=r"server\.env: HF_TOKEN not set"):
        require_set(deployment(env=("HOME", "HF_TOKEN")), {"HOME": "/"})
    require_set(deployment(env=("HOME",)), {"HOME": "/"})


def test_headers_carry_the_values_and_their_names_are_secrets() -> None:
    def attached(*headers: tuple[str, str], env: tuple[str, ...] = ()) -> Deployment:
        return deployment(attach("http://h", headers=dict(headers)), env=env)

    environ = {"A": "one", "MY_KEY": "two"}
    asked = attached(("X-Team", "a"), ("X-Key", "$MY_KEY"), env=("A",))
    assert headers_of(asked, environ) == (
        ("Authorization", "Bearer one"),
        ("X-Team", "a"),
        ("X-Key", "two"),
    )
    assert {"A", "MY_KEY"} <= set(secret_names(asked))
    own = attached(("authorization", "Token $MY_KEY"), env=("A",))
    assert headers_of(own, environ) == (("authorization", "Token two"),)
    with pytest.raises(InputError, match=r"server\.headers: MY_KEY not set in the environment"):
        require_set(own, {"A": "one"})
    assert headers_of(attached(), environ) == ()
