from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.launch.deployments import embedded
from tests.report.example import PUBLISHED, imported_run, published_run
from tests.report.made import documents
from tgi_bench.errors import TableError
from tgi_bench.kinds.sections import WRITTEN_BY
from tgi_bench.observation import Outcome
from tgi_bench.plan.plan import ArgumentValue
from tgi_bench.published.tgi import PublishedBlock, parse
from tgi_bench.published.tgi_run import to_run_parts, value_of

TEXT = PUBLISHED.read_text(encoding="utf-8")
HEAD = "| Step | Batch Size | Average | Lowest | Highest | p50 | p90 | p99 |\n|-|-|-|-|-|-|-|-|\n"
RATES = "| Step | Batch Size | Average | Lowest | Highest |\n|-|-|-|-|-|\n"
PLACE = "# Tensor Parallel (TP) - 2 GPUs\n## Sequence Length 10\n"
PARAMETERS = (
    "# Experiment Generation Arguments\n| Parameter | Value |\n|-|-|\n| Model | gpt2 |\n"
    "| Decode Length | 8 |\n| N Runs | 10 |\n| Warmups | 1 |\n"
)


def _row(step: str, batch: str = "1", cell: str = "1.00 ms") -> str:
    return f"| {step} | {batch} |" + f" {cell} |" * 6 + "\n"


def _three(batch: str = "1", cell: str = "1.00 ms") -> str:
    steps = ("Prefill", "Decode (token)", "Decode (total)")
    return "".join(_row(step, batch, cell) for step in steps)


def _block(num_shard: int, length: int, quantize: str | None = None) -> PublishedBlock:
    (block,) = [
        b
        for b in parse(TEXT).blocks
        if (b.num_shard, b.sequence_length, b.quantize) == (num_shard, length, quantize)
    ]
    return block


def test_the_published_file_has_its_blocks() -> None:
    report = parse(TEXT)
    assert [
        (b.num_shard, b.sequence_length, b.quantize, b.quantize_said) for b in report.blocks
    ] == [
        (1, 1024, None, False),
        (2, 1024, None, False),
        (4, 1024, None, False),
        (8, 1024, None, False),
        (8, 100, None, True),
        (8, 100, "bitsandbytes", True),
    ]
    assert len(report.arguments) == 26
    assert len(report.parameters) == 12


def test_the_published_file_has_its_counts() -> None:
    """Counts of origins: 9 latency rows print NaN, 6 blank ones repeat it, 93 hold figures."""
    rows = [r for b in parse(TEXT).blocks for r in b.latency]
    rates = [r for b in parse(TEXT).blocks for r in b.throughput]
    lines = TEXT.splitlines()
    nan = [r for r in rows if r.cells == ("NaN",) * 6]
    assert len(nan) == 15
    assert len([r for r in nan if "NaN" in lines[r.line - 1]]) == 9
    assert len(rows) - len(nan) == 93
    assert len([r for r in rates if r.cells != ("NaN",) * 3]) == 62
    figures = [[c for c in r.cells if isinstance(c, float)] for r in rows if r not in nan]
    assert len([f for f in figures if f[4] == f[5]]) == 93
    # 19 rows print p90 below p50; the one with merged blanks is the twentieth
    below = [
        r for r, f in zip([r for r in rows if r not in nan], figures, strict=True) if f[4] < f[3]
    ]
    assert len(below) == 20
    assert len([r for r in below if "|           |" not in lines[r.line - 1]]) == 19


def test_blanks_are_those_of_the_row_above() -> None:
    rows = {(r.step, r.batch_size): r for r in _block(8, 100).latency}
    assert rows["Decode (token)", 4].cells == (19.70, 18.09, 23.20, 18.89, 18.68, 18.68)
    assert {r.step for r in _block(2, 1024).throughput if r.batch_size == 32} == {
        "Prefill",
        "Decode",
    }


