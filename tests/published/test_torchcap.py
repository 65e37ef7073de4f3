"""TorchCAP's slips are found by the figures, corrected, and said."""

from __future__ import annotations

import pytest

from tests.published.tables import APRIL_10, APRIL_13, table_of, text_of
from tgi_bench.errors import TableError
from tgi_bench.observation import FigureKind, PublishedEntry, PublishedMetric, PublishedValue
from tgi_bench.published.command import read_table

MEASURED, ESTIMATED = FigureKind.MEASURED, FigureKind.ESTIMATED
FORWARD, MEMORY = PublishedMetric.FORWARD_MS, PublishedMetric.MEMORY_GIB
ENERGY, RATE = PublishedMetric.ENERGY_J_PER_TOKEN, PublishedMetric.PROMPT_TOKENS_PER_S
OPT, A5000 = "facebook/opt-1.3b", "NVIDIA RTX A5000"


def _entry(text: str, entry_id: str) -> PublishedEntry:
    (entry,) = [e for e in table_of(text).entries if e.entry_id == entry_id]
    return entry


def _value(entry: PublishedEntry, metric: PublishedMetric, kind: FigureKind) -> PublishedValue:
    (value,) = [v for v in entry.values if (v.metric, v.kind) == (metric, kind)]
    return value


def _facts(text: str) -> dict[str, str]:
    return dict(table_of(text).facts)


def test_swapped_headers_are_told_by_the_error_column() -> None:
    early, late = text_of(APRIL_10), text_of(APRIL_13)
    for text in (early, late):
        entry = _entry(text, f"{OPT}/{A5000}")
        assert entry.value(FORWARD, MEASURED) == 693.77
        assert entry.value(FORWARD, ESTIMATED) == 740.79
        assert entry.value(MEMORY, MEASURED) == 5.53
    assert "swapped" in _facts(early)["Corrected: headers"]
    assert "Corrected: headers" not in _facts(late)
    # The later table's headers turned round are found too.
    turned = late.replace("Measured", "X" * 8).replace("Estimated", "Measured")
    assert _entry(turned.replace("X" * 8, "Estimated"), f"{OPT}/{A5000}").value(FORWARD) == 693.77


def test_both_tables_agree_where_both_have_figures() -> None:
    early = {e.entry_id: e for e in table_of(text_of(APRIL_10)).entries}
    late = {e.entry_id: e for e in table_of(text_of(APRIL_13)).entries}
    both = [name for name, entry in early.items() if entry.values]
    assert len(both) == 8
    for name in both:
        for metric in (FORWARD, MEMORY):
            for kind in FigureKind:
                assert early[name].value(metric, kind) == late[name].value(metric, kind)


def test_throughput_is_tokens_per_second() -> None:
    value = _value(_entry(text_of(APRIL_13), f"{OPT}/{A5000}"), RATE, MEASURED)
    # 16 x 1024 tokens / 0.69377 s
    assert value.value == 23615.9
    assert value.printed == "42.34"
    assert "microseconds per token" in value.reason


@pytest.mark.parametrize(
    ("entry_id", "joules", "printed", "said"),
    [
        # 230 W x 0.69377 s / 16384
        (f"{OPT}/{A5000}", 0.0097392, "0.010", "230 W"),
        # 300 W x 0.51096 s / 16384
        (f"{OPT}/NVIDIA RTX A6000", 0.0093560, "0.009", "300 W"),
        # 8 x 230 W x 1.31108 s / 16384
        (f"{OPT}/{A5000} x 8", 0.1472404, "0.018", "here of all 8"),
        # 8 x 230 W x 0.24571 s / 16384; printed with 300 W
        (f"AICrossSim/clm-200m/{A5000} x 8", 0.0275944, "0.004", "another accelerator's power"),
    ],
)
def test_energy_is_that_of_all_devices(
    entry_id: str, joules: float, printed: str, said: str
) -> None:
    value = _value(_entry(text_of(APRIL_13), entry_id), ENERGY, MEASURED)
    assert value.value == joules
    assert value.printed == printed
    assert said in value.reason
    assert value.reason.startswith("not measured")


def test_wrong_power_is_found_in_three_rows() -> None:
    rows = _facts(text_of(APRIL_13))["Corrected: power"]
    assert [model in rows for model in ("60m", "200m", "400m", "1.1b")] == [False, True, True, True]
    assert "A6000" not in rows


def test_a_mistyped_figure_is_that_of_its_twin() -> None:
    value = _value(_entry(text_of(APRIL_13), f"AICrossSim/clm-60m/{A5000} x 8"), MEMORY, ESTIMATED)
    assert (value.value, value.printed) == (7.61, "7.68")
    assert value.reason == ("mistyped: its Error and the same model on NVIDIA RTX A6000 say 7.61")


def test_a_mistyped_figure_without_a_twin_is_left_in_doubt() -> None:
    text = text_of(APRIL_10).replace("3300.85", "3900.85")
    value = _value(_entry(text, f"facebook/opt-6.7b/{A5000}"), FORWARD, ESTIMATED)
    assert value.value == 3900.85
    assert value.reason.endswith("; its Error 0.77% is not that of the two figures")
    assert value.reason.startswith("the headers Estimated and Measured are swapped")
    # The throughput in its row is of the runtime, so there the figures contradict each other.
    with pytest.raises(TableError, match=r"line \d+: throughput 129\.48 is neither"):
        read_table(text_of(APRIL_13).replace("2121.35", "2721.35"))


