"""Why a server ended, as its log says it, in one sentence; and what a failed step says of it.

Lines and causes: the public repository huggingface/text-generation-inference, launcher/src/main.rs
and router/src, and the logs in tests/transcripts. A launcher says why a shard ended 0.1 s after the
clients saw it, and ends itself seconds later: what looks for that waits a moment, no longer.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tgi_bench.launch.launcher import Death, RunningServer
from tgi_bench.launch.log import said
from tgi_bench.memory_evidence import out_of_memory
from tgi_bench.observation import Outcome, TrialEnd

_DEATH_SHOWS_S = 1.0
"""A shard that answers and then exits does so within 0.5 s; its launcher notices after that."""
_LOG_WORD_S = 2.0
_LOOK_S = 0.05
_CUT_OFF = (Outcome.SHARD_DIED, Outcome.FAILED)
"""How steps end that another rank's death ends: the connection goes, or a collective fails."""


def found_dead(server: RunningServer, since: int, within_s: float | None = None) -> Death | None:
    """Its death, looked for that long; None where it lives on. since: as RunningServer.death."""
    deadline = time.monotonic() + (_DEATH_SHOWS_S if within_s is None else within_s)
    while (death := server.death(since)) is None and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    return death


def usable(server: RunningServer, since: int, answers: Callable[[], bool]) -> bool:
    """Whether a server that failed a step goes on: a shard may answer and exit right after.

    answers: whether its ranks answer a call that computes nothing.
    """
    return found_dead(server, since) is None and answers()


def explained(end: TrialEnd, server: RunningServer, since: int) -> TrialEnd:
    """The end of a trial whose server died, with what its log says: a rank's own reply may only
    be that it was cut off."""
    death = found_dead(server, since, _LOG_WORD_S)
    if death is None:
        return end
    outcome = end.outcome
    if outcome in _CUT_OFF and death.outcome is not Outcome.SERVER_DIED:
        outcome = death.outcome
    if outcome is Outcome.OUT_OF_MEMORY and end.outcome is outcome:
        return end  # the rank's own words say more
    return TrialEnd(outcome, f"{end.reason}; {death.cause}")


def end_of_load(death: Death) -> TrialEnd:
    """The end of a load whose server died. A device's memory that ran out is a batch's result;
    a load asks for no batch, so that to it the server just died of it."""
    host = death.outcome is Outcome.HOST_OUT_OF_MEMORY
    return TrialEnd(death.outcome if host else Outcome.SERVER_DIED, death.cause)


_SENTENCE_CHARACTERS = 300
_LINES_SEARCHED = 4000
"""A router says a line or two of each request that a shard's death ended."""
KILLED = "killed (signal 9)"
"""How a program ended that was sent SIGKILL, whoever did."""
_SIMULATED = " (simulated)"
"""What a simulated server writes after its reasons."""
_RAISED = re.compile(r"(?:\w+\.)*\w*(?:Error|Exception)\b(?:: .+|$)")

_CAUSES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), sentence)
    for pattern, sentence in (
        # An allocator that fails raises, or aborts: it sends no SIGKILL.
        (
            r"[Ss]hard process was signaled to shutdown with signal 9\b.*?rank=(\d+)",
            "shard {0} was killed (signal 9)",
        ),
        (
            r"[Ss]hard process was signaled to shutdown with signal 9\b",
            "a shard was killed (signal 9)",
        ),
        (r"(\b[A-Z]{3,4} out of memory\. Tried to allocate [\d.]+ \w+)", "{0}"),
        (
            r"(?:CUDA error: out of memory|cudaMalloc failed: out of memory"
            r"|cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY)",
            "CUDA out of memory",
        ),
        (
            r"(?:HIP error: out of memory|hipMalloc failed: out of memory|hipErrorOutOfMemory)",
            "HIP out of memory",
        ),
        (
            r"Not enough memory to handle (\d+) (?:total|prefill) tokens",
            "the device has not enough memory to handle {0} prefill tokens: "
            "lower max_batch_prefill_tokens",
        ),
        (
            r"(DefaultCPUAllocator: can't allocate memory(?:: you tried to allocate \d+ bytes)?)",
            "{0}",
        ),
        (r"(std::bad_alloc)", "the host's memory ran out: {0}"),
        (r"(\w*MemoryError|Cannot allocate memory)\b", "the host ran out of memory: {0}"),
        (
            r"Failed to bind to (\S+): Address already in use",
            "its port or socket is in use already: {0}",
        ),
        (
            r"((?:[Aa]ddress already in use|AddrInUse|EADDRINUSE).*)",
            "its port or socket is in use already: {0}",
        ),
        (r'NotEnoughCUDADevices\("?(.*?)"?\)$', "too few GPUs: {0}"),
        (r'ArgumentValidation\("?(.*?)"?\)$', "the launcher refused its arguments: {0}"),
        (
            r"^error: ((?:unexpected argument|invalid value|Found argument|Invalid value"
            r"|the following required|the argument|a value is required|unrecognized).*)",
            "the launcher refused its arguments: {0}",
        ),
        (
            r"error: ((?:unrecognized arguments|argument --?[\w-]+:|invalid argument).*)",
            "the server refused its arguments: {0}",
        ),
        (
            r"GatedRepoError|gated repo|(?:401|403) Client Error",
            "the model is gated, or private: access needs a token that may read it "
            "(server.env: [HF_TOKEN])",
        ),
        (
            r"Repo id must be in the form .*?: '([^']+)'",
            "the model was not found: {0} is neither a folder nor an id of the hub",
        ),
        (r"No local weights found in (\S+) with extension", "no weights were found in {0}"),
        (
            r"(RepositoryNotFoundError|RevisionNotFoundError|EntryNotFoundError)",
            "the model was not found ({0})",
        ),
        (
            r"(\S+) is not a local folder and is not a valid model identifier",
            "the model was not found: {0} is neither a folder nor an id of the hub",
        ),
        (r"is not a valid model identifier", "the model was not found: its id is not valid"),
        (r"404 Client Error", "the model was not found (HTTP 404 of the hub)"),
        (
            r"Download encountered an error:\s*(.*)",
            "the model could not be downloaded: {0}{raised}",
        ),
        (r"Error when initializing model: (.+?)(?: rank=\d+)?$", "{0}"),
        (r'Error: Warmup\(\w+\("(.+?)"\)\)$', "its warm-up failed: {0}"),
        (r"the warm-up failed: (.+)", "its warm-up failed: {0}"),
        (
            r"[Ss]hard process was signaled to shutdown with signal (\d+)\b(?:.*?rank=(\d+))?",
            "shard {1} was killed (signal {0})",
        ),
        (r"\b[Ss]hard (\d+) failed to start", "shard {0} failed to start{raised}"),
        (r"\b[Ss]hard (\d+) crashed", "shard {0} crashed"),
        (r"\b(Webserver Crashed|WebserverFailed|WebserverCannotStart)\b", "its webserver crashed"),
        (r"^(?:Error|tgi-bench): (.+)", "it ended with: {0}"),
    )
)
"""The most telling first: a shard that ran out of memory also makes a crashed shard."""

