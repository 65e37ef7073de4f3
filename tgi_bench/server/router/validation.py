"""What a request may ask for: TGI's rules in TGI's order, with its sentences.

Shared by /generate, /generate_stream and the OpenAI routes.
Source: the public repository huggingface/text-generation-inference, router/src/validation.rs.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from tgi_bench.server.behaviour import Behaviour
from tgi_bench.server.config import RouterLimits
from tgi_bench.server.router.body import Fields, invalid
from tgi_bench.torch_engine.tokenizers import TextTokenizer
from tgi_bench.wire.messages import Stopping, TokenChoice


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """`parameters` of a request, not yet validated. None: not given.

    max_new_tokens: None asks for as many as max_total_tokens leaves room for.
    """

    best_of: int | None = None
    temperature: float | None = None
    repetition_penalty: float | None = None
    frequency_penalty: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    typical_p: float | None = None
    do_sample: bool = False
    max_new_tokens: int | None = None
    return_full_text: bool = False
    stop: tuple[str, ...] = ()
    truncate: int | None = None
    watermark: bool = False
    details: bool = False
    decoder_input_details: bool = False
    seed: int | None = None
    top_n_tokens: int | None = None
    grammar: bool = False


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """A prompt and what to do with it, as a client sent them."""

    inputs: str
    parameters: Parameters


@dataclass(frozen=True, slots=True)
class ValidRequest:
    """A request that may be queued. input_tokens: after truncation.

    truncate: prompt tokens that a shard keeps. stopping.max_new_tokens is always set.
    """

    inputs: str
    input_tokens: int
    truncate: int
    choice: TokenChoice
    stopping: Stopping
    prefill_logprobs: bool
    top_n_tokens: int

    @property
    def total_tokens(self) -> int:
        """Prompt plus new tokens."""
        return self.input_tokens + self.stopping.max_new_tokens


def read_generate(body: Fields, behaviour: Behaviour) -> GenerateRequest:
    """The body of /generate and /generate_stream.

    Without the key `parameters` do_sample is true; with an empty object it is false.
    """
    inputs = body.required_text("inputs")
    given = body.mapping("parameters")
    default = behaviour.default_max_new_tokens
    if given is None:
        return GenerateRequest(inputs, Parameters(do_sample=True, max_new_tokens=default))
    new_tokens = given.count("max_new_tokens") if given.has("max_new_tokens") else default
    return GenerateRequest(
        inputs,
        Parameters(
            best_of=given.count("best_of"),
            temperature=given.number("temperature"),
            repetition_penalty=given.number("repetition_penalty"),
            frequency_penalty=given.number("frequency_penalty"),
            top_k=given.count("top_k"),
            top_p=given.number("top_p"),
            typical_p=given.number("typical_p"),
            do_sample=given.flag("do_sample"),
            max_new_tokens=new_tokens,
            return_full_text=given.flag("return_full_text"),
            stop=given.texts("stop"),
            truncate=given.count("truncate"),
            watermark=given.flag("watermark"),
            details=given.flag("details"),
            decoder_input_details=given.flag("decoder_input_details"),
            seed=given.seed("seed"),
            top_n_tokens=given.count("top_n_tokens"),
            grammar=given.mapping("grammar") is not None,
        ),
    )


@dataclass(frozen=True, slots=True)
class Validator:
    """Validates requests against one deployment's limits."""

    limits: RouterLimits
    behaviour: Behaviour
    tokenizer: TextTokenizer

    def best_of(self, best_of: int | None) -> int:
        """The number of sequences asked for; raises RequestError beyond max_best_of."""
        if best_of is None:
            return 1
        if self.limits.max_best_of == 1 and best_of != 1:
            raise invalid("`best_of` != 1 is not allowed for this endpoint")
        if not 0 < best_of <= self.limits.max_best_of:
            raise invalid(
                f"`best_of` must be > 0 and <= {self.limits.max_best_of}. Given: {best_of}"
            )
        return best_of

    def streamable(self, parameters: Parameters) -> None:
        """Raises RequestError on what a stream cannot give."""
        if parameters.best_of not in (None, 1):
            raise invalid("`best_of` != 1 is not supported when streaming tokens")
        if parameters.decoder_input_details:
            raise invalid("`decoder_input_details` == true is not supported when streaming tokens")

    def validate(self, request: GenerateRequest) -> ValidRequest:
        """Fill in every default; raises RequestError at the first rule that is broken."""
        parameters = request.parameters
        choice = self._choice(parameters)
        if not request.inputs:
            raise invalid("`inputs` cannot be empty")
        limit = self.limits.max_input_tokens
        truncate = parameters.truncate
        if truncate is not None and not 0 < truncate <= limit:
            raise invalid(
                f"`truncate` must be strictly positive and less than {limit}. Given: {truncate}"
            )
        input_tokens, new_tokens = self._lengths(request)
        if parameters.grammar:
            raise invalid("grammar is not supported")  # no engine here follows one
        return ValidRequest(
            inputs=request.inputs,
            input_tokens=input_tokens,
            truncate=truncate or limit,
            choice=choice,
            stopping=Stopping(new_tokens, parameters.stop),
            prefill_logprobs=parameters.decoder_input_details and self._tells_prefill,
            top_n_tokens=parameters.top_n_tokens or 0,
        )

    @property
    def _tells_prefill(self) -> bool:
        return self.limits.enable_prefill_logprobs or self.behaviour.always_tells_prefill

    def _lengths(self, request: GenerateRequest) -> tuple[int, int]:
        """Prompt tokens after truncation, and new tokens."""
        count = self.tokenizer.count(request.inputs)
        truncate = request.parameters.truncate
        inputs = count if truncate is None else min(count, truncate)
        total = self.limits.max_total_tokens
        new = request.parameters.max_new_tokens
        if new is None:
            # TGI from 3.0.0 sets room aside for 1024 of them at a time and queues the request
            # again; here all its room is set aside at once.
            new = max(total - inputs, 0)
        if inputs + new > total:
            most = self.behaviour.most_new_tokens_said
            said = new if most is None else min(new, most)
            raise invalid(
                f"`inputs` tokens + `max_new_tokens` must be <= {total}. "
                f"Given: {inputs} `inputs` tokens and {said} `max_new_tokens`"
            )
        if inputs > self.limits.max_input_tokens or not new:
            raise invalid(
                f"`inputs` must have less than {self.limits.max_input_tokens} tokens. "
                f"Given: {inputs}"
            )
        return inputs, new

    def _choice(self, parameters: Parameters) -> TokenChoice:
        if (parameters.best_of or 1) > 1 and not _samples(parameters):
            raise invalid("you must use sampling when `best_of` is > 1")
        self._check_choice(parameters)
        self._check_stopping(parameters)
        return TokenChoice(
            temperature=_or(parameters.temperature, 1.0),
            top_k=parameters.top_k or 0,
            top_p=_or(parameters.top_p, 1.0),
            typical_p=_or(parameters.typical_p, 1.0),
            do_sample=parameters.do_sample,
            # As TGI: a request without a seed gets a random one.
            seed=random.getrandbits(64) if parameters.seed is None else parameters.seed,
            repetition_penalty=_or(parameters.repetition_penalty, 1.0),
            frequency_penalty=_or(parameters.frequency_penalty, 0.0),
            watermark=parameters.watermark,
        )

    def _check_choice(self, parameters: Parameters) -> None:
        if _or(parameters.temperature, 1.0) <= 0.0:
            raise invalid("`temperature` must be strictly positive")
        if _or(parameters.repetition_penalty, 1.0) <= 0.0:
            raise invalid("`repetition_penalty` must be strictly positive")
        if not -2.0 <= _or(parameters.frequency_penalty, 0.0) <= 2.0:
            raise invalid("`frequency_penalty` must be >= -2.0 and <= 2.0")
        if not 0.0 < _or(parameters.top_p, 0.5) < 1.0:
            raise invalid("`top_p` must be > 0.0 and < 1.0")
        if not 0.0 < _or(parameters.typical_p, 0.5) < 1.0:
            raise invalid("`typical_p` must be > 0.0 and < 1.0")
        if parameters.top_k == 0:
            raise invalid("`top_k` must be strictly positive")

    def _check_stopping(self, parameters: Parameters) -> None:
        if parameters.max_new_tokens == 0:
            raise invalid("`max_new_tokens` must be strictly positive")
        if len(parameters.stop) > self.limits.max_stop_sequences:
            raise invalid(
                f"`stop` supports up to {self.limits.max_stop_sequences} stop sequences. "
                f"Given: {len(parameters.stop)}"
            )
        if parameters.seed is not None and (parameters.best_of or 1) > 1:
            raise invalid("`seed` must not be set when `best_of` > 1")
        if (parameters.top_n_tokens or 0) > self.limits.max_top_n_tokens:
            raise invalid(
                f"`top_n_tokens` must be >= 0 and <= {self.limits.max_top_n_tokens}. "
                f"Given: {parameters.top_n_tokens}"
            )


def _samples(parameters: Parameters) -> bool:
    return parameters.do_sample or any(
        value is not None
        for value in (
            parameters.temperature,
            parameters.top_k,
            parameters.top_p,
            parameters.typical_p,
        )
    )


def _or(value: float | None, default: float) -> float:
    return default if value is None else value
