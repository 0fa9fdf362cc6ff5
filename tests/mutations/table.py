"""What keeps contents right, switched off one mechanism at a time, and the tests that notice.

``python -m tests.mutations.table`` writes the table in docs/verified.md anew; a test checks it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "verified.md"
MOST_TESTS = 3

PYTORCH = "tests/cuda/pytorch/test_training.py"
IN_TURNS = f"{PYTORCH}::test_contents_of_memory_in_turns"
MOVES = f"{PYTORCH}::test_contents_of_memory_that_moves"
MEMORY = "tests/devices/test_cuda.py::TestCuda"
#: Tests in C, as src/native/run_tests.py names them, begin so.
IN_C = "native:"


@dataclass(frozen=True)
class Mutation:
    """``old`` stands in ``file`` once; with ``new`` in its place at least one of ``tests`` must fail.

    The tests of a mutation are pytest's, or all of them C tests.
    """

    mechanism: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def applied(self, text: str) -> str:
        """Raises ValueError where the source has changed and the mutation has not."""
        if text.count(self.old) != 1:
            raise ValueError(f"{self.mechanism}: {self.file} has {text.count(self.old)} times what is to be replaced")
        return text.replace(self.old, self.new)


MUTATIONS = (
    Mutation(
        "residue is saved when a turn ends",
        "src/native/cuda/memory/residue.c",
        "if (find_place() && copied(copy_out) == CUDA_SUCCESS) {",
        "if (find_place()) {",
        (IN_TURNS,),
    ),
    Mutation(
        "residue is restored when a turn begins",
        "src/native/cuda/memory/residue.c",
        "(brought = copied(copy_back))",
        "(brought = CUDA_SUCCESS)",
        (IN_TURNS,),
    ),
    Mutation(
        "residue is all live blocks",
        "src/native/cuda/memory/residue.c",
        "for (size_t i = 0; r == CUDA_SUCCESS && i < count",
        "for (size_t i = count > 1; r == CUDA_SUCCESS && i < count",
        (IN_TURNS,),
    ),
    Mutation(
        "segments lie in the device buffer that the job has now",
        "src/native/cuda/memory/extents.c",
        "if (p->type == CP_BANK) move(0, p->a);",
        "if (p->type == CP_BANK) cp_store(number_of(0), p->a);",
        ("tests/cuda/pytorch/test_faults.py::test_four_times_as_much_as_there_is",),
    ),
    Mutation(
        "segments lie in the lane that the job has now",
        "src/native/cuda/memory/extents.c",
        "if (p->type == CP_LANE) move(1, p->a);",
        "if (p->type == CP_LANE) cp_store(number_of(1), p->a);",
        (f"{IN_C}cuda/memory/test_extents",),
    ),
    Mutation(
        "offloaded memory is copied back",
        "src/carpool/devices/cuda/agent.py",
        "self._copy_part(self._gpu.copy_in, store, start, stop, base)",
        "pass",
        (MOVES,),
    ),
    Mutation(
        "memory is cleared before a job gets it",
        "src/carpool/devices/cuda/memory.py",
        "self.clear(mapped.address, mapped.size)",
        "self.stream()",
        (f"{MEMORY}::test_fresh_memory_is_zero", f"{MEMORY}::test_memory_of_another_job_is_zero"),
    ),
    Mutation(
        "a turn ends when the device has ended all work",
        "src/native/cuda/turn/turn.c",
        "return ended || cp_until(cp_drained, asked, limit);",
        "return ended || true;",
        (IN_TURNS, f"{PYTORCH}::test_copies_under_way_when_a_turn_ends"),
    ),
    Mutation(
        "who computes waits for the weights' groups",
        "src/native/cuda/memory/weight_groups.c",
        "return cp_real.cuStreamWaitEvent(stream, c->events[last], 0) == CUDA_SUCCESS ? 0 : EIO;",
        "return stream == (void *)c ? EIO : 0;",
        ("tests/cuda/test_services.py::test_weights_that_do_not_fit_together_take_turns",),
    ),
    Mutation(
        "blocks that become persistent at the same address keep their contents (host devices)",
        "src/native/arena/persistent.c",
        "if (cp_write_all(a->device_fd, w->park",
        "if (false && cp_write_all(a->device_fd, w->park",
        ("tests/native/test_library.py::test_what_outlives_iterations_becomes_persistent",),
    ),
    Mutation(
        "calls wait for the turn",
        "src/native/cuda/gate.h",
        "if (CP_UNLIKELY(__atomic_load_n(&cp_shut, __ATOMIC_ACQUIRE))) cp_enter_slowly(t, seq);",
        "if (CP_UNLIKELY(__atomic_load_n(&cp_shut, __ATOMIC_ACQUIRE) & CP_ASK)) cp_enter_slowly(t, seq);",
        (IN_TURNS,),
    ),
)


def renewed(page: str) -> str:
    """The page with the table as it should be now.  Raises ValueError where its marks are missing."""
    rows = [f"| {each.mechanism} | {', '.join(map(_short, each.tests))} |" for each in MUTATIONS]
    table = "\n".join(["| switched off | tests that notice |", "| --- | --- |", *rows])
    pattern = r"(<!-- mutations: written by tests/mutations/table.py -->\n).*?(<!-- end -->)"
    page, count = re.subn(pattern, lambda match: f"{match[1]}\n{table}\n\n{match[2]}", page, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"{PAGE.name} has lost the marks around its table of mutations")
    return page


def _short(test: str) -> str:
    if test.startswith(IN_C):
        return f"`src/native/tests/{test.removeprefix(IN_C)}.c`"
    file, _, name = test.partition("::")
    return f"`{file}` {name.removeprefix('test_').replace('_', ' ')}"


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text()))
