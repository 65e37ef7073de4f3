"""Server configurations for tests: small models, so that a step takes a few ms."""

from __future__ import annotations

from tgi_bench.server.config import EngineConfig, RouterLimits, ServerConfig, Version

PADDED = "bigscience/bloomz-1b1"
FLASH = "meta-llama/Meta-Llama-3-8B"

LIMITS = RouterLimits(
    max_concurrent_requests=128,
    max_best_of=2,
    max_stop_sequences=4,
    max_top_n_tokens=5,
    max_input_tokens=64,
    max_total_tokens=128,
    max_batch_prefill_tokens=128,
    max_batch_total_tokens=None,
    max_batch_size=None,
    max_client_batch_size=4,
    waiting_served_ratio=1.2,
    max_waiting_tokens=20,
    payload_limit_bytes=2_000_000,
    validation_workers=2,
    enable_prefill_logprobs=True,
)


def engine_config(
    model_id: str = PADDED,
    accelerator: str = "H100-SXM",
    num_shard: int = 1,
    memory_fraction: float = 1.0,
) -> EngineConfig:
    """The simulated engine on one model."""
    return EngineConfig(
        engine="simulated",
        accelerator=accelerator,
        model_id=model_id,
        num_shard=num_shard,
        quantize=None,
        dtype=None,
        memory_fraction=memory_fraction,
    )


def server_config(
    version: Version,
    shard_uds_path: str,
    engine: EngineConfig | None = None,
    port: int = 0,
    limits: RouterLimits = LIMITS,
) -> ServerConfig:
    """One deployment on 127.0.0.1; port 0 is any."""
    engine = engine or engine_config()
    return ServerConfig(
        tgi_version=version,
        hostname="127.0.0.1",
        port=port,
        shard_uds_path=shard_uds_path,
        json_output=False,
        api_key=None,
        engine=engine,
        limits=limits,
        printed_arguments=(
            ("model_id", f'"{engine.model_id}"'),
            ("num_shard", f"Some({engine.num_shard})"),
            ("quantize", "None"),
        ),
    )
