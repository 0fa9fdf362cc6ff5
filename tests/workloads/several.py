"""Runs scripts of this directory (their names with their arguments) one after another in one process.

So several need only one start of PyTorch.  The results are a list of theirs.
"""

import json
import runpy
import sys
from pathlib import Path

from common import meet

out, scripts = Path(sys.argv[1]), sys.argv[2:]
meet(len(scripts))
results = []
for number, script in enumerate(scripts):
    name, *arguments = script.split()
    theirs = out.with_name(f"{out.name}-{number}")
    sys.argv = [name, str(theirs), *arguments]
    runpy.run_path(str(Path(__file__).with_name(f"{name}.py")), run_name="__main__")
    results.append(json.loads(theirs.read_text()))
out.write_text(json.dumps(results))
