"""The sections that say how far to believe a report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tgi_bench.analysis.rules import SHOWN, Check
from tgi_bench.analysis.run import DeploymentRecord, Origin, Run
from tgi_bench.analysis.telemetry import TELEMETRY_DEFINITIONS
from tgi_bench.estimate.calibration import provenance
from tgi_bench.kinds.batch.compared import SIMULATED_WITH, simulated_with
from tgi_bench.kinds.batch.excess import CLIENT_SHARE, excess_sentences, ranks_and_cores
from tgi_bench.kinds.batch.metrics import (
    PUBLISHED_DIFFERENCES,
    TrialSummary,
)
from tgi_bench.kinds.kind import View
from tgi_bench.observation import ServerFacts
from tgi_bench.report.table import Table, markdown
from tgi_bench.report.words import NOT_KNOWN, UNDEFINED, known_version, said_model

WRITTEN_BY = "Tables written by"
"""The name in an imported run's environment of the program that wrote its tables."""

OURSELVES = "tgi-bench"
OTHERS = "text-generation-benchmark"


def definitions(run: Run, of_run: Sequence[View[Any]]) -> str:
    """Every word of the tables with its formula; one that several have stands once."""
    terms = dict(term for view in of_run for term in view.terms(run))
    terms |= dict(TELEMETRY_DEFINITIONS) if any(s.devices for s in run.telemetry) else {}
    undefined = terms.pop(UNDEFINED, "undefined, or not given")
    said, by = terms, ""
    if run.of(TrialSummary) and run.origin is Origin.IMPORTED and not _wrote_it(run):
        said = {term: dict(PUBLISHED_DIFFERENCES).get(term, text) for term, text in terms.items()}
        by = "As text-generation-benchmark computes its figures.\n\n"
    lines = "".join(f"- **{term}**: {text}.\n" for term, text in said.items())
    return f"# Definitions\n\n{by}{lines}- **{UNDEFINED}**: {undefined}.\n"


def _wrote_it(run: Run) -> bool:
    """Whether an imported report's figures are tgi-bench's own, as simulated ones always are."""
    simulated_ones = (d.deployment.simulated for d in run.deployments)
    return dict(run.environment).get(WRITTEN_BY) == OURSELVES or any(simulated_ones)


def client_unfit(run: Run) -> str:
    """A sentence where a check of the client failed; empty elsewhere."""
    bad = [check.name for check in run.verdict.checks if check.of_client and not check.passed]
    if not bad:
        return ""
    return (
        f"**The client was not fit to measure this** (failed: {'; '.join(bad)}): the figures "
        "below, and whatever else failed, may be its doing.\n"
    )


def verdict(run: Run) -> str:
    """VALID or INVALID: failed checks with their remedies first, then passed, then unmade ones."""
    failed = [c for c in run.verdict.checks if not c.passed]
    passed = [c for c in run.verdict.checks if c.passed and c.made]
    skipped = [c for c in run.verdict.checks if not c.made]
    text = f"# Verdict: {run.verdict.word}\n"
    if failed:
        text += "\nFailed:\n\n" + _failures(run, failed)
    if passed:
        text += "\nPassed:\n\n" + "".join(f"- {c.name}: {c.finding}\n" for c in passed)
    if skipped:
        text += "\nNot checked:\n\n" + "".join(f"- {c.name}: {c.finding}\n" for c in skipped)
    return text


def _failures(run: Run, failed: Sequence[Check]) -> str:
    return "".join(
        f"- **{c.name}**: {c.finding}. Remedy: {c.remedy}{_sharing(run, c)}.\n{_all_failing(c)}"
        for c in failed
    )


def _all_failing(check: Check) -> str:
    """Every row that failed, by its server, where the finding shows the first ones only."""
    if len(check.failing) <= SHOWN:
        return ""
    groups: dict[str, list[str]] = {}
    for row in check.failing:
        server = row.deployment_id or ""
        short = row.name.removeprefix(f"{server}/")
        groups.setdefault(server, []).append(f"{short} ({row.text})")
    return "".join(
        f"    - {f'{server}: ' if server else ''}{', '.join(rows)}\n"
        for server, rows in groups.items()
    )


def against(run: Run, trial_id: str, deployment_id: str | None) -> str:
    """What speaks against one trial: each check that failed with what was seen; "-" for nothing."""
    said = []
    for check in run.verdict.against(trial_id, deployment_id):
        seen = [row.text for row in check.failing if row.of(trial_id, deployment_id)]
        said.append(f"{check.name} ({'; '.join(seen)})" if seen else check.name)
    return "; ".join(said) or UNDEFINED


