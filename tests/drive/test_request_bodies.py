"""What each API of each engine is sent for the same ask, and what it has no place for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product

from tests.drive.asks import ASK, CHAT, COMPLETIONS, GREEDY, TGI, able
from tgi_bench.dialects.dialect import Abilities, Ask, AskOptions, request_bytes
from tgi_bench.errors import InputError

OPTIONS = AskOptions(host="h:80", stream=True, sampling=GREEDY, headers=())
SAMPLED = replace(GREEDY, do_sample=True)
SAMPLINGS = {
    "greedy": GREEDY,
    "greedy, top_k 5": replace(GREEDY, top_k=5),
    "sampled": SAMPLED,
    "temperature 0.5": replace(SAMPLED, temperature=0.5),
    "top_k 5": replace(SAMPLED, top_k=5),
    "top_k 0": replace(SAMPLED, top_k=0),
    "top_p 0.9": replace(SAMPLED, top_p=0.9),
    "top_p 1": replace(SAMPLED, top_p=1.0),
    "typical_p 0.8": replace(SAMPLED, typical_p=0.8),
    "typical_p 1": replace(SAMPLED, typical_p=1.0),
    "repetition_penalty 1.1": replace(SAMPLED, repetition_penalty=1.1),
    "repetition_penalty 1": replace(SAMPLED, repetition_penalty=1.0),
    "watermark": replace(SAMPLED, watermark=True),
}
SPOKEN = (
    ("tgi", "tgi"),
    *product(("completions", "chat"), ("tgi", "vllm", "sglang", "llamacpp", "")),
)
PLAIN = (able("tgi", "tgi"), able("completions"), able("chat"))
ABLE: dict[str, Callable[[Abilities], Abilities]] = {
    "no name of a model": lambda can: replace(can, model=""),
    "truncates": lambda can: replace(can, truncates=True),
    "usage": lambda can: replace(can, usage=True),
    "ignore_eos": lambda can: replace(can, ignores_eos="ignore_eos"),
    "min_tokens": lambda can: replace(can, ignores_eos="min_tokens"),
    "usage so far": lambda can: replace(can, usage=True, counts_each="continuous_usage_stats"),
    "timings so far": lambda can: replace(can, counts_each="timings_per_token"),
}
TALK = (("system", "Be brief"), ("user", "a"), ("assistant", "b"), ("user", 'é\n"\\'))
ASKS = {
    "a prompt of unknown length": replace(ASK, prompt_tokens=None),
    "a conversation": Ask("", TALK, None, 3),
    "half of a surrogate pair": replace(ASK, prompt="\ud800"),
}
HEADS = {
    "a key": replace(OPTIONS, headers=(("Authorization", "Bearer k"), ("X-Team", "\xe9"))),
    "a path before the API": replace(OPTIONS, base_path="/proxy/"),
    "a name that is none": replace(OPTIONS, headers=(("a b", "c"),)),
    "a header of the request's own": replace(OPTIONS, headers=(("Content-Length", "5"),)),
    "a value of two lines": replace(OPTIONS, headers=(("X", "a\r\nY: b"),)),
    "a host that is none": replace(OPTIONS, host="a b"),
    "a path that is none": replace(OPTIONS, base_path="proxy"),
}


def test_bodies_stay(golden: Callable[[str, str], None]) -> None:
    golden("request_bodies.txt", "".join(f"{name}\n  {sent}\n" for name, sent in bodies()))


def bodies() -> Iterator[tuple[str, str]]:
    """What is asked, and the path and the JSON, or the refusal."""
    for (spoken, engine), (name, sampling) in product(SPOKEN, SAMPLINGS.items()):
        whom = f"{spoken} of {engine or 'a server of no known engine'}"
        options = replace(OPTIONS, stream=False, sampling=sampling)
        yield f"{whom}, {name}", body(able(spoken, engine), options=options)
    for (name, with_it), plain, stream in product(ABLE.items(), PLAIN, (True, False)):
        how = "streamed" if stream else "whole"
        options = replace(OPTIONS, stream=stream)
        yield f"{plain.dialect.name}, {name}, {how}", body(with_it(plain), options=options)
    for (name, ask), can in product(ASKS.items(), (TGI, COMPLETIONS, CHAT)):
        yield f"{can.dialect.name}, {name}", body(can, ask)
    for name, options in HEADS.items():
        yield name, whole(TGI, options)


def body(can: Abilities, ask: Ask = ASK, options: AskOptions = OPTIONS) -> str:
    try:
        head, _, sent = request_bytes(ask, can, options).decode().partition("\r\n\r\n")
    except InputError as error:
        return f"refused: {error}"
    return f"{head.split()[1]} {sent}"


def whole(can: Abilities, options: AskOptions) -> str:
    """Head and body on one line."""
    try:
        return repr(request_bytes(ASK, can, options))
    except InputError as error:
        return f"refused: {error}"
