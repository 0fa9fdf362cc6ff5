"""Registered models: durable when they are acknowledged, each its owner's, and refused with a reason."""

from __future__ import annotations

import asyncio
import grp
import os
from pathlib import Path
from typing import Any

import pytest

from carpool.daemon.journal.models import Models, RegisteredModel, read_models
from carpool.daemon.system.errors import JournalFull
from carpool.protocol.models import ModelRequest
from tests.daemon.daemon_harness import NOBODY, Daemon, Make, as_nobody, refusal
from tests.daemon.journal_file import opened


def request(**fields: Any) -> dict[str, Any]:
    """The body of PUT /v1/models/{name}."""
    return {"factory": "shop:resnet", "python": "/usr/bin/python3", "cwd": "/", "env": {"TOKEN": "secret"}} | fields


def names(daemon: Daemon) -> list[str]:
    return [model["name"] for model in daemon.get("/v1/models")["models"]]


def test_what_was_registered_is_shown_without_its_environment(daemon: Daemon) -> None:
    limits = {"deadline_us": 50_000, "max_batch": 4, "max_delay_us": 2_000, "priority": 7}
    sent = request(weights="/w/resnet.safetensors", **limits)
    info = daemon.put("/v1/models/resnet", sent)
    assert info == daemon.get("/v1/models/resnet")
    assert info.items() >= {"name": "resnet", "owner": os.geteuid(), "variables": 1, **limits}.items()
    assert {key: info[key] for key in ("factory", "python", "cwd", "weights")}.items() <= sent.items()
    defaults = daemon.put("/v1/models/bert", request())
    found = [defaults[key] for key in ("weights", "deadline_us", "max_batch", "max_delay_us", "priority")]
    assert found == [None, None, 8, 0, 100]
    assert daemon.get("/v1/models") == {"models": [defaults, info]}
    assert "secret" not in str([defaults, info]) + daemon.log()
    assert daemon.get("/v1/models/resnet/environment") == {"env": {"TOKEN": "secret"}}


def test_a_name_is_taken_until_it_is_replaced_or_removed(daemon: Daemon) -> None:
    daemon.put("/v1/models/resnet", request())
    refused = refusal(daemon.put, "/v1/models/resnet", request(factory="shop:other"))
    assert refused.answer == (409, "model_exists")
    assert "--replace" in refused.hint
    assert daemon.get("/v1/models/resnet")["factory"] == "shop:resnet"
    assert daemon.put("/v1/models/resnet?replace=1", request(factory="shop:other"))["factory"] == "shop:other"
    assert daemon.request("DELETE", "/v1/models/resnet")["factory"] == "shop:other"
    for method in ("GET", "DELETE"):
        assert refusal(daemon.request, method, "/v1/models/resnet").answer == (404, "unknown_model")
    daemon.put("/v1/models/resnet", request())
    assert refusal(daemon.get, "/v1/models/resnte").hint.startswith("did you mean 'resnet'? ")


def test_what_was_acknowledged_survives_a_kill(daemon: Daemon) -> None:
    kept = daemon.put("/v1/models/kept", request(deadline_us=1))
    daemon.put("/v1/models/replaced", request())
    daemon.put("/v1/models/removed", request())
    replaced = daemon.put("/v1/models/replaced?replace=1", request(factory="shop:other", env={"A": "ü"}))
    daemon.request("DELETE", "/v1/models/removed")
    daemon.restarted()
    assert daemon.get("/v1/models") == {"models": [kept, replaced]}
    assert daemon.get("/v1/models/replaced/environment") == {"env": {"A": "ü"}}
    daemon.terminate()
    assert daemon.started().get("/v1/models") == {"models": [kept, replaced]}


BAD: list[tuple[dict[str, Any], str]] = [
    ({"factory": "shop.resnet"}, "bad_factory"),
    ({"weights": "relative.safetensors"}, "bad_weights"),
    ({"weights": "/w/resnet.bin"}, "bad_weights"),
    ({"python": "python3"}, "bad_python"),
    ({"python": "/bin/py\0thon"}, "bad_text"),
    ({"weights": "/w\0.safetensors"}, "bad_text"),
    ({"env": {"A": "b\0"}}, "bad_text"),
    ({"env": {"A=B": "c"}}, "bad_environment"),
    ({"cwd": "relative"}, "bad_directory"),
    ({"deadline_us": 0}, "bad_deadline_us"),
    ({"deadline_us": -1}, "bad_deadline_us"),
    ({"deadline_us": 1 << 63}, "bad_deadline_us"),
    ({"max_batch": 0}, "bad_max_batch"),
    ({"max_delay_us": -1}, "bad_max_delay_us"),
    ({"priority": 0}, "bad_priority"),
    ({"priority": "high"}, "bad_request"),
    ({"gpus": 1}, "bad_request"),
    ({"factory": None}, "bad_request"),
]


