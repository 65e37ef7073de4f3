"""A run as JSON: schema `tgi-bench-run`, version 2.

Units stand in the names; an undefined figure is null. Top level: schema, schema_version,
run_id, origin, finished, experiment, model, digest, overrides, environment, verdict, missed,
deployments, trials, loads, floors, entries, models, tasks, telemetry, estimates, calibrations.
A key that is added raises no version; one that changes or goes does.

History of schema_version:
    1  the first.
    2  loads and floors; trials may be empty, where a run has loads only.

Of a server that ran already (launcher "attach") model, engine, tgi_version and num_shard are null
where neither the experiment nor the server said them. server.identity is what it said of itself
over HTTP, server.shards what its ranks said over their sockets (null: these were not asked).

server of a deployment: null where none became ready. Its shards: what the ranks behind its sockets
said of themselves, by shard_rank; null where they were not asked.

verdict: word ("VALID" or "INVALID") and checks. A check has name, status ("passed", "failed"
or "not_checked": the run gives nothing to check it by, which fails no run), passed (true,
false, or null where it was not checked), finding (then why it was not checked), remedy
(empty unless failed) and failing: every row that is bad, with its name, trial_id (null of a
deployment as a whole), deployment_id and what was seen there; [] where the run as a whole is bad.
The verdict of a trial, load or task is its own: INVALID where a failed check names it or its
server, or names no row.

missed: each SLO that a load missed, and each search that found nothing (metric null): a result,
to be believed where the verdict is VALID.

loads: one object a load trial, with what was asked, its stages (one concurrency or rate each) and
the answer of its search (null without one). A figure is an object of value, low and high, the ends
of its 95 % bootstrap confidence interval (null where too few samples give none). floors: the load
client's own error on this machine. entries: of an imported table that is not of TGI's steps; a
value's unit ends the name of its metric. telemetry: of each trial around which devices or the
server's metrics were sampled, or of a part of one.

estimates: two objects for each figure that is estimated, of uncalibrated and of calibrated
constants; the second only where a calibration is known. observed_s is the run's own figure, whose
observed_kind is "measured" or "simulated"; error is (estimated - observed) / observed.
"""

from __future__ import annotations

from dataclasses import asdict

from tgi_bench.analysis.rules import Verdict
from tgi_bench.analysis.run import DeploymentRecord, Run
from tgi_bench.analysis.telemetry import DeviceFigures, TelemetrySummary
from tgi_bench.kinds.batch.estimated_measured import estimates_json
from tgi_bench.kinds.kind import Kinds
from tgi_bench.observation import ShardFacts
from tgi_bench.report.json_text import Json, json_text
from tgi_bench.report.words import known_engine, known_model, known_num_shard, known_version


def telemetry_json(seen: TelemetrySummary) -> Json:
    """An undefined figure is null. absent, no_energy: why; empty where there is no reason."""
    return {
        "trial_id": seen.trial_id,
        "part": seen.part,
        "absent": seen.absent,
        "no_energy": seen.no_energy,
        "devices": [_devices(devices) for devices in seen.devices],
        "samples": seen.measured,
        "throttled_samples": dict(seen.throttled),
        "power_limited_samples": seen.at_limit,
        "other_processes": seen.others,
        "sampler_core_share": seen.sampler_share,
        "period_ns": seen.period_ns,
        "gauges_before": dict(seen.began),
        "gauges_after": dict(seen.ended),
    }


def _devices(devices: DeviceFigures) -> Json:
    return {
        "kind": devices.kind.value,
        "names": list(devices.names),
        "energy_j": devices.energy_j,
        "integrated": devices.integrated,
        "j_per_token": devices.j_per_token,
        "average_power_w": devices.average_power_w,
        "peak_memory_bytes": devices.peak_memory_bytes,
    }


SCHEMA = "tgi-bench-run"
SCHEMA_VERSION = 2


def as_json(run: Run, kinds: Kinds) -> str:
    """The run's figures and verdict; the same run gives the same bytes."""
    of_all = [kind.view() for kind in kinds]
    document: Json = {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "run_id": run.run_id,
        "origin": run.origin.value,
        "finished": run.finished,
        "experiment": run.plan.experiment,
        "model": known_model(run),
        "digest": run.plan.digest,
        "overrides": [{"key_path": o.key_path, "value": o.value} for o in run.plan.overrides],
        "environment": dict(run.environment),
        "verdict": _verdict(run.verdict),
        "deployments": [_deployment(d) for d in run.deployments],
        "missed": [data for view in of_all for _, data in view.missed(run)],
        **{key: value for view in of_all for key, value in view.data(run).items()},
        "telemetry": [telemetry_json(summary) for summary in run.telemetry],
        **estimates_json(run),
    }
    return json_text(document)


def _verdict(verdict: Verdict) -> Json:
    checks: Json = [
        {
            "name": c.name,
            "status": c.status.value,
            "passed": c.passed if c.made else None,
            "finding": c.finding,
            "remedy": c.remedy,
            "failing": [asdict(row) for row in c.failing],
        }
        for c in verdict.checks
    ]
    return {"word": verdict.word, "checks": checks}


def _deployment(record: DeploymentRecord) -> Json:
    d, facts, engine = record.deployment, record.facts, known_engine(record)
    said: Json = None
    if facts is not None:
        said = {
            **asdict(facts),
            "arguments": None if facts.arguments is None else dict(facts.arguments),
            "details": dict(facts.details),
            "shards": None if facts.shards is None else _shards(facts.shards),
        }
    return {
        "deployment_id": d.deployment_id,
        "launcher": d.launcher.name,
        "engine": engine,
        "image": d.image,
        "tgi_version": known_version(d),
        "version_assumed": d.version_assumed,
        "num_shard": known_num_shard(record),
        "arguments": {a.name: a.value for a in d.arguments},
        "variable": [a.name for a in d.arguments if a.variable],
        "server": said,
        "failure": record.failure,
    }


def _shards(shards: ShardFacts) -> Json:
    return {"protocol": shards.protocol, "ranks": shards.ranks, **asdict(shards)}
