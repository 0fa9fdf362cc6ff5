"""The tables agree with the real headers: out-parameters stand where they say, with their widths, and none is missing.

Skipped where a library's header is not installed, which is the usual case.
"""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.emulator.torch_imports import IMPORTS
from tools.emulator.libraries.source import REFUSES
from tools.emulator.libraries.table import Line, tables
from tools.emulator.libraries.wheel import stem_of

HEADERS = {
    "libcublas": "cublas_v2.h",
    "libcublasLt": "cublasLt.h",
    "libcudnn": "cudnn.h",
    "libcufft": "cufftXt.h",
    "libcupti": "cupti.h",
    "libcusolver": "cusolverDn.h",
    "libcusparse": "cusparse.h",
    "libnccl": "nccl.h",
    "libnvrtc": "nvrtc.h",
}
#: Inputs that the header declares as if they were written.
INPUTS = {"cufftXtMakePlanMany": (2, 3, 7), "cuptiActivityGetNextRecord": (0,)}
#: Names that C++ has twice, so that they have no one type.
OVERLOADED = {"cublasGemmEx", "cublasGemmStridedBatchedEx"}
#: parameters<F>: F's but for floating-point ones.  missing<F, positions...>: whether F has other out-parameters.
CHECKS = """
#include <cstddef>
#include <tuple>
#include <type_traits>
template <class... A> using plain = decltype(std::tuple_cat(
    std::conditional_t<std::is_floating_point_v<A>, std::tuple<>, std::tuple<A>>()...));
template <class F> struct list;
template <class R, class... A> struct list<R (*)(A...)> { using type = plain<A...>; };
template <class F> using parameters = typename list<F>::type;
template <class F, size_t i> using parameter = std::tuple_element_t<i, parameters<F>>;
template <class P> using target = std::remove_pointer_t<P>;
template <class P> constexpr bool writable =
    std::is_pointer_v<P> && !std::is_const_v<target<P>> && !std::is_function_v<target<P>>;
template <class P, size_t bytes> constexpr bool holds() {
  if constexpr (writable<P> && !std::is_void_v<target<P>>) return sizeof(target<P>) == bytes;
  else return false;
}
template <class P> constexpr bool out = writable<P> &&
    (std::is_integral_v<target<P>> || std::is_enum_v<target<P>> || std::is_pointer_v<target<P>>);
template <class F, size_t... known> struct missing {
  template <size_t i> static constexpr bool is_known = ((known == i) || ...);
  template <size_t... i> static constexpr bool any(std::index_sequence<i...>) {
    return ((out<parameter<F, i>> && !is_known<i>) || ...);
  }
  static constexpr bool value = any(std::make_index_sequence<std::tuple_size_v<parameters<F>>>());
};
"""
WIDTHS = {"int": 4, "long": 8, "text": 8, "new": 8, "free:pointed": 8, "new:number": 4, "characters": 1}


def include() -> list[str]:
    """Options for the compiler; CUDA_HOME is a toolkit to which cuDNN and NCCL have been added."""
    roots = [os.environ.get("CUDA_HOME", ""), "/usr/local/cuda"]
    return [f"-I{root}/include" for root in roots if root]


def compiler(source: str) -> str:
    """The compiler's complaint, "" if there is none."""
    command = ["c++", "-std=c++17", "-fsyntax-only", "-w", *include(), "-x", "c++", "-"]
    return subprocess.run(command, input=source, capture_output=True, text=True, check=False).stderr


def claim(name: str, position: int, word: str) -> str:
    """What a word says of its parameter, in C++."""
    parameter = f"parameter<decltype(&{name}), {position}>"
    label, _, value = word.partition("=")
    if label in ("integers", "zeros"):
        return f"holds<{parameter}, {4 * len(value.split(',')) if label == 'integers' else value}>()"
    if label in WIDTHS:
        return f"holds<{parameter}, {WIDTHS[label]}>()"
    if label in ("number", "free:number"):
        return f"std::is_integral_v<{parameter}>"
    if label == "status":
        return f"std::is_enum_v<{parameter}>"
    if label == "stream" or label == "keep:stream":
        return f"std::is_same_v<{parameter}, cudaStream_t>"
    return f"(std::is_pointer_v<{parameter}> || std::is_integral_v<{parameter}> || std::is_enum_v<{parameter}>)"


def claims(name: str, line: Line) -> list[str]:
    known = [*(position for position, _ in line.arguments), *INPUTS.get(name, ())]
    positions = "".join(f", {position}" for position in known)
    complete = [f"!missing<decltype(&{name}){positions}>::value"] if line.kind == "asks" and not line.file else []
    return [claim(name, position, word) for position, word in line.arguments] + complete


def checked(stem: str, wrong: str = "") -> str:
    """The compiler's complaint about the claims of this library's table."""
    (soname,) = (soname for soname in IMPORTS if stem_of(soname) == stem)
    names = {symbol.name for symbol in IMPORTS[soname]} - OVERLOADED
    lines = {name: tables()[stem].line(name) or REFUSES for name in names}
    named = [(name, text) for name, line in sorted(lines.items()) for text in claims(name, line)]
    asserts = [f'static_assert({text}, "{name}");' for name, text in named]
    return compiler("\n".join([f"#include <{HEADERS[stem]}>", CHECKS, *asserts, wrong]))


def installed(stem: str) -> None:
    if compiler(f"#include <{HEADERS[stem]}>\n"):
        pytest.skip(f"{HEADERS[stem]} cannot be included: there is no header to compare with")


@pytest.mark.parametrize("stem", sorted(HEADERS))
def test_the_table_agrees_with_the_header(stem: str) -> None:
    installed(stem)
    assert checked(stem) == ""


@pytest.mark.parametrize(
    "wrong",
    [
        claim("cublasGetMathMode", 1, "long=0"),
        claim("cublasSetMathMode", 1, "keep:stream"),
        claim("cublasGetMathMode", 0, "int=0"),
        "!missing<decltype(&cublasGetMathMode), 0>::value",
    ],
)
def test_a_wrong_claim_would_be_noticed(wrong: str) -> None:
    installed("libcublas")
    assert "static assertion failed" in checked("libcublas", f'static_assert({wrong}, "");')
