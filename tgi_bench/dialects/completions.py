"""POST /v1/completions: a text, and what comes after it."""

from __future__ import annotations

from tgi_bench.dialects.dialect import Abilities, Ask, AskOptions, Body
from tgi_bench.dialects.openai import OpenAi


class Completions(OpenAi):
    """The older of OpenAI's APIs."""

    name = "completions"

    def path(self, stream: bool) -> str:
        return "/v1/completions"

    def body(self, ask: Ask, able: Abilities, options: AskOptions) -> Body:
        return self.around({"prompt": ask.text}, ask, able, options)


DIALECT = Completions()
