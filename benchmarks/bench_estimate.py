"""What the estimators say of twelve families of models, against P and E that the same command has when it runs."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.figures import Figure
from benchmarks.jobs import WORKLOADS, argv, environment, result_of, submit
from carpool.cli.request.estimator_process import ask
from carpool.protocol.estimates import NAMES, Prediction, Question, Subject
from tools.demo.session import Session

FAMILIES = ("mlp", "cnn", "resnet", "vgg", "mobilenet", "densenet", "vae", "gpt", "bert", "vit", "unet", "lstm")
#: The same families as scripts are published: below `benchmarks/workloads/public`, with 20 iterations each.
PUBLIC: dict[str, tuple[str, ...]] = {
    "mlp": ("digits.py", "--model", "mlp"),
    "cnn": ("digits.py", "--model", "cnn"),
    **{arch: ("images.py", "--arch", arch) for arch in ("resnet", "vgg", "mobilenet", "densenet")},
    "vae": ("autoencoder.py",),
    "gpt": ("characters.py",),
    "bert": ("tune.py",),
    "vit": ("patches.py",),
    "unet": ("segment.py",),
    "lstm": ("words.py",),
}
ITERATIONS = 20
TARGET_PERCENT = 3.0
LIMIT_S = 240.0
#: `history` repeats what a run has measured: there is nothing to compare.
ASKED = [name for name in NAMES if name != "history"]
MIB = 1 << 20
Memory = tuple[int, int]  # P and E, bytes


def run(quick: bool) -> list[Figure]:
    families = FAMILIES[:2] if quick else FAMILIES
    figures: list[Figure] = []
    errors: dict[str, list[float]] = {name: [] for name in ASKED}
    seconds: list[float] = []
    for family in families:
        real = measured(family)
        begin = time.monotonic()
        predictions = estimated(family)
        seconds.append(time.monotonic() - begin)
        for name, prediction in predictions.items():
            errors[name].append(error_percent(prediction, real))
        figures.append(_figure(family, predictions["faketensor"], real))
    figures += [_summary(name, found) for name, found in errors.items() if found]
    middle = statistics.median(seconds)
    spread = min(seconds), max(seconds), len(seconds)
    figures.append(Figure("estimate", "time for an answer of all estimators", middle, "s", *spread))
    return figures


def measured(family: str) -> Memory:
    """P and E of a job alone on a device that has room for it."""
    with tempfile.TemporaryDirectory() as home, Session(Path(home), ["host:1GiB"], "fair") as client:
        info, _ = result_of(client, submit(client, argv("families.py", family, ITERATIONS)))
    return info.persistent_bytes, info.ephemeral_bytes


def estimated(family: str) -> dict[str, Prediction]:
    """Of each estimator that is there and can say something; the rehearsal must."""
    subject = Subject(argv("families.py", family, ITERATIONS), str(WORKLOADS))
    answers = ask(Question(subject, ASKED, LIMIT_S), sys.executable, WORKLOADS, environment())
    found = {answer.estimator: answer.prediction for answer in answers if answer.prediction is not None}
    if "faketensor" not in found:
        raise RuntimeError(f"{family}: {answers}")
    return found


def error_percent(prediction: Prediction, real: Memory) -> float:
    """Of P + E, without its sign."""
    return abs(prediction.total - sum(real)) / sum(real) * 100


def _figure(family: str, prediction: Prediction, real: Memory) -> Figure:
    error = error_percent(prediction, real)
    detail = {
        "p_mib": real[0] / MIB,
        "p_estimated_mib": prediction.persistent / MIB,
        "e_mib": real[1] / MIB,
        "e_estimated_mib": prediction.ephemeral / MIB,
    }
    name = f"faketensor, {family}: error of P + E"
    return Figure("estimate", name, error, "%", error, error, 1, TARGET_PERCENT, detail=detail)


def _summary(name: str, errors: list[float]) -> Figure:
    middle = statistics.median(errors)
    return Figure("estimate", f"{name}: median error", middle, "%", min(errors), max(errors), len(errors))
