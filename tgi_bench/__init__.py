"""tgi-bench: how fast is this text-generation-inference server, and whether to believe it."""

__version__ = "0.1.0"
