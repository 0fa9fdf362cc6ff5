"""One public class name, once in the project: who looks for `JobRecord` finds one class."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

SOURCES = Path(__file__).resolve().parent.parent / "src" / "carpool"
#: Messages of separate protocols, and what the journal records: their names are sent or stored, and may be equal.
NAMES_THAT_ARE_SENT = (
    "core/commands.py",
    "core/events.py",
    "devices/cuda/messages.py",
    "kubernetes/dra/v1/dra_pb2_grpc.py",
    "kubernetes/dra/v1/registration_pb2_grpc.py",
    "kubernetes/v1beta1/deviceplugin_pb2_grpc.py",
    "protocol/estimates.py",
    "protocol/session.py",
    "serve/wire/messages.py",
)


def test_public_class_names_are_unique() -> None:
    places = defaultdict(list)
    for path in sorted(SOURCES.rglob("*.py")):
        name = path.relative_to(SOURCES).as_posix()
        if name not in NAMES_THAT_ARE_SENT:
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(name)
    assert len(places) > 400
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_the_list_of_exceptions_names_files_that_exist() -> None:
    assert [name for name in NAMES_THAT_ARE_SENT if not (SOURCES / name).is_file()] == []
