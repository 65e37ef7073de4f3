"""What a seed sends stays what it is: old runs are compared with new ones.

The first 1,000 requests of each workload, head and body, as a worker is handed them, and when they
are due. The server's answers, of which a conversation's later turns are made, are canned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import islice

from tests.dialects.asks import CHAT, COMPLETIONS, TGI
from tests.drive.loads import prepared
from tests.drive.test_exact_prompts import LONG, counts_by
from tests.drive.test_feeding import reading, returned
from tgi_bench.dialects.dialect import Abilities
from tgi_bench.drive.exact_prompts import Fitting, fit
from tgi_bench.drive.feeding import (
    ClosedFeeder,
    ConversationFeeder,
    Feeder,
    RequestMaker,
    TimedFeeder,
)
from tgi_bench.drive.preparation import Prepared
from tgi_bench.drive.stage import trace_requests
from tgi_bench.plan.arrivals import send_offsets_ns
from tgi_bench.plan.corpus import Corpus, parse_corpus
from tgi_bench.plan.experiment_text import load_plan
from tgi_bench.plan.workload import requests
from tgi_bench.trials.load import ClosedLoop, FileKind, LoadTrial, OpenLoop, TraceTimes

REQUESTS = 1000
SHOWN = 100
"""Characters of the first request's body."""
EXPERIMENT = """\
experiment: bytes
model: org/model
server: {launcher: attach, url: "http://127.0.0.1:3000/base", headers: {X-Team: search}}
load:
"""


@dataclass(frozen=True, slots=True)
class Case:
    """One workload. load: the keys of its section. able: what the server was found to be.

    beside: tokens that the server adds to a prompt, whose words are counted; None: nobody counts.
    file: makes the text of its file.
    """

    load: str
    able: Abilities
    beside: int | None = None
    file: Callable[[], str] = str


def jsonl() -> str:
    lines = []
    for number in range(300):
        if number % 3:
            lines.append(
                f'{{"prompt": "Question {number}: é?", "output_tokens": {number % 7 + 1}}}'
            )
        else:
            asked = f'{{"role": "user", "content": "{number}"}}'
            lines.append(f'{{"messages": [{{"role": "system", "content": "Be"}}, {asked}]}}')
    return "\n".join(lines)


def sharegpt() -> str:
    def turns(number: int) -> str:
        pairs = (
            f'{{"from": "human", "value": "ask {number} {turn}"}}, '
            f'{{"from": "gpt", "value": "{"say " * (number % 5 + turn)}"}}'
            for turn in range(number % 4 + 1)
        )
        return f'{{"conversations": [{", ".join(pairs)}]}}'

    return f"[{', '.join(turns(number) for number in range(200))}]"


def mooncake() -> str:
    return "\n".join(
        f'{{"timestamp": {number * 37 % 1000 + number}, "input_length": {300 + number % 900}, '
        f'"output_length": {number % 90 + 1}, "hash_ids": [7, {number % 5 + 8}]}}'
        for number in range(REQUESTS)
    )


def azure() -> str:
    rows = (
        f"2023-11-16 18:{n // 60:02}:{n % 60:02}.5,{n * 7 % 400 + 5},{n % 50 + 1}"
        for n in range(600)
    )
    return "\n".join(("TIMESTAMP,ContextTokens,GeneratedTokens", *rows))


CASES = {
    "fixed lengths, TGI, streamed, closed loop": Case(
        """
  concurrency: 1000
  workload: {prompt_tokens: 512, output_tokens: 128, seed: 0}
""",
        TGI,
    ),
    "uniform and normal lengths, TGI, whole answers, sampled, constant rate": Case(
        """
  rate: 3
  arrivals: constant
  stream: false
  workload:
    prompt_tokens: {uniform: [1, 300]}
    output_tokens: {normal: {mean: 50, deviation: 20, lowest: 2, highest: 90}}
    seed: 1
  sampling: {do_sample: true, temperature: 0.7, top_k: 5, top_p: 0.9, typical_p: 0.8,
             repetition_penalty: 1.1, watermark: true}
""",
        TGI,
    ),
    "log-normal lengths, completions of vLLM, streamed, Poisson arrivals": Case(
        """
  rate: 2.5
  workload: {prompt_tokens: {lognormal: {median: 60, sigma: 0.8}}, output_tokens: 9, seed: 2}
  arrival_seed: 3
""",
        replace(
            COMPLETIONS,
            engine="vllm",
            truncates=True,
            ignores_eos="ignore_eos",
            counts_each="continuous_usage_stats",
        ),
    ),
    "empirical lengths, completions of llama.cpp, whole answers, sampled, gamma arrivals": Case(
        """
  rate: 40
  arrivals: gamma
  burstiness: 0.4
  stream: false
  workload:
    prompt_tokens: {values: [3, 64, 200], weights: [1, 4, 0.5]}
    output_tokens: {values: [1, 2, 3]}
    seed: 3
  sampling: {do_sample: true, top_k: 7, typical_p: 0.5}
""",
        replace(COMPLETIONS, engine="llamacpp", ignores_eos="min_tokens"),
        beside=1,
    ),
    "a shared prefix, chat of vLLM, exact by words, streamed, a ramp": Case(
        """
  ramp: [{rate: 2, for: 60s}, {from: 2, to: 9, for: 300s}]
  workload:
    prompt_tokens: {uniform: [40, 90]}
    output_tokens: 4
    shared_prefix: {tokens: 30, groups: 3}
    seed: 4
""",
        replace(CHAT, engine="vllm", ignores_eos="ignore_eos"),
        beside=9,
    ),
    "conversations, chat of SGLang, exact by words, whole answers": Case(
        """
  concurrency: 12
  stream: false
  workload:
    prompt_tokens: {normal: {mean: 30, deviation: 9}}
    output_tokens: {uniform: [1, 5]}
    turns: {count: {uniform: [1, 6]}, think: 2s}
    seed: 5
  sampling: {do_sample: true, temperature: 0.5, repetition_penalty: 1.2}
""",
        replace(CHAT, engine="sglang", ignores_eos="ignore_eos"),
        beside=5,
    ),
    "conversations of a file, completions, streamed": Case(
        """
  concurrency: 5
  workload: {file: {path: f, kind: sharegpt, shuffle: true}, turns: {count: 3}, seed: 6}
""",
        COMPLETIONS,
        file=sharegpt,
    ),
    "texts and messages of a file, shuffled, chat, streamed, closed loop": Case(
        """
  concurrency: 7
  workload: {file: {path: f.jsonl, shuffle: true}, seed: 7, repeats: true}
""",
        CHAT,
        file=jsonl,
    ),
    "a trace of blocks that are alike, TGI, streamed, twice as fast": Case(
        """
  trace: {speed: 2}
  workload: {file: {path: f, kind: mooncake}, seed: 8}
""",
        TGI,
        file=mooncake,
    ),
    "lengths of a file, completions, exact by words, whole answers, closed loop": Case(
        """
  concurrency: 3
  stream: false
  workload: {file: {path: f, kind: azure}, output_tokens: {uniform: [2, 4]}, seed: 9}
""",
        replace(COMPLETIONS, engine="vllm"),
        beside=0,
        file=azure,
    ),
}


