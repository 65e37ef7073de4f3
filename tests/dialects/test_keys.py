"""A key that is missing is found before the clock of a load starts, and its options are named."""

from __future__ import annotations

import pytest

from tests.launch.recorded_server import recorded
from tgi_bench.ask import Asking
from tgi_bench.dialects import speaking
from tgi_bench.dialects.abilities import find_out
from tgi_bench.errors import InputError

VLLM, LLAMACPP = "vllm-0.32.0", "llamacpp-xllamacpp-2026.10.11549"


@pytest.mark.parametrize(
    ("folder", "names"),
    [
        # TGI's /info, /metrics and /v1/models are open: /tokenize is the first that is not.
        ("tgi-3.3.7", ("info-no-api-key", "models-no-api-key", "tokenize-no-api-key")),
        (VLLM, ("get-info-001", "key-none-models-001")),
        (LLAMACPP, ("get-info-001", "key-none-models-001")),
    ],
)
@pytest.mark.parametrize("key", [(), (("X-Api-Key", "wrong"),)])
def test_a_real_server_that_wants_a_key(
    folder: str, names: tuple[str, ...], key: tuple[tuple[str, str], ...]
) -> None:
    with recorded(folder, *names) as server, pytest.raises(InputError) as caught:
        find_out(server.url, "", speaking("auto"), None, Asking(headers=key))
    another = "another" if key else "an"
    assert str(caught.value).startswith(f"{server.url} wants {another} API key: HTTP 401")
    assert "server.env (`tgi-bench load`: --api-key-env)" in str(caught.value)
    assert "server.headers (--header)" in str(caught.value)
    assert "wrong" not in str(caught.value)