def test_the_published_file_as_a_run() -> None:
    plan, found = to_run_parts(parse(TEXT), "tables/tgi_bloomz-7b1-mt.md")
    assert (plan.experiment, plan.model) == ("tgi_bloomz-7b1-mt", "bigscience/bloomz-7b1-mt")
    assert [d.deployment_id for d in plan.deployments] == [
        "num_shard-1+quantize-none",
        "num_shard-2+quantize-none",
        "num_shard-4+quantize-none",
        "num_shard-8+quantize-none",
        "num_shard-8+quantize-bitsandbytes",
    ]
    first = plan.deployments[0]
    assert (first.tgi_version, first.version_assumed) == ("0.8.2", True)
    assert first.argument("max_total_tokens") == 1512
    assert first.argument("waiting_served_ratio") == 1.2
    assert len(plan.trials) == 36
    outcomes = [end.outcome for end, _ in found.values()]
    assert (outcomes.count(Outcome.OK), outcomes.count(Outcome.OUT_OF_MEMORY)) == (31, 5)
    end, (prefill, token, total) = found["num_shard-1+quantize-none/s1024-d8-b1"]
    assert end.reason == ""
    assert (prefill.mean_ns, prefill.p90_ns) == (139_820_000, 140_600_000)
    # 7.15 sequences/s of 1024 prompt tokens each
    assert prefill.mean_tokens_per_s == pytest.approx(7.15 * 1024)
    assert (token.mean_ns, token.mean_tokens_per_s) == (28_750_000, None)
    assert total.mean_tokens_per_s == 34.78
    assert "inferred" in found["num_shard-2+quantize-none/s1024-d8-b16"][0].reason
    assert plan == to_run_parts(parse(TEXT), "elsewhere/tgi_bloomz-7b1-mt.md")[0]


def test_a_changed_figure_changes_the_digest() -> None:
    changed = TEXT.replace("139.82 ms", "139.83 ms")
    plans = [to_run_parts(parse(t), "a.md")[0] for t in (TEXT, changed)]
    assert plans[0].digest != plans[1].digest


def test_the_published_percentiles_are_not_believed() -> None:
    failed = {c.name: c for c in published_run().verdict.checks if not c.passed}
    check = failed["percentiles are of sorted samples"]
    assert check.finding.startswith("20 of 93 rows")
    assert check.remedy == "use Average, Lowest and Highest only"


def test_prefill_rates_of_newer_versions_are_tokens_already() -> None:
    latency, rate = _three("4", "100.00 ms"), "| {} | 4 | {} | {} | {} |\n"
    for printed, unit in (
        ("40.00", "tokens/secs"),
        ("400.00", "tokens/secs"),
        ("400.00", "tokens/s"),
    ):
        cell = f"{printed} {unit}"
        rates = RATES + "".join(rate.format(s, cell, cell, cell) for s in ("Prefill", "Decode"))
        text = f"{PARAMETERS}{PLACE}{HEAD}{latency}\n{rates}"
        ((_, (prefill, _, total)),) = to_run_parts(parse(text), "a.md")[1].values()
        # 4 requests x 10 tokens in 0.1 s
        assert prefill.mean_tokens_per_s == pytest.approx(400)
        assert total.mean_tokens_per_s == pytest.approx(float(printed))


def test_definitions_are_of_whoever_wrote_the_tables() -> None:
    theirs = documents(published_run())["report.md"]
    for term in (
        "p50, p90, p99",
        "Decode (token)",
        "Average of a throughput",
        "prefill throughput",
    ):
        assert theirs.count(f"- **{term}**: ") == 1
    assert "elements of a vector that need not be sorted" in theirs
    assert "nearest rank" not in theirs


@pytest.mark.parametrize("written_by", ["tgi-bench", None])
def test_a_run_of_a_page_of_ours_keeps_our_definitions(written_by: str | None) -> None:
    """Such runs were imported once; None: without saying so, as simulated ones were at first."""
    run = published_run()
    if written_by is None:
        servers = tuple(
            replace(
                record,
                deployment=replace(record.deployment, launcher=embedded()),
            )
            for record in run.deployments
        )
        run = replace(run, environment=(), deployments=servers)
    else:
        run = replace(run, environment=((WRITTEN_BY, written_by),))
    for page in documents(run).values():
        definitions = page.partition("# Definitions\n")[2]
        assert "nearest rank on sorted samples" in definitions
        assert "text-generation-benchmark" not in definitions


