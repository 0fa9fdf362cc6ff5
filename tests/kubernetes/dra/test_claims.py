"""What a claim says: its device, and options that may choose nothing but those of `carpool env`."""

from __future__ import annotations

import pytest

pytest.importorskip("grpc", reason="grpcio is not installed (pip install 'carpool[k8s]')")
import msgspec

from carpool.kubernetes.dra.claims import BadClaim, ResourceClaim, quantity
from carpool.protocol.session import JoinOptions
from tests.kubernetes.dra.standins import allocated

GIB = 1 << 30


def claim(parameters: object = None, **about: object) -> ResourceClaim:
    return msgspec.convert(allocated("a", parameters, **about), ResourceClaim)  # type: ignore[arg-type]


def options(parameters: object = None, **about: object) -> JoinOptions:
    found = claim(parameters, **about)
    result = found.result("n1")
    assert result is not None
    return found.options(result)


def test_the_options_of_a_claim_are_those_of_joining() -> None:
    asked = {"name": "bee", "memory": "300MiB/1GiB", "weight": 300, "time": "2h", "expect": "90s", "exclusive": True}
    found = options(asked)
    assert found == JoinOptions(
        name="bee", persistent_bytes=300 << 20, ephemeral_bytes=GIB, weight=300, time_us=7_200_000_000,
        duration_us=90_000_000, exclusive=True, device="host0", launcher="claim lab/a",
    )  # fmt: skip


def test_a_claim_prevails_over_its_class_and_that_over_the_hint() -> None:
    assert options(memory="2Gi").persistent_bytes == 2 * GIB
    assert options(memory="2Gi", by_class={"memory": "1GiB", "weight": 50}).persistent_bytes == GIB
    found = options({"weight": 200}, memory="2Gi", by_class={"memory": "1GiB", "weight": 50})
    assert (found.persistent_bytes, found.weight) == (GIB, 200)


def test_a_job_is_called_as_its_pod_or_else_as_its_claim() -> None:
    assert [options().name, options(pod="train").name, options({"name": "x"}, pod="train").name] == ["a", "train", "x"]


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"wieght": 1}, r"no option 'wieght' \(did you mean 'weight'\? known: name, memory, "),
        ({"device": "host1"}, "no option 'device'"),
        ({"launcher": "x"}, "no option 'launcher'"),
        ({"persistent_bytes": 1}, "no option 'persistent_bytes'"),
        ({"weight": 0}, "the option weight: it must be a whole number, 1 or more"),
        ({"weight": "2"}, "the option weight: it must be a whole number"),
        ({"memory": "2Gi"}, "the option memory: .*write for example 300MiB"),
        ([], "the parameters must be an object"),
        ("weight", "the parameters must be an object"),
    ],
)
def test_what_a_claim_cannot_say_is_refused_with_what_it_can(parameters: object, text: str) -> None:
    with pytest.raises(BadClaim, match=text):
        options(parameters)


def test_parameters_for_others_are_none_of_ours() -> None:
    made = allocated("a", {"weight": 200}, request="gpu/small")
    (config,) = made["status"]["allocation"]["devices"]["config"]
    weights = {}
    for requests in ((), ("gpu",), ("gpu/small",), ("gpu/large",), ("other",)):
        config["requests"] = list(requests)
        found = msgspec.convert(made, ResourceClaim)
        weights[requests] = found.options(found.result("n1")).weight  # type: ignore[arg-type]
    assert [*weights.values()] == [200, 200, 200, 100, 100]
    config |= {"requests": [], "opaque": {"driver": "gpu.example.com", "parameters": {"anything": 1}}}
    assert msgspec.convert(made, ResourceClaim).options(found.result("n1")).weight == 100  # type: ignore[arg-type]


def test_a_container_has_one_device() -> None:
    made = allocated("a")
    devices = made["status"]["allocation"]["devices"]
    assert msgspec.convert(made, ResourceClaim).result("n2") is None
    devices["results"].append(devices["results"][0] | {"driver": "gpu.example.com"})
    assert msgspec.convert(made, ResourceClaim).result("n1") is not None
    devices["results"].append(devices["results"][0] | {"device": "host1"})
    with pytest.raises(BadClaim, match=r"2 devices; .*one device in each claim"):
        msgspec.convert(made, ResourceClaim).result("n1")


def test_another_allocation_has_another_digest() -> None:
    found = {claim().digest, claim(device="host1").digest, claim({"weight": 1}).digest, claim(pod="train").digest}
    assert len(found) == 3


def test_quantities_are_read_as_kubernetes_writes_them() -> None:
    found = {text: quantity(text) for text in ("0", "12", "1k", "2Ki", "1500M", "1.5Gi", "2e3", "1500m", "8Ei")}
    assert found == {
        "0": 0, "12": 12, "1k": 1000, "2Ki": 2048, "1500M": 1_500_000_000, "1.5Gi": 3 << 29, "2e3": 2000, "1500m": 2,
        "8Ei": 8 << 60,
    }  # fmt: skip
    for text in ("", "Gi", "1GiB", "-1", "1 Gi", "1.1.1"):
        with pytest.raises(BadClaim, match="not a quantity"):
            quantity(text)
