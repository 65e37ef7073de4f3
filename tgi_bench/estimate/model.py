"""The shape of a language model and what follows from it: parameters, per part."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from tgi_bench.estimate.rows import Row, find, table

TABLE = "models.yaml"


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A decoder-only transformer. Field meanings: the head of models.yaml.

    experts, experts_per_token: 1 for a model without experts.
    padded: TGI serves it with its padded CausalLM class (True) or its paged flash class (False).
    """

    name: str
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    gated_mlp: bool
    tied: bool
    norm: str
    norms: int
    bias: bool
    experts: int
    experts_per_token: int
    pos_rows: int
    extra: int
    positional: str
    padded: bool
    parallel_residual: bool


def attention_matrix_parameters(shape: ModelShape) -> int:
    """Weights of one layer's attention matrices: h*H*d (q), 2*h*K*d (k, v), H*d*h (out)."""
    width = shape.heads * shape.head_dim
    kv_width = shape.kv_heads * shape.head_dim
    return shape.hidden * (2 * width + 2 * kv_width)


def mlp_matrix_parameters(shape: ModelShape) -> int:
    """Weights of one MLP (one expert's): 2*h*ffn, 3*h*ffn if gated."""
    return (3 if shape.gated_mlp else 2) * shape.hidden * shape.ffn


def linear_parameters(shape: ModelShape) -> int:
    """Weights of all layers' linear matrices, all experts; what quantization shrinks."""
    per_layer = attention_matrix_parameters(shape) + shape.experts * mlp_matrix_parameters(shape)
    return shape.layers * per_layer


def active_linear_parameters(shape: ModelShape) -> int:
    """Weights of the linear matrices that one token is multiplied with: its experts only."""
    mlp = shape.experts_per_token * mlp_matrix_parameters(shape)
    return shape.layers * (attention_matrix_parameters(shape) + mlp)


def vocabulary_parameters(shape: ModelShape) -> int:
    """Weights of the matrix that gives the logits: vocab*h."""
    return shape.vocab * shape.hidden


def _norm_parameters(shape: ModelShape) -> int:
    return shape.hidden * (2 if shape.norm == "layernorm" else 1)


def _bias_parameters(shape: ModelShape) -> int:
    """Biases of one layer: q, k, v, out, and the MLP's."""
    if not shape.bias:
        return 0
    qkv = shape.head_dim * (shape.heads + 2 * shape.kv_heads)
    mlp = (2 if shape.gated_mlp else 1) * shape.ffn + shape.hidden
    return qkv + shape.hidden + mlp


def _router_parameters(shape: ModelShape) -> int:
    return shape.hidden * shape.experts if shape.experts > 1 else 0


def parameters(shape: ModelShape) -> int:
    """All parameters, counted once where embedding and logits share a matrix.

    layers * (matrices + biases + norms + router) + final norm + embeddings + positions + extra
    """
    per_layer = (
        _bias_parameters(shape) + shape.norms * _norm_parameters(shape) + _router_parameters(shape)
    )
    embeddings = (1 if shape.tied else 2) * vocabulary_parameters(shape)
    return (
        linear_parameters(shape)
        + shape.layers * per_layer
        + _norm_parameters(shape)
        + embeddings
        + shape.pos_rows * shape.hidden
        + shape.extra
    )


def _from_row(row: Row) -> ModelShape:
    hidden, heads = row.integer("hidden"), row.integer("heads")
    return ModelShape(
        name=row.name,
        layers=row.integer("layers"),
        hidden=hidden,
        ffn=row.integer("ffn"),
        heads=heads,
        kv_heads=row.integer("kv_heads"),
        head_dim=row.integer("head_dim", hidden // heads),
        vocab=row.integer("vocab"),
        gated_mlp=row.flag("gated_mlp"),
        tied=row.flag("tied"),
        norm=row.text("norm"),
        norms=row.integer("norms", 2),
        bias=row.flag("bias"),
        experts=row.integer("experts", 1),
        experts_per_token=row.integer("experts_per_token", 1),
        pos_rows=row.integer("pos_rows", 0),
        extra=row.integer("extra", 0),
        positional=row.text("positional"),
        padded=row.flag("padded"),
        parallel_residual=row.flag("parallel_residual"),
    )


@cache
def model_shape(name: str) -> ModelShape:
    """The shape of a model by its Hugging Face name; InputError with the nearest names."""
    return _from_row(find(TABLE, "model", name))


def model_names() -> tuple[str, ...]:
    """Every model of the table, in its order."""
    return tuple(table(TABLE))