def test_arguments_print_as_in_the_source() -> None:
    def listed(text: str) -> list[str]:
        section = text.partition("## Constant\n")[2].partition("## Variables")[0]
        return [line for line in section.splitlines() if line.startswith("- ")]

    page = documents(published_run())["num_shard-8.md"]
    assert listed(page) == [line for line in listed(TEXT) if not line.startswith("- quantize")]
    plain = TEXT.partition("### Quantization: bitsandbytes")[0]
    assert listed(documents(imported_run(plain, "a.md"))["num_shard-1.md"]) == listed(TEXT)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: no tables found; expected `# Tensor Parallel"),
        ("\x00\x01 garbage | here", "line 1: no tables found"),
        ("| a | b |\n|---|---|\n| 1 | 2 |\n", "line 1: no tables found"),
        (HEAD + _three(), "line 1: no tables found"),
        (
            "# Tensor Parallel (TP) - 2 GPUs\n" + HEAD + _three(),
            "line 2: expected `## Sequence Length N`",
        ),
        ("# Tensor Parallel (TP) - 0 GPUs\n", "line 1: expected a number above 0"),
        (PLACE + "| Step |\n", "line 3: expected a table: a header"),
        (PLACE + "| Step |\n|-|\n| a |\n", "line 3: expected a table headed `Step | Batch Size"),
        (PLACE + HEAD + "| Prefill | 1 |\n", "line 5: expected 8 cells, found 2"),
        (PLACE + HEAD + _row(""), "line 5: expected a step of Prefill"),
        (PLACE + HEAD + _row("Warm"), "line 5: expected a step of Prefill"),
        (PLACE + HEAD + _row("Prefill", "0"), "line 5: expected a batch size above 0, found `0`"),
        (PLACE + HEAD + _row("Prefill", "x"), "line 5: expected a batch size above 0, found `x`"),
        (PLACE + HEAD + _row("Prefill", "1", ""), "line 5: expected a figure such as `1.25 ms`"),
        (PLACE + HEAD + _row("Prefill", "1", "-1.00 ms"), "found `-1.00 ms`"),
        (PLACE + HEAD + _row("Prefill", "1", "1.00 s"), "found `1.00 s`"),
        (PLACE + HEAD + _row("Prefill", "1", "1.00 tokens/s"), "expected a figure in ms"),
        (PLACE + HEAD + _row("Prefill"), "expected the batch sizes of `Prefill` under"),
        (PLACE + HEAD + _three() + _three(), "a batch size of `Prefill` stands twice"),
        (PLACE + HEAD + _three() + "\n" + HEAD + _three(), "line 9: a second latency table"),
        (PLACE + RATES + "| Prefill | 1 |\n", "expected"),
    ],
)
def test_what_does_not_parse_says_where_and_what(text: str, message: str) -> None:
    with pytest.raises(TableError) as error:
        parse(text)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PLACE + HEAD + _three(), "no model found"),
        (PARAMETERS.replace("| N Runs | 10 |", "| N Runs | 0 |"), "`N Runs`: expected an integer"),
        (PARAMETERS.replace("| Warmups | 1 |\n", ""), "`Warmups`: expected an integer from 0 up"),
        (PARAMETERS + "| Top P | high |\n", "`Top P`: expected a number or None"),
        (PARAMETERS + "| Do Sample | 1 |\n", "`Do Sample`: expected true or false"),
        (PARAMETERS + "| TGI Version | 0.6.0 |\n", "`TGI Version`: TGI 0.6.0 is older"),
    ],
)
def test_parameters_that_do_not_parse(text: str, message: str) -> None:
    whole = text if text.startswith(PLACE) else f"{text}{PLACE}{HEAD}{_three()}"
    with pytest.raises(TableError, match=message):
        to_run_parts(parse(whole), "a.md")


def test_a_row_half_of_words_is_refused() -> None:
    half = "| Prefill | 1 | 1.00 ms | NaN ms | 1.00 ms | - | - | - |\n"
    text = PARAMETERS + PLACE + HEAD + half + _three().partition("\n")[2]
    with pytest.raises(TableError, match="line 12: expected numbers, or none"):
        to_run_parts(parse(text), "a.md")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("None", None),
        ("[]", None),
        ("Some(4)", 4),
        ("1.2", 1.2),
        ("true", True),
        ('Some("a b")', "a b"),
        ("Some(Gptq)", "Gptq"),
    ],
)
def test_value_of(text: str, value: ArgumentValue) -> None:
    assert value_of(text) == value
    assert type(value_of(text)) is type(value)


@given(st.text(alphabet="|-# \nPrefillDecode()tokenTensorP 0123NaNms.OM:", max_size=400))
def test_garbage_is_refused_in_one_way(text: str) -> None:
    with pytest.raises(TableError):
        parse(PLACE + text.replace("Step", ""))


@given(st.integers(0, len(TEXT) - 1), st.integers(1, 40))
def test_a_damaged_file_is_read_or_refused(start: int, length: int) -> None:
    damaged = TEXT[:start] + TEXT[start + length :]
    # Any other exception fails this test.
    with suppress(TableError):
        plan, found = to_run_parts(parse(damaged), "a.md")
        assert set(found) == {t.trial_id for t in plan.trials}
