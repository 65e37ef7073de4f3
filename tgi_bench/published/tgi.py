"""Reads a report of text-generation-benchmark: its tables of prefill and decode steps.

A published table hides a cell that is equal to the one above it (tabled's Merge::vertical):
a blank is filled from above. NaN is a figure over no runs. The sections may be missing, as
in a hand-assembled file: a tensor-parallel section without "## Sequence Length" has that of
the parameter table.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tgi_bench.kinds.batch.page import LATENCY_HEADERS, THROUGHPUT_HEADERS
from tgi_bench.published.reading import PrintedGrid, Sentence, items, refused
from tgi_bench.report.words import UNDEFINED, outcome_of

Cell = float | str
"""A number in the table's unit (ms or tokens/s), or the word that stands in its place."""

NO_RUNS = "NaN"
_LATENCY_STEPS = ("Prefill", "Decode (token)", "Decode (total)")
_THROUGHPUT_STEPS = ("Prefill", "Decode")
_SECTION = re.compile(r"#+ Tensor Parallel \(TP\) - (\d{1,4}) GPUs?", re.ASCII)
_LENGTH = re.compile(r"#+ Sequence Length (\d{1,9})", re.ASCII)
_QUANTIZED = re.compile(r"#+ (?:No Quantization|Quantization: ([^;]+))", re.ASCII)
_ARGUMENT = re.compile(r"[-*] (\w+): (.*)", re.ASCII)
_NUMBER = re.compile(r"(\d{1,15}(?:\.\d{1,9})?|NaN) (ms|tokens/secs|tokens/s)", re.ASCII)


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """One row of a table; line is 1-based."""

    step: str
    batch_size: int
    cells: tuple[Cell, ...]
    unit: str
    line: int


@dataclass(frozen=True, slots=True)
class PublishedBlock:
    """The two tables under one heading; throughput is () where the report has none.

    quantize: None is "No Quantization"; quantize_said is False where no heading says either.
    """

    num_shard: int
    sequence_length: int
    quantize: str | None
    quantize_said: bool
    latency: tuple[PublishedRow, ...]
    throughput: tuple[PublishedRow, ...]


@dataclass(frozen=True, slots=True)
class PublishedReport:
    """A report as its file has it. arguments, parameters: (name, text) in the file's order."""

    arguments: tuple[tuple[str, str], ...]
    parameters: tuple[tuple[str, str], ...]
    blocks: tuple[PublishedBlock, ...]


@dataclass(slots=True)
class _Reader:
    """What has been read so far, and under which headings the reader stands."""

    arguments: dict[str, str] = field(default_factory=dict)
    parameters: dict[str, str] = field(default_factory=dict)
    blocks: list[PublishedBlock] = field(default_factory=list)
    section: str = ""
    constant: bool = True
    num_shard: int | None = None
    length: int | None = None
    quantize: str | None = None
    quantize_said: bool = False

    def heading(self, text: str) -> None:
        if found := _SECTION.fullmatch(text):
            self.section, self.num_shard, self.length = "tables", int(found[1]), None
            self._unquantized()
        elif found := _LENGTH.fullmatch(text):
            self.length = int(found[1])
            self._unquantized()
        elif found := _QUANTIZED.fullmatch(text):
            self.quantize, self.quantize_said = found[1], True
        elif text.startswith("# "):
            lowered = text.lower()
            self.section = "arguments" if lowered.endswith("args") else ""
            self.section = "parameters" if "generation arg" in lowered else self.section
            self.num_shard, self.constant = None, True
        elif self.section == "arguments":
            self.constant = "constant" in text.lower()

    def _unquantized(self) -> None:
        self.quantize, self.quantize_said = None, False

    def sentence(self, line: str) -> None:
        found = _ARGUMENT.fullmatch(line) if self.section == "arguments" else None
        # What varies is said by the tables' headings, which the list may contradict.
        if found and self.constant:
            self.arguments[found[1]] = found[2].strip()

    def table(self, table: PrintedGrid) -> None:
        headers = table.headers[0].cells
        if self.num_shard is not None:
            self._figures(table, self.num_shard)
        elif self.section == "parameters" and len(headers) == 2:
            self.parameters.update((row.cells[0], row.cells[1]) for row in table.rows)

    def _figures(self, table: PrintedGrid, num_shard: int) -> None:
        headers = table.headers[0].cells
        if headers == LATENCY_HEADERS:
            block = PublishedBlock(
                num_shard=num_shard,
                sequence_length=self._sequence_length(table.line),
                quantize=self.quantize,
                quantize_said=self.quantize_said,
                latency=_rows(table, _LATENCY_STEPS, ("ms",)),
                throughput=(),
            )
            self._refuse_twin(block, table.line)
            self.blocks.append(block)
        elif headers == THROUGHPUT_HEADERS:
            self._throughput(table, num_shard)
        else:
            raise refused(
                table.line,
                f"expected a table headed `{' | '.join(LATENCY_HEADERS)}` or "
                f"`{' | '.join(THROUGHPUT_HEADERS)}`, found `{' | '.join(headers)}`",
            )

    def _throughput(self, table: PrintedGrid, num_shard: int) -> None:
        last = self.blocks[-1] if self.blocks else None
        if last is None or last.num_shard != num_shard or last.throughput:
            raise refused(table.line, "expected a latency table above a throughput table")
        rows = _rows(table, _THROUGHPUT_STEPS, ("tokens/s", "tokens/secs"))
        sizes = {row.batch_size for row in last.latency}
        for row in rows:
            if row.batch_size not in sizes:
                raise refused(
                    row.line, f"batch size {row.batch_size} is not in the latency table above"
                )
        self.blocks[-1] = replace(last, throughput=rows)

    def _refuse_twin(self, block: PublishedBlock, line: int) -> None:
        for known in self.blocks:
            if _place(known) == _place(block):
                raise refused(
                    line,
                    f"a second latency table for num_shard {block.num_shard}, sequence length "
                    f"{block.sequence_length}; expected a heading that tells them apart",
                )

    def _sequence_length(self, line: int) -> int:
        if self.length is not None:
            return self.length
        text = self.parameters.get("Sequence Length", "")
        if re.fullmatch(r"\d{1,9}", text, re.ASCII) is None:
            raise refused(
                line,
                "expected `## Sequence Length N` above this table, or one `Sequence Length` in "
                "the parameter table",
            )
        return int(text)


