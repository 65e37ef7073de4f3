"""Reads a published report: text-generation-benchmark's tables, or our own num_shard-N.md.

A published table hides a cell that is equal to the one above it (tabled's Merge::vertical):
a blank is filled from above. NaN is a figure over no runs. The sections may be missing, as
in a hand-assembled file: a tensor-parallel section without "## Sequence Length" has that of
the parameter table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from tgi_bench.analysis.distribution import METHOD
from tgi_bench.errors import TableError
from tgi_bench.report.per_shard import LATENCY_HEADERS, THROUGHPUT_HEADERS, VERDICT_HEADERS
from tgi_bench.report.words import NOT_FINISHED, UNDEFINED, outcome_of

Cell = float | str
"""A number in the table's unit (ms or tokens/s), or the word that stands in its place."""

NO_RUNS = "NaN"
_LATENCY_STEPS = ("Prefill", "Decode (token)", "Decode (total)")
_THROUGHPUT_STEPS = ("Prefill", "Decode")
_SECTION = re.compile(
    r"#+ Tensor Parallel \(TP\) - (?:(\d{1,4}) GPUs?|\w+ \(num_shard (\d{1,4})\))", re.ASCII
)
_LENGTH = re.compile(r"#+ Sequence Length (\d{1,9})", re.ASCII)
_QUANTIZED = re.compile(
    r"#+ (?:No Quantization|Quantization: ([^;]+))((?:; \w+: [^;]+)*)", re.ASCII
)
_ARGUMENT = re.compile(r"[-*] (\w+): (.*)", re.ASCII)
_NUMBER = re.compile(r"(\d{1,15}(?:\.\d{1,9})?|NaN) (ms|tokens/secs|tokens/s)", re.ASCII)
_ENGINE = re.compile(r"`(\w+)` engine as an ([^\s:]+)", re.ASCII)
_OWN_PERCENTILES = f"- **p50, p90, p99**: {METHOD}"
_RULER = re.compile(r"\|(\s*:?-+:?\s*\|)+")


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
    others: (name, text) of other arguments that the heading gives.
    """

    num_shard: int
    sequence_length: int
    quantize: str | None
    quantize_said: bool
    others: tuple[tuple[str, str], ...]
    latency: tuple[PublishedRow, ...]
    throughput: tuple[PublishedRow, ...]


@dataclass(frozen=True, slots=True)
class PublishedReport:
    """A report as its file has it.

    arguments, parameters: (name, text) in the file's order. engine: (name, accelerator)
    where the file says that its figures are simulated, else None. own_definitions: whether it
    defines percentiles as tgi-bench does, as each page of tgi-bench's own figures does.
    """

    arguments: tuple[tuple[str, str], ...]
    parameters: tuple[tuple[str, str], ...]
    engine: tuple[str, str] | None
    blocks: tuple[PublishedBlock, ...]
    own_definitions: bool


@dataclass(frozen=True, slots=True)
class _Table:
    headers: tuple[str, ...]
    rows: tuple[tuple[int, tuple[str, ...]], ...]
    line: int


@dataclass(slots=True)
class _Reader:
    """What has been read so far, and under which headings the reader stands."""

    arguments: dict[str, str] = field(default_factory=dict)
    parameters: dict[str, str] = field(default_factory=dict)
    engine: tuple[str, str] | None = None
    blocks: list[PublishedBlock] = field(default_factory=list)
    own_definitions: bool = False
    section: str = ""
    constant: bool = True
    num_shard: int | None = None
    length: int | None = None
    quantize: str | None = None
    quantize_said: bool = False
    others: tuple[tuple[str, str], ...] = ()

    def heading(self, text: str) -> None:
        if found := _SECTION.fullmatch(text):
            self.section, self.num_shard, self.length = "tables", int(found[1] or found[2]), None
            self._unquantized()
        elif found := _LENGTH.fullmatch(text):
            self.length = int(found[1])
            self._unquantized()
        elif found := _QUANTIZED.fullmatch(text):
            self.quantize, self.quantize_said = found[1], True
            pairs = (pair.partition(": ") for pair in found[2].split("; ")[1:])
            self.others = tuple((name, value) for name, _, value in pairs)
        elif text.startswith("# "):
            lowered = text.lower()
            self.section = "arguments" if lowered.endswith("args") else ""
            self.section = "parameters" if "generation arg" in lowered else self.section
            self.num_shard, self.constant = None, True
        elif self.section == "arguments":
            self.constant = "constant" in text.lower()

    def _unquantized(self) -> None:
        self.quantize, self.quantize_said, self.others = None, False, ()

    def sentence(self, line: str) -> None:
        if self.section == "arguments" and (found := _ARGUMENT.fullmatch(line)):
            # What varies is said by the tables' headings, which the list may contradict.
            if self.constant:
                self.arguments[found[1]] = found[2].strip()
        elif line.startswith(_OWN_PERCENTILES):
            self.own_definitions = True
        elif line.startswith("**") and "imulated" in line.partition(".")[0]:
            found = _ENGINE.search(line)
            self.engine = (found[1], found[2]) if found else ("simulated", "not named")

    def table(self, table: _Table) -> None:
        if self.num_shard is not None:
            self._figures(table, self.num_shard)
        elif self.section == "parameters" and len(table.headers) == 2:
            self.parameters.update((cells[0], cells[1]) for _, cells in table.rows)

    def _figures(self, table: _Table, num_shard: int) -> None:
        if table.headers == LATENCY_HEADERS:
            block = PublishedBlock(
                num_shard=num_shard,
                sequence_length=self._sequence_length(table.line),
                quantize=self.quantize,
                quantize_said=self.quantize_said,
                others=self.others,
                latency=_rows(table, _LATENCY_STEPS, ("ms",)),
                throughput=(),
            )
            self._refuse_twin(block, table.line)
            self.blocks.append(block)
        elif table.headers == THROUGHPUT_HEADERS:
            self._throughput(table, num_shard)
        elif table.headers != VERDICT_HEADERS:
            raise _error(
                table.line,
                f"expected a table headed `{' | '.join(LATENCY_HEADERS)}` or "
                f"`{' | '.join(THROUGHPUT_HEADERS)}`, found `{' | '.join(table.headers)}`",
            )

    def _throughput(self, table: _Table, num_shard: int) -> None:
        last = self.blocks[-1] if self.blocks else None
        if last is None or last.num_shard != num_shard or last.throughput:
            raise _error(table.line, "expected a latency table above a throughput table")
        rows = _rows(table, _THROUGHPUT_STEPS, ("tokens/s", "tokens/secs"))
        sizes = {row.batch_size for row in last.latency}
        for row in rows:
            if row.batch_size not in sizes:
                raise _error(
                    row.line, f"batch size {row.batch_size} is not in the latency table above"
                )
        self.blocks[-1] = replace(last, throughput=rows)

    def _refuse_twin(self, block: PublishedBlock, line: int) -> None:
        for known in self.blocks:
            if _place(known) == _place(block):
                raise _error(
                    line,
                    f"a second latency table for num_shard {block.num_shard}, sequence length "
                    f"{block.sequence_length}; expected a heading that tells them apart",
                )

    def _sequence_length(self, line: int) -> int:
        if self.length is not None:
            return self.length
        text = self.parameters.get("Sequence Length", "")
        if re.fullmatch(r"\d{1,9}", text, re.ASCII) is None:
            raise _error(
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
    for line, item in _items(text):
        match item:
            case _Table():
                reader.table(item)
            case str() if item.startswith("#"):
                reader.heading(item)
            case _:
                reader.sentence(item)
        if reader.num_shard == 0 or reader.length == 0:
            raise _error(line, "expected a number above 0 in this heading")
    if not reader.blocks:
        raise _error(
            1,
            "no tables found; expected `# Tensor Parallel (TP) - N GPUs` and below it a table "
            f"headed `{' | '.join(LATENCY_HEADERS)}`, or a table of h2oGPT, "
            "bigcode-inference-benchmark or TorchCAP",
        )
    return PublishedReport(
        arguments=tuple(reader.arguments.items()),
        parameters=tuple(reader.parameters.items()),
        engine=reader.engine,
        blocks=tuple(reader.blocks),
        own_definitions=reader.own_definitions,
    )


def _place(block: PublishedBlock) -> tuple[object, ...]:
    return (block.num_shard, block.sequence_length, block.quantize, block.others)


def _items(text: str) -> Iterator[tuple[int, str | _Table]]:
    """Tables, and the other lines, each with its 1-based line; fenced code is left out."""
    lines = text.splitlines()
    number, fenced = 0, False
    while number < len(lines):
        line = lines[number].strip()
        number += 1
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced and line.startswith("|"):
            start = number
            while number < len(lines) and lines[number].strip().startswith("|"):
                number += 1
            yield start, _table([text.strip() for text in lines[start - 1 : number]], start)
        elif not fenced and line:
            yield number, line


def _table(lines: Sequence[str], start: int) -> _Table:
    if len(lines) < 3 or not _RULER.fullmatch(lines[1]):
        raise _error(start, "expected a table: a header, a line of dashes and at least one row")
    for line, text in enumerate(lines, start):
        if not text.endswith("|"):
            # A figure of a line that was cut off would be another figure.
            raise _error(line, "expected a row that ends with `|`")
    headers = _split(lines[0])
    rows = []
    for line, text in enumerate(lines[2:], start + 2):
        cells = _split(text)
        if len(cells) != len(headers):
            raise _error(line, f"expected {len(headers)} cells, found {len(cells)}")
        rows.append((line, cells))
    return _Table(headers, tuple(rows), start)


def _split(text: str) -> tuple[str, ...]:
    cells = re.split(r"(?<!\\)\|", text.removeprefix("|").removesuffix("|"))
    return tuple(cell.strip().replace("\\|", "|") for cell in cells)


def _rows(table: _Table, steps: Sequence[str], units: Sequence[str]) -> tuple[PublishedRow, ...]:
    """The rows with every blank filled from the cell above; each step has each batch size."""
    rows: list[PublishedRow] = []
    above: tuple[str, ...] = ("",) * len(table.headers)
    unit = units[0]
    for line, texts in table.rows:
        above = tuple(text or over for text, over in zip(texts, above, strict=True))
        step, batch_size = above[0], above[1]
        if step not in steps:
            raise _error(line, f"expected a step of {', '.join(steps)}, found `{step}`")
        if re.fullmatch(r"0*[1-9]\d{0,8}", batch_size, re.ASCII) is None:
            raise _error(line, f"expected a batch size above 0, found `{batch_size}`")
        cells = []
        for text in above[2:]:
            cell, unit = _cell(text, (line, units), unit)
            cells.append(cell)
        rows.append(PublishedRow(step, int(batch_size), tuple(cells), unit, line))
    _check_complete(rows, steps, table.line)
    return tuple(rows)


def _check_complete(rows: Sequence[PublishedRow], steps: Sequence[str], line: int) -> None:
    by_step = {step: [r.batch_size for r in rows if r.step == step] for step in steps}
    for step, sizes in by_step.items():
        if len(set(sizes)) != len(sizes):
            raise _error(line, f"a batch size of `{step}` stands twice in this table")
        if sizes != by_step[steps[0]]:
            raise _error(line, f"expected the batch sizes of `{steps[0]}` under `{step}` too")


def _cell(text: str, where: tuple[int, Sequence[str]], unit: str) -> tuple[Cell, str]:
    """The cell and its unit; a word has the unit of the cells before it."""
    line, units = where
    if found := _NUMBER.fullmatch(text):
        if found[2] not in units:
            raise _error(line, f"expected a figure in {units[0]}, found `{text}`")
        if found[1] != NO_RUNS and float(found[1]) <= 0:
            raise _error(line, f"expected a figure above 0, found `{text}`")
        return (NO_RUNS if found[1] == NO_RUNS else float(found[1])), found[2]
    if text in (UNDEFINED, NOT_FINISHED) or outcome_of(text) is not None:
        return text, unit
    raise _error(line, f"expected a figure such as `1.25 {units[0]}`, NaN or OOM, found `{text}`")


def _error(line: int, what: str) -> TableError:
    return TableError(f"line {line}: {what}")