@pytest.mark.parametrize(("fields", "code"), BAD, ids=[f"{next(iter(b[0]))}-{b[1]}" for b in BAD])
def test_what_no_worker_could_be_made_of_is_refused(shared: Daemon, fields: dict[str, Any], code: str) -> None:
    assert refusal(shared.put, "/v1/models/resnet", request(**fields)).answer == (400, code)
    assert names(shared) == []


@pytest.mark.parametrize("name", ["-a", "a%20b", "a%2Fb", "a" * 101, "%C3%A9"])
def test_names_are_checked(shared: Daemon, name: str) -> None:
    assert refusal(shared.put, f"/v1/models/{name}", request()).answer == (400, "bad_name")
    assert refusal(shared.get, f"/v1/models/{name}").answer == (404, "unknown_model")


def test_bad_parameters(shared: Daemon) -> None:
    for method, path in (("PUT", "a?replace=maybe"), ("GET", "a?owner=-1"), ("DELETE", "a?owner=me")):
        refused = refusal(shared.request, method, f"/v1/models/{path}", request() if method == "PUT" else None)
        assert refused.answer == (400, "bad_parameter")


def test_two_owners_may_have_models_of_one_name(daemon: Daemon) -> None:
    body = request(factory="shop:theirs", env={})
    mine = daemon.put("/v1/models/resnet", request())
    daemon.put("/v1/models/mine", request())
    theirs: Any = as_nobody(daemon, f"daemon.put('/v1/models/resnet', {body!r})")
    assert (mine["owner"], theirs["owner"]) == (0, 65534)
    assert as_nobody(daemon, "daemon.get('/v1/models')") == {"models": [theirs]}
    for call in (
        "daemon.get('/v1/models/mine')",
        "daemon.get('/v1/models/resnet?owner=0')",
        "daemon.get('/v1/models/resnet/environment?owner=0')",
        "daemon.request('DELETE', '/v1/models/mine')",
        "daemon.request('DELETE', '/v1/models/resnet?owner=0')",
    ):
        assert as_nobody(daemon, f"attempt(lambda: {call})") == "unknown_model", call
    assert names(daemon) == ["mine", "resnet", "resnet"]
    assert daemon.get("/v1/models/resnet") == mine
    assert daemon.get("/v1/models/resnet?owner=65534") == theirs
    assert daemon.request("DELETE", "/v1/models/resnet?owner=65534") == theirs
    assert daemon.get("/v1/models")["models"][-1] == mine
    assert as_nobody(daemon, "daemon.get('/v1/models')") == {"models": []}


def test_administrators_have_the_models_of_all_but_no_secrets(make_daemon: Make) -> None:
    daemon = make_daemon(limits=f'admin_group = "{grp.getgrgid(NOBODY).gr_name}"\n').started()
    mine = daemon.put("/v1/models/mine", request())
    assert as_nobody(daemon, "daemon.get('/v1/models')") == {"models": [mine]}
    assert as_nobody(daemon, "attempt(lambda: daemon.get('/v1/models/mine'))") == "unknown_model", "one of their own"
    assert as_nobody(daemon, "daemon.get('/v1/models/mine?owner=0')") == mine
    secrets = "attempt(lambda: daemon.get('/v1/models/mine/environment?owner=0'))"
    assert as_nobody(daemon, secrets) == "not_owner"
    assert as_nobody(daemon, "daemon.request('DELETE', '/v1/models/mine?owner=0')") == mine
    assert names(daemon) == []


async def test_of_two_at_once_one_gets_the_name(tmp_path: Path) -> None:
    """Also when both have been checked before either is on the disk."""
    both = [RegisteredModel(1, "resnet", ModelRequest(f"shop:{n}", "/python", "/", {}), 7) for n in ("first", "second")]
    with opened(tmp_path / "journal.sqlite") as daemon:
        models = Models(daemon.journal)
        assert await asyncio.gather(*(models.add(model, replace=False) for model in both)) == [True, False]
        removed = await asyncio.gather(models.remove(1, "resnet"), models.remove(1, "resnet"))
        assert removed == [both[0], None]
        assert await models.add(both[1], replace=True)
        assert read_models(daemon.connection) == models.listed() == [both[1]]


async def test_what_the_disk_has_no_room_for_has_not_happened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = ModelRequest("shop:resnet", "/python", "/", {})
    kept, other = (RegisteredModel(1, name, spec, 7) for name in ("kept", "other"))
    with opened(tmp_path / "journal.sqlite") as daemon:
        models = Models(daemon.journal)
        assert await models.add(kept, replace=False)
        monkeypatch.setattr(daemon.journal, "_commit", lambda _: JournalFull("disk_full", "full", ""))
        with pytest.raises(JournalFull):
            await models.add(other, replace=False)
        with pytest.raises(JournalFull):
            await models.remove(1, "kept")
        assert models.listed() == [kept]
