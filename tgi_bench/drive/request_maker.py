"""A workload's request as the bytes that go out, made before its time."""

from __future__ import annotations

from tgi_bench.drive.dialects import AskOptions, request_bytes
from tgi_bench.drive.preparation import Prepared
from tgi_bench.drive.reading import Ask
from tgi_bench.plan.load_trial import Spoken
from tgi_bench.plan.request_spec import RequestSpec

History = tuple[tuple[str, str], ...]
REQUEST_ID = "x-request-id"
"""A header with "<stage>-<number>", by which a server's log can be laid beside a run."""


class RequestMaker:
    """Makes the requests of one stage."""

    def __init__(self, prepared: Prepared, stage: int) -> None:
        self._prepared = prepared
        self._stage = stage
        self._chat = prepared.abilities.spoken is Spoken.CHAT

    def make(self, number: int, spec: RequestSpec, history: History) -> tuple[Ask, bytes]:
        """The request of a conversation that has come as far as `history`; () at its start."""
        prepared = self._prepared
        ask = self._ask(spec, history)
        options = AskOptions(
            host=prepared.host,
            stream=prepared.trial.stream,
            sampling=prepared.trial.sampling,
            headers=(*prepared.headers, (REQUEST_ID, f"{self._stage}-{number}")),
        )
        return ask, request_bytes(ask, prepared.abilities, options)

    def _ask(self, spec: RequestSpec, history: History) -> Ask:
        """A conversation's later prompt is as long as the conversation; only the first is exact."""
        if spec.messages:
            messages, text = spec.messages, "\n".join(t for _, t in spec.messages)
        else:
            text = self._prepared.fitted(spec.text, spec.prompt_tokens)
            messages = (*history, ("user", text))
            text = "\n".join(t for _, t in messages)
        return Ask(
            prompt="" if self._chat else text,
            messages=messages if self._chat else (),
            prompt_tokens=None if history or spec.messages else spec.prompt_tokens,
            output_tokens=spec.output_tokens,
        )