def test_bytes_and_times_stay(golden: Callable[[str, str], None]) -> None:
    golden("request_bytes.txt", "\n".join(page(name, case) for name, case in CASES.items()))


def page(name: str, case: Case) -> str:
    """The digests, and so much of the first request that a difference can be read."""
    sent = list(islice(jobs(case), REQUESTS))
    assert len(sent) == REQUESTS
    whole = b"".join(request for _, request in sent)
    # The last digits of drawn times are the C library's logarithms'.
    due_us = [due_ns // 1000 for due_ns, _ in sent]
    times = sha256("".join(f"{us}\n" for us in due_us).encode()).hexdigest()
    head, _, body = sent[0][1].decode().partition("\r\n\r\n")
    return "\n".join(
        (
            f"# {name}",
            f"{len(sent)} requests, {len(whole)} bytes, SHA-256 {sha256(whole).hexdigest()}",
            f"due at us of SHA-256 {times}, the last at {due_us[-1]}",
            *head.split("\r\n"),
            f"{body[:SHOWN]}\n",
        )
    )


def jobs(case: Case) -> Iterator[tuple[int, bytes]]:
    """When each request is due, and its bytes, by its number."""
    _, plan = load_plan(EXPERIMENT + case.load, "e.yaml")
    (trial,) = plan.load_trials
    ready = ready_of(case, trial)
    stream = f"{trial.trial_id}/0"
    once = isinstance(trial.arrivals, TraceTimes)
    specs = requests(trial.workload, stream, ready.corpus, once)
    maker = RequestMaker(ready, 0)
    if isinstance(trial.arrivals, ClosedLoop) and trial.workload.turns is not None:
        talks = ConversationFeeder(maker, specs, (trial.arrivals.concurrency, 2), REQUESTS + 50)
        talks.begin(0, None)
        return answered(talks)
    if isinstance(trial.arrivals, ClosedLoop):
        slots = (trial.arrivals.concurrency,)
        return answered(ClosedFeeder(maker, specs, slots, REQUESTS + 50))
    if isinstance(trial.arrivals, OpenLoop):
        due = send_offsets_ns(trial.arrivals, None, stream)
    else:
        specs, due = trace_requests(specs, trial.arrivals, 0, trial.extent)
    return answered(TimedFeeder(maker, specs, due, 2))


def ready_of(case: Case, trial: LoadTrial) -> Prepared:
    """As `prepare` leaves it of a server that was found to be so."""
    corpus = None if trial.workload.file is None else corpus_of(trial.workload.file.kind, case)
    ready = replace(
        prepared("http://127.0.0.1:3000/base", trial),
        abilities=case.able,
        headers=(("X-Team", "search"),),
        corpus=corpus,
    )
    return ready if case.beside is None else replace(ready, fitted=by_words(case).fitted)


def corpus_of(kind: FileKind, case: Case) -> Corpus:
    corpus = parse_corpus(kind, case.file(), "f")
    return replace(corpus, count_tokens=lambda text: len(text.split()))


def by_words(case: Case) -> Fitting:
    """Long words have two tokens and more."""
    source, beside = counts_by(LONG, []), case.beside
    assert beside is not None
    return fit(case.able, source, lambda text: source.counts((text,))[0] + beside)


def answered(feeder: Feeder) -> Iterator[tuple[int, bytes]]:
    """Every request is answered half a second after it was handed over."""
    now_ns, number = 0, 0
    waiting: dict[int, tuple[int, bytes]] = {}
    while not feeder.exhausted(now_ns) or waiting:
        for _, (made, due_ns, request) in feeder.jobs(now_ns):
            waiting[made] = (due_ns, request)
            feeder.answered(returned(made, now_ns + 500_000_000), reading(f"answer {made}"))
        now_ns += 1_000_000_000
        while number in waiting:
            yield waiting.pop(number)
            number += 1
