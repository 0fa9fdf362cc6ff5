"""Alibaba's GPU traces (github.com/alibaba/clusterdata): ``cluster-trace-gpu-v2020`` and ``cluster-trace-gpu-v2023``.

v2020, ``pai_task_table.csv`` (Weng et al., NSDI 2022), has no header; a line is a task.  What is taken from it:

- ``plan_gpu`` is in percent of a device and counts for each of ``inst_num`` instances, so a job needs
  ceil(plan_gpu x inst_num / 100) devices; a task that shares (plan_gpu below 100) uses of them what it has asked for;
- submission is the task's start: when it was submitted is in another table, and its wait there is not ours;
- tasks without a device or without both times, and those not Terminated (the only ones that went well), are left out.

v2023, ``openb_pod_list_*.csv`` (Weng et al., USENIX ATC 2023), has a header; a line is a pod:

- devices are ``num_gpu``; with one, ``gpu_milli`` thousandths of it are used;
- submission is ``creation_time``, duration is ``deletion_time - scheduled_time``, whatever the pod's last phase was;
- pods without a device, and those that were never scheduled or never deleted, are left out.
"""

from __future__ import annotations

from itertools import chain
from pathlib import Path

from carpool.sim.model.trace_job import WHOLE_PPM, TraceJob
from carpool.sim.traces.files import Collection, Found, TraceError, quoted, rows
from carpool.sim.traces.numbers import Unfit, decimal, whole

V2020 = ("job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu", "plan_mem", "plan_gpu",
         "gpu_type")  # fmt: skip
V2023 = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos", "pod_phase", "creation_time",
         "deletion_time", "scheduled_time")  # fmt: skip
STATUSES = ("Running", "Terminated", "Failed", "Waiting")

_WHOLE_PERCENT = 100_000_000  # 100 % in millionths of a percent


def read_alibaba(path: Path) -> tuple[list[TraceJob], list[str]]:
    """Read a trace of either version.  Raises TraceError for the first line that is wrong."""
    lines = rows(path)
    first = next(lines, None)
    if first is None:
        raise TraceError.at(path, "", "the file is empty; fetch it again")
    names = V2023 if _is_header(first[1], V2023) else V2020
    read = _read_pod if names is V2023 else _read_task
    collection = Collection(path)
    for line, row in lines if _is_header(first[1], names) else chain([first], lines):
        if len(row) != len(names):
            raise TraceError.at(path, f"line {line}", f"there are {len(row)} fields, not {len(names)}; check the file")
        try:
            read(dict(zip(names, row, strict=True)), collection)
        except _BadCell as why:
            raise TraceError.at(path, f"line {line}", str(why)) from None
    return collection.finish()


class _BadCell(ValueError):
    """The text says what is wrong."""


def _is_header(row: list[str], names: tuple[str, ...]) -> bool:
    return tuple(cell.strip() for cell in row) == names


def _read_task(cells: dict[str, str], collection: Collection) -> None:
    share = _number(cells, "plan_gpu", 6) or 0  # of each instance, in millionths of a percent
    start, end = _number(cells, "start_time", 6), _number(cells, "end_time", 6)
    if not share:
        collection.skip("task without a GPU", "tasks without a GPU")
    elif cells["status"] != "Terminated":
        collection.skip("task that did not end well", "tasks that did not end well")
    elif start is None or end is None or end <= start:
        collection.skip("task without a start and a later end", "tasks without a start and a later end")
    else:
        total = share * (_count(cells, "inst_num") or 1)
        gpus = max(1, -(-total // _WHOLE_PERCENT))
        used = total * WHOLE_PPM // (gpus * _WHOLE_PERCENT) if share < _WHOLE_PERCENT else WHOLE_PPM
        name = f"{cells['job_name']}/{cells['task_name']}"
        collection.add(Found(start, name, end - start, gpus, max(1, used), model=cells["task_name"]))


def _read_pod(cells: dict[str, str], collection: Collection) -> None:
    gpus = _count(cells, "num_gpu") or 0
    milli = _number(cells, "gpu_milli", 3) or WHOLE_PPM
    start, end = _number(cells, "scheduled_time", 6), _number(cells, "deletion_time", 6)
    submit = _number(cells, "creation_time", 6)
    if not gpus:
        collection.skip("pod without a GPU", "pods without a GPU")
    elif submit is None or start is None or end is None or end <= start:
        collection.skip("pod that never ran", "pods that never ran")
    else:
        used = min(milli, WHOLE_PPM) if gpus == 1 else WHOLE_PPM
        collection.add(Found(submit, cells["name"], end - start, gpus, used))


def _number(cells: dict[str, str], name: str, digits: int) -> int | None:
    cell = cells[name]
    try:
        return decimal(cell, digits) if cell else None
    except Unfit:
        raise _BadCell(f"{name} is {quoted(cell)}; it must be a number, 0 or more, or empty") from None


def _count(cells: dict[str, str], name: str) -> int | None:
    cell = cells[name]
    try:
        return whole(cell) if cell else None
    except Unfit:
        raise _BadCell(f"{name} is {quoted(cell)}; it must be a whole number, 0 or more, or empty") from None