_TAKEN = re.compile(r"[Aa]ddress already in use|AddrInUse|EADDRINUSE")
_DECISIVE = re.compile(
    r"\b[Ss]hard \d+ (?:failed to start|crashed)|[Ss]hard process was signaled to shutdown"
    r"|Webserver Crashed|Download encountered an error|Failed to bind to "
)
"""After these the launcher ends, in its own time."""


@dataclass(frozen=True, slots=True)
class Cause:
    """What a log says of an end.

    memory: OUT_OF_MEMORY or HOST_OUT_OF_MEMORY where an allocator said so; else None.

    killed: whether a signal 9 is the cause.
    """

    text: str
    memory: Outcome | None = None
    killed: bool = False


def fatal_cause(lines: Sequence[str], device_type: str | None = None) -> Cause | None:
    """Why the server ended; None where the log does not say. device_type: as `out_of_memory`."""
    told = said(lines[-_LINES_SEARCHED:])
    for pattern, sentence in _CAUSES:
        for line in reversed(told):
            match = pattern.search(line)
            if match:
                return Cause(
                    text=_sentence(match, sentence, told),
                    memory=out_of_memory(match[0], device_type),
                    killed="signal 9" in match[0],
                )
    return None


def _sentence(match: re.Match[str], sentence: str, told: Sequence[str]) -> str:
    groups = ((group or "").strip() for group in match.groups("?"))
    cause = sentence.format(*groups, raised=_raised(told) if "{raised}" in sentence else "")
    mark = "" if _SIMULATED in cause or _SIMULATED not in match.string else _SIMULATED
    return f"{cause[:_SENTENCE_CHARACTERS].rstrip(': ')}{mark}"


def _raised(told: Sequence[str]) -> str:
    """The last exception that the log shows, after a colon; "" where it shows none."""
    found = next((line for line in reversed(told) if _RAISED.match(line)), "")
    return f": {found}" if found else ""


def port_taken(lines: Sequence[str]) -> bool:
    """Whether the log says that an address was in use."""
    return any(_TAKEN.search(line) for line in said(lines))


def decisive_cause(lines: Sequence[str], device_type: str | None = None) -> Cause | None:
    """Why the server is about to end, although it runs; None where no line says so."""
    if not any(_DECISIVE.search(line) for line in said(lines)):
        return None
    return fatal_cause(lines, device_type) or Cause("a part of it ended")


def death_of(
    lines: Sequence[str], ended: str | None, oom_kills: int, device_type: str | None = None
) -> Death | None:
    """What the log's lines and the program's end make together; None where neither tells an end.

    ended: how the program ended, as in "exit code 1"; None: it runs. oom_kills: processes of its
    cgroup that the kernel killed for want of memory since it was started.
    """
    cause = decisive_cause(lines, device_type) if ended is None else fatal_cause(lines, device_type)
    if cause is None and ended is None:
        return None
    told = f"it ended: {ended}" if cause is None else cause.text
    text = told if cause is None or ended is None else f"{told} ({ended})"
    killed = ended == KILLED or (cause is not None and cause.killed)
    if killed and oom_kills > 0:
        text += (
            "; the kernel killed a process for want of memory: oom_kill of its cgroup rose by "
            f"{oom_kills}"
        )
        return Death(text, Outcome.HOST_OUT_OF_MEMORY)
    memory = None if cause is None else cause.memory
    return Death(text, memory or Outcome.SERVER_DIED)
