"""Every distortion, with the check that must fail and the key that its remedy names; and clean
loads, of which no check may fail but those of the client itself, which a busy machine fails."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tests.distortions.client import Scene
from tests.distortions.script import Pace, Script

TOKENIZER = str(Path(__file__).parent / "words.json")
"""A word is a token, as the scripted server counts."""
QUESTIONS = str(Path(__file__).parent / "questions.jsonl")
"""Four prompts, which a load of some seconds goes through again and again."""
TTFT_MS, TPOT_MS = 30.0, 8.0
"""Of an honest script."""


@dataclass(frozen=True, slots=True)
class Distortion:
    """A scene with one thing wrong. check: the name of the one that must fail, or what it begins
    with; key: what its remedy names. figure: (name, what it is in ms of an honest server), to say
    how wrong it is; None where there is none to compare."""

    scene: Scene
    check: str
    key: str
    figure: tuple[str, float] | None = None


@dataclass(frozen=True, slots=True)
class Clean:
    """A scene with nothing wrong. figure: as of Distortion, and within a tenth of it."""

    scene: Scene
    figure: tuple[str, float] | None = ("tpot_p50", TPOT_MS)


def _scene(name: str, script: Script, load: Mapping[str, object] | None = None) -> Scene:
    return Scene(name, script, tuple((load or {}).items()))


_HELD = "answers come as they are made"
_MODEL = "answers come from the model that was asked for"
_TTFT = ("ttft_p50", TTFT_MS)
_TPOT = ("tpot_p50", TPOT_MS)
_LONG = {"workload": {"prompt_tokens": 32, "output_tokens": 40}}

DISTORTIONS = (
    Distortion(_scene("a burst at the end", Script(held=-1)), _HELD, "server.url", _TTFT),
    Distortion(
        _scene("a burst at the end, in one piece", Script(held=-1, in_one_write=True)),
        _HELD,
        "server.url",
        _TTFT,
    ),
    Distortion(
        _scene("a proxy that holds twelve events", Script(engine="tgi", held=12), _LONG),
        _HELD,
        "server.url",
        _TTFT,
    ),
    Distortion(
        _scene("another model from the first answer on", Script(names=("org/other",))),
        _MODEL,
        "`model`",
    ),
    Distortion(
        _scene(
            "a first event without text of an engine whose events are tokens",
            Script(empty_first=True, said=1.0, made=0.95),
        ),
        "first tokens can be told",
        "server.engine",
        _TTFT,
    ),
    Distortion(
        _scene("two models in turn", Script(names=("org/tiny", "org/other"))), _MODEL, "`model`"
    ),
    Distortion(
        _scene(
            "a first event without text, and usage above the text",
            Script(engine="", empty_first=True, said=1.0, made=0.95),
        ),
        "first tokens can be told",
        "server.engine",
        _TTFT,
    ),
    Distortion(
        _scene("answers that end early", Script(made=0.6, ended_by="stop")),
        "at most 5% of the answers ended early",
        "load.workload.output_tokens",
    ),
    Distortion(
        _scene("outputs that are cut", Script(made=0.6)),
        "outputs have the asked length",
        "--max-model-len",
    ),
    Distortion(
        _scene(
            "prompts that are cut",
            Script(engine="llamacpp", most_words=64, per_word_s=0.0005),
            {"workload": {"prompt_tokens": 200, "output_tokens": 16}},
        ),
        "prompts of loads have the asked length",
        "load.workload.prompt_tokens",
        ("ttft_p50", TTFT_MS + 100.0),
    ),
    Distortion(
        _scene(
            "a prefix cache that usage tells",
            Script(cached_said=0.5, first_s=TTFT_MS / 2000),
            {"workload": {"prompt_tokens": 200, "output_tokens": 16}},
        ),
        "prompts were not cached",
        "load.workload",
        _TTFT,
    ),
    Distortion(
        _scene(
            "a prefix cache that says nothing, under a short file",
            Script(cached=0.8),
            {"workload": {"file": QUESTIONS}},
        ),
        "texts were sent once",
        "load.workload",
        _TTFT,
    ),
    Distortion(
        _scene("one of ten requests fails", Script(failing=10)),
        "at most 0.1% of the requests failed",
        "load.request_timeout",
    ),
    Distortion(
        _scene("a server that admits two of eight", Script(slots=2), {"concurrency": 8}),
        "closed loops held 95% of the asked concurrency",
        "load.concurrency",
    ),
    Distortion(
        _scene(
            "an open loop that may not have enough in flight",
            Script(),
            {"concurrency": None, "rate": 40, "arrivals": "constant", "max_in_flight": 2},
        ),
        "no request was dropped",
        "load.max_in_flight",
    ),
    Distortion(
        _scene("steps that slow down all the time", Script(step_pace=tuple(
            Pace(at / 10, (at + 1) / 10, 1 + 0.1 * at) for at in range(60)
        ))),
        "the halves of a load agree",
        "load.warmup",
        ("tpot_p50", TPOT_MS),
    ),
    Distortion(
        _scene("slow first seconds", Script(first_pace=(Pace(0.0, 0.6, 4.0),))),
        "the first requests are as fast as later ones",
        "load.warmup",
    ),
    Distortion(
        _scene(
            "a hump in the middle",
            Script(first_pace=(Pace(1.0, 2.0, 2.5),), step_pace=(Pace(1.0, 2.0, 2.5),)),
        ),
        "the middle of a load is like its ends",
        "its log",
    ),
    Distortion(
        _scene(
            "a server that is slow now and then",
            Script(step_pace=tuple(Pace(at + 0.1, at + 0.4, 6.0) for at in range(6))),
            {"workload": {"prompt_tokens": 32, "output_tokens": 6}},
        ),
        "output tokens/s of closed loops is known within 5%",
        "load.duration",
    ),
    Distortion(
        _scene(
            "first tokens alone that come later all the time",
            Script(
                first_pace=tuple(Pace(at / 10, (at + 1) / 10, 1 + 0.1 * at) for at in range(60))
            ),
        ),
        "the halves of a load agree",
        "load.warmup",
        _TTFT,
    ),
    Distortion(
        _scene(
            "a server that stands still three times",
            Script(stalls=((0.6, 0.5), (1.5, 0.5), (2.3, 0.5)), jitter=0.3),
        ),
        "the server did not stand still",
        "its log",
    ),
    Distortion(
        _scene(
            "an SLO of p99 met by twenty requests",
            Script(),
            {"requests": 20, "slo": {"itl_p99": "50ms"}},
        ),
        "percentiles that decide have enough requests",
        "load.requests",
    ),
    Distortion(
        _scene(
            "usage that says the asked length, of fewer tokens",
            Script(made=0.75, said=1.0),
            {"tokenizer": TOKENIZER},
        ),
        "the server's count is that of the text that it sends",
        "usage",
        _TPOT,
    ),
    Distortion(
        _scene(
            "connections that are closed, before short first tokens",
            Script(engine="llamacpp", closes=True, first_s=0.002),
        ),
        "connections were kept open",
        "server.url",
        ("ttft_p50", 2.0),
    ),
    Distortion(
        replace(
            _scene(
                "a client that others keep from its core",
                Script(),
                {"concurrency": None, "rate": 50, "arrivals": "constant"},
            ),
            starved=True,
            alone=True,
        ),
        "loads send on time",
        "client's machine",
        _TTFT,
    ),
    Distortion(
        _scene("a TGI of another model", Script(engine="tgi", model="org/other")),
        "the model served is the one that was asked for",
        "`model`",
    ),
    Distortion(
        _scene(
            "an SLO of TPOT, of four tokens in the first event that nobody tells",
            Script(first_tokens=4),
            {"slo": {"tpot_p50": "7ms"}},
        ),
        "percentiles that decide have enough requests",
        "an event for each token",
    ),
    Distortion(
        replace(
            _scene("other programs on the server's machine", Script()), crowded=True, alone=True
        ),
        "other programs left the server its CPU",
        "machine",
    ),
)  # fmt: skip

CLEAN = (
    Clean(_scene("closed, completions", Script())),
    Clean(_scene("closed, tgi", Script(engine="tgi"))),
    Clean(_scene("closed, chat", Script(), {"api": "chat"})),
    Clean(_scene("closed, llama.cpp closes", Script(engine="llamacpp", closes=True, first_s=0.15))),
    Clean(
        _scene("closed, a role at once", Script(engine="", role_first=True), {"api": "chat"}),
        ("ttft_p50", TTFT_MS),
    ),
    Clean(_scene("a revision behind the name", Script(engine="", names=("org/tiny@main",)))),
    Clean(_scene("one at a time", Script(), {"concurrency": 1})),
    Clean(_scene("thirty-two at once", Script(step_s=0.03), {"concurrency": 32}), ("tpot_p50", 30)),
    Clean(
        _scene(
            "open, constant",
            Script(),
            {"concurrency": None, "rate": 25, "arrivals": "constant"},
        )
    ),
    Clean(
        _scene(
            "open, Poisson",
            Script(engine="tgi"),
            {"concurrency": None, "rate": 25, "arrivals": "poisson"},
        )
    ),
    Clean(
        _scene(
            "conversations",
            Script(engine="tgi"),
            {"workload": {"prompt_tokens": 16, "output_tokens": 8, "turns": {"count": 3}}},
        )
    ),
    Clean(
        _scene(
            "conversations with think time, chat",
            Script(),
            {
                "api": "chat",
                "workload": {
                    "prompt_tokens": 16,
                    "output_tokens": 8,
                    "turns": {"count": 3, "think": "50ms"},
                },
            },
        )
    ),
    Clean(
        _scene(
            "a shared prefix",
            Script(engine="tgi", cached=0.5),
            {
                "workload": {
                    "prompt_tokens": 64,
                    "output_tokens": 16,
                    "shared_prefix": {"tokens": 32, "groups": 2},
                }
            },
        )
    ),
    Clean(
        _scene(
            "lengths that vary",
            Script(per_word_s=0.0002, jitter=0.1),
            {
                "workload": {
                    "prompt_tokens": {"uniform": [16, 256]},
                    "output_tokens": {"uniform": [8, 24]},
                }
            },
        )
    ),
    Clean(_scene("not streamed", Script(engine="tgi"), {"stream": False}), None),
    Clean(_scene("four tokens an event", Script(each_tokens=4)), None),
    Clean(_scene("four tokens in the first event", Script(first_tokens=4)), None),
    Clean(
        _scene("one token", Script(), {"workload": {"prompt_tokens": 32, "output_tokens": 1}}),
        ("ttft_p50", TTFT_MS),
    ),
    Clean(_scene("three tokens in the first event", Script(first_tokens=3, each_told=True))),
    Clean(_scene("more text than usage says", Script(made=1.25, said=1.0))),
    Clean(_scene("usage with each event", Script(each_told=True, each_tokens=2)), None),
    Clean(_scene("quick acknowledgements", Script(engine="tgi"), {"quickack": True})),
    Clean(_scene("a slow first token", Script(first_s=0.3)), ("ttft_p50", 300.0)),
)  # fmt: skip
