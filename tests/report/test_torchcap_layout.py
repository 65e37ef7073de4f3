"""Estimated | Measured | Error, by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.published.tables import table_of
from tgi_bench.observation import FigureKind, PublishedMetric
from tgi_bench.report.torchcap_layout import (
    MEMORY,
    RUNTIME,
    Comparison,
    Figures,
    comparison_markdown,
    comparison_rst,
    relative_error,
    shown_quantities,
)

ONE = Comparison("a", "GPU", 1, Figures(110.0, 5.0), Figures(100.0, None))
TWO = Comparison("b_", "GPU", 2, Figures(None, 4.0), Figures(50.0, 5.0))


@pytest.mark.parametrize(
    ("estimated", "measured", "error"),
    [
        (110.0, 100.0, 0.1),
        (90.0, 100.0, -0.1),
        (100.0, 100.0, 0.0),
        (None, 100.0, None),
        (100.0, None, None),
        (100.0, 0.0, None),
    ],
)
def test_error_is_relative_to_the_measurement(
    estimated: float | None, measured: float | None, error: float | None
) -> None:
    assert relative_error(estimated, measured) == pytest.approx(error)


def test_markdown_by_hand() -> None:
    assert comparison_markdown([ONE, TWO]) == (
        "## Single device\n"
        "\n"
        "| Model | Device | Runtime (ms): Estimated | Runtime (ms): Measured | Runtime: Error |"
        " Memory (GiB): Estimated | Memory (GiB): Measured | Memory: Error |\n"
        "|-------|--------|------------------------:|-----------------------:|---------------:|"
        "------------------------:|-----------------------:|--------------:|\n"
        "| a     | GPU    |                  110.00 |                 100.00 |         10.00% |"
        "                    5.00 |                      - |             - |\n"
        "\n"
        "## Multi device\n"
        "\n"
        "| Model | Device  | Runtime (ms): Estimated | Runtime (ms): Measured | Runtime: Error |"
        " Memory (GiB): Estimated | Memory (GiB): Measured | Memory: Error |\n"
        "|-------|---------|------------------------:|-----------------------:|---------------:|"
        "------------------------:|-----------------------:|--------------:|\n"
        "| b_    | GPU x 2 |                       - |                  50.00 |              - |"
        "                    4.00 |                   5.00 |       -20.00% |\n"
        "\n"
        "Error = (Estimated - Measured) / Measured. Memory is the most that one device held; GiB "
        "is 2^30 bytes.\n"
    )


def test_restructured_text_by_hand() -> None:
    assert comparison_rst([TWO]) == (
        "Multi device\n"
        "------------\n"
        "\n"
        "+-------+---------+------------------------------+--------------------------------+\n"
        "| Model | Device  | Runtime (ms)                 | Memory (GiB)                   |\n"
        "|       |         +-----------+----------+-------+-----------+----------+---------+\n"
        "|       |         | Estimated | Measured | Error | Estimated | Measured |   Error |\n"
        "+=======+=========+===========+==========+=======+===========+==========+=========+\n"
        "| b\\_   | GPU x 2 |        \\- |    50.00 |    \\- |      4.00 |     5.00 | -20.00% |\n"
        "+-------+---------+-----------+----------+-------+-----------+----------+---------+\n"
        "\n"
        "Error = (Estimated - Measured) / Measured. Memory is the most that one device held; GiB "
        "is 2^30 bytes.\n"
    )


def test_columns_without_a_figure_are_left_out() -> None:
    assert shown_quantities([ONE, TWO]) == (RUNTIME, MEMORY)
    assert "Energy" not in comparison_markdown([ONE])
    energy = Comparison("a", "GPU", 1, Figures(energy_j_per_token=0.5), Figures())
    assert "Energy is that of all devices." in comparison_markdown([energy])
    assert comparison_markdown([]) == comparison_rst([]) == ""


def test_further_columns_tell_rows_apart() -> None:
    rows = [
        Comparison("a", "GPU", 1, Figures(1.0), Figures(1.0), (("Batch Size", str(size)),))
        for size in (1, 2)
    ]
    for text in (comparison_markdown(rows, 3), comparison_rst(rows)):
        assert "| Model | Device | Batch Size |" in text
    assert comparison_markdown(rows, 3).startswith("### Single device\n")
    with pytest.raises(ValueError, match="different columns"):
        comparison_markdown([rows[0], ONE])


_FIGURE = st.one_of(st.none(), st.integers(1, 10**8).map(lambda cents: cents / 100))


@given(
    st.lists(st.tuples(_FIGURE, _FIGURE, _FIGURE, _FIGURE, st.sampled_from([1, 2, 8])), max_size=6)
)
def test_every_comparison_reads_back(
    rows: list[tuple[float | None, float | None, float | None, float | None, int]],
) -> None:
    compared = [
        Comparison(f"m-{i}*_", "GPU", n, Figures(a, b), Figures(c, d))
        for i, (a, b, c, d, n) in enumerate(rows)
    ]
    if not any(f is not None for row in rows for f in row[:4]):
        return
    for text in (comparison_markdown(compared), comparison_rst(compared)):
        lines = [line for line in text.splitlines() if line.startswith(("|", "+"))]
        assert lines
        entries = {e.model: e for e in table_of(text).entries}
        assert len(entries) == len(compared)
        for row in compared:
            entry = entries[row.model]
            assert entry.devices == row.num_shard
            for kind, figures in (
                (FigureKind.ESTIMATED, row.estimated),
                (FigureKind.MEASURED, row.measured),
            ):
                assert entry.value(PublishedMetric.FORWARD_MS, kind) == figures.runtime_ms
                assert entry.value(PublishedMetric.MEMORY_GIB, kind) == figures.memory_gib
