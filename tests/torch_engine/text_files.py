"""A model folder with a tokenizer of its own: bytes, a beginning and an end of sequence."""

from __future__ import annotations

import json
from pathlib import Path

from tests.torch_engine.tiny import write_config

BEGIN, END = 0, 1
VOCAB = 300


def write_model(folder: Path, family: str = "llama") -> Path:
    """Byte tokens, and a few merges; every prompt gets BEGIN before it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = ["<s>", "</s>", *alphabet, "he", "ll", "hell", "Ġw", "Ġwo"]
    merges = [("h", "e"), ("l", "l"), ("he", "ll"), ("Ġ", "w"), ("Ġw", "o")]
    backend = Tokenizer(models.BPE({piece: at for at, piece in enumerate(pieces)}, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", BEGIN)]
    )
    fast = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")
    fast.save_pretrained(folder)
    return write_config(folder, family, vocab_size=VOCAB)


def rewrite_config(folder: Path, **changes: object) -> None:
    """Change what the folder's config.json says."""
    file = folder / "config.json"
    said = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({**said, **changes}), encoding="utf-8")
