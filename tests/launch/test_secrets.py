"""Values of named variables: handed on, and written nowhere."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.launch.deployments import deployment
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
from tgi_bench.plan.engines import Engine
from tgi_bench.plan.plan import AttachOptions, Deployment, LauncherKind

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


def test_what_is_too_short_to_be_a_secret_stays() -> None:
    assert redact("1 of 11 in /srv/models", ENVIRON, ENVIRON) == f"1 of 11 in {MASK}"
    assert redact("k9 and 9", ["API_KEY"], {"API_KEY": "k9"}) == f"{MASK} and 9"
    assert redact("nothing", ["EMPTY", "UNSET"], ENVIRON) == "nothing"


def test_a_value_within_another_and_one_of_many_lines() -> None:
    environ = {"A_TOKEN": "secret", "B_TOKEN": "secret-and-more", "C_KEY": "line one\nline two"}
    assert redact("secret-and-more secret", environ, environ) == f"{MASK} {MASK}"
    assert redact("x line two y", environ, environ) == f"x {MASK} y"


@given(
    st.lists(st.sampled_from(["a", "hunter22", "hunter", "22", "\n", "\r", "é"]), max_size=40),
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
    assert b"hunter22" not in written


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
        host = AttachOptions("http://h", headers=headers)
        return deployment(LauncherKind.ATTACH, host=host, env=env)

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
