"""What `docs/inference.md` says of errors and of the client is so."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from carpool.serve.oip.errors import ServeError
from tests.serve.conftest import Server


def test_the_table_of_errors_is_complete(root: Path) -> None:
    page = (root / "docs/inference.md").read_text()
    documented = re.findall(r"^\| (\d+) \| `(\w+)` \|", page, re.MULTILINE)
    assert sorted(documented) == sorted((str(kind.status), kind.kind) for kind in ServeError.__subclasses__())


def test_the_client_in_three_lines(root: Path, server: Server) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (root / "docs/inference.md").read_text(), re.DOTALL)
    code = example.replace("http://127.0.0.1:8000", server.url).replace("resnet", "affine")
    names = {"x": np.ones((1, 3), np.float32)}
    exec(code, names)
    names["client"].close()
    assert names["y"].tolist() == [[3, 3, 3]]
