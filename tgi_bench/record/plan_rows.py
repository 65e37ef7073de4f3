"""A Plan as rows that can be queried, and back to an equal Plan."""

from __future__ import annotations

import json
import sqlite3

from tgi_bench.codec import from_json, to_json
from tgi_bench.engines.arguments import arguments_of
from tgi_bench.errors import InputError
from tgi_bench.launch import launcher_named
from tgi_bench.launch.launcher import Launcher
from tgi_bench.plan.plan import (
    ArgumentValue,
    BatchTrial,
    Deployment,
    Engine,
    LauncherArgument,
    LoadTrial,
    Override,
    Plan,
    Timeouts,
)
from tgi_bench.trials.direct import TaskTrial

_DEPLOYMENT_COLUMNS = (
    "deployment_id, launcher, model, image, tgi_version, version_assumed, engine, "
    "accelerator, pull_s, download_s, load_s, probe_s, env, launcher_keys"
)


def insert_plan(connection: sqlite3.Connection, plan: Plan) -> None:
    """Writes all but the plan's own experiment, model and digest, which the run row holds."""
    connection.executemany(
        "INSERT INTO overrides (key_path, value) VALUES (?, ?)",
        [(o.key_path, o.value) for o in plan.overrides],
    )
    for deployment in plan.deployments:
        _insert_deployment(connection, deployment)
    trials = [
        *((t.trial_id, "batch", t.deployment_id, to_json(t)) for t in plan.trials),
        *((t.trial_id, "load", t.deployment_id, to_json(t)) for t in plan.load_trials),
        *((t.trial_id, "direct", t.model.model_id, to_json(t)) for t in plan.task_trials),
    ]
    connection.executemany(
        "INSERT INTO trials (trial_id, kind, host_id, asked) VALUES (?, ?, ?, ?)", trials
    )


def select_plan(connection: sqlite3.Connection) -> Plan:
    """The plan that `insert_plan` wrote, with the run row's experiment, model and digest."""
    experiment, model, digest, origin = connection.execute(
        "SELECT experiment, model, digest, origin FROM run"
    ).fetchone()
    overrides = connection.execute("SELECT key_path, value FROM overrides ORDER BY position")
    deployments = _select_deployments(connection)
    if origin != "imported":  # a published report may list what no version has
        for deployment in deployments:
            _require_known_arguments(deployment)
    return Plan(
        experiment=experiment,
        model=model,
        deployments=deployments,
        trials=tuple(from_json(BatchTrial, asked) for asked in _asked(connection, "batch")),
        overrides=tuple(Override(key_path, value) for key_path, value in overrides),
        digest=digest,
        load_trials=tuple(from_json(LoadTrial, asked) for asked in _asked(connection, "load")),
        task_trials=tuple(from_json(TaskTrial, asked) for asked in _asked(connection, "direct")),
    )


def _insert_deployment(connection: sqlite3.Connection, deployment: Deployment) -> None:
    connection.execute(
        f"INSERT INTO deployments ({_DEPLOYMENT_COLUMNS}) VALUES ({', '.join('?' * 14)})",
        (
            deployment.deployment_id,
            deployment.launcher.name,
            deployment.model,
            deployment.image,
            deployment.tgi_version,
            deployment.version_assumed,
            deployment.engine.value,
            deployment.accelerator,
            deployment.timeouts.pull_s,
            deployment.timeouts.download_s,
            deployment.timeouts.load_s,
            deployment.timeouts.probe_s,
            json.dumps(deployment.env),
            deployment.launcher.keys.model_dump_json(),
        ),
    )
    connection.executemany(
        "INSERT INTO deployment_arguments VALUES (?, ?, ?, ?, ?)",
        [
            (deployment.deployment_id, position, a.name, json.dumps(a.value), a.variable)
            for position, a in enumerate(deployment.arguments)
        ],
    )


def _select_deployments(connection: sqlite3.Connection) -> tuple[Deployment, ...]:
    rows = connection.execute(f"SELECT {_DEPLOYMENT_COLUMNS} FROM deployments ORDER BY position")
    return tuple(
        Deployment(
            deployment_id=row[0],
            launcher=_launcher(row[1], row[13]),
            model=row[2],
            image=row[3],
            tgi_version=row[4],
            version_assumed=bool(row[5]),
            arguments=_select_arguments(connection, row[0]),
            engine=Engine(row[6]),
            accelerator=row[7],
            timeouts=Timeouts(*row[8:12]),
            env=tuple(json.loads(row[12])),
        )
        for row in rows.fetchall()
    )


def _launcher(name: str, keys: str) -> Launcher:
    """Raises ValueError where there is no such launcher, or it has no such keys."""
    launcher = launcher_named(name)
    return launcher(launcher.Keys.model_validate_json(keys))


def _require_known_arguments(deployment: Deployment) -> None:
    """Raises ValueError where TGI's launcher of that version has no such argument."""
    if deployment.engine is not Engine.TGI:
        return
    try:
        known = {spec.name for spec in arguments_of(deployment.tgi_version)}
    except InputError as error:
        raise ValueError(str(error)) from error
    for argument in deployment.arguments:
        if argument.name not in known:
            raise ValueError(f"text-generation-launcher has no argument {argument.name!r}")


def _select_arguments(
    connection: sqlite3.Connection, deployment_id: str
) -> tuple[LauncherArgument, ...]:
    rows = connection.execute(
        "SELECT name, value, variable FROM deployment_arguments WHERE deployment_id = ? "
        "ORDER BY position",
        (deployment_id,),
    )
    return tuple(
        LauncherArgument(name, _argument(json.loads(value)), bool(variable))
        for name, value, variable in rows
    )


def _argument(value: object) -> ArgumentValue:
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise ValueError(f"an argument's value is {value!r}")


def _asked(connection: sqlite3.Connection, kind: str) -> list[str]:
    """Each trial of one kind as it was asked for, in the plan's order."""
    rows = connection.execute("SELECT asked FROM trials WHERE kind = ? ORDER BY position", (kind,))
    return [asked for (asked,) in rows]
