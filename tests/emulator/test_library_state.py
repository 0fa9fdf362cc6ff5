"""The emulated libraries: what they remember, where their work goes, and what they refuse."""

from __future__ import annotations

import itertools
import math

import pytest

from tests.emulator.harness import Worker

#: Loads a library and gives out memory, in the worker.
PRELUDE = """
def library(soname):
    return ctypes.CDLL(f"{folder}/{soname}")

def new(function, *arguments):
    handle = ctypes.c_void_p()
    assert function(ctypes.byref(handle), *arguments) == 0
    return handle

def ints(*values):
    return (ctypes.c_int * len(values))(*values)

def captured(work):
    "How many nodes a capture of this work on a stream has."
    stream = ok(driver.cuStreamCreate(1))
    ok(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
    assert work(ctypes.c_void_p(int(stream))) == 0
    return ok(driver.cuGraphGetNodes(ok(driver.cuStreamEndCapture(stream)), 8))[1]
"""


@pytest.fixture
def state(worker: Worker) -> Worker:
    worker.run(PRELUDE)
    return worker


def test_handles_are_distinct_and_remember(state: Worker) -> None:
    state.run("""
cublas = library("libcublas.so.13")
one, two = new(cublas.cublasCreate_v2), new(cublas.cublasCreate_v2)
cublas.cublasSetMathMode(one, 3)
def mode(handle):
    value = ctypes.c_int(-1)
    cublas.cublasGetMathMode(handle, ctypes.byref(value))
    return value.value
""")
    assert state.run("one.value and two.value and one.value != two.value")
    assert state.run("[mode(one), mode(two)]") == [3, 0]
    assert state.run("[cublas.cublasDestroy_v2(one), mode(two)]") == [0, 0]


def test_plans_are_numbers_that_are_used_again(state: Worker) -> None:
    state.run("""
cufft = library("libcufft.so.12")
def plan():
    number = ctypes.c_int(-1)
    assert cufft.cufftCreate(ctypes.byref(number)) == 0
    return number.value
""")
    assert state.run("[plan() for _ in range(3)]") == [1, 2, 3]
    assert state.run("[cufft.cufftDestroy(2), plan(), plan()]") == [0, 2, 4]


def test_a_plan_asks_for_little(state: Worker) -> None:
    asked = state.run("""
size = ctypes.c_size_t(1 << 33)
library("libcufft.so.12").cufftXtMakePlanMany(*[0] * 12, ctypes.byref(size), 0)
size.value
""")
    assert 0 < asked < 1 << 20


def test_versions_are_those_that_pytorch_was_built_for(state: Worker) -> None:
    state.run("""
cudnn, nccl, nvrtc = library("libcudnn.so.9"), library("libnccl.so.2"), library("libnvrtc.so.13")
values = [ints(0) for _ in range(4)]
statuses = [cudnn.cudnnGetProperty(1, values[0]), nccl.ncclGetVersion(values[1]), nvrtc.nvrtcVersion(*values[2:])]
""")
    assert state.run("[statuses, *map(list, values)]") == [[0, 0, 0], [20], [22907], [13], [0]]
    assert state.run("[cudnn.cudnnGetVersion(), cudnn.cudnnGetCudartVersion()]") == [92000, 13000]
    assert state.run('library("libcublasLt.so.13").cublasLtGetVersion()') == 130000


def test_statuses_have_texts(state: Worker) -> None:
    state.run("text = library('libnccl.so.2').ncclGetErrorString; text.restype = ctypes.c_char_p")
    assert state.run("[text(status).decode() for status in (0, 5)]") == ["success", "not supported by the emulated GPU"]


@pytest.mark.parametrize(
    "work",
    [
        "lambda s: cublas.cublasSetStream_v2(handle, s) or cublas.cublasSgemm_v2(handle)",
        'lambda s: library("libcublasLt.so.13").cublasLtMatmul(*[None] * 15, s)',
        "lambda s: cufft.cufftSetStream(1, s) or cufft.cufftXtExec(1, None, None, 0)",
        "lambda s: cudnn.cudnnSetStream(graphs, s) or cudnn.cudnnBackendExecute(graphs, None, None)",
        "lambda s: cudnn.cudnnSetStream(graphs, s) or cudnn.cudnnSetDropoutDescriptor(None, graphs, half)",
    ],
)
def test_work_takes_its_place_in_the_stream(work: str, state: Worker) -> None:
    """Also the first of a process, when nothing is loaded and nothing may be loaded in a capture."""
    state.run("""
cublas, cufft, cudnn = library("libcublas.so.13"), library("libcufft.so.12"), library("libcudnn.so.9")
handle, graphs = new(cublas.cublasCreate_v2), new(cudnn.cudnnCreate)
cufft.cufftCreate(ints(0))
half = ctypes.c_float(0.5)
""")
    assert state.run(f"captured({work})") == 1


