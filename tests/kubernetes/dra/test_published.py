"""The kubelet's API is as published, and so is what claims of the stand-in and the driver's own files look like."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("grpc", reason="grpcio is not installed (pip install 'carpool[k8s]')")
from carpool.kubernetes.dra.v1 import dra_pb2, registration_pb2
from tests.kubernetes.dra.published import MESSAGES, SERVICES, unknown

FILES = (dra_pb2.DESCRIPTOR, registration_pb2.DESCRIPTOR)


def test_messages_have_the_published_fields_and_numbers() -> None:
    found = {
        name: {field.name: field.number for field in message.fields}
        for file in FILES
        for name, message in file.message_types_by_name.items()
    }
    assert found == MESSAGES


def test_services_have_the_published_methods() -> None:
    services = {service.full_name: service for file in FILES for service in file.services_by_name.values()}
    assert {name: _methods(service) for name, service in services.items()} == SERVICES


def _methods(service: Any) -> dict[str, tuple[str, str]]:
    return {name: (method.input_type.name, method.output_type.name) for name, method in service.methods_by_name.items()}


def test_a_wrong_name_is_found_wherever_it_is() -> None:
    claim = {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClass": "x", "count": "1"}}]}}}
    place = ".spec.devices.requests[0].exactly"
    assert unknown(claim, "ResourceClaim") == [f"{place}.deviceClass: unknown", f"{place}.count: '1' is no int"]
