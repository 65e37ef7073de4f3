"""Task trials, runs and whole runs of direct mode, made by hand."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from tests.report.made import judge
from tgi_bench.analysis.run import Origin, Run
from tgi_bench.kinds.direct.figures import DirectRecord, summarise_task
from tgi_bench.observation import Outcome, TrialEnd
from tgi_bench.plan.plan import Plan
from tgi_bench.task_observation import DirectFacts, TaskCall, TaskPart, TaskRun
from tgi_bench.trials.direct import (
    DirectModel,
    Dtype,
    FindBatch,
    GenerateTask,
    SummarizeTask,
    TaskDevice,
    TaskTrial,
)

OK = TrialEnd(Outcome.OK, "")
MEMORY = TrialEnd(Outcome.OUT_OF_MEMORY, "CUDA out of memory. Tried to allocate 2.00 GiB")
SKIPPED = TrialEnd(Outcome.SKIPPED, "batch size 4 ran out of memory already")
FAILED = TrialEnd(Outcome.FAILED, "ValueError: no")
SUMMARY = SummarizeTask(20, None, 16, 2, 4, 8)
MS = 1_000_000
IN_EFFECT = {
    Dtype.FP32: "float32",
    Dtype.FP16: "float16",
    Dtype.BF16: "bfloat16",
    Dtype.INT8: "int8",
    Dtype.INT4: "nf4",
}


def model(dtype: Dtype = Dtype.BF16, **changes: object) -> DirectModel:
    made = DirectModel(
        model_id=dtype.value,
        model="org/model",
        random_weights=True,
        weights_seed=0,
        dtype=dtype,
        device=TaskDevice.CUDA,
        num_shard=1,
        layer_split=1,
        memory_limit_bytes=None,
        load_timeout_s=600.0,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def facts(dtype: Dtype = Dtype.BF16, device: str = "NVIDIA L4", devices: int = 1) -> DirectFacts:
    return DirectFacts(
        device=device,
        devices=devices,
        memory_bytes=23_034 * 2**20,
        on_cpu=device == "cpu",
        dtype=IN_EFFECT[dtype],
        parameters=1000,
        weights_bytes=2 * 2**30,
        tokenizer="WordTokenizer",
        load_ns=1_500 * MS,
        details=(("torch", "2.13.0"), ("transformers", "4.57.6")),
    )


def generate(
    batch_size: int | None, of: DirectModel | None = None, find: FindBatch | None = None
) -> TaskTrial:
    made = of or model()
    end = "find" if batch_size is None else f"b{batch_size}"
    return TaskTrial(
        trial_id=f"{made.model_id}/generate-p4-n3-{end}",
        model=made,
        task=GenerateTask(4, 3, batch_size, find),
        runs=3,
        warmups=1,
        run_timeout_s=60.0,
        prompt_seed=0,
    )


def summarize(of: DirectModel | None = None) -> TaskTrial:
    made = of or model()
    name = f"{made.model_id}/summarize-t20-c16"
    return TaskTrial(name, made, SUMMARY, 3, 1, 60.0, 0)


def call(
    began_ns: int, steps_ms: Sequence[int], batch_size: int = 1, part: TaskPart = TaskPart.GENERATE
) -> TaskCall:
    ends = [began_ns + ms * MS for ms in accumulate(steps_ms)]
    return TaskCall(part, 4 * batch_size, len(steps_ms) * batch_size, began_ns, array("q", ends))


def task_run(
    index: int, steps_ms: Sequence[int] = (6, 2, 2), batch_size: int = 1, probe: int = 0
) -> TaskRun:
    """One call; the first of a trial is its warm-up."""
    began_ns = 1000 * MS * (index + 1)
    made = call(began_ns, steps_ms, batch_size)
    return TaskRun(
        batch_size=batch_size,
        probe=probe,
        run_index=index,
        warmup=index == 0,
        began_ns=began_ns,
        ended_ns=made.ended_ns,
        peak_bytes=3 * 2**30 + index,
        calls=(made,),
        outcome=Outcome.OK,
        reason="",
    )


def failed_run(end: TrialEnd, batch_size: int = 1, probe: int = 0, index: int = 0) -> TaskRun:
    made = task_run(index, batch_size=batch_size, probe=probe)
    return replace(made, calls=(), peak_bytes=None, outcome=end.outcome, reason=end.reason)


def task_runs(batch_size: int = 1, slower: int = 1, probe: int = 0) -> list[TaskRun]:
    """A warm-up of 30 ms, then runs of 10, 10 and 11 ms; `slower` times as long."""
    steps = ([20, 5, 5], [6, 2, 2], [6, 2, 2], [7, 2, 2])
    return [
        task_run(index, [slower * ms for ms in of_run], batch_size, probe)
        for index, of_run in enumerate(steps)
    ]


def summary_runs(slower: int = 1) -> list[TaskRun]:
    """Two map calls of 4 tokens and a reduce call of 8, 1 ms each and 1 ms of text after them."""
    found = []
    for index in range(4):
        began_ns = 5000 * MS * (index + 1)
        calls = [
            call(began_ns, [slower] * 4, part=TaskPart.MAP),
            call(began_ns + 4 * slower * MS, [slower] * 4, part=TaskPart.MAP),
            call(began_ns + 8 * slower * MS, [slower] * 8, part=TaskPart.REDUCE),
        ]
        ended_ns = calls[-1].ended_ns + MS
        made = task_run(index)
        found.append(replace(made, began_ns=began_ns, ended_ns=ended_ns, calls=tuple(calls)))
    return found


def run_of(
    found: Sequence[tuple[TaskTrial, Sequence[TaskRun], TrialEnd | None]],
    device: str = "NVIDIA L4",
    run_id: str = "20260101T000000Z-dddddd",
    *,
    loaded: bool = True,
) -> Run:
    """A measured run of direct mode."""
    trials = tuple(trial for trial, _, _ in found)
    plan = Plan("sample", "org/model", (), (), (), "d" * 64, task_trials=trials)
    tasks = tuple(summarise_task(*parts) for parts in found)
    finished = all(end is not None for _, _, end in found)
    return Run(
        run_id=run_id,
        plan=plan,
        origin=Origin.MEASURED,
        environment=(
            ("tgi-bench", "0.1.0"),
            ("CPU", "AMD EPYC | two"),
            ("GPUs", "NVIDIA L4, 550.54, 23033 MiB; NVIDIA L4, 550.54, 23033 MiB"),
        ),
        deployments=(),
        verdict=judge(plan, Origin.MEASURED, (), tasks, finished),
        finished=finished,
        found=(
            *tasks,
            *(
                DirectRecord(m, facts(m.dtype, device, m.devices), "")
                if loaded
                else DirectRecord(m, None, "it does not fit")
                for m in plan.direct_models
            ),
        ),
    )


def whole_run(device: str = "NVIDIA L4", slower: int = 1) -> Run:
    """fp32 and bf16: fp32 runs out of memory at 4; a search and a summary of each."""
    find = FindBatch(1, 8, 0.1)
    found: list[tuple[TaskTrial, Sequence[TaskRun], TrialEnd | None]] = []
    for dtype, factor in ((Dtype.FP32, 2 * slower), (Dtype.BF16, slower)):
        made = model(dtype)
        found.append((generate(1, made), task_runs(1, factor), OK))
        if dtype is Dtype.FP32:
            memory = failed_run(MEMORY, 4)
            found += [(generate(4, made), [memory], MEMORY), (generate(8, made), [], SKIPPED)]
        else:
            found += [(generate(n, made), task_runs(n, factor), OK) for n in (4, 8)]
            probes = [*task_runs(16, factor), failed_run(MEMORY, 32, 1)]
            found.append((generate(None, made, find), probes, OK))
        found.append((summarize(made), summary_runs(factor), OK))
    return run_of(found, device)
