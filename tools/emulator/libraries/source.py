"""C source of a library's functions, from its table's lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tools.emulator.libraries.table import Line, Table

REFUSES = Line("refuses", "", ())

#: What an argument means, as a C statement: {a} is the parameter, {v} the word's value.
STATEMENTS = {
    "handle": "struct object *object = object_at({a});",
    "number": "struct object *object = numbered({a});",
    "new": "struct object *object = calloc(1, sizeof *object);\n  write_long({a}, (uintptr_t)object);",
    "new:number": "struct object *object = calloc(1, sizeof *object);\n  write_int({a}, (uintptr_t)number_of(object));",
    "free": "free(object_at({a}));",
    "free:number": "forget_number({a});",
    "free:pointed": "free(*(void **){a});\n  *(void **){a} = NULL;",
    "keep": "keep(object, KEPT_{v}, {a});",
    "stream": "uintptr_t stream = {a};",
    "status": "return (uintptr_t)status_text({a}, REFUSAL);",
    "int": "write_int({a}, (uintptr_t)({v}));",
    "long": "write_long({a}, (uintptr_t)({v}));",
    "integers": "write_bytes({a}, (int[]){{{v}}}, sizeof (int[]){{{v}}});",
    "zeros": "write_bytes({a}, (char[{v}]){{0}}, {v});",
    "text": "write_long({a}, (uintptr_t){v});",
    "characters": "write_bytes({a}, {v}, sizeof({v}));",
}


def statement(position: int, word: str, kept: list[str]) -> str:
    """Raises ValueError for a word that has no meaning."""
    name, equals, value = word.partition("=")
    if name.startswith("keep:"):
        name, value = "keep", name.removeprefix("keep:")
    if name not in STATEMENTS:
        raise ValueError(f"{word} means nothing as an argument")
    if equals and value in kept:
        value = f"kept(object, KEPT_{value})"
    return STATEMENTS[name].format(a=f"a{position}", v=value)


def body(function: str, line: Line, kept: list[str]) -> Iterator[str]:
    """The statements of a function."""
    words = [word for _, word in line.arguments]
    yield from (statement(position, word, kept) for position, word in line.arguments)
    if line.kind == "refuses":
        yield f'emulator_unexpected("{function}");'
    if line.kind == "computes":
        stream = "stream" if "stream" in words else "kept(object, KEPT_stream)"
        yield f'static struct computation computation = {{.name = "{function}"}};'
        yield f"if (!compute(&computation, {stream})) return FAILURE;"
    if "status" not in words:
        yield f"return (uintptr_t)({line.returns or ('REFUSAL' if line.kind == 'refuses' else '0')});"


def function_source(function: str, line: Line, kept: list[str]) -> str:
    last = max((position for position, _ in line.arguments), default=-1)
    parameters = ", ".join(f"uintptr_t a{i}" for i in range(last + 1)) or "void"
    prototype = f"EXPORT uintptr_t {function}({parameters})"
    statements = "\n  ".join(body(function, line, kept))
    return f"{prototype};\n{prototype} {{\n  {statements}\n}}\n"


def library_source(table: Table, functions: Iterable[str]) -> str:
    """The C file with these functions of the library, without those that C files of ours have."""
    constants = {
        "REFUSAL": table.settings["refusal"],
        "FAILURE": table.settings.get("failure", "REFUSAL"),
        **table.defines,
    }
    lines = ['#include "library.h"', *(f"#define {name} {value}" for name, value in constants.items())]
    lines.append(f"enum {{ {', '.join(f'KEPT_{name}' for name in table.kept)}, KEPT_COUNT }};")
    lines.append('_Static_assert(KEPT_COUNT <= KEPT, "a handle has no room for all that it keeps");')
    for function in sorted(functions):
        line = table.line(function) or REFUSES
        if not line.file:
            lines.append(function_source(function, line, table.kept))
    return "\n".join(lines)
