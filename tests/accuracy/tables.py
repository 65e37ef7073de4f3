"""The published tables' figures (data/*.csv) as measured points of the estimate."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from tgi_bench.estimate.fitting import Point
from tgi_bench.estimate.grid import Phase, Sizes
from tgi_bench.estimate.setup import Setup
from tgi_bench.estimate.tables import GIB, accelerator, model_shape

DATA = Path(__file__).parent / "data"

BIGCODE_NEW_TOKENS = 100

TGI_DECODE_LENGTH = 8
TGI_MIDDLE_CONTEXT = 4
"""The 7 decode steps attend to prompt + 1 to prompt + 7 tokens: prompt + 4 on average."""

SPLIT_DEVICES_OF_NUM_SHARD_1 = 8
"""num_shard 1 of the TGI table ran transformers' device_map with 8 devices visible (inferred)."""


def _rows(table: str) -> list[dict[str, str]]:
    lines = (DATA / f"{table}.csv").read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


@dataclass(frozen=True, slots=True)
class ForwardRow:
    """TorchCAP: one forward pass with loss of 16 x 1024 tokens. devices: 1 or 8, as printed."""

    model: str
    accelerator: str
    devices: int
    runtime_s: float
    memory_bytes: float

    @property
    def setup(self) -> Setup:
        return Setup(
            model_shape(self.model), accelerator(self.accelerator), generator="transformers"
        )

    def point(self, mlp_degree: int = 1) -> Point:
        return Point(self.setup, "forward", Sizes(16, 1024, mlp_degree=mlp_degree), self.runtime_s)


def torchcap() -> tuple[ForwardRow, ...]:
    return tuple(
        ForwardRow(
            model=row["model"],
            accelerator=row["accelerator"],
            devices=int(row["devices"]),
            runtime_s=float(row["runtime_ms"]) / 1e3,
            memory_bytes=float(row["memory_gib"]) * GIB,
        )
        for row in _rows("torchcap")
    )


@dataclass(frozen=True, slots=True)
class TgiRow:
    """A cell of the TGI table; None where it ran out of memory."""

    num_shard: int
    prompt_tokens: int
    quantize: str | None
    batch_size: int
    prefill_s: float | None
    decode_s: float | None

    @property
    def setup(self) -> Setup:
        device = accelerator("A100-40GB-SXM")
        model = model_shape("bigscience/bloomz-7b1-mt")
        if self.num_shard == 1:
            split = SPLIT_DEVICES_OF_NUM_SHARD_1
            return Setup(model, device, prompt_logprobs=True, split_devices=split)
        return Setup(model, device, self.num_shard, self.quantize, prompt_logprobs=True)

    @property
    def outlier(self) -> bool:
        """num_shard 8 at batch size 16: 3.26 times batch size 8 for twice the work."""
        return (self.num_shard, self.prompt_tokens, self.batch_size) == (8, 1024, 16)

    def point(self, phase: Phase) -> Point:
        prefill = phase == "prefill"
        measured = self.prefill_s if prefill else self.decode_s
        assert measured is not None, "a cell that ran out of memory has no time"
        context = self.prompt_tokens + (0 if prefill else TGI_MIDDLE_CONTEXT)
        return Point(self.setup, phase, Sizes(self.batch_size, context), measured)


def _ms(text: str) -> float | None:
    return float(text) / 1e3 if text else None


def tgi() -> tuple[TgiRow, ...]:
    return tuple(
        TgiRow(
            num_shard=int(row["num_shard"]),
            prompt_tokens=int(row["prompt_tokens"]),
            quantize=row["quantize"] or None,
            batch_size=int(row["batch_size"]),
            prefill_s=_ms(row["prefill_ms"]),
            decode_s=_ms(row["decode_ms"]),
        )
        for row in _rows("tgi")
    )


@dataclass(frozen=True, slots=True)
class GenerateRow:
    """A cell of the bigcode table; tokens_per_s None where it ran out of memory."""

    dtype: str
    batch_size: int
    tokens_per_s: float | None

    @property
    def setup(self) -> Setup:
        return Setup(
            model_shape("bigcode-inference-benchmark BLOOM"),
            accelerator("A100-80GB-SXM"),
            dtype=self.dtype,
            generator="transformers",
        )

    @property
    def sizes(self) -> Sizes:
        """Prompts of about 7 (batch sizes below 7) or 9 tokens, by a hand count."""
        return Sizes(self.batch_size, 7 if self.batch_size < 7 else 9, BIGCODE_NEW_TOKENS)

    @property
    def point(self) -> Point:
        assert self.tokens_per_s is not None, "a cell that ran out of memory has no time"
        seconds = self.batch_size * BIGCODE_NEW_TOKENS / self.tokens_per_s
        return Point(self.setup, "generate", self.sizes, seconds)


def bigcode() -> tuple[GenerateRow, ...]:
    return tuple(
        GenerateRow(
            dtype=row["dtype"],
            batch_size=int(row["batch_size"]),
            tokens_per_s=float(row["tokens_per_s"]) if row["tokens_per_s"] else None,
        )
        for row in _rows("bigcode")
    )


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A row of the h2oGPT table: one token at batch size 1. devices hold the layers in turn."""

    bits: int
    accelerator: str
    devices: int
    token_s: float

    @property
    def setup(self) -> Setup:
        return Setup(
            model_shape("h2oai/h2ogpt-4096-llama2-7b-chat"),
            accelerator(self.accelerator),
            quantize={16: None, 8: "bitsandbytes", 4: "bitsandbytes-nf4"}[self.bits],
            generator="transformers",
            split_devices=self.devices,
        )

    @property
    def point(self) -> Point:
        """A decode step in the middle of an answer of about 600 tokens."""
        return Point(self.setup, "decode", Sizes(1, 300), self.token_s)


def h2ogpt() -> tuple[TokenRow, ...]:
    return tuple(
        TokenRow(
            bits=int(row["bits"]),
            accelerator=row["accelerator"],
            devices=int(row["devices"]),
            token_s=1 / float(row["tokens_per_s"]),
        )
        for row in _rows("h2ogpt")
    )
