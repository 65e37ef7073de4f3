"""What one embedded server was told, with every default filled in."""

from __future__ import annotations

from dataclasses import dataclass

from tgi_bench.estimate.setup import UNCALIBRATED, Constants
from tgi_bench.torch_engine.spec import ModelSpec

Version = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What computes the steps: `simulated` sleeps as long as the estimate says, `transformers`
    runs the model.

    accelerator: a row of the estimate's table; read by `simulated`, as are quantize and dtype,
    None of which is the engine's default, and memory_fraction, the share of the device's memory
    that the server may take. constants: a calibration's, where one was given. visible_devices: as
    Setup.split_devices where num_shard is 1 and the model is of the padded class. torch_model:
    what `transformers` runs; None for `simulated`. master_port: where its ranks meet.
    """

    engine: str
    accelerator: str
    model_id: str
    num_shard: int
    quantize: str | None
    dtype: str | None
    memory_fraction: float
    constants: Constants = UNCALIBRATED
    visible_devices: int = 1
    torch_model: ModelSpec | None = None
    master_port: int = 29500

    @property
    def simulated(self) -> bool:
        """Whether times and tokens are made up."""
        return self.torch_model is None


@dataclass(frozen=True, slots=True)
class RouterLimits:
    """What the router accepts and how it batches. Tokens are prompt plus new tokens.

    max_input_tokens: prompt tokens of one request. max_total_tokens: of one request.
    max_batch_total_tokens: of a running batch; None: what the warm-up found.
    max_batch_size: requests in a running batch; None: no limit.
    waiting_served_ratio, max_waiting_tokens: when a waiting queue interrupts decoding.
    """

    max_concurrent_requests: int
    max_best_of: int
    max_stop_sequences: int
    max_top_n_tokens: int
    max_input_tokens: int
    max_total_tokens: int
    max_batch_prefill_tokens: int
    max_batch_total_tokens: int | None
    max_batch_size: int | None
    max_client_batch_size: int
    waiting_served_ratio: float
    max_waiting_tokens: int
    payload_limit_bytes: int
    validation_workers: int
    enable_prefill_logprobs: bool


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """One deployment of the embedded server.

    tgi_version: whose behaviours are shown. printed_arguments: name and text of each
    launcher argument as the `Args {...}` log line prints it. api_key: None is open.
    """

    tgi_version: Version
    hostname: str
    port: int
    shard_uds_path: str
    json_output: bool
    api_key: str | None
    engine: EngineConfig
    limits: RouterLimits
    printed_arguments: tuple[tuple[str, str], ...]

    @property
    def version_text(self) -> str:
        """ "0.9.4" """
        return ".".join(str(part) for part in self.tgi_version)

    def uds_path(self, shard_rank: int) -> str:
        """The socket of one rank: "<shard_uds_path>-<rank>"."""
        return f"{self.shard_uds_path}-{shard_rank}"
