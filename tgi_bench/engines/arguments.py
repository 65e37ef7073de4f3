"""Every argument of text-generation-launcher from 0.8.0 to 3.3.7, in its own order.

Source: `struct Args` and its enums in launcher/src/main.rs of the public repository
huggingface/text-generation-inference, compared release by release (facts only). A row names
the release that an argument first appeared in, and each release that changed its default.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from tgi_bench.engines.versions import Version, parse_version

ArgumentValue = str | int | float | bool | None
SettingValue = ArgumentValue | tuple[int, ...] | tuple[str, ...]


class Kind(StrEnum):
    """What an argument's value is; the text names it in messages."""

    TEXT = "a string"
    INTEGER = "an integer"
    FLOAT = "a number"
    FLAG = "true or false"
    """Given as a bare flag; absent is false."""
    BOOLEAN = "true, false or null"
    """Given with a value: `--sharded true`."""
    CHOICE = "one of a list"
    INTEGERS = "integers joined by commas"
    """One flag: `--cuda-graphs 1,2,4`."""
    TEXTS = "strings joined by commas"
    """One flag for each: `--cors-allow-origin a --cors-allow-origin b`."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One allowed value as the command line writes it, and the name Rust prints for it."""

    value: str
    variant: str


@dataclass(frozen=True, slots=True)
class ArgumentSpec:
    """One argument as one version has it.

    default: None where the version has no default of its own ("not given").
    choices: the allowed values of a CHOICE; empty for every other kind.
    minimum, maximum: of an INTEGER; the maximum is that of its Rust type.
    short: the letter of its short flag, or None.
    """

    name: str
    kind: Kind
    default: SettingValue
    choices: tuple[Choice, ...]
    minimum: int
    maximum: int
    short: str | None

    @property
    def flag(self) -> str:
        """`--max-input-length`."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def env(self) -> str | None:
        """`MAX_INPUT_LENGTH`; None for `env`, which has no variable."""
        return None if self.name == "env" else self.name.upper()


@dataclass(frozen=True, slots=True)
class ArgumentRow:
    """One argument over all versions: (version, default) from that version on.

    until: the last release that has it; None where the newest still does.
    """

    name: str
    kind: Kind
    defaults: tuple[tuple[str, SettingValue], ...]
    until: str | None = None
    minimum: int = 0
    maximum: int = 2**64 - 1
    short: str | None = None

    @property
    def since(self) -> str:
        """The first release that has it."""
        return self.defaults[0][0]

    def covers(self, version: Version) -> bool:
        """Whether that version has this argument."""
        return parse_version(self.since) <= version and (
            self.until is None or version <= parse_version(self.until)
        )


_U16, _U32 = 2**16 - 1, 2**32 - 1


def _since(version: str, default: SettingValue = None) -> tuple[tuple[str, SettingValue], ...]:
    return ((version, default),)


_T, _I, _F, _B, _C = Kind.TEXT, Kind.INTEGER, Kind.FLOAT, Kind.FLAG, Kind.CHOICE
_FIRST = _since("0.8.0")
_OFF = _since("0.8.0", False)

ROWS: tuple[ArgumentRow, ...] = (
    ArgumentRow("model_id", _T, _since("0.8.0", "bigscience/bloom-560m")),
    ArgumentRow("revision", _T, _FIRST),
    ArgumentRow("validation_workers", _I, _since("0.9.2", 2), minimum=1),
    ArgumentRow("sharded", Kind.BOOLEAN, _FIRST),
    ArgumentRow("num_shard", _I, _FIRST, minimum=1),
    ArgumentRow("quantize", _C, _FIRST),
    ArgumentRow("speculate", _I, _since("1.3.0")),
    ArgumentRow("dtype", _C, _since("0.9.0")),
    ArgumentRow("kv_cache_dtype", _C, _since("2.4.0")),
    ArgumentRow("trust_remote_code", _B, _OFF),
    ArgumentRow("max_concurrent_requests", _I, _since("0.8.0", 128), minimum=1),
    ArgumentRow("max_best_of", _I, _since("0.8.0", 2), minimum=1),
    ArgumentRow("max_stop_sequences", _I, _since("0.8.0", 4)),
    ArgumentRow("max_top_n_tokens", _I, _since("1.0.3", 5), maximum=_U32),
    ArgumentRow("max_input_tokens", _I, _since("2.0.0"), minimum=1),
    ArgumentRow(
        "max_input_length", _I, (("0.8.0", 1000), ("0.9.0", 1024), ("2.0.0", None)), minimum=1
    ),
    ArgumentRow(
        "max_total_tokens", _I, (("0.8.0", 1512), ("0.9.0", 2048), ("2.0.0", None)), minimum=1
    ),
    ArgumentRow("max_batch_size", _I, _FIRST, until="0.8.2", minimum=1),
    ArgumentRow("waiting_served_ratio", _F, (("0.8.0", 1.2), ("2.0.2", 0.3))),
    ArgumentRow(
        "max_batch_prefill_tokens",
        _I,
        (("0.9.0", 4096), ("2.0.0", None)),
        minimum=1,
        maximum=_U32,
    ),
    ArgumentRow(
        "max_batch_total_tokens",
        _I,
        (("0.8.0", 32000), ("0.9.0", 16000), ("0.9.4", None)),
        minimum=1,
        maximum=_U32,
    ),
    ArgumentRow("max_waiting_tokens", _I, _since("0.8.0", 20)),
    ArgumentRow("max_batch_size", _I, _since("1.4.1"), minimum=1),
    ArgumentRow("enable_cuda_graphs", _B, _since("1.4.1", False), until="1.4.5"),
    ArgumentRow("cuda_graphs", Kind.INTEGERS, _since("2.0.0")),
    ArgumentRow("hostname", _T, _since("0.9.1", "0.0.0.0")),
    ArgumentRow("port", _I, _since("0.8.0", 3000), maximum=_U16, short="p"),
    # The launcher gives this one the short flag -p too; -p is read as the port's.
    ArgumentRow("prometheus_port", _I, _since("3.3.0", 9000), maximum=_U16),
    ArgumentRow("shard_uds_path", _T, _since("0.8.0", "/tmp/text-generation-server")),
    ArgumentRow("master_addr", _T, _since("0.8.0", "localhost")),
    ArgumentRow("master_port", _I, _since("0.8.0", 29500)),
    ArgumentRow("huggingface_hub_cache", _T, _FIRST),
    ArgumentRow("weights_cache_override", _T, _FIRST),
    ArgumentRow("disable_custom_kernels", _B, _OFF),
    ArgumentRow("cuda_memory_fraction", _F, _since("0.9.4", 1.0)),
    ArgumentRow("rope_scaling", _C, _since("1.0.1")),
    ArgumentRow("rope_factor", _F, _since("1.0.1")),
    ArgumentRow("json_output", _B, _OFF),
    ArgumentRow("otlp_endpoint", _T, _FIRST),
    ArgumentRow("otlp_service_name", _T, _since("2.1.0", "text-generation-inference.router")),
    ArgumentRow("cors_allow_origin", Kind.TEXTS, _since("0.8.0", ())),
    ArgumentRow("api_key", _T, _since("2.3.0")),
    ArgumentRow("watermark_gamma", _F, _FIRST),
    ArgumentRow("watermark_delta", _F, _FIRST),
    ArgumentRow("ngrok", _B, _since("0.9.0", False)),
    ArgumentRow("ngrok_authtoken", _T, _since("0.9.0")),
    ArgumentRow("ngrok_domain", _T, _since("0.9.0"), until="0.9.3"),
    ArgumentRow("ngrok_username", _T, _since("0.9.0"), until="0.9.3"),
    ArgumentRow("ngrok_password", _T, _since("0.9.0"), until="0.9.3"),
    ArgumentRow("ngrok_edge", _T, _since("0.9.4")),
    ArgumentRow("tokenizer_config_path", _T, _since("1.4.0")),
    ArgumentRow("disable_grammar_support", _B, _since("1.4.1", False)),
    ArgumentRow("env", _B, _OFF, short="e"),
    ArgumentRow("max_client_batch_size", _I, _since("2.0.1", 4), minimum=1),
    ArgumentRow("lora_adapters", _T, _since("2.1.0")),
    ArgumentRow("disable_usage_stats", _B, _since("2.2.0", False), until="2.2.0"),
    ArgumentRow("disable_crash_reports", _B, _since("2.2.0", False), until="2.2.0"),
    ArgumentRow("usage_stats", _C, _since("2.3.0", "on")),
    ArgumentRow("payload_limit", _I, _since("2.4.1", 2_000_000)),
    ArgumentRow("enable_prefill_logprobs", _B, _since("3.0.0", False)),
    ArgumentRow("graceful_termination_timeout", _I, _since("3.2.2", 90), short="g"),
)

_BNB, _GPTQ = ("bitsandbytes", "Bitsandbytes"), ("gptq", "Gptq")
_NF4, _FP4 = ("bitsandbytes-nf4", "BitsandbytesNF4"), ("bitsandbytes-fp4", "BitsandbytesFP4")
_NEW_NF4, _NEW_FP4 = (_NF4[0], "BitsandbytesNf4"), (_FP4[0], "BitsandbytesFp4")
_AWQ, _EETQ, _FP8 = ("awq", "Awq"), ("eetq", "Eetq"), ("fp8", "Fp8")
_EXL2, _MARLIN = ("exl2", "Exl2"), ("marlin", "Marlin")
_TENSORS = ("compressed-tensors", "CompressedTensors")

_CHOICES: dict[str, tuple[tuple[str, tuple[tuple[str, str], ...]], ...]] = {
    "quantize": (
        ("0.8.0", (_BNB, _GPTQ)),
        ("1.0.1", (_BNB, _NF4, _FP4, _GPTQ)),
        ("1.1.0", (_AWQ, _EETQ, _GPTQ, _BNB, _NF4, _FP4)),
        ("2.0.0", (_AWQ, _EETQ, _GPTQ, _BNB, _NF4, _FP4, _FP8)),
        ("2.1.0", (_AWQ, _EETQ, _EXL2, _GPTQ, _MARLIN, _BNB, _NF4, _FP4, _FP8)),
        ("2.3.0", (_AWQ, _EETQ, _EXL2, _GPTQ, _MARLIN, _BNB, _NEW_NF4, _NEW_FP4, _FP8)),
        (
            "2.4.1",
            (_AWQ, _TENSORS, _EETQ, _EXL2, _GPTQ, _MARLIN, _BNB, _NEW_NF4, _NEW_FP4, _FP8),
        ),
    ),
    "dtype": (
        # The first three releases spelt it so by accident of a naming rule.
        ("0.9.0", (("float16", "Float16"), ("b-float16", "BFloat16"))),
        ("0.9.3", (("float16", "Float16"), ("bfloat16", "BFloat16"))),
    ),
    "kv_cache_dtype": (("2.4.0", (("fp8_e4m3fn", "Fp8e4m3fn"), ("fp8_e5m2", "Fp8e5m2"))),),
    "rope_scaling": (("1.0.1", (("linear", "Linear"), ("dynamic", "Dynamic"))),),
    "usage_stats": (("2.3.0", (("on", "On"), ("off", "Off"), ("no-stack", "NoStack"))),),
}


def arguments_of(version: str) -> tuple[ArgumentSpec, ...]:
    """Every argument of that version, in the launcher's own order.

    A version newer than NEWEST has NEWEST's. Raises InputError on no version or one too old.
    """
    return _arguments_of(parse_version(version))


@cache
def _arguments_of(version: Version) -> tuple[ArgumentSpec, ...]:
    return tuple(_spec(row, version) for row in ROWS if row.covers(version))


def _spec(row: ArgumentRow, version: Version) -> ArgumentSpec:
    default = [value for since, value in row.defaults if parse_version(since) <= version][-1]
    choices = [
        tuple(Choice(*pair) for pair in pairs)
        for since, pairs in _CHOICES.get(row.name, ())
        if parse_version(since) <= version
    ]
    return ArgumentSpec(
        name=row.name,
        kind=row.kind,
        default=default,
        choices=choices[-1] if choices else (),
        minimum=row.minimum,
        maximum=row.maximum,
        short=row.short,
    )


@cache
def specs_by_name(version: Version) -> dict[str, ArgumentSpec]:
    """The same arguments by name."""
    return {spec.name: spec for spec in _arguments_of(version)}


def spans(name: str) -> tuple[tuple[str, str | None], ...]:
    """(first release, last release or None) of an argument, oldest first; () for no argument."""
    return tuple((row.since, row.until) for row in ROWS if row.name == name)


def choice_since(name: str, value: str) -> str | None:
    """The first release that allows that value of that argument; None where none does."""
    for since, pairs in _CHOICES.get(name, ()):
        if any(value == allowed for allowed, _ in pairs):
            return since
    return None
