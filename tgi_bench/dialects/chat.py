"""POST /v1/chat/completions: messages, of which the server's template makes a text."""

from __future__ import annotations

from tgi_bench.dialects.dialect import Abilities, Ask, AskOptions, Body
from tgi_bench.dialects.openai import OpenAi


class Chat(OpenAi):
    """The API of conversations."""

    name = "chat"
    takes_messages = True

    def path(self, stream: bool) -> str:
        return "/v1/chat/completions"

    def body(self, ask: Ask, able: Abilities, options: AskOptions) -> Body:
        said = ask.messages or (("user", ask.prompt),)
        messages = [{"role": role, "content": content} for role, content in said]
        return self.around({"messages": messages}, ask, able, options)


DIALECT = Chat()
