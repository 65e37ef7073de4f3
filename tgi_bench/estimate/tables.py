"""The YAML tables of accelerators and models that lie beside this file, as values."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files

from tgi_bench.errors import InputError

Scalar = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row of a table, read by key and type.

    A value of another type is a defect of the package's own table: TypeError that names it.
    """

    name: str
    values: dict[str, Scalar]

    def integer(self, key: str, default: int | None = None) -> int:
        """An integer; `default` where the row has no such key."""
        value = self.values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{self.name}: {key} is {value!r}, not an integer")
        return value

    def number(self, key: str) -> float | None:
        """A number; None where it is null or the row has no such key."""
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"{self.name}: {key} is {value!r}, not a number")
        return float(value)

    def required_number(self, key: str) -> float:
        """A number that every row has."""
        value = self.number(key)
        if value is None:
            raise TypeError(f"{self.name}: {key} is missing")
        return value

    def flag(self, key: str) -> bool:
        """A boolean; False where the row has no such key."""
        value = self.values.get(key, False)
        if not isinstance(value, bool):
            raise TypeError(f"{self.name}: {key} is {value!r}, not a boolean")
        return value

    def text(self, key: str) -> str:
        """A string that every row has."""
        value = self.values.get(key)
        if not isinstance(value, str):
            raise TypeError(f"{self.name}: {key} is {value!r}, not a string")
        return value


@cache
def table(file: str) -> dict[str, TableRow]:
    """Rows of a YAML table that lies beside this file, by name, in the file's order."""
    # Imported here: `tgi-bench --help` never reads a table.
    import yaml

    # The C loader reads the tables in a tenth of the time; PyYAML may be built without it.
    loader = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
    text = files(__package__).joinpath(file).read_text(encoding="utf-8")
    rows: dict[str, dict[str, Scalar]] = yaml.load(text, Loader=loader)
    return {name: TableRow(name, values) for name, values in rows.items()}


def find(file: str, kind: str, name: str) -> TableRow:
    """The row of that name; InputError with the nearest names and all of them."""
    rows = table(file)
    if name in rows:
        return rows[name]
    by_lower = {known.lower(): known for known in rows}
    close = get_close_matches(name.lower(), by_lower, n=3, cutoff=0.5)
    # "A100" is part of two rows, though A10 is more alike by its letters.
    parts = [key for key in by_lower if name and name.lower() in key]
    near = [by_lower[key] for key in dict.fromkeys((*parts, *close))][:3]
    hint = f"nearest: {', '.join(near)}; " if near else ""
    raise InputError(f"unknown {kind} {name!r}; {hint}known: {', '.join(rows)}")


ACCELERATORS = "accelerators.yaml"
GIB = 2**30

DRIVER_RESERVED_BYTES = 0.6 * GIB
"""Memory that driver and firmware keep from every process.

A 40 GB A100 offers 39.4 of its 40 GiB, an 80 GB A100 about 79.3 of 80 (85.1e9 bytes).
"""

INLINE_ECC_SHARE = 1 / 16
"""Share of GDDR memory that holds the error correction bits where `inline_ecc` is true."""


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One device. Rates are data sheet peaks, dense.

    flop_per_s: of fp16 and bfloat16 tensor cores; fp32_flop_per_s: without TF32.
    int8_op_per_s, tf32_flop_per_s: None where the device or the source has none.
    usable_bytes: memory a process can allocate.
    nvlink_bytes_per_s, pcie_bytes_per_s: one direction; nvlink 0 where there is none.
    nvlink_devices: devices in one NVLink domain; 1 where there is none.
    """

    name: str
    flop_per_s: float
    fp32_flop_per_s: float
    tf32_flop_per_s: float | None
    int8_op_per_s: float | None
    bfloat16: bool
    bytes_per_s: float
    usable_bytes: int
    tdp_w: float
    nvlink_bytes_per_s: float
    nvlink_devices: int
    pcie_bytes_per_s: float


def _tera(value: float | None) -> float | None:
    return None if value is None else value * 1e12


def _usable_bytes(nameplate_gib: float, inline_ecc: bool) -> int:
    share = 1 - INLINE_ECC_SHARE if inline_ecc else 1.0
    return int(nameplate_gib * GIB * share - DRIVER_RESERVED_BYTES)


def _accelerator(row: TableRow) -> Accelerator:
    return Accelerator(
        name=row.name,
        flop_per_s=row.required_number("fp16_flop_per_s_tera") * 1e12,
        fp32_flop_per_s=row.required_number("fp32_flop_per_s_tera") * 1e12,
        tf32_flop_per_s=_tera(row.number("tf32_flop_per_s_tera")),
        int8_op_per_s=_tera(row.number("int8_op_per_s_tera")),
        bfloat16=row.flag("bfloat16"),
        bytes_per_s=row.required_number("memory_bandwidth_gb_per_s") * 1e9,
        usable_bytes=_usable_bytes(
            row.required_number("memory_nameplate_gib"), row.flag("inline_ecc")
        ),
        tdp_w=row.required_number("tdp_w"),
        # The table has both directions summed; a ring step sends in one.
        nvlink_bytes_per_s=row.required_number("nvlink_total_gb_per_s") * 1e9 / 2,
        nvlink_devices=row.integer("nvlink_devices", 1),
        pcie_bytes_per_s=row.required_number("pcie_gb_per_s") * 1e9,
    )


@cache
def accelerator(name: str) -> Accelerator:
    """The device of that name; InputError with the nearest names and all of them."""
    return _accelerator(find(ACCELERATORS, "accelerator", name))


def accelerator_names() -> tuple[str, ...]:
    """Every accelerator of the table, in its order."""
    return tuple(table(ACCELERATORS))


MODELS = "models.yaml"


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
    gated_mlp: bool = False
    tied: bool = False
    norm: str = "layernorm"
    norms: int = 2
    bias: bool = False
    experts: int = 1
    experts_per_token: int = 1
    pos_rows: int = 0
    extra: int = 0
    positional: str = "rotary"
    padded: bool = False
    parallel_residual: bool = False


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


def _model_shape(row: TableRow) -> ModelShape:
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
    return _model_shape(find(MODELS, "model", name))


def model_names() -> tuple[str, ...]:
    """Every model of the table, in its order."""
    return tuple(table(MODELS))