def test_work_is_counted_as_null(state: Worker) -> None:
    state.run('count = ctypes.CDLL("libcuda.so.1").emulator_null_count; count.restype = ctypes.c_uint64')
    state.run('cublas = library("libcublas.so.13"); handle = new(cublas.cublasCreate_v2)')
    assert state.run("[count(), cublas.cublasSgemm_v2(handle), count()]") == [0, 0, 1]


def test_every_context_has_its_own_kernels(state: Worker) -> None:
    state.run("""
cublas = library("libcublas.so.13")
handle = new(cublas.cublasCreate_v2)
def in_new_context():
    context = ok(driver.cuCtxCreate(None, 0, ok(driver.cuDeviceGet(0))))
    status = cublas.cublasSgemm_v2(handle)
    ok(driver.cuCtxSynchronize())
    driver.cuCtxDestroy(context)
    return status
""")
    assert state.run("[in_new_context() for _ in range(3)]") == [0, 0, 0]


def test_work_without_a_context_fails(state: Worker) -> None:
    state.run("driver.cuCtxSetCurrent(driver.CUcontext(0))")
    assert state.run('library("libcublas.so.13").cublasSgemm_v2(None)') == 13


def test_what_is_refused_is_counted(state: Worker) -> None:
    state.run('nccl = library("libnccl.so.2"); names = ctypes.create_string_buffer(200)')
    assert state.run("nccl.ncclCommInitAll(None, 1, None)") == 5
    assert state.run('ctypes.CDLL("libcuda.so.1").emulator_unexpected_calls(names, 200)') == 1
    assert state.run("names.value.decode()") == "ncclCommInitAll"


def test_the_compiler_says_that_there_is_none(state: Worker) -> None:
    state.run("""
nvrtc = library("libnvrtc.so.13")
program = new(nvrtc.nvrtcCreateProgram, b"", b"", 0, None, None)
size = ctypes.c_size_t()
""")
    assert state.run("nvrtc.nvrtcCompileProgram(program, 0, None)") == 6
    assert state.run("nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))") == 0
    assert state.run("log = ctypes.create_string_buffer(size.value); nvrtc.nvrtcGetProgramLog(program, log)") == 0
    assert state.run("log.value.decode()").endswith("compiled at run time are not supported.")
    assert state.run("len(log.value) + 1 == size.value")
    assert state.run("[nvrtc.nvrtcDestroyProgram(ctypes.byref(program)), program.value]") == [0, None]


def test_a_vector_with_steps_is_copied(state: Worker) -> None:
    state.run("""
cublas = library("libcublas.so.13")
memory, host = ok(driver.cuMemAlloc(64)), ints(1, -1, 2, -1, 3, -1)
there = ctypes.c_uint64(int(memory))
back = ints(*[0] * 3)
""")
    assert state.run("cublas.cublasSetVectorAsync(3, 4, host, 2, there, 1, None)") == 0
    assert state.run("cublas.cublasGetVectorAsync(3, 4, there, 1, back, 1, None)") == 0
    assert state.run("ok(driver.cuCtxSynchronize()); list(back)") == [1, 2, 3]


def test_descriptors_of_tensors_are_read_again(state: Worker) -> None:
    state.run("""
cudnn = library("libcudnn.so.9")
tensor = new(cudnn.cudnnCreateTensorDescriptor)
kind, count, sizes, strides = ints(9), ints(9), ints(*[9] * 4), ints(*[9] * 4)
cudnn.cudnnSetTensorNdDescriptor(tensor, 2, 3, ints(4, 5, 6), ints(30, 6, 1))
""")
    assert state.run("cudnn.cudnnGetTensorNdDescriptor(tensor, 4, kind, count, sizes, strides)") == 0
    assert state.run("[*kind, *count, *sizes, *strides]") == [2, 3, 4, 5, 6, 9, 30, 6, 1, 9]
    assert state.run("cudnn.cudnnSetTensorNdDescriptor(tensor, 2, 9, sizes, strides)") == 2000


