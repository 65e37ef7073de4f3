"""The setups that the tests of this folder name."""

from __future__ import annotations

from tgi_bench.estimate.setup import Setup
from tgi_bench.estimate.tables import accelerator, model_shape


def bloomz(num_shard: int = 1, quantize: str | None = None) -> Setup:
    """The published TGI table's: bloomz-7b1-mt on A100-40GB."""
    model = model_shape("bigscience/bloomz-7b1-mt")
    return Setup(model, accelerator("A100-40GB-SXM"), num_shard, quantize, prompt_logprobs=True)


def llama(num_shard: int = 1, quantize: str | None = None) -> Setup:
    """A flash model: Llama 3 8B on H100."""
    model = model_shape("meta-llama/Meta-Llama-3-8B")
    return Setup(model, accelerator("H100-SXM"), num_shard, quantize)
