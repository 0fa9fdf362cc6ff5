"""Carpool's own trace format: what it means, what it refuses, and that nothing is lost in a file."""

from __future__ import annotations

import gzip
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from carpool.core.model import MIB
from carpool.sim.model.trace_job import WHOLE_PPM, TraceJob
from carpool.sim.traces import FORMATS, TraceError, read_trace, read_trace_with_notes, write_trace
from carpool.sim.traces.columns import COLUMNS, DEFAULTS, ESTIMATE
from carpool.sim.traces.numbers import Unfit, decimal
from tests.examples import examples

ROOT = Path(__file__).resolve().parents[2]


def trace(folder: Path, text: str | bytes) -> Path:
    path = folder / "trace.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def only(folder: Path, header: str, row: str) -> TraceJob:
    (job,) = read_trace(trace(folder, f"{header}\n{row}\n"))
    return job


def test_the_least_that_a_trace_says(tmp_path: Path) -> None:
    text = "job_id,submit_s,gpus,duration_s\na,0,1,10\nb,0.1,2,1e3\n"
    assert read_trace(trace(tmp_path, text)) == [
        TraceJob("a", 0, 10_000_000),
        TraceJob("b", 100_000, 1_000_000_000, gpus=2),
    ]


def test_every_column_in_any_order(tmp_path: Path) -> None:
    header = (
        "model,deadline_s,weight,owner,fails_at,checkpoint_s,utilization,ephemeral_mib,persistent_mib,host_ms,"
        "iteration_ms,iterations,duration_s,gpus,submit_s,job_id,end_s,startup_cpu_s,end_cpu_s,"
        "cores,switch_ms"
    )
    row = "resnet,60,50,7,0.25,1.5,0.3,100.5,20,0.5,1.5,1000,3,4,2.5,x,0.75,1.25,0,1.5,0.25"
    assert only(tmp_path, header, row) == TraceJob(
        id="x", submit_us=2_500_000, duration_us=3_000_000, gpus=4, iterations=1000, iteration_us=1500, host_us=500,
        persistent=20 * MIB, ephemeral=100 * MIB + MIB // 2, utilization_ppm=300_000, model="resnet", weight=50,
        deadline_us=60_000_000, owner=7, fails_at_ppm=250_000, checkpoint_us=1_500_000, end_us=750_000,
        startup_cpu_us=1_250_000, end_cpu_us=0, cores_ppm=1_500_000, switch_us=250,
    )  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        b"\xef\xbb\xbfjob_id,submit_s,duration_s\na,0,1\n",
        b"job_id,submit_s,duration_s\r\na,0,1\r\n\r\n",
        b"job_id, submit_s ,duration_s\na,0,1\n\n  \n\n",
        b"job_id,submit_s,duration_s,gpus,model,deadline_s,iterations,host_ms\na,0,1,,,,,",
        gzip.compress(b"job_id,submit_s,duration_s\na,0,1\n"),
    ],
    ids=["byte order mark", "CRLF", "blank lines", "empty cells", "compressed"],
)
def test_what_other_programs_make_of_such_files(tmp_path: Path, text: bytes) -> None:
    assert read_trace(trace(tmp_path, text)) == [TraceJob("a", 0, 1_000_000)]


@pytest.mark.parametrize(
    ("header", "row", "timing"),
    [
        ("iterations,iteration_ms", "10,100", (1_000_000, 10, 100_000, 0)),
        ("iterations,iteration_ms,host_ms", "10,100,20", (1_200_000, 10, 100_000, 20_000)),
        ("iterations,iteration_ms,duration_s", "10,100,1.5", (1_500_000, 10, 100_000, 500_000)),
        ("iterations,iteration_ms,duration_s", "10,100,0.9995", (1_000_000, 10, 100_000, 0)),
        ("iteration_ms,duration_s", "300,1", (1_000_000, 3, 300_000, 100_000)),
        ("iteration_ms,host_ms,duration_s", "300,100,1", (1_000_000, 2, 300_000, 200_000)),
        ("iteration_ms,host_ms,duration_s", "300,100,0.2", (200_000, 1, 100_000, 0)),
        ("iteration_ms,host_ms,duration_s", "300,300,0.2", (200_000, 1, 1, 0)),
        ("iterations,duration_s", "3,1", (1_000_000, 3, 333_333, 1)),
        ("iterations,host_ms,duration_s", "4,50,1", (1_000_000, 4, 200_000, 0)),
        ("iterations,iteration_ms,end_s", "10,100,0.5", (1_500_000, 10, 100_000, 0)),
        ("iterations,iteration_ms,end_s,duration_s", "10,100,0.5,1.75", (1_750_000, 10, 100_000, 250_000)),
        ("iteration_ms,end_s,duration_s", "300,0.25,1", (1_000_000, 2, 300_000, 150_000)),
        ("iterations,end_s,duration_s", "4,0.2,1", (1_000_000, 4, 200_000, 0)),
        ("end_s,duration_s", "0.2,1", (1_000_000, None, None, 0)),
    ],
)
def test_what_follows_from_what(tmp_path: Path, header: str, row: str, timing: tuple[int | None, ...]) -> None:
    """The last figure is start-up, or the host time of one iteration where there is no start-up."""
    job = only(tmp_path, f"job_id,submit_s,{header}", f"a,0,{row}")
    assert (job.duration_us, job.iterations, job.iteration_us) == timing[:3]
    assert job.startup_us >= 0
    assert timing[3] in (job.startup_us, job.host_us)


