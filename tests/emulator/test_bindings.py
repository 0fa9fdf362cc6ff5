"""The stub driver as cuda.bindings sees it, and what several processes see of each other's memory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from carpool.daemon.config.options import context_size
from tests.emulator.harness import Start, Worker, WorkerError

MIB = 1 << 20


def fails(worker: Worker, error: str, text: str) -> None:
    with pytest.raises(WorkerError, match=f"CUDA_ERROR_{error}"):
        worker.run(text)


def test_cuda_bindings_work_with_it(start: Start) -> None:
    worker = start()
    worker.run("data = int(ok(driver.cuMemAlloc(1 << 20)))")
    worker.run("module = ok(driver.cuModuleLoadData(b'stub'))")
    worker.run("kernel = ok(driver.cuModuleGetFunction(module, b'fill_u32'))")
    worker.run(
        "types = (ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64)\n"
        "ok(driver.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, 0, ((data, 4711, 2), types), 0))"
    )
    assert worker.run("word(data + 4)") == 4711
    assert worker.run("ok(driver.cuDeviceGetName(64, 0)).split(b'\\0')[0].decode()") == "Carpool emulated GPU"
    fails(worker, "OUT_OF_MEMORY", "ok(driver.cuMemAlloc(1 << 30))")


def test_one_process_at_a_time_has_contexts_of_an_exclusive_device(start: Start) -> None:
    first = start(EMULATOR_COMPUTE_MODE="EXCLUSIVE_PROCESS")
    first.run("second = ok(driver.cuCtxCreate(None, 0, 0)); ok(driver.cuCtxDestroy(second))")
    second = start(EMULATOR_COMPUTE_MODE="EXCLUSIVE_PROCESS", first="ok(driver.cuInit(0))")
    assert second.run("int(ok(driver.cuDeviceGetAttribute(driver.CUdevice_attribute(20), 0)))") == 3
    fails(second, "DEVICE_UNAVAILABLE", "ok(driver.cuDevicePrimaryCtxRetain(0))")
    first.run("ok(driver.cuDevicePrimaryCtxReset(0))")
    second.run("ok(driver.cuDevicePrimaryCtxRetain(0)) and None")


def test_no_process_has_a_context_of_a_prohibited_device(start: Start) -> None:
    worker = start(EMULATOR_COMPUTE_MODE="PROHIBITED", first="ok(driver.cuInit(0))")
    fails(worker, "DEVICE_UNAVAILABLE", "ok(driver.cuCtxCreate(None, 0, 0))")
    fails(worker, "DEVICE_UNAVAILABLE", "ok(driver.cuDevicePrimaryCtxRetain(0))")


def test_visible_devices_are_renumbered(start: Start) -> None:
    all_devices, second = start("64MiB,32MiB"), start("64MiB,32MiB", CUDA_VISIBLE_DEVICES="1")
    assert all_devices.run("ok(driver.cuDeviceGetCount())") == 2
    assert (second.run("ok(driver.cuDeviceGetCount())"), second.free()) == (1, 32 * MIB)
    second.run("ok(driver.cuMemAlloc(32 << 20))")
    assert all_devices.free() == 64 * MIB
    all_devices.run("begin(1)")
    assert all_devices.free() == 0


@pytest.mark.parametrize(
    ("visible", "sizes"),
    [
        ("GPU-63617270-6f6f-6c2d-7374-75622d677031", [32]),
        ("1,GPU-63617270-6f6f-6c2d-7374-75622d677030", [32, 64]),
        ("1,GPU-ffff,0", [32]),  # what follows an unknown one is hidden
        ("0,GPU-63617270,1", [64]),  # so is what follows an ambiguous one
        ("1x,0", []),
        ("", []),
    ],
)
def test_visible_devices_are_named_by_number_or_uuid(start: Start, visible: str, sizes: list[int]) -> None:
    if not sizes:
        with pytest.raises(WorkerError, match="CUDA_ERROR_NO_DEVICE"):
            start("64MiB,32MiB", CUDA_VISIBLE_DEVICES=visible)
        return
    worker = start("64MiB,32MiB", CUDA_VISIBLE_DEVICES=visible)
    seen = worker.run("[ok(driver.cuDeviceTotalMem(i)) for i in range(ok(driver.cuDeviceGetCount()))]")
    assert seen == [size * MIB for size in sizes]


def test_capacity_is_shared_and_contexts_cost(start: Start) -> None:
    one = start(EMULATOR_CONTEXT="4MiB")
    assert one.free() == 60 * MIB
    two = start(EMULATOR_CONTEXT="4MiB")
    two.run("data = ok(driver.cuMemAlloc(40 << 20))")
    assert one.free() == two.free() == 16 * MIB
    fails(one, "OUT_OF_MEMORY", "ok(driver.cuMemAlloc(18 << 20))")
    two.run("ok(driver.cuMemFree(data))")
    assert one.free() == 56 * MIB


LAUNCH = (
    "kernel = ok(driver.cuModuleGetFunction(ok(driver.cuModuleLoadData(b'stub')), b'fill_u32'))\n"
    "types = (ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64)\n"
    "data = int(ok(driver.cuMemAlloc(1 << 20)))\n"
    "for _ in range(2): ok(driver.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, 0, ((data, 1, 2), types), 0))\n"
    "ok(driver.cuMemFree(data))"
)


def test_a_context_grows_with_the_first_launch_of_two_modules(start: Start) -> None:
    worker = start(EMULATOR_CONTEXT="16MiB")
    free = [worker.free()]
    for _ in range(3):
        worker.run(LAUNCH)
        free.append(worker.free())
    assert free == [48 * MIB, 46 * MIB, 44 * MIB, 44 * MIB]


def test_a_context_takes_five_sixths_of_what_a_daemon_leaves_for_contexts(start: Start) -> None:
    worker = start("1GiB", EMULATOR_CONTEXT="")
    for _ in range(2):
        worker.run(LAUNCH)
    assert 1024 - worker.free() / MIB == pytest.approx(context_size(1024 * MIB) / MIB * 5 / 6, abs=0.1)


def test_a_module_that_finds_no_room_fails_at_its_launch(start: Start) -> None:
    worker = start(EMULATOR_CONTEXT="32MiB")
    worker.run("kept = ok(driver.cuMemAlloc(30 << 20))")
    fails(worker, "OUT_OF_MEMORY", LAUNCH)


def test_a_killed_process_gives_its_memory_back(start: Start) -> None:
    one, two = start(), start()
    two.run("data = ok(driver.cuMemAlloc(40 << 20)); handle = created(8 << 20)")
    assert one.free() == 16 * MIB
    two.kill()
    assert one.free() == 64 * MIB


def test_memory_of_a_killed_process_comes_back_later_on_demand(start: Start) -> None:
    one, two = start(EMULATOR_CLOSE_MS="300"), start()
    two.run("data = ok(driver.cuMemAlloc(40 << 20)); freed = ok(driver.cuMemAlloc(8 << 20))")
    two.run("ok(driver.cuMemFree(freed))")
    two.kill()
    assert one.free() == 24 * MIB  # what it freed before is free at once
    while one.free() < 64 * MIB:
        pass


def _shared(creator: Worker) -> int:
    creator.run(
        "handle = created(8 << 20); at = mapped(handle, 8 << 20)\nfill(at, 77, 4); fd = exported(handle); share(fd)"
    )
    return creator.fds[-1]


def test_exported_memory_is_the_same_memory(start: Start) -> None:
    creator, user = start(), start()
    user.run("at = mapped(imported(fds[0]), 8 << 20)", fds=[_shared(creator)])
    assert user.run("word(at)") == 77
    user.run("fill(at, 78, 1)")
    assert creator.run("word(at)") == 78
    assert user.free() == 56 * MIB  # counted once


def test_a_descriptor_keeps_memory_when_its_creator_is_killed(start: Start) -> None:
    """Also in a process that has nothing to do with CUDA: this one."""
    creator, user = start(), start()
    fd = _shared(creator)
    creator.kill()
    assert user.free() == 56 * MIB
    user.run("handle = imported(fds[0]); at = mapped(handle, 8 << 20)", fds=[fd])
    assert user.run("word(at)") == 77
    os.close(creator.fds.pop())
    user.run("import os; os.close(fds[0]); ok(driver.cuMemRelease(handle))")
    assert user.free() == 56 * MIB  # the mapping alone keeps it
    user.run("ok(driver.cuMemUnmap(at, 8 << 20))")
    assert user.free() == 64 * MIB


def test_only_memory_made_for_it_can_be_exported(start: Start) -> None:
    worker = start()
    worker.run("prop = driver.CUmemAllocationProp(); prop.type = prop.type.CU_MEM_ALLOCATION_TYPE_PINNED")
    worker.run("prop.location.type = prop.location.type.CU_MEM_LOCATION_TYPE_DEVICE")
    worker.run("plain = ok(driver.cuMemCreate(2 << 20, prop, 0))")
    fails(worker, "INVALID_VALUE", "exported(plain)")
    fails(worker, "INVALID_VALUE", "imported(0)")


def test_legacy_sharing_between_processes(start: Start) -> None:
    creator, user = start(), start()
    handle = creator.run(
        "data = ok(driver.cuMemAlloc(2 << 20)); fill(data, 5, 1)\n"
        "ctypes.string_at(ok(driver.cuIpcGetMemHandle(data)).getPtr(), 64).hex()"
    )
    opening = (
        f"handle = driver.CUipcMemHandle(); ctypes.memmove(handle.getPtr(), bytes.fromhex('{handle}'), 64)\n"
        "at = int(ok(driver.cuIpcOpenMemHandle(handle, 1)))"
    )
    user.run(opening)
    assert user.run("word(at)") == 5
    fails(creator, "INVALID_CONTEXT", opening)
    user.run("ok(driver.cuIpcCloseMemHandle(at))")
    creator.run("ok(driver.cuMemFree(data))")
    assert user.free() == 64 * MIB
    fails(user, "INVALID_VALUE", opening)  # gone
    fails(creator, "INVALID_VALUE", "ok(driver.cuIpcGetMemHandle(mapped(created(2 << 20), 2 << 20)))")


#: Makes an event that other processes may use, and tells its handle as text.
NEW_EVENT = (
    "event = ok(driver.cuEventCreate(6)); stream = ok(driver.cuStreamCreate(1))\n"
    "ctypes.string_at(ok(driver.cuIpcGetEventHandle(event)).getPtr(), 64).hex()"
)
#: Work that keeps the stream for ten minutes.
SPIN = (
    "spin = ok(driver.cuModuleGetFunction(ok(driver.cuModuleLoadData(b'stub')), b'spin_us'))\n"
    "ok(driver.cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, ((600_000_000,), (ctypes.c_uint64,)), 0))"
)
#: Work on the stream that ends when the process says so.
HELD = (
    "word_at = int(ok(driver.cuMemHostAlloc(4096, 0)))\n"
    "value = ctypes.c_uint32.from_address(word_at); value.value = 0\n"
    "ok(driver.cuStreamWaitValue32(stream, word_at, 1, 0))"
)
LET_GO = "value.value = 1"
NOT_READY = "CUDA_ERROR_NOT_READY"


def _open_event(user: Worker, handle: str) -> None:
    user.run(
        f"handle = driver.CUipcEventHandle(); ctypes.memmove(handle.getPtr(), bytes.fromhex('{handle}'), 64)\n"
        "event = ok(driver.cuIpcOpenEventHandle(handle)); stream = ok(driver.cuStreamCreate(1))"
    )


def test_an_event_of_another_process(start: Start) -> None:
    creator, user = start(), start()
    _open_event(user, creator.run(NEW_EVENT))
    assert user.run("driver.cuEventQuery(event)[0].name") == "CUDA_SUCCESS"  # never recorded
    creator.run(f"{HELD}\nok(driver.cuEventRecord(event, stream))")
    assert user.run("driver.cuEventQuery(event)[0].name") == NOT_READY
    user.run("ok(driver.cuStreamWaitEvent(stream, event, 0))")
    assert user.run("driver.cuStreamQuery(stream)[0].name") == NOT_READY
    user.send("ok(driver.cuEventSynchronize(event)); ok(driver.cuStreamSynchronize(stream))")
    assert user.silent()
    creator.run(LET_GO)
    user.receive()
    assert creator.run("driver.cuEventQuery(event)[0].name") == "CUDA_SUCCESS"
    user.run(f"{HELD}\nok(driver.cuEventRecord(event, stream))")  # either may record it
    assert creator.run("driver.cuEventQuery(event)[0].name") == NOT_READY
    user.run(LET_GO)


def test_nobody_waits_for_an_event_of_a_dead_process(start: Start) -> None:
    creator, user = start(), start()
    _open_event(user, creator.run(NEW_EVENT))
    creator.run(f"{SPIN}\nok(driver.cuEventRecord(event, stream))")
    user.run("ok(driver.cuStreamWaitEvent(stream, event, 0))")
    assert user.run("driver.cuStreamQuery(stream)[0].name") == NOT_READY
    creator.kill()
    user.run("ok(driver.cuStreamSynchronize(stream))")


def test_events_between_processes_have_rules(start: Start) -> None:
    creator, user = start(), start()
    handle = creator.run(NEW_EVENT)
    fails(creator, "INVALID_VALUE", "ok(driver.cuEventCreate(4))")  # they cannot measure time
    fails(creator, "INVALID_HANDLE", "ok(driver.cuIpcGetEventHandle(ok(driver.cuEventCreate(2))))")
    creator.run(f"{HELD}\nok(driver.cuEventRecord(event, stream)); other = ok(driver.cuStreamCreate(1))")
    creator.run("ok(driver.cuStreamWaitEvent(other, event, 0)); ok(driver.cuEventDestroy(event))")
    assert creator.run("driver.cuStreamQuery(other)[0].name") == NOT_READY  # who waits already goes on waiting
    with pytest.raises(WorkerError, match="CUDA_ERROR_INVALID_VALUE"):
        _open_event(user, handle)
    creator.run(f"{LET_GO}; ok(driver.cuStreamSynchronize(other)); ok(driver.cuEventCreate(6))")


def test_a_stream_waits_for_a_word_that_another_process_writes(start: Start, tmp_path: Path) -> None:
    page = tmp_path / "page"
    page.write_bytes(bytes(4096))
    share = (
        f"import mmap; page = mmap.mmap(os.open({str(page)!r}, os.O_RDWR), 4096)\n"
        "at = ctypes.addressof(ctypes.c_char.from_buffer(page)); ok(driver.cuMemHostRegister(at, 4096, 0))"
    )
    waiter, writer = start(first="import os; begin()"), start(first="import os; begin()")
    waiter.run(share)
    writer.run(share)
    waiter.run("stream = ok(driver.cuStreamCreate(1)); ok(driver.cuStreamWaitValue32(stream, at, 3, 0))")
    assert waiter.run("driver.cuStreamQuery(stream)[0].name") == NOT_READY
    writer.run("ok(driver.cuStreamWriteValue32(0, at, 3, 0)); ok(driver.cuCtxSynchronize())")
    waiter.run("ok(driver.cuStreamSynchronize(stream))")


def test_a_forked_child_cannot_use_it(start: Start) -> None:
    worker = start(first="import os; begin()")
    status = worker.run(
        "data = ok(driver.cuMemAlloc(2 << 20)); pid = os.fork()\n"
        "if pid == 0: os._exit(driver.cuMemGetInfo()[0].value)\n"
        "os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])"
    )
    assert status == 3  # CUDA_ERROR_NOT_INITIALIZED
    assert worker.free() == 62 * MIB


def test_failures_on_demand_reach_the_bindings(start: Start, tmp_path: Path) -> None:
    log = tmp_path / "cuda.log"
    worker = start(EMULATOR_FAIL="cuMemExportToShareableHandle=801,cuMemCreate=2@2", CUDA_LOG_FILE=str(log))
    worker.run("handle = created(2 << 20)")
    fails(worker, "OUT_OF_MEMORY", "created(2 << 20)")
    worker.run("created(2 << 20)")
    fails(worker, "NOT_SUPPORTED", "exported(handle)")
    said = [line.rpartition("[CUDA][E]")[2] for line in log.read_text().splitlines()]
    assert said == ["[cuMemCreate] out of memory", "[cuMemExportToShareableHandle] not supported"]