def test_workload_names_and_doubts() -> None:
    entry = _entry(text_of(APRIL_13), f"AICrossSim/clm-60m/{A5000} x 8")
    assert (entry.dtype, entry.batch_size, entry.prompt_tokens, entry.new_tokens) == (
        *("float16", 16, 1024),
        0,
    )
    assert entry.devices == 8
    assert "fit 2" in entry.doubts[0]
    assert _entry(text_of(APRIL_13), f"{OPT}/{A5000} x 8").doubts == ()
    assert "small L" in _facts(text_of(APRIL_13))["Corrected: model names"]
    assert "GiB" in _facts(text_of(APRIL_13))["Corrected: memory"]
    assert "Doubtful: input size" in _facts(text_of(APRIL_10))
    assert "Doubtful: input size" not in _facts(text_of(APRIL_13))


def test_rows_without_figures_are_kept() -> None:
    entry = _entry(text_of(APRIL_10), f"AICrossSim/clm-60m/{A5000} x 8")
    assert (entry.end, entry.values) == (None, ())


def test_the_input_size_is_read() -> None:
    text = text_of(APRIL_10).replace("Benchmark", r"Input Sequence Size = :math:`8 \times 512`")
    entry = _entry(text, f"{OPT}/{A5000}")
    assert (entry.batch_size, entry.prompt_tokens) == (8, 512)


def _as_markdown(text: str) -> str:
    """The published layout with its two header rows, as Markdown would hold it."""
    lines = []
    for line in text.splitlines():
        if line.startswith("| Model"):
            groups = [c.strip() for c in line.strip("|").split("|")[2:] if c.strip()]
            lines.append(f"| Model | Device | {' | | | '.join(groups)} | | |")
            lines.append("|" + "---|" * (2 + 3 * len(groups)))
        elif not line.startswith("+"):
            lines.append(line)
    return "\n".join(lines)


@pytest.mark.parametrize("name", [APRIL_10, APRIL_13])
def test_the_published_layout_in_markdown(name: str) -> None:
    markdown = _as_markdown(text_of(name))
    assert "+--" not in markdown
    assert table_of(markdown) == table_of(text_of(name))


ROW = "| m | d | 1.00 | 2.00 | {} |\n"
HEAD = "| Model | Device | {} | | |\n|-|-|-|-|-|\n| | | {} | {} | Error |\n"
PLAIN = HEAD.format("Runtime (ms)", "Measured", "Estimated")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PLAIN, "no figures found"),
        (PLAIN + ROW.format("7%"), "line 4: expected an error such as `6.35%`, found `7%`"),
        (PLAIN + ROW.format("7.00%"), "line 4: the errors of Runtime are"),
        (PLAIN + ROW.format(""), "no runtime has an Error"),
        (PLAIN + ROW.format("50.00%") * 2, "line 5: a second row of m/d"),
        (PLAIN + "| m | d | 1.00 | 0.00 | 1.00% |\n", "expected a figure above 0, found `0.00`"),
        (PLAIN + "| m | d | 1.00 | | 1.00% |\n", "an error of Runtime without both"),
        (PLAIN + "| m |  | 1.00 | 2.00 | 50.00% |\n", "expected a model and a device"),
        (PLAIN + "| m | d | 1.00 |\n", "line 4: expected 5 cells, found 3"),
        (HEAD.format("Runtime (s)", "Measured", "Estimated"), "expected columns Model and Device"),
        (HEAD.format("Time (ms)", "Measured", "Estimated"), "expected columns Model and Device"),
        (HEAD.format("Runtime (ms)", "Measured", "Measured"), "expected columns Model and Device"),
        ("| Model | Device | Size |\n|-|-|-|\n| m | d | 1 |\n", "expected columns Model and"),
        ("+---+---+\n| Model | Device |\n+---+---+\n", "expected a grid table"),
        ("Input Sequence Size = 0 x 5\n\n" + PLAIN + ROW.format("50.00%"), "Size above 0"),
    ],
)
def test_what_does_not_parse_says_where_and_what(text: str, message: str) -> None:
    with pytest.raises(TableError) as error:
        read_table(text)
    assert message in str(error.value)


def test_throughput_that_is_neither_is_refused() -> None:
    with pytest.raises(TableError, match=r"throughput 42\.99 is neither the 23615\.9 tokens/s"):
        read_table(text_of(APRIL_13).replace("42.34", "42.99"))


def test_throughput_that_is_right_is_kept() -> None:
    value = _value(
        _entry(text_of(APRIL_13).replace("42.34", "23615.90"), f"{OPT}/{A5000}"), RATE, MEASURED
    )
    assert (value.value, value.reason) == (23615.9, "")


def test_energy_of_an_unknown_accelerator_is_left_as_printed() -> None:
    text = text_of(APRIL_13).replace("RTX A5000", "RTX Z9999")
    value = _value(_entry(text, f"{OPT}/NVIDIA RTX Z9999 x 8"), ENERGY, MEASURED)
    assert value.value == 0.018
    assert "power that is not known" in value.reason
    odd = text_of(APRIL_13).replace("0.018", "0.118")
    value = _value(_entry(odd, f"{OPT}/{A5000} x 8"), ENERGY, MEASURED)
    assert (value.value, value.reason[:17]) == (0.118, "not the rated pow")