RNN = """
cudnn = library("libcudnn.so.9")
network = new(cudnn.cudnnCreateRNNDescriptor)
cudnn.cudnnSetRNNDescriptor_v8(network, 0, {cell}, {bias}, {bidirectional}, 0, 0, 0, 0, 5, 6, {projection}, 2, None, 0)
space = ctypes.c_size_t()
cudnn.cudnnGetRNNWeightSpaceSize(None, network, ctypes.byref(space))
matrix, bias = new(cudnn.cudnnCreateTensorDescriptor), new(cudnn.cudnnCreateTensorDescriptor)
BASE = 1 << 20

def elements(tensor):
    kind, count, sizes, strides = ints(0), ints(0), ints(*[0] * 8), ints(*[0] * 8)
    cudnn.cudnnGetTensorNdDescriptor(tensor, 8, kind, count, sizes, strides)
    return list(sizes[:count[0]])

def parts(layer, number):
    "(offset in elements, sizes) of a matrix and its bias."
    at = ctypes.c_void_p(), ctypes.c_void_p()
    asked = layer, ctypes.c_size_t(space.value), ctypes.c_void_p(BASE), number
    answers = matrix, ctypes.byref(at[0]), bias, ctypes.byref(at[1])
    assert cudnn.cudnnGetRNNWeightParams(None, network, *asked, *answers) == 0
    return [[(a.value - BASE) // 4 if a.value else None, elements(t)] for a, t in zip(at, (matrix, bias))]
"""


@pytest.mark.parametrize(
    ("cell", "gates", "bias", "bidirectional", "projection"),
    [
        (0, 1, 2, 0, 6),
        (1, 1, 0, 0, 6),
        (2, 4, 2, 1, 6),
        (2, 4, 2, 1, 3),
        (3, 3, 2, 1, 6),
        (3, 3, 1, 0, 6),
        (2, 4, 3, 0, 6),
    ],
)
def test_weights_of_networks_fill_their_space(
    cell: int, gates: int, bias: int, bidirectional: int, projection: int, state: Worker
) -> None:
    """They are a module's parameters: no two overlap, nothing is left over, and a kind's gates follow each other."""
    state.run(RNN.format(cell=cell, bias=bias, bidirectional=bidirectional, projection=projection))
    numbers = range(2 * gates + (projection != 6))
    parts = [state.run(f"parts({layer}, {n})") for layer in range(2 * (1 + bidirectional)) for n in numbers]
    places = [place for place in itertools.chain(*parts) if place[0] is not None]
    there = sorted((offset, offset + math.prod(sizes)) for offset, sizes in places)
    assert there[0][0] == 0
    assert all(end == begin for (_, end), (begin, _) in itertools.pairwise(there))
    assert state.run("space.value") == 4 * there[-1][1]
    inputs = [matrix for matrix, _ in parts[:gates]]
    assert [sizes for _, sizes in inputs] == [[1, 6, 5]] * gates
    assert [offset for offset, _ in inputs] == [30 * gate for gate in range(gates)]


def test_biases_are_where_the_network_has_them(state: Worker) -> None:
    state.run(RNN.format(cell=2, bias=0, bidirectional=0, projection=6))
    assert state.run("parts(1, 7)[1]") == [None, []]
    state.run(RNN.format(cell=2, bias=1, bidirectional=0, projection=6))
    assert [state.run(f"parts(1, {number})[1][1]") for number in (0, 4)] == [[1, 6, 1], []]


def test_a_graph_of_operations_has_one_engine(state: Worker) -> None:
    state.run("""
cudnn = library("libcudnn.so.9")
descriptor = new(lambda out: cudnn.cudnnBackendCreateDescriptor(4, out))
def asked(name, kind, room):
    count, values = ctypes.c_int64(-1), (ctypes.c_int64 * 4)(*[-1] * 4)
    status = cudnn.cudnnBackendGetAttribute(descriptor, name, kind, ctypes.c_int64(room), ctypes.byref(count), values)
    return [status, count.value, *values[:2]]
""")
    assert state.run("asked(202, 15, 0)") == [0, 1, -1, -1]  # results of a heuristic
    assert state.run("asked(1303, 11, 4)") == [0, 0, -1, -1]  # numerical notes
    assert state.run("asked(402, 3, 1)") == [0, 1, 4096, -1]  # a plan's workspace
    assert state.run("asked(999, 3, 1)") == [3000, 0, -1, -1]
    state.run("cudnn.cudnnBackendSetAttribute(descriptor, 999, 3, ctypes.c_int64(2), (ctypes.c_int64 * 2)(7, 8))")
    assert state.run("[asked(999, 3, room) for room in (4, 1)]") == [[0, 2, 7, 8], [0, 2, 7, -1]]
    assert state.run("cudnn.cudnnBackendDestroyDescriptor(descriptor)") == 0
