"""ls, show, devices, top and events: what is printed, for people and for scripts."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from carpool.cli.commands.devices.devices import sharing_line
from carpool.cli.commands.jobs.ls import job_table
from carpool.cli.commands.jobs.show import describe
from carpool.cli.render.output import Output
from carpool.cli.render.placement_table import _ORDERS, explain_placement
from carpool.cli.render.top_frame import Snapshot, frame
from carpool.core.policies.placement import available_placements
from carpool.protocol.api import JobList, LoadInfo, MovedInfo, PlacementInfo, PlacementRow, ReasonInfo
from tests.cli.conftest import Cli
from tests.cli.standin import Answer, Request, StandIn, as_json, device, device_list, ended, job, load_of

WAITS = ReasonInfo("memory", "waiting for memory: needs 3.1 GiB, largest lane 2 GiB")
MOVED = MovedInfo(out_bytes=3 << 30, out_us=500_000, in_bytes=2 << 30, in_us=250_000)
JOBS = [
    job(1, name="vae", holds_turn=True),
    job(2, phase="queued", device=None, lane=None, reason=WAITS, iterations=0, iterations_total=None),
    ended(3, "failed", exit_code=3, reason=ReasonInfo("exit", "exit code 3")),
    ended(4, name="two\nlines \x1b[31m"),
]


@pytest.fixture
def standin(standin: StandIn) -> Iterator[StandIn]:
    def jobs(request: Request) -> Answer:
        wanted = request.query.partition("phase=")[2].partition("&")[0].split(",")
        return Answer(msgspec.json.encode(JobList([j for j in JOBS if wanted == [""] or j.phase in wanted])))

    standin.reactions |= {
        "GET /v1/jobs": jobs,
        "GET /v1/jobs/2": Answer(msgspec.json.encode(JOBS[1])),
        "GET /v1/devices": device_list(device([1], holder=1, moved=MOVED)),
        "GET /v1/policy": as_json({"name": "fair", "available": ["fair", "fifo"], "settings": {"quantum_us": 50000}}),
        **load_of("host0"),
    }
    return standin


def test_ls_asks_for_what_is_active_and_the_last_that_ended(standin: StandIn, carpool: Cli) -> None:
    carpool.ok("ls")
    carpool.ok("ls", "--all")
    carpool.ok("ls", "-n", "3", "--state", "queued", "--state", "ended")
    carpool.ok("ls", "-n", "3", "--state", "failed", "--state", "offloaded")
    assert [request.query for request in standin.requests] == [
        "phase=queued,starting,running,stopping&limit=1000",
        "phase=ended&limit=10",
        "limit=1000",
        "phase=queued,ended&limit=3",
        "phase=ended,running&limit=1000",
    ]


def test_the_last_ten_are_rows_not_elements(standin: StandIn, carpool: Cli) -> None:
    rows = [ended(n, "failed", name=f"before-{n}") for n in range(1, 13)]
    rows += [ended(13 + n, name="many", array=13, index=n) for n in range(30)]
    rows += [job(43, name="going", array=43, index=0)]
    rows += [ended(44 + n, name="going", array=43, index=1 + n) for n in range(15)]

    def jobs(request: Request) -> Answer:
        asked = dict(part.split("=") for part in request.query.split("&"))
        of_array = [one for one in rows if str(one.array) == asked.get("array")]
        found = of_array or [one for one in rows if one.phase in asked["phase"].split(",")]
        return Answer(msgspec.json.encode(JobList(found[-int(asked.get("limit", 1000)) :])))

    standin.reactions["GET /v1/jobs"] = jobs
    shown = [line.split()[:2] for line in carpool.ok("ls").splitlines()[1:]]
    assert shown == [*([str(n), f"before-{n}"] for n in range(4, 13)), ["13[0-29]", "many"], ["43[0-15]", "going"]]
    elements = [line.split()[0] for line in carpool.ok("ls", "--elements").splitlines()[1:]]
    assert elements == ["43_0", *(f"43_{n}" for n in range(6, 16))], "with --elements these are the rows"
    named = [line.split()[0] for line in carpool.ok("ls", "--name", "before-*").splitlines()[1:]]
    assert named == [str(n) for n in range(3, 13)]


def test_ls_selects_by_what_the_column_says(standin: StandIn, carpool: Cli) -> None:
    rows = [
        job(1, phase="running", offloaded=True),
        job(2, phase="running"),
        *(ended(n, outcome) for n, outcome in ((3, "failed"), (4, "succeeded"), (5, "failed"))),
    ]
    standin.reactions["GET /v1/jobs"] = Answer(msgspec.json.encode(JobList(rows)))

    def selected(*options: str) -> list[str]:
        return [line.split()[0] for line in carpool.ok("ls", *options).splitlines()[1:]]

    assert selected("--state", "failed") == ["3", "5"]
    assert selected("--state", "failed", "-n", "1") == ["5"]
    assert selected("--state", "offloaded", "--state", "succeeded") == ["1", "4"]


def test_ls_json_is_what_the_api_says(standin: StandIn, carpool: Cli) -> None:
    listed = msgspec.json.decode(carpool.ok("ls", "--json"), type=JobList)
    assert listed.jobs == JOBS


def test_owners_are_named_where_there_are_several() -> None:
    mine, others = job(1, owner=0), job(2, owner=4_000_001)  # nobody has that number
    header, first, second = job_table([mine, others], Output())
    assert header.split()[:3] == ["ID", "NAME", "OWNER"]
    assert "root" in first.split() and "4000001" in second.split()
    snapshot = Snapshot(10_000_000, "fair", [device([1, 2])], [mine, others], [])
    assert any("OWNER" in line for line in frame(snapshot, Output(), None))
    assert "OWNER" not in job_table([mine, job(3, owner=0)], Output())[0]


def test_columns_without_content_are_left_out_in_pipes_too() -> None:
    waits = job(2, phase="queued", device=None, iterations=0, iterations_total=None, reason=WAITS)
    for width in (200, None):
        titles = job_table([waits], Output(width))[0].split()
        assert titles == ["ID", "NAME", "STATE", "MEMORY", "P/L", "TIME", "WHY"]
    both = job_table([waits, job(3)], Output())  # what one row has, all have
    assert "DEVICE" in both[0] and " - " in both[1]
    assert "DEVICE" in job_table([], Output())[0]


def test_of_another_users_job_there_is_less_to_show() -> None:
    """The limit `visibility`: the daemon sends neither command nor directory, and of reasons the code only."""
    hidden = job(7, command=[], cwd="", reason=ReasonInfo("memory", ""), phase="queued")
    _, line = job_table([hidden], Output())
    assert line.split()[:2] == ["7", "queued"] and line.endswith("memory")
    facts = dict(describe(hidden, 0))
    assert facts["waits because"] == "[memory]" and not {"command", "directory"} & facts.keys()


def test_show_why_names_the_device_that_was_chosen_and_what_was_tried_last(standin: StandIn, carpool: Cli) -> None:
    busy = LoadInfo(910_000, 950_000, 600_000, None)
    little = ReasonInfo("margin", "needs 1 GiB and a margin of 2 GiB beside others")
    rows = [
        PlacementRow("cuda1", True, None, None, 8 << 30, 1 << 30, 2 << 30, [], [], None, [-(8 << 30), 0]),
        PlacementRow(
            "cuda0", False, WAITS, little, 2 << 30, 1 << 30, 2 << 30, [4, 7], [7], busy, [-(2 << 30), 2], 1_800_000
        ),
    ]
    placement = PlacementInfo(9, "magm", True, 5, rows, {7: "3_1"})
    standin.reactions["GET /v1/jobs/9"] = Answer(msgspec.json.encode(job(9, array=3, index=4)))
    standin.reactions["GET /v1/jobs/9/placement"] = Answer(msgspec.json.encode(placement))
    first, _, chosen, other, *remarks = carpool.ok("show", "9", "--why").splitlines()
    assert first == "job 3_4 placed on cuda1 (placement magm, strict)"
    assert chosen.split()[:2] == ["cuda1", "chosen"] and " 4,3_1  3_1 " in other
    assert remarks[:3] == [f"cuda0: {WAITS.text}", f"cuda0: tried last: {little.text}", ""]
    assert msgspec.json.decode(carpool.ok("show", "9", "--why", "--json"), type=PlacementInfo) == placement


@pytest.mark.parametrize(
    ("policy", "key", "said"),
    [
        ("magm", [-6318718976, 1], "5.9 GiB free, 1 job"),
        ("lug", [910_000, -(2 << 30)], "computes 91 %, 2 GiB free"),
        ("best-fit", [2 << 30], "2 GiB free"),
        ("round-robin", [0], "nothing was placed here yet"),
        ("round-robin", [12], "placement 12 was the last here"),
        ("first-fit", [0], "device 1 of the daemon"),
        ("exclusive", [1], "device 2 of the daemon"),
        ("mine.py:Mine", [-7, 3], "-7, 3"),
        ("magm", [1, 2, 3], "1, 2, 3"),  # of a daemon of another version
    ],
)
def test_what_a_device_is_sorted_by_is_said_in_words(policy: str, key: list[int], said: str) -> None:
    row = PlacementRow("cuda1", True, None, None, 8 << 30, 1 << 30, 2 << 30, [], [], None, key)
    assert explain_placement(PlacementInfo(9, policy, False, 5, [row]), Output())[2].endswith(f"  {said}")


def test_every_placement_of_ours_has_words_for_what_it_sorts_by() -> None:
    assert set(_ORDERS) == set(available_placements())


def test_of_a_job_that_has_ended_nothing_is_said_that_holds_no_more() -> None:
    over = ended(5, stored_bytes=37 << 20, offloaded=True, alone="NCCL", immovable="it has given it away", pid=7)
    facts = dict(describe(over, 0))
    assert {"stored", "alone", "not moved", "process", "turn"}.isdisjoint(facts)
    assert (facts["persistent"], facts["ephemeral"]) == ("10 MiB at most", "30 MiB at most")
    never = dict(describe(ended(5, persistent_bytes=0, ephemeral_bytes=0), 0))
    assert {"persistent", "ephemeral"}.isdisjoint(never)


def test_devices_shows_weights_of_models(standin: StandIn, carpool: Cli) -> None:
    standin.reactions["GET /v1/devices"] = device_list(device([1], weights_bytes=230 << 20))
    assert carpool.ok("devices").splitlines()[3] == (
        "  host0 weights of models: 230 MiB, evicted when other jobs need the memory"
    )


def test_devices_shows_how_each_is_shared() -> None:
    for sharing, words in (("timeslice", "slices of time"), ("mps", "through an MPS server")):
        line = sharing_line(device([1], sharing=sharing))
        assert words in line and line.endswith(f"({sharing})")
    assert sharing_line(device([1, 2], alone=2)) == ("  host0 sharing: exclusive to job 2 (`carpool show 2` shows why)")


def test_a_job_that_does_not_share_says_why() -> None:
    bound = job(5, alone="its processes communicate by NCCL", immovable="it has given it away", fixed_bytes=3 << 20)
    facts = dict(describe(bound, 0))
    assert facts["alone"] == "needs exclusive use of its device: its processes communicate by NCCL"
    assert facts["not moved"] == "its memory stays on the device: it has given it away"
    assert facts["unmanaged"].startswith("3 MiB of device memory allocated past Carpool")
    row = job_table([bound], Output())[1]
    assert row.endswith(
        "exclusive use of its device: its processes communicate by NCCL; is not moved: it has given it away"
    )
    waits = job(5, alone="it was submitted with --exclusive", reason=WAITS)
    beside = job(5, alone="its process 7 is outside", unmanaged="its process 7 is outside")
    assert job_table([beside], Output())[1].endswith("  unmanaged: its process 7 is outside"), "it says that once"
    assert dict(describe(beside, 0))["not managed"] == "its process 7 is outside"
    assert job_table([waits], Output())[1].endswith(WAITS.text)
    assert {"alone", "not moved", "unmanaged"}.isdisjoint(dict(describe(job(5), 0)))


def test_offloaded_jobs_are_shown_as_such() -> None:
    away = job(5, offloaded=True, stored_bytes=10 << 20, moved=MovedInfo(10 << 20, 1000))
    assert job_table([away], Output())[1].split()[2] == "offloaded"
    facts = dict(describe(away, 0))
    assert facts["stored"] == "10 MiB in the host store: offloaded"
    assert facts["moved"] == "10 MiB out (9.8 GiB/s)"
    half_way = dict(describe(job(5, stored_bytes=4 << 20), 0))
    assert half_way["stored"] == "4 MiB in the host store, restored when used"
    assert {"stored", "moved"}.isdisjoint(dict(describe(job(5), 0)))


def test_a_checkpoint_job_is_shown_as_one() -> None:
    assert dict(describe(job(5, checkpoint=True), 0))["checkpoint"] == "suspended by the driver between its turns"
    assert "checkpoint" not in dict(describe(job(5), 0))


def test_top_once_prints_one_frame_without_escapes(standin: StandIn, carpool: Cli) -> None:
    for arguments in (["top", "--once"], ["top"]):  # without a terminal there is nothing to go on with
        shown = carpool.ok(*arguments)
        assert "policy fair" in shown
        assert "lane 1  32 MiB  turn: job 1" in shown
        assert "queued (1)" in shown
        assert "\x1b" not in shown
    snapshot = msgspec.json.decode(carpool.ok("top", "--json"), type=Snapshot)
    assert [info.id for info in snapshot.active] == [1, 2]


def test_a_frame_fits_its_screen() -> None:
    snapshot = Snapshot(10_000_000, "fair", [device([1])], JOBS[:2], JOBS[2:])
    lines = frame(snapshot, Output(40), 6)
    assert len(lines) == 6
    assert max(map(len, lines)) <= 40
    assert "more below" in lines[-1]
    whole = "\n".join(frame(snapshot, Output(), None))
    assert "███░░░░░░░░░ 25/100" in whole
    assert WAITS.text in whole
