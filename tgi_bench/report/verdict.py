"""The sections that say how far to believe a report."""

from __future__ import annotations

from collections.abc import Sequence

from tgi_bench.analysis.metrics import DEFINITIONS, PUBLISHED_DIFFERENCES
from tgi_bench.analysis.run import NOT_CHECKED, Check, Origin, Run
from tgi_bench.report.table import Table, markdown


def definitions(run: Run) -> str:
    """Every word of the tables with its formula."""
    text = f"# Definitions\n\n{_listed(DEFINITIONS)}"
    if run.origin is Origin.IMPORTED:
        text += f"\nIn tables of text-generation-benchmark:\n\n{_listed(PUBLISHED_DIFFERENCES)}"
    return text


def _listed(definitions: Sequence[tuple[str, str]]) -> str:
    return "".join(f"- **{term}**: {text}.\n" for term, text in definitions)


def verdict(run: Run) -> str:
    """VALID or INVALID: failed checks with their remedies first, then passed, then unmade ones."""
    failed = [c for c in run.verdict.checks if not c.passed]
    passed = [c for c in run.verdict.checks if c.passed and c.made]
    skipped = [c for c in run.verdict.checks if not c.made]
    text = f"# Verdict: {run.verdict.word}\n"
    if failed:
        text += "\nFailed:\n\n" + _failures(failed)
    if passed:
        text += "\nPassed:\n\n" + "".join(f"- {c.name}: {c.finding}\n" for c in passed)
    if skipped:
        text += "\nNot checked:\n\n" + "".join(
            f"- {c.name}: {c.finding.removeprefix(NOT_CHECKED)}\n" for c in skipped
        )
    return text


def _failures(failed: Sequence[Check]) -> str:
    return "".join(f"- **{c.name}**: {c.finding}. Remedy: {c.remedy}.\n" for c in failed)


def simulated(run: Run) -> str:
    """What stood in for hardware; empty where nothing did."""
    if run.origin is not Origin.SIMULATED:
        return ""
    servers = [d.deployment for d in run.deployments]
    lines = dict.fromkeys(
        f"- model {d.model} on {d.embedded.accelerator}, engine `{d.embedded.engine}`, behaving "
        f"as TGI {d.tgi_version}\n"
        for d in servers
    )
    return (
        "# What was simulated\n\n"
        + "".join(lines)
        + "\nThe device, its memory, the model and its tokens were simulated: a step lasted as "
        "long as an estimate said. The protocol, the processes, the sockets, the client "
        "and its clock were real.\n"
    )


def environment(run: Run) -> str:
    """Where the client ran."""
    if not run.environment:
        return ""
    return "# Environment\n\n" + markdown(Table(("Name", "Value"), run.environment))