def _sharing(run: Run, check: Check) -> str:
    """Where simulated ranks take the client's cores, that they do; empty elsewhere."""
    shared = ranks_and_cores(run) if check.name == CLIENT_SHARE else None
    return "" if shared is None else f": {shared}"


def simulated(run: Run) -> str:
    """What stood in for hardware; empty where nothing did."""
    if run.origin is not Origin.SIMULATED:
        return ""
    lines = dict.fromkeys(_simulation(d) for d in run.deployments)
    return (
        "# What was simulated\n\n"
        + "".join(lines)
        + _calibration(run)
        + "\nThe device, its memory, the model and its tokens were simulated: each rank slept "
        "in place of a step's work, as long as an estimate said. The protocol, the processes, the "
        "sockets, the client and its clock were real, and what they take beyond that is in the "
        "figures.\n" + excess_sentences(run)
    )


def _calibration(run: Run) -> str:
    """The constants that the servers computed with, and where from."""
    calibration = simulated_with(run)
    if calibration is None:
        return ""
    values = ", ".join(f"{name} {value:.4g}" for name, value in calibration.fitted)
    return f"- {provenance(calibration)} Its constants: {values}.\n"


def _simulation(record: DeploymentRecord) -> str:
    """Of a server that tgi-bench did not start as `embedded`, only that it says so of itself."""
    deployment = record.deployment
    version = f"behaving as TGI {deployment.tgi_version}"
    if not deployment.simulated:
        said = None if record.facts is None else record.facts.version
        version = f"behaving as TGI {said or known_version(deployment) or NOT_KNOWN}"
        named = f"model {said_model(record) or NOT_KNOWN}"
        return f"- {named}, as its server says of itself, {version}\n"
    visible = deployment.launcher.visible_devices or 1
    split = (
        f"; with num_shard 1 its layers are held in turn by {visible} devices"
        if visible > 1
        else ""
    )
    named = f"model {deployment.model} on {deployment.accelerator}, engine `simulated`"
    return f"- {named}, {version}{split}\n"


def environment(run: Run) -> str:
    """Where the client ran, and what is known of each server's start."""
    # The calibration stands whole among what was simulated.
    client = (row for row in run.environment if row[0] != SIMULATED_WITH)
    rows = (*client, *_start_rows(run), *_shard_rows(run))
    return "# Environment\n\n" + markdown(Table(("Name", "Value"), rows)) if rows else ""


def _said_rows(facts: ServerFacts) -> tuple[tuple[str, str], ...]:
    """What is known of a start, with what the server said of itself."""
    own = facts.identity
    stated = {
        "Engine, as it says": " ".join(filter(None, (own.engine, own.version))),
        "Models, as it says": ", ".join(own.models) if len(own.models) > 1 else "",
        "Model revision, as it says": own.revision or "",
        "Built from, as it says": ", ".join(filter(None, (own.sha, own.docker_label))),
        "Device, as it says": ", ".join(filter(None, (own.device_type, own.dtype))),
    }
    return (*facts.details, *((name, text) for name, text in stated.items() if text))


def _start_rows(run: Run) -> tuple[tuple[str, str], ...]:
    """A row for each detail; one for each server that says otherwise than the others."""
    said: dict[str, dict[str, list[str]]] = {}
    for record in run.deployments:
        for name, value in () if record.facts is None else _said_rows(record.facts):
            said.setdefault(name, {}).setdefault(value, []).append(record.deployment.deployment_id)
    return tuple(
        (name if len(values) == 1 else f"{name} ({', '.join(ids)})", value)
        for name, values in said.items()
        for value, ids in values.items()
    )


def _shard_rows(run: Run) -> tuple[tuple[str, str], ...]:
    """What the ranks of all servers said of themselves, in one row; none where none was asked."""
    counts: dict[str, set[int]] = {}
    for record in run.deployments:
        if record.facts is not None and (shards := record.facts.shards) is not None:
            devices, dtypes = set(shards.device_types), set(shards.dtypes)
            said = ", ".join((shards.protocol, *sorted(devices), *sorted(dtypes)))
            counts.setdefault(said, set()).add(shards.ranks)
    if not counts:
        return ()
    text = "; ".join(
        f"{said}: {' or '.join(map(str, sorted(ranks)))} rank{'' if ranks == {1} else 's'}"
        for said, ranks in counts.items()
    )
    return (("gRPC shards", text),)
