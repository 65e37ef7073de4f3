"""Bodies of /v1/chat/completions and /v1/completions to GenerateRequests.

Ignored as TGI ignores them: `n`, `best_of`, `user`, `logit_bias`, `model` (no adapter is
loaded). Refused: `suffix` as TGI does; tools and response formats, which the simulated
engine cannot follow, in the words of a TGI started with --disable-grammar-support.
"""

from __future__ import annotations

from dataclasses import dataclass

from tgi_bench.server.behaviour import Behaviour
from tgi_bench.server.router.body import Fields, unprocessable
from tgi_bench.server.router.failure import invalid
from tgi_bench.server.router.validation import GenerateRequest, Parameters

PRESENCE_OFFSET = 2.0
"""TGI takes presence_penalty + 2 as repetition_penalty."""


@dataclass(frozen=True, slots=True)
class OpenAiRequest:
    """One request: as many prompts as the client sent (chat: one).

    model: None where the client named none. include_usage: a last chunk with token counts.
    """

    prompts: tuple[GenerateRequest, ...]
    model: str | None
    stream: bool
    include_usage: bool
    logprobs: bool


def read_chat(body: Fields, behaviour: Behaviour) -> OpenAiRequest:
    """The body of /v1/chat/completions. Raises BodyError and RequestError."""
    messages = body.mappings("messages")
    if not body.has("messages"):
        raise unprocessable("missing field `messages`")
    logprobs = body.flag("logprobs")
    # top_logprobs is read also without logprobs, so that a wrong type is still refused.
    top_logprobs = body.count("top_logprobs")
    if top_logprobs is not None and not logprobs:
        raise invalid("`logprobs` must be true when `top_logprobs` is set")
    constrained = bool(body.mappings("tools")) or body.mapping("response_format") is not None
    presence = body.number("presence_penalty")
    parameters = _parameters(
        body,
        behaviour,
        repetition_penalty=None if presence is None else presence + PRESENCE_OFFSET,
        top_n_tokens=top_logprobs,
        grammar=constrained,
    )
    return _request(body, (GenerateRequest(chat_prompt(messages), parameters),), logprobs)


def read_completions(
    body: Fields, behaviour: Behaviour, max_client_batch_size: int
) -> OpenAiRequest:
    """The body of /v1/completions. Raises BodyError and RequestError."""
    if not body.has("prompt"):
        raise unprocessable("missing field `prompt`")
    prompts = body.texts("prompt")
    if body.text("suffix") is not None:
        raise invalid("Suffix is not supported and can be achieved by preprocessing the prompt.")
    if len(prompts) > max_client_batch_size:
        raise invalid(
            f"Number of prompts exceeds the maximum allowed batch size of {max_client_batch_size}"
        )
    if not prompts:
        raise invalid("`inputs` cannot be empty")
    parameters = _parameters(
        body,
        behaviour,
        repetition_penalty=body.number("repetition_penalty"),
        top_n_tokens=None,
        grammar=False,
    )
    return _request(body, tuple(GenerateRequest(text, parameters) for text in prompts), False)


def chat_prompt(messages: tuple[Fields, ...]) -> str:
    """The simulated chat template: a line "role: content" a message, then "assistant:".

    It is no model's: a real model's template adds tokens of its own.
    """
    lines = [f"{message.required_text('role')}: {_content(message)}\n" for message in messages]
    return "".join(lines) + "assistant:"


def _content(message: Fields) -> str:
    """A message's text: a string, or the text parts of a list."""
    if isinstance(message.values.get("content"), list):
        return "".join(part.text("text") or "" for part in message.mappings("content"))
    return message.text("content") or ""


def _parameters(
    body: Fields,
    behaviour: Behaviour,
    *,
    repetition_penalty: float | None,
    top_n_tokens: int | None,
    grammar: bool,
) -> Parameters:
    temperature = body.number("temperature")
    greedy = temperature == 0.0
    new_tokens = body.count("max_tokens")
    if new_tokens is None:
        new_tokens = body.count("max_completion_tokens")
    return Parameters(
        temperature=None if greedy else temperature,
        repetition_penalty=repetition_penalty,
        frequency_penalty=body.number("frequency_penalty"),
        top_p=body.number("top_p"),
        do_sample=not greedy,
        max_new_tokens=behaviour.default_max_new_tokens if new_tokens is None else new_tokens,
        stop=body.texts("stop"),
        details=True,
        seed=body.seed("seed"),
        top_n_tokens=top_n_tokens,
        grammar=grammar,
    )


def _request(body: Fields, prompts: tuple[GenerateRequest, ...], logprobs: bool) -> OpenAiRequest:
    options = body.mapping("stream_options")
    return OpenAiRequest(
        prompts=prompts,
        model=body.text("model"),
        stream=body.flag("stream"),
        include_usage=options is not None and options.flag("include_usage"),
        logprobs=logprobs,
    )