WRONG_CELLS = [
    ("duration_s", "abc", 'duration_s is "abc"; it must be a number of seconds greater than 0'),
    ("duration_s", "0", 'duration_s is "0" (no time at all); it must be a number of seconds greater than 0'),
    ("duration_s", "0.000", "no time at all"),
    ("duration_s", "-1", 'duration_s is "-1"; it must be a number of seconds greater than 0'),
    ("duration_s", "nan", 'duration_s is "nan"'),
    ("duration_s", "inf", 'duration_s is "inf"'),
    ("duration_s", "1e400", "too large"),
    ("duration_s", "1e99999999999", "a number of seconds"),
    ("duration_s", "9" * 50, "too large"),
    ("duration_s", "9" * 5000, '9..."; it must be'),
    ("duration_s", "1/3", "a number of seconds"),
    ("duration_s", "1_000", "a number of seconds"),
    ("duration_s", "١", "a number of seconds"),
    ("duration_s", "²", "a number of seconds"),
    ("submit_s", "-0.5", 'submit_s is "-0.5"; it must be a number of seconds, 0 or more'),
    ("submit_s", "", "submit_s is empty; it must be a number of seconds, 0 or more"),
    ("job_id", "", "job_id is empty; it must be a name"),
    ("job_id", " ", 'job_id is " "; it must be a name'),
    ("gpus", "0", 'gpus is "0"; it must be a whole number of at least 1'),
    ("gpus", "1.5", 'gpus is "1.5" (not a whole number); it must be a whole number of at least 1'),
    ("iterations", "0", "a whole number of at least 1"),
    ("iteration_ms", "0", "a number of milliseconds greater than 0"),
    ("host_ms", "-1", "a number of milliseconds, 0 or more"),
    ("persistent_mib", "1GiB", "a number of MiB, 0 or more"),
    ("ephemeral_mib", "-1", "a number of MiB, 0 or more"),
    ("utilization", "0", "a number greater than 0 and at most 1"),
    ("utilization", "1.5", "a number greater than 0 and at most 1"),
    ("fails_at", "0", "a number greater than 0 and at most 1"),
    ("fails_at", "2", "a number greater than 0 and at most 1"),
    ("weight", "0", "a whole number of at least 1"),
    ("owner", "alice", "a whole number, 0 or more"),
    ("checkpoint_s", "0", "a number of seconds greater than 0"),
    ("deadline_s", "soon", "a number of seconds, 0 or more"),
]


