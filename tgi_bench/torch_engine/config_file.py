"""What a config.json says that must be known before transformers is imported."""

from __future__ import annotations

import json
from pathlib import Path

_NAMES = ("max_position_embeddings", "n_positions", "max_seq_len")
"""As Llama and OPT, GPT-2 and MPT call it; BLOOM has no such limit."""


def config_positions(file: Path) -> int | None:
    """Tokens that a sequence may have; None where the file does not say, or cannot be read."""
    try:
        said = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(said, dict):
        return None
    found = (said.get(name) for name in _NAMES)
    return next((n for n in found if isinstance(n, int) and not isinstance(n, bool)), None)
