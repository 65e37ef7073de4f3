"""The events of one scripted answer: when each is due, and what it says."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.distortions.script import Script, after


@dataclass(frozen=True, slots=True)
class Asked:
    """One request for a text. number: 0-based, of all. seen: whether its text came before."""

    path: str
    body: dict[str, Any]
    number: int
    seen: bool

    @property
    def tgi(self) -> bool:
        return "inputs" in self.body

    @property
    def chat(self) -> bool:
        return "messages" in self.body

    @property
    def text(self) -> str:
        if self.chat:
            return "\n".join(message["content"] for message in self.body["messages"])
        return str(self.body["inputs"] if self.tgi else self.body["prompt"])

    @property
    def tokens(self) -> int:
        if self.tgi:
            return int(self.body["parameters"]["max_new_tokens"])
        return int(self.body["max_tokens"])

    @property
    def stream(self) -> bool:
        return bool(self.body.get("stream", self.path.endswith("_stream")))

    def prompt_tokens(self, script: Script) -> int:
        """A word is a token. What is cut as asked, and what the server cuts."""
        words = len(self.text.split())
        asked = self.body.get("truncate_prompt_tokens")
        if self.tgi:
            asked = self.body["parameters"].get("truncate")
        return min(words, asked or words, script.most_words or words)


@dataclass(frozen=True, slots=True)
class Event:
    """due_s: since the load began. data: of one server-sent event."""

    due_s: float
    data: bytes


def events(script: Script, asked: Asked, now_s: float) -> list[Event]:
    """Of a streamed answer, in order."""
    made = max(1, round(script.made * asked.tokens))
    drawn = random.Random(asked.number)
    found = []
    if script.role_first and asked.chat:
        found.append(Event(now_s, _event(script, asked, _delta(asked, None), None)))
    if script.empty_first:
        found.append(Event(now_s, _event(script, asked, _delta(asked, ""), None)))
    due_s, sent = after(now_s, _first_s(script, asked, drawn), script.first_pace), 0
    while sent < made:
        size = min(made - sent, script.each_tokens if sent else script.first_tokens)
        if sent:
            took_s = size * script.step_s * (1 + script.jitter * drawn.random())
            due_s = after(due_s, took_s, script.step_pace)
        text = "".join(f" t{sent + place}" for place in range(size))
        sent += size
        last = sent == made
        data = (
            _tgi(script, asked, text, sent, last)
            if asked.tgi
            else _event(script, asked, _delta(asked, text), sent, last)
        )
        found.append(Event(due_s, data))
    found += _ending(script, asked, made, due_s)
    return list(_held(script, [_stalled(script, event) for event in found]))


def whole(script: Script, asked: Asked, now_s: float) -> Event:
    """An answer that is not streamed."""
    made = max(1, round(script.made * asked.tokens))
    due_s = after(now_s, _first_s(script, asked, random.Random(asked.number)), script.first_pace)
    due_s = after(due_s, (made - 1) * script.step_s, script.step_pace)
    text = "".join(f" t{place}" for place in range(made))
    if asked.tgi:
        tokens = [{"id": place, "text": f" t{place}", "logprob": -0.5} for place in range(made)]
        details = _details(script, asked, made) | {"tokens": tokens}
        said: dict[str, object] = {"generated_text": text, "details": details}
    else:
        choice = {"message": {"content": text}} if asked.chat else {"text": text}
        said = {"choices": [choice | {"index": 0, "finish_reason": script.ended_by}]}
        said |= {"model": _name(script, asked.number), "usage": _usage(script, asked, made)}
    return _stalled(script, Event(due_s, json.dumps(said).encode()))


def _first_s(script: Script, asked: Asked, drawn: random.Random) -> float:
    took_s = script.first_s + script.per_word_s * asked.prompt_tokens(script)
    took_s *= 1 + script.jitter * drawn.random()
    return took_s * (1 - script.cached) if asked.seen else took_s


def _stalled(script: Script, event: Event) -> Event:
    """Nothing goes out while the server stands still; later on it has caught up."""
    for from_s, length_s in script.stalls:
        if from_s <= event.due_s < from_s + length_s:
            return Event(from_s + length_s, event.data)
    return event


def _held(script: Script, found: list[Event]) -> Iterator[Event]:
    size = len(found) if script.held < 0 else script.held
    for place in range(0, len(found), size or 1):
        together = found[place : place + (size or 1)]
        due_s = together[-1].due_s
        if script.in_one_write:
            yield Event(due_s, b"".join(event.data for event in together))
        else:
            yield from (Event(due_s, event.data) for event in together)


def _name(script: Script, number: int) -> str:
    names = script.names or (script.model,)
    return names[number % len(names)]


def _delta(asked: Asked, text: str | None) -> dict[str, object]:
    """None: a role alone."""
    if not asked.chat:
        return {"text": text or ""}
    return {"delta": {"role": "assistant"} if text is None else {"content": text}}


def _event(
    script: Script,
    asked: Asked,
    choice: dict[str, object],
    so_far: int | None,
    last: bool = False,
) -> bytes:
    reason = script.ended_by if last else None
    name = _name(script, asked.number + (so_far or 0) if script.two_names else asked.number)
    said: dict[str, object] = {
        "model": name,
        "choices": [{"index": 0, **choice, "finish_reason": reason}],
    }
    options = asked.body.get("stream_options") or {}
    if script.each_told and so_far is not None and options.get("continuous_usage_stats"):
        said["usage"] = _usage(script, asked, so_far)
    return _line(said)


def _tgi(script: Script, asked: Asked, text: str, sent: int, last: bool) -> bytes:
    return _line(
        {
            "index": sent,
            "token": {"id": sent, "text": text, "logprob": -0.5, "special": False},
            "generated_text": text if last else None,
            "details": _details(script, asked, sent) if last else None,
        }
    )


def _details(script: Script, asked: Asked, sent: int) -> dict[str, object]:
    return {
        "finish_reason": script.ended_by,
        "generated_tokens": _said(script, asked, sent),
        "input_length": asked.prompt_tokens(script),
    }


def _ending(script: Script, asked: Asked, made: int, due_s: float) -> list[Event]:
    if asked.tgi:
        return []
    said = []
    if (asked.body.get("stream_options") or {}).get("include_usage"):
        usage = {"model": _name(script, asked.number), "choices": []}
        said.append(_line(usage | {"usage": _usage(script, asked, made)}))
    return [Event(due_s, data) for data in (*said, b"data: [DONE]\n\n")]


def _usage(script: Script, asked: Asked, sent: int) -> dict[str, object]:
    prompt = asked.prompt_tokens(script)
    usage: dict[str, object] = {
        "prompt_tokens": prompt,
        "completion_tokens": _said(script, asked, sent),
    }
    if script.cached_said is not None:
        cached = {"cached_tokens": round(script.cached_said * prompt)}
        usage["prompt_tokens_details"] = cached
    return usage


def _said(script: Script, asked: Asked, sent: int) -> int:
    return sent if script.said is None else round(script.said * asked.tokens)


def _line(said: object) -> bytes:
    return b"data: " + json.dumps(said).encode() + b"\n\n"