@pytest.mark.parametrize(("column", "cell", "message"), WRONG_CELLS)
def test_wrong_cells(tmp_path: Path, column: str, cell: str, message: str) -> None:
    good = {"job_id": "a", "submit_s": "0", "duration_s": "10"}
    bad = {**good, "job_id": "b", column: cell}
    header = list(bad)
    text = "\n".join(",".join(row) for row in (header, [good.get(name, "") for name in header], list(bad.values())))
    path = trace(tmp_path, text)
    with pytest.raises(TraceError) as caught:
        read_trace(path, "csv")
    assert str(caught.value).startswith(f"{path}, line 3: ")
    assert message in str(caught.value)
    assert len(str(caught.value)) < len(str(path)) + 200


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("\n\n", "the file is empty"),
        ("job_id,submit_s,duration_s\n", "there are no jobs below the header"),
        ("job_id,submit_s,duration_s,colour\na,0,1,red\n", 'line 1: the column "colour" is unknown; remove it, or'),
        ("job_id,submit_s,duration_s,submit_s\na,0,1,0\n", "line 1: the column submit_s is there twice"),
        ("submit_s,duration_s\n0,1\n", "line 1: the column job_id is missing"),
        ("job_id,submit_s\na,0\n", "line 1: the column duration_s is missing; add it, or both iterations and"),
        ("job_id,submit_s,iterations\na,0,3\n", "line 1: the column duration_s is missing"),
        ("job_id,submit_s,duration_s\na,0,1\na,1,1\n", 'line 3: job_id "a" is used a second time'),
        ("job_id,submit_s,duration_s\na,0,1\nb,1\n", "line 3: there are 2 fields, but the header names 3"),
        ("job_id,submit_s,duration_s\na,0,1,4\n", "line 2: there are 4 fields, but the header names 3"),
        ('job_id,submit_s,duration_s\n"a\nb",0,1\n\nc,x,1\n', "line 5: submit_s"),
        ('job_id,submit_s,duration_s\na,0,1\n"b\nc",x,1\n', "line 3: submit_s"),
        ("job_id,submit_s,duration_s\na,0,\n", "line 2: there is neither duration_s nor iterations with iteration_ms"),
        ("job_id,submit_s,duration_s,iterations,iteration_ms\na,0,0.9,10,100\n",
         "line 2: duration_s is 0.9, but the iterations alone take 1 s; make it longer, or leave it empty"),
        ("job_id,submit_s,duration_s,iterations,host_ms\na,0,1,10,100\n", "line 2: duration_s leaves no device time"),
        ("job_id,submit_s,duration_s,host_ms\na,0,1,100\n", "line 2: there is host_ms without iterations"),
        ("job_id,submit_s,duration_s,end_s\na,0,1,1\n", "line 2: end_s leaves nothing of duration_s, which is 1; make"),
        ('job_id,submit_s,duration_s\n"a,0,1\n' + "x" * 200_000, "line 2: field larger than field limit"),
    ],
)  # fmt: skip
def test_wrong_files(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(TraceError) as caught:
        read_trace(trace(tmp_path, text))
    assert message in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"none\.csv: it cannot be read: No such file"):
        read_trace(tmp_path / "none.csv")
    with pytest.raises(TraceError, match="Is a directory"):
        read_trace(tmp_path)
    with pytest.raises(TraceError, match="not text in UTF-8"):
        read_trace(trace(tmp_path, b"job_id,submit_s,duration_s\na,0,1\n\xff,1,1\n"))
    with pytest.raises(TraceError, match="compressed file is damaged"):
        read_trace(trace(tmp_path, gzip.compress(b"job_id,submit_s,duration_s\n" * 50)[:-20]))
    with pytest.raises(TraceError, match="this is a database, not a trace"):
        read_trace(trace(tmp_path, b"SQLite format 3\0rest"))


def test_unknown_formats_name_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match='"xml" is not a trace format; use one of auto, csv, philly, alibaba'):
        read_trace(tmp_path / "a", "xml")
    assert FORMATS == ("auto", "csv", "philly", "alibaba")


@pytest.mark.parametrize(
    ("cell", "micros"),
    [("0.1", 100_000), ("0.3", 300_000), ("1e3", 10**9), (".5", 500_000), ("5.", 5_000_000), (" 7 ", 7_000_000),
     ("0.0000005", 1), ("0.00000049999", 0), ("123456789.123456", 123_456_789_123_456), ("+2", 2_000_000),
     ("0.1234565", 123_457), ("1234567.8901234999", 1_234_567_890_123), ("2.5E-6", 3)],
)  # fmt: skip
def test_times_are_exact_and_half_a_microsecond_goes_up(cell: str, micros: int) -> None:
    assert decimal(cell, 6) == micros


@given(st.text("0123456789.eE+-_ xnaif", max_size=12))
def test_numbers_are_numbers_or_refused(cell: str) -> None:
    """Anything that Python takes for a plain number comes out right; nothing else gets through."""
    try:
        value = decimal(cell, 6)
    except Unfit:
        return
    assert abs(value - float(cell) * 1e6) <= 0.5 + abs(value) * 1e-12


TIMES = st.integers(0, 10**12)
ESTIMATORS = st.sampled_from(["horus", "fake tensor", "a_mib", "NAME"])


