"""No tensors at all: this job never uses a device."""

import hashlib
import json
import sys
from pathlib import Path

import numpy

random = numpy.random.default_rng(0)
matrix = random.standard_normal((256, 256)) / 16
state = numpy.eye(256)
for _ in range(100):
    state = numpy.tanh(state @ matrix) + 0.5 * state
result = {"state": hashlib.sha256(state.tobytes()).hexdigest()}
Path(sys.argv[1]).write_text(json.dumps(result, indent=1) + "\n")
