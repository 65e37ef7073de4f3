"""The launcher's arguments: by version, checked, written, read, printed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tgi_bench.engines.argument_values import check, command_line, parse_command_line
from tgi_bench.engines.arguments import Kind, arguments_of
from tgi_bench.engines.printed import args_message, debug_form
from tgi_bench.engines.versions import NEWEST, parse_version, version_of_image
from tgi_bench.errors import InputError
from tgi_bench.plan.plan import ArgumentValue

VERSIONS = ("0.8.2", "0.9.0", "0.9.4", "1.0.3", "1.4.5", "2.0.4", "2.2.0", "2.4.1", NEWEST)

# The first log line of the published report of bloomz-7b1-mt (TGI 0.8.x), in its order.
PUBLISHED = """
model_id: "bigscience/bloomz-7b1-mt"
revision: None
sharded: None
num_shard: Some(1)
quantize: None
trust_remote_code: false
max_concurrent_requests: 128
max_best_of: 2
max_stop_sequences: 4
max_input_length: 1000
max_total_tokens: 1512
max_batch_size: None
waiting_served_ratio: 1.2
max_batch_total_tokens: 32000
max_waiting_tokens: 20
port: 8080
shard_uds_path: "/tmp/text-generation-server"
master_addr: "localhost"
master_port: 29500
huggingface_hub_cache: None
weights_cache_override: None
disable_custom_kernels: false
json_output: false
otlp_endpoint: None
cors_allow_origin: []
watermark_gamma: None
watermark_delta: None
env: false
""".strip().splitlines()


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("ghcr.io/huggingface/text-generation-inference:0.9.4", "0.9.4"),
        ("ghcr.io/huggingface/text-generation-inference:3.3.5-rocm", "3.3.5"),
        ("localhost:5000/tgi:1.4.5", "1.4.5"),
        ("tgi:v2.0.4@sha256:0123", "2.0.4"),
        ("localhost:5000/tgi", None),
        ("tgi", None),
        ("tgi:latest", None),
        ("tgi:sha-1a2b3c4", None),
        ("tgi@sha256:0123", None),
        ("tgi:3.3", None),
        ("tgi:3.3.5.1", None),
    ],
)
def test_version_of_image(image: str, version: str | None) -> None:
    assert version_of_image(image) == version


def test_versions_compare_as_numbers() -> None:
    assert parse_version("v0.10.0") > parse_version("0.9.4")
    assert str(parse_version("v0.9.4")) == "0.9.4"


@pytest.mark.parametrize("text", ["", "latest", "0.9", "1.2.3.4", "0.9.x", "\u0660.9.4", "0.7.0"])
def test_a_version_that_cannot_be_driven_is_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_version(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "version", "default"),
    [
        ("max_input_length", "0.8.2", 1000),
        ("max_input_length", "0.9.4", 1024),
        ("max_input_length", "2.0.0", None),
        ("max_total_tokens", "0.8.2", 1512),
        ("max_total_tokens", "1.4.5", 2048),
        ("max_batch_total_tokens", "0.8.2", 32000),
        ("max_batch_total_tokens", "0.9.3", 16000),
        ("max_batch_total_tokens", "0.9.4", None),
        ("max_batch_prefill_tokens", "1.4.5", 4096),
        ("max_batch_prefill_tokens", "2.0.0", None),
        ("waiting_served_ratio", "2.0.1", 1.2),
        ("waiting_served_ratio", "2.0.2", 0.3),
        ("prometheus_port", "3.3.0", 9000),
        ("usage_stats", "2.3.0", "on"),
        ("cors_allow_origin", "0.8.0", ()),
    ],
)
def test_defaults_by_version(name: str, version: str, default: object) -> None:
    (spec,) = (spec for spec in arguments_of(version) if spec.name == name)
    assert spec.default == default
    assert type(spec.default) is type(default)


@pytest.mark.parametrize("version", VERSIONS)
def test_names_flags_and_variables_are_distinct(version: str) -> None:
    specs = arguments_of(version)
    assert len({spec.name for spec in specs}) == len(specs)
    shorts = [spec.short for spec in specs if spec.short]
    assert len(set(shorts)) == len(shorts)
    assert all((spec.kind is Kind.CHOICE) == bool(spec.choices) for spec in specs)


def test_a_newer_version_has_the_newest_known_arguments() -> None:
    assert arguments_of("4.0.0") == arguments_of(NEWEST)


@pytest.mark.parametrize(
    ("version", "arguments", "messages"),
    [
        ("0.9.4", [("num_shard", 4), ("quantize", None), ("sharded", True)], []),
        ("0.9.4", [("waiting_served_ratio", 2)], []),
        (NEWEST, [("cuda_graphs", "1,2,4")], []),
        (NEWEST, [("cuda_graphs", 0)], []),
        ("1.4.5", [("dtype", "bfloat16"), ("quantize", "bitsandbytes-nf4")], []),
        (
            "0.9.4",
            [("max_input_lenght", 1)],
            [
                "max_input_lenght: is no argument of text-generation-launcher 0.9.4; "
                "did you mean `max_input_length`?"
            ],
        ),
        (
            "0.9.4",
            [("kv_cache_dtype", "fp8_e5m2")],
            [
                "kv_cache_dtype: is an argument of text-generation-launcher from 2.4.0 on, "
                "not of 0.9.4"
            ],
        ),
        (
            "0.9.4",
            [("max_batch_size", 4)],
            [
                "max_batch_size: is an argument of text-generation-launcher from 0.8.0 to 0.8.2 "
                "and from 1.4.1 on, not of 0.9.4"
            ],
        ),
        (
            NEWEST,
            [("disable_usage_stats", True)],
            [
                "disable_usage_stats: is an argument of text-generation-launcher of 2.2.0 only, "
                "not of 3.3.7"
            ],
        ),
        (
            "0.9.4",
            [("quantize", "bitsandbites")],
            [
                "quantize: the string `bitsandbites` is not allowed in text-generation-launcher "
                "0.9.4; allowed: null, bitsandbytes, gptq; did you mean `bitsandbytes`?"
            ],
        ),
        (
            "0.9.4",
            [("quantize", "awq")],
            [
                "quantize: the string `awq` is not allowed in text-generation-launcher 0.9.4; "
                "allowed: null, bitsandbytes, gptq; `awq` came with 1.1.0"
            ],
        ),
        ("0.9.4", [("num_shard", 0)], ["num_shard: must be at least 1, not 0"]),
        ("0.9.4", [("port", 65536)], ["port: must be at most 65535, not 65536"]),
        ("0.9.4", [("num_shard", True)], ["num_shard: must be an integer, not `true`"]),
        ("0.9.4", [("num_shard", "4")], ["num_shard: must be an integer, not the string `4`"]),
        ("0.9.4", [("json_output", 1)], ["json_output: must be true or false, not `1`"]),
        ("0.9.4", [("hostname", 1)], ["hostname: must be a string, not `1`"]),
        ("0.9.4", [("rope_factor", 1.0)], None),
        (
            NEWEST,
            [("rope_factor", 1e39)],
            ["rope_factor: must be a number, not `1e+39`"],
        ),
        (
            NEWEST,
            [("cuda_graphs", "1,x")],
            ["cuda_graphs: must be integers joined by commas, not the string `1,x`"],
        ),
        (
            NEWEST,
            [("max_input_length", 10), ("max_input_tokens", 10)],
            ["max_input_length: is the old name of `max_input_tokens`: give one of the two"],
        ),
        (
            "0.9.4",
            [("max_input_length", 2048), ("max_batch_prefill_tokens", 4096)],
            ["max_input_length: must be less than `max_total_tokens` (2048), not 2048"],
        ),
        (
            "1.4.5",
            [("max_input_length", 8000), ("max_total_tokens", 9000)],
            [
                "max_batch_prefill_tokens: must be at least `max_input_length` (8000), not 4096",
            ],
        ),
        (
            "0.9.4",
            [("max_batch_total_tokens", 3000)],
            [
                "max_batch_total_tokens: must be at least `max_batch_prefill_tokens` (4096), "
                "not 3000"
            ],
        ),
        (
            "0.9.4",
            [("dtype", "float16"), ("quantize", "bitsandbytes")],
            ["dtype: cannot be given with `quantize`: give one of the two"],
        ),
        (
            NEWEST,
            [("dtype", "float16"), ("quantize", "gptq")],
            ["dtype: cannot be given with `quantize` gptq, only with bitsandbytes'"],
        ),
        (
            NEWEST,
            [("quantize", "exl2"), ("num_shard", 2)],
            ["num_shard: must be 1 with `quantize` exl2, not 2"],
        ),
        (
            "0.9.4",
            [("sharded", True), ("num_shard", 1)],
            ["sharded: cannot be true where `num_shard` is 1"],
        ),
        (
            "0.9.4",
            [("ngrok", True), ("ngrok_edge", "e")],
            ["ngrok_authtoken: must be given with `ngrok`"],
        ),
    ],
)
def test_check(
    version: str, arguments: list[tuple[str, ArgumentValue]], messages: list[str] | None
) -> None:
    found = [f"{p.key_path}: {p.message}" for p in check(version, arguments)]
    if messages is None:
        assert len(found) == 1
    else:
        assert found == messages


def test_command_line() -> None:
    arguments: list[tuple[str, ArgumentValue]] = [
        ("num_shard", 2),
        ("quantize", None),
        ("sharded", True),
        ("json_output", True),
        ("disable_custom_kernels", False),
        ("cuda_graphs", "1,2"),
        ("cors_allow_origin", "a,b"),
        ("watermark_delta", -0.5),
    ]
    assert command_line(NEWEST, "org/model", arguments) == (
        "--model-id",
        "org/model",
        "--num-shard",
        "2",
        "--sharded",
        "true",
        "--json-output",
        "--cuda-graphs",
        "1,2",
        "--cors-allow-origin",
        "a",
        "--cors-allow-origin",
        "b",
        "--watermark-delta=-0.5",
    )


def test_a_flag_beats_its_variable_beats_the_default() -> None:
    environ = {"NUM_SHARD": "4", "PORT": "80", "JSON_OUTPUT": "false", "ENV": "nonsense"}
    settings = parse_command_line("0.9.4", ["--num-shard=2", "-e"], environ)
    assert settings.value("num_shard") == 2
    assert settings.value("port") == 80
    assert settings.value("json_output") is False
    assert settings.value("env") is True
    assert settings.value("max_input_length") == 1024
    with pytest.raises(KeyError):
        settings.value("kv_cache_dtype")


@pytest.mark.parametrize("words", [["-p", "81"], ["-p81"], ["-p=81"], ["--port", "81"]])
def test_forms_of_a_flag(words: list[str]) -> None:
    assert parse_command_line(NEWEST, words, {}).value("port") == 81


@pytest.mark.parametrize(
    ("argv", "environ", "message"),
    [
        (["--num-shards", "2"], {}, "did you mean `--num-shard`?"),
        (["--kv-cache-dtype", "fp8_e5m2"], {}, "is no argument"),
        (["model"], {}, "`model` is no argument"),
        (["--port"], {}, "needs a value"),
        (["--port", "--json-output"], {}, "needs a value"),
        (["--port", "x"], {}, "at least 0, not `x`"),
        (["--port", ""], {}, "must be an integer"),
        (["--port", "1", "-p2"], {}, "is given twice"),
        (["--json-output=true"], {}, "takes no value"),
        (["--sharded", "True"], {}, "`true` or `false` in lower case"),
        (["--quantize", "gptk"], {}, "did you mean `gptq`?"),
        (["--cuda-memory-fraction", "nan"], {}, "finite"),
        (["--cuda-memory-fraction", "much"], {}, "must be a number"),
        (["--max-input-length", "4000"], {}, "must be less than `max_total_tokens` (2048)"),
        ([], {"JSON_OUTPUT": "True"}, "variable JSON_OUTPUT must be `true` or `false`"),
        ([], {"NUM_SHARD": ""}, "variable NUM_SHARD must be an integer"),
    ],
)
def test_a_bad_command_line_is_one_sentence(
    argv: list[str], environ: dict[str, str], message: str
) -> None:
    with pytest.raises(InputError) as caught:
        parse_command_line("0.9.4", argv, environ)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_debug_form_is_the_published_one() -> None:
    argv = ["--model-id", "bigscience/bloomz-7b1-mt", "--num-shard", "1", "--port", "8080"]
    settings = parse_command_line("0.8.2", argv, {})
    assert [f"{n}: {text}" for n, text in debug_form("0.8.2", settings)] == PUBLISHED
    assert args_message("0.8.2", settings) == f"Args {{ {', '.join(PUBLISHED)} }}"


def test_the_message_is_indented_from_2_0_2_on() -> None:
    argv = ["--model-id", "m", "--num-shard", "4", "--cuda-graphs", "1,2", "--quantize"]
    settings = parse_command_line(NEWEST, [*argv, "bitsandbytes-nf4"], {})
    message = args_message(NEWEST, settings)
    assert message.startswith('Args {\n    model_id: "m",\n    revision: None,\n')
    assert "\n    num_shard: Some(\n        4,\n    ),\n" in message
    assert "\n    quantize: Some(\n        BitsandbytesNf4,\n    ),\n" in message
    assert (
        "\n    cuda_graphs: Some(\n        [\n            1,\n            2,\n        ],\n"
        in message
    )
    assert "\n    cors_allow_origin: [],\n" in message
    assert message.endswith("\n    graceful_termination_timeout: 90,\n}")
    older = parse_command_line("2.0.1", [], {})
    assert "\n" not in args_message("2.0.1", older)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("0.95", "0.95"),
        ("1", "1.0"),
        ("0.123456789123", "0.12345679"),
        ("16777216", "16777216.0"),
        ("0.00001", "1e-5"),
        ("0.0000001", "1e-7"),
        ("1e16", "1e16"),
        ("0", "0.0"),
    ],
)
def test_floats_print_as_32_bit_ones(text: str, printed: str) -> None:
    settings = parse_command_line(NEWEST, ["--watermark-gamma", text], {})
    assert dict(debug_form(NEWEST, settings))["watermark_gamma"] == f"Some({printed})"


def test_strings_are_escaped() -> None:
    settings = parse_command_line("0.9.4", ["--revision", 'a"b\\c\n'], {})
    assert dict(debug_form("0.9.4", settings))["revision"] == 'Some("a\\"b\\\\c\\n")'


def _values(kind: Kind, choices: list[str], maximum: int) -> st.SearchStrategy[ArgumentValue]:
    match kind:
        case Kind.TEXT:
            return st.text(min_size=1, alphabet=st.characters(codec="ascii"))
        case Kind.TEXTS:
            return st.lists(st.text("abc:/.", min_size=1), min_size=1).map(",".join)
        case Kind.INTEGER:
            return st.integers(1, maximum)
        case Kind.FLOAT:
            return st.floats(-1e30, 1e30)
        case Kind.FLAG | Kind.BOOLEAN:
            return st.booleans()
        case Kind.INTEGERS:
            return st.lists(st.integers(0, 999), min_size=1).map(lambda n: ",".join(map(str, n)))
        case Kind.CHOICE:
            return st.sampled_from(choices)


@given(st.data())
def test_what_is_written_is_read_back(data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(VERSIONS))
    specs = [spec for spec in arguments_of(version) if spec.name != "model_id"]
    spec = data.draw(st.sampled_from(specs))
    value = data.draw(_values(spec.kind, [c.value for c in spec.choices], spec.maximum))
    if check(version, [(spec.name, value)]):
        return  # A rule between arguments, such as a max_input_length above the default total.
    argv = command_line(version, "m", [(spec.name, value)])
    read = parse_command_line(version, argv, {}).value(spec.name)
    if isinstance(read, tuple):
        assert ",".join(map(str, read)) == value
    else:
        assert read == value