@st.composite
def trace_jobs(draw: st.DrawFn, name: str) -> TraceJob:
    iterations = draw(st.none() | st.integers(1, 10**6))
    each, host, startup, end = draw(st.integers(1, 10**8)), draw(TIMES), draw(TIMES), draw(TIMES)
    return TraceJob(
        id=name,
        submit_us=draw(TIMES),
        duration_us=startup + (1 if iterations is None else iterations * (each + host)) + end,
        gpus=draw(st.integers(1, 64)),
        iterations=iterations,
        iteration_us=None if iterations is None else each,
        host_us=0 if iterations is None else host,
        persistent=draw(st.integers(0, 1 << 45)),
        ephemeral=draw(st.integers(0, 1 << 45)),
        utilization_ppm=draw(st.integers(1, WHOLE_PPM)),
        occupancy_ppm=draw(st.none() | st.integers(1, WHOLE_PPM)),
        dram_ppm=draw(st.none() | st.integers(1, WHOLE_PPM)),
        estimates=tuple(sorted(draw(st.dictionaries(ESTIMATORS, st.integers(0, 1 << 45), max_size=2)).items())),
        model=draw(st.sampled_from(["", "vgg16", 'a, "b"\nc'])),
        weight=draw(st.integers(1, 1000)),
        deadline_us=draw(st.none() | TIMES),
        owner=draw(st.integers(0, 1 << 32)),
        fails_at_ppm=draw(st.none() | st.integers(1, WHOLE_PPM)),
        checkpoint_us=draw(st.none() | st.integers(1, 10**12)),
        end_us=end,
        startup_cpu_us=draw(st.none() | TIMES),
        end_cpu_us=draw(st.none() | TIMES),
        cores_ppm=draw(st.just(0) | TIMES),
        switch_us=draw(st.just(0) | TIMES),
    )


IDS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8).filter(str.strip)
TRACES = st.lists(IDS, min_size=1, max_size=5, unique=True).flatmap(
    lambda names: st.tuples(*(trace_jobs(name) for name in names))
)


@given(TRACES, st.sampled_from(["trace.csv", "trace.csv.gz"]))
@example((TraceJob("a", 0, 1),), "trace.csv")
@settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(150, fewer=50)
)
def test_to_a_file_and_back(tmp_path: Path, jobs: tuple[TraceJob, ...], name: str) -> None:
    write_trace(jobs, tmp_path / name)
    assert read_trace(tmp_path / name, "csv") == list(jobs)


def test_only_columns_that_somebody_needs_are_written(tmp_path: Path) -> None:
    jobs = [TraceJob("a", 0, 1_500_000), TraceJob("b", 7, 1_000_000, weight=50)]
    write_trace(jobs, tmp_path / "trace.csv")
    assert (tmp_path / "trace.csv").read_text() == "job_id,submit_s,duration_s,weight\na,0,1.5,100\nb,0.000007,1,50\n"


def test_equal_jobs_give_equal_files(tmp_path: Path) -> None:
    """A compressed file usually says when it was made."""
    path = tmp_path / "trace.csv.gz"
    write_trace([TraceJob("a", 0, 1)], path)
    assert path.read_bytes()[4:8] == bytes(4)


def test_jobs_that_do_not_add_up_are_not_written(tmp_path: Path) -> None:
    job = TraceJob("a", 0, 100, iterations=3, iteration_us=50)
    late = TraceJob("a", 0, 100, end_us=100)
    for broken in (job, replace(job, iteration_us=None), replace(job, iterations=None), late):
        with pytest.raises(ValueError, match='job "a" cannot be written'):
            write_trace([broken], tmp_path / "trace.csv")


def test_jobs_are_small(tmp_path: Path) -> None:
    """A million of them should fit into 350 MB."""
    rows = "".join(f"{number},{number},{number % 4 + 1},{number % 977 + 300},vgg16\n" for number in range(10_000))
    path = trace(tmp_path, "job_id,submit_s,gpus,duration_s,model\n" + rows)
    tracemalloc.start()
    jobs, notes = read_trace_with_notes(path)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (len(jobs), notes) == (10_000, [])
    assert size < 350 * len(jobs)


def test_all_fields_have_a_column_and_a_place_in_the_docs() -> None:
    columns = (*COLUMNS, ESTIMATE)
    assert {column.field for column in columns} == set(TraceJob.__dataclass_fields__)
    page = (ROOT / "docs" / "traces.md").read_text()
    for column in columns:
        default = DEFAULTS.get(column.field)
        shown = "" if default in (None, "", ()) else column.show(default)
        assert f"| `{column.name}` | {column.about} | {shown} |" in page
