"""What an answer means, once its bytes were read in its dialect's words."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, replace

from tgi_bench.load_observation import RequestOutcome, StageConditions, TokenSource
from tgi_bench.plan.load_trial import Spoken


@dataclass(frozen=True, slots=True)
class Ask:
    """One request before it is bytes.

    prompt: the text; "" where messages are given. messages: (role, text) of a conversation so
        far, the new question last; () where there is none.
    prompt_tokens: how many the server is to see; None: as many as the text has.
    output_tokens: how many are to come.
    """

    prompt: str
    messages: tuple[tuple[str, str], ...]
    prompt_tokens: int | None
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a server was found to be able to do, so that lengths can be exact.

    spoken: never AUTO. model: the name to send; "" for TGI's own API.
    engine: "tgi", "vllm", "sglang", "llamacpp" or "" (unknown).
    truncates: it cuts a prompt to an asked number of tokens ("truncate" of TGI,
        "truncate_prompt_tokens" of vLLM).
    tokenize_path: the path that counts a text's tokens; None where it has none.
    ignores_eos: the body's key that makes it go on to the asked length: "ignore_eos",
        "min_tokens"; None where it has none.
    usage: its streams end with a usage chunk when asked (`stream_options`).
    max_input_tokens: None where it does not say.
    counts_each: the body's key that makes each event say how many tokens there were until then:
        "continuous_usage_stats" (in stream_options), "timings_per_token"; None where it has none.
    """

    spoken: Spoken
    model: str
    engine: str
    truncates: bool
    tokenize_path: str | None
    ignores_eos: str | None
    usage: bool
    max_input_tokens: int | None
    counts_each: str | None = None

    @property
    def optional_keys(self) -> tuple[str, ...]:
        """Of a body, those that a server may refuse to know; the least needed first."""
        keys = (
            self.counts_each,
            "truncate_prompt_tokens" if self.truncates else None,
            self.ignores_eos,
            "stream_options" if self.usage else None,
        )
        return tuple(key for key in keys if key is not None)

    def without(self, key: str) -> Abilities:
        """Asked without one of them; min_tokens takes the place of ignore_eos."""
        match key:
            case "truncate_prompt_tokens":
                return replace(self, truncates=False)
            case "ignore_eos":
                return replace(self, ignores_eos="min_tokens")
            case "min_tokens":
                return replace(self, ignores_eos=None)
            case "stream_options" if self.counts_each == "continuous_usage_stats":
                return replace(self, usage=False, counts_each=None)
            case "stream_options":
                return replace(self, usage=False)
            case _:
                return replace(self, counts_each=None)


@dataclass(frozen=True, slots=True)
class Reading:
    """An answer as its dialect means it; the fields are those of RequestObservation.

    text: what was generated; a conversation's next turn needs it. models, fingerprints: which
    model and which build the answer names, each once; () where it names none. counted_each: each
    of at least two events said how many tokens there were until then.
    """

    event_ns: array[int]
    event_tokens: array[int]
    events: int
    shared_reads: int
    prompt_tokens: int | None
    cached_tokens: int | None
    output_tokens: int
    counted_by: TokenSource
    finish_reason: str | None
    outcome: RequestOutcome
    reason: str
    text: str
    models: tuple[str, ...] = ()
    fingerprints: tuple[str, ...] = ()
    tokens_told: bool = True
    first_told: bool = True
    text_tokens: int | None = None
    counted_each: bool = False


class NamesHeard:
    """Which models and builds the answers of a stage named."""

    def __init__(self) -> None:
        self._models: Counter[str] = Counter()
        self._fingerprints: Counter[str] = Counter()
        self._two_models = 0

    def hear(self, reading: Reading) -> None:
        """One answer more."""
        self._models.update(reading.models)
        self._fingerprints.update(reading.fingerprints)
        self._two_models += len(reading.models) > 1

    def kept_in(self, conditions: StageConditions) -> StageConditions:
        """The conditions with these, the most frequent first."""
        return replace(
            conditions,
            answered_by=tuple(self._models.most_common()),
            two_models=self._two_models,
            fingerprints=tuple(self._fingerprints.most_common()),
        )
