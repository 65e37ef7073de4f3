"""How many tokens a server's own tokenizer makes of a text.

Bodies: {"inputs"} of TGI (1.4.0 and newer), {"model", "prompt"} of vLLM and SGLang, {"content"}
of llama.cpp; each counts the tokens that the model's tokenizer adds, as its prompts do.
"""

from __future__ import annotations

import orjson

from tgi_bench.ask import Asker
from tgi_bench.dialects.dialect import Abilities
from tgi_bench.dialects.said import count_of
from tgi_bench.http_rules import NO_KEY

TOKENIZE_PATH = "/tokenize"
"""Of all four engines."""


def tokens_of(control: Asker, abilities: Abilities, text: str) -> int | None:
    """Tokens of a prompt; None where the server has no such path or does not tell a count.

    Raises InputError where it wants an API key: TGI wants none for all that is asked before.
    """
    if abilities.tokenize_path is None:
        return None
    reply = control.post(abilities.tokenize_path, _body(abilities, text))
    if reply.status in NO_KEY:
        raise control.key_missing(reply)
    if reply.status != 200:
        return None
    match reply.json:
        case list(tokens):
            found = len(tokens)
        case {"count": int(count)}:
            found = count_of(count) or 0
        case {"tokens": list(tokens)}:
            found = len(tokens)
        case _:
            found = 0
    return found or None


def _body(abilities: Abilities, text: str) -> bytes:
    tgi = {"inputs": text}
    openai: dict[str, str | bool] = {"model": abilities.model, "prompt": text}
    llamacpp: dict[str, str | bool] = {"content": text, "add_special": True}
    match abilities.engine:
        case "tgi":
            return orjson.dumps(tgi)
        case "vllm" | "sglang":
            return orjson.dumps(openai)
        case "llamacpp":
            return orjson.dumps(llamacpp)
        case _:
            # Each takes its own key and ignores the others.
            return orjson.dumps(tgi | openai | llamacpp)