def parse(text: str) -> PublishedReport:
    """The tables of a published report.

    Raises TableError with the line and what was expected there; also where the text holds no
    table of steps.
    """
    reader = _Reader()
    for item in items(text):
        match item:
            case PrintedGrid():
                reader.table(item)
            case Sentence(heading) if heading.startswith("#"):
                reader.heading(heading)
            case Sentence(line):
                reader.sentence(line)
        if reader.num_shard == 0 or reader.length == 0:
            raise refused(item.line, "expected a number above 0 in this heading")
    if not reader.blocks:
        raise refused(
            1,
            "no tables found; expected `# Tensor Parallel (TP) - N GPUs` and below it a table "
            f"headed `{' | '.join(LATENCY_HEADERS)}`, or a table of h2oGPT, "
            "bigcode-inference-benchmark or TorchCAP",
        )
    return PublishedReport(
        arguments=tuple(reader.arguments.items()),
        parameters=tuple(reader.parameters.items()),
        blocks=tuple(reader.blocks),
    )


def _place(block: PublishedBlock) -> tuple[object, ...]:
    return (block.num_shard, block.sequence_length, block.quantize)


def _rows(
    table: PrintedGrid, steps: Sequence[str], units: Sequence[str]
) -> tuple[PublishedRow, ...]:
    """The rows with every blank filled from the cell above; each step has each batch size."""
    rows: list[PublishedRow] = []
    above: tuple[str, ...] = ("",) * len(table.headers[0].cells)
    unit = units[0]
    for row in table.rows:
        above = tuple(text or over for text, over in zip(row.cells, above, strict=True))
        step, batch_size = above[0], above[1]
        if step not in steps:
            raise refused(row.line, f"expected a step of {', '.join(steps)}, found `{step}`")
        if re.fullmatch(r"0*[1-9]\d{0,8}", batch_size, re.ASCII) is None:
            raise refused(row.line, f"expected a batch size above 0, found `{batch_size}`")
        cells = []
        for text in above[2:]:
            cell, unit = _cell(text, (row.line, units), unit)
            cells.append(cell)
        rows.append(PublishedRow(step, int(batch_size), tuple(cells), unit, row.line))
    _check_complete(rows, steps, table.line)
    return tuple(rows)


def _check_complete(rows: Sequence[PublishedRow], steps: Sequence[str], line: int) -> None:
    by_step = {step: [r.batch_size for r in rows if r.step == step] for step in steps}
    for step, sizes in by_step.items():
        if len(set(sizes)) != len(sizes):
            raise refused(line, f"a batch size of `{step}` stands twice in this table")
        if sizes != by_step[steps[0]]:
            raise refused(line, f"expected the batch sizes of `{steps[0]}` under `{step}` too")


def _cell(text: str, where: tuple[int, Sequence[str]], unit: str) -> tuple[Cell, str]:
    """The cell and its unit; a word has the unit of the cells before it."""
    line, units = where
    if found := _NUMBER.fullmatch(text):
        if found[2] not in units:
            raise refused(line, f"expected a figure in {units[0]}, found `{text}`")
        if found[1] != NO_RUNS and float(found[1]) <= 0:
            raise refused(line, f"expected a figure above 0, found `{text}`")
        return (NO_RUNS if found[1] == NO_RUNS else float(found[1])), found[2]
    if text == UNDEFINED or outcome_of(text) is not None:
        return text, unit
    raise refused(line, f"expected a figure such as `1.25 {units[0]}`, NaN or OOM, found `{text}`")
