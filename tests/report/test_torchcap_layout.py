"""Estimated | Measured | Error, by hand."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
def test_every_figure_stands_in_a_table_as_wide_as_its_head(
    rows: list[tuple[float | None, float | None, float | None, float | None, int]],
) -> None:
    compared = [
        Comparison(f"m-{i}*_", "GPU", n, Figures(a, b), Figures(c, d))
        for i, (a, b, c, d, n) in enumerate(rows)
    ]
    if not any(figure is not None for row in rows for figure in row[:4]):
        return
    for text in (comparison_markdown(compared), comparison_rst(compared)):
        for table in text.split("\n\n"):
            lines = [line for line in table.splitlines() if line.startswith(("|", "+"))]
            assert len({len(line) for line in lines}) <= 1
        for i, (a, b, c, d, n) in enumerate(rows):
            (line,) = (line for line in text.splitlines() if re.match(rf"\| m-{i}\\?\*", line))
            cells = [cell.strip().replace("\\", "") for cell in line.strip("|").split("|")]
            assert cells[:2] == [f"m-{i}*_", "GPU" if n == 1 else f"GPU x {n}"]
            shown = shown_quantities(compared)
            asked = [(a, c)] * (RUNTIME in shown) + [(b, d)] * (MEMORY in shown)
            figures = ["-" if f is None else f"{f:.2f}" for pair in asked for f in pair]
            assert [cell for k, cell in enumerate(cells[2:]) if k % 3 != 2] == figures
