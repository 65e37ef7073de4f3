"""A workload's request as the bytes that go out, made before its time."""

from __future__ import annotations

from tgi_bench.dialects.dialect import Ask, AskOptions, request_bytes
from tgi_bench.drive.prepared import Prepared
from tgi_bench.plan.request_spec import RequestSpec

History = tuple[tuple[str, str], ...]
REQUEST_ID = "x-request-id"
"""A header with "<stage>-<number>", by which a server's log can be laid beside a run."""


class RequestMaker:
    """Makes the requests of one stage."""

    def __init__(self, prepared: Prepared, stage: int) -> None:
        self._prepared = prepared
        self._stage = stage

    def question(self, spec: RequestSpec) -> History:
        """What a request adds to a conversation: its text as long as it must be, or a file's."""
        if spec.messages:
            return spec.messages
        return (("user", self._prepared.fitted(spec)),)

    def make(self, number: int, spec: RequestSpec, messages: History) -> tuple[Ask, bytes]:
        """The request that sends these messages, the last of them the new one.

        A later prompt is as long as its conversation has become: only a first one is exact.
        """
        prepared = self._prepared
        whole = len(messages) > 1
        asked_tokens = None if whole else spec.prompt_tokens
        ask = prepared.abilities.dialect.ask(messages, asked_tokens, spec.output_tokens)
        options = AskOptions(
            host=prepared.host,
            stream=prepared.trial.stream,
            sampling=prepared.trial.sampling,
            base_path=prepared.base_path,
            headers=(*prepared.headers, (REQUEST_ID, f"{self._stage}-{number}")),
        )
        return ask, request_bytes(ask, prepared.abilities, options)
