"""Engines behind the front: started on demand, asked by model, ended; and what clients see when one dies."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import aiohttp
import pytest
from aiohttp import web

from carpool.core.model import MIB
from carpool.protocol.api import SubmitRequest
from carpool.protocol.engines import MAKE_ROOM, EngineState, EngineWishes, read_engines
from carpool.serve.engines.ports import free_port
from carpool.serve.oip.errors import StartError
from tests.serve.backend import PATIENCE_S
from tests.serve.fakes import until
from tests.serve.plain import PlainJob, PlainLauncher

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.serve.engines.conftest import Fronts

SAYS = "one: a b c"


async def test_an_engine_starts_with_its_first_request(fronts: Fronts) -> None:
    fronts.write(one={}, two={"preload": True})
    await fronts.start()
    await until(lambda: "engine two is ready" in fronts.lines)
    assert [entry["state"] for entry in (await fronts.ask("GET", "/v1/models")).json["data"]] == ["off", "ready"]
    answers = await asyncio.gather(*(fronts.complete("one", "a b c") for _ in range(5)))
    assert [answer.json["choices"][0]["text"] for answer in answers] == [SAYS] * 5
    assert len(fronts.launcher.jobs) == 2, "all five waited for one start"
    assert (await fronts.ask("GET", "/v1/models/one")).json["state"] == "ready"


async def test_a_request_passes_through_unchanged(fronts: Fronts) -> None:
    fronts.write(one={"knows": "org/model", "as": "org/model", "models": ["one", "other"]})
    await fronts.start()
    body = b'{"model": "other", "prompt": "echo", "seed": 12345678901234567890, "temperature": 0.10, "x": "\\u00e9"}'
    seen = (await fronts.ask("POST", "/v1/chat/completions?a=%2F", body, Authorization="Bearer of-the-engine")).json
    assert seen["path"] == "/v1/chat/completions?a=%2F"
    assert json.loads(seen["body"]) == json.loads(body) | {"model": "org/model"}
    assert '12345678901234567890,"temperature":0.10,"x":"\\u00e9"' in seen["body"], "the bytes of other values stay"
    assert seen["headers"]["Authorization"] == "Bearer of-the-engine"
    exact = body.replace(b"other", b"org/model")
    assert (await fronts.ask("POST", "/upstream/one/v1/completions", exact)).json["body"] == exact.decode()


async def test_a_form_names_its_model(fronts: Fronts) -> None:
    fronts.write(one={"as": "whisper"})
    await fronts.start()
    form = aiohttp.FormData({"language": "en", "model": "one"})
    form.add_field("file", b"\r\n\r\nname=model\r\n\r\nnoise\0", filename="a.wav", content_type="audio/wav")
    seen = (await fronts.ask("POST", "/v1/audio/transcriptions", form)).json["text"]
    assert 'name="model"\r\n\r\nwhisper\r\n' in seen and "name=model\r\n\r\nnoise\0" in seen


async def test_a_stream_arrives_as_it_is_made(fronts: Fronts) -> None:
    fronts.write(one={})
    await fronts.start()
    answer = await fronts.complete("one", "a b c", stream=True)
    assert answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    assert answer.words == "one a b c " and answer.body.endswith(b"data: [DONE]\n\n")
    page = (await fronts.ask("GET", "/metrics")).body.decode()
    assert 'carpool_engine_requests_total{engine="one",result="200"} 1.0' in page
    assert 'carpool_engine_tokens_total{engine="one"} 4.0' in page
    assert 'carpool_engine_first_token_seconds_count{engine="one"} 1.0' in page
    assert 'carpool_engine_state{engine="one",state="ready"} 1.0' in page


async def test_a_client_that_leaves(fronts: Fronts) -> None:
    fronts.write(one={})
    await fronts.start()
    answer = await fronts.began("one", "hold")
    await answer.content.readany()
    answer.close()
    await until((fronts.directory / "left").exists)
    (job,) = fronts.launcher.jobs
    await until(lambda: fronts.told == [(job.number, True), (job.number, False)])


async def test_the_daemon_hears_of_requests_once(fronts: Fronts) -> None:
    """Two requests at once are one time of being busy."""
    fronts.write(one={"preload": True})
    await fronts.start()
    await until(lambda: "engine one is ready" in fronts.lines)
    (job,) = fronts.launcher.jobs
    one, two = [await fronts.began("one", "hold") for _ in range(2)]
    one.close()
    await until((fronts.directory / "left").exists)
    assert fronts.told == [(job.number, True)]
    two.close()
    await until(lambda: len(fronts.told) == 2)
    assert fronts.told[1] == (job.number, False)


@pytest.mark.parametrize("stream", [True, False])
async def test_an_engine_that_dies_in_its_answer(fronts: Fronts, stream: bool) -> None:
    fronts.write(one={})
    await fronts.start()
    if stream:
        last = (await fronts.complete("one", "die", stream=True)).body.split(b"\n\n")[-2]
        error = json.loads(last.removeprefix(b"data: "))["error"]
        assert error["code"] == "engine_lost" and error["type"] == "server_error"
    else:
        with pytest.raises(aiohttp.ClientPayloadError):
            await fronts.complete("one", "die")
    await until(lambda: any("engine one has ended: exit status 3" in line for line in fronts.lines))
    assert (await fronts.complete("one", "a b c")).json["choices"][0]["text"] == SAYS, "the next request starts it"
    assert len(fronts.launcher.jobs) == 2


async def test_an_engine_that_does_not_start(fronts: Fronts) -> None:
    fronts.write(one={})
    (fronts.directory / "broken").touch()
    await fronts.start()
    answers = await asyncio.gather(*(fronts.complete("one", "a") for _ in range(3)))
    for answer in answers:
        assert answer.status == 502 and answer.json["error"]["code"] == "engine_lost"
    assert "one has ended before it was ready: exit status 7" in answers[0].json["error"]["message"]
    soon = await fronts.complete("one", "a")
    assert soon.status == 502 and soon.headers["Retry-After"] == "1", "it is not started again at once"
    assert len(fronts.launcher.jobs) == 1


async def test_another_user_has_taken_the_port(fronts: Fronts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Perhaps long after the start, while the daemon is away and says nothing of the engine's end."""
    fronts.write(one={})
    await fronts.start()
    await fronts.complete("one", "a")
    with monkeypatch.context() as patch:
        patch.setattr("carpool.serve.engines.engine.listening_user", lambda port: os.geteuid() + 1)
        lost = await fronts.complete("one", "a secret")
    assert lost.status == 502 and "was taken by another user" in lost.json["error"]["message"]
    assert (await fronts.complete("one", "a b c")).json["choices"][0]["text"] == SAYS


async def test_an_engine_that_takes_too_long(fronts: Fronts) -> None:
    fronts.write(one={"health": "/never", "start_timeout": "200ms"})
    await fronts.start()
    answer = await fronts.complete("one", "a")
    assert answer.status == 503 and answer.json["error"]["code"] == "engine_starting"
    assert "was not ready within 200ms" in answer.json["error"]["message"]
    await until(lambda: fronts.launcher.jobs[0].process.returncode is not None)


async def test_errors_have_openais_form(fronts: Fronts) -> None:
    fronts.write(llama={"max_in_flight": 1})
    await fronts.start()
    unknown = await fronts.complete("lama", "a")
    assert unknown.status == 404 and unknown.json["error"]["code"] == "model_not_found"
    assert unknown.json["error"]["message"] == "there is no model 'lama'; did you mean 'llama'? known: llama"
    for body, text in ((b"{", "not JSON"), (b"[]", "names no `model`"), (b'{"model": 1}', "names no `model`")):
        wrong = await fronts.ask("POST", "/v1/completions", body)
        assert wrong.status == 400 and text in wrong.json["error"]["message"]
        assert wrong.json["error"]["type"] == "invalid_request_error"
    holding = await fronts.began("llama", "hold")
    full = await fronts.complete("llama", "a")
    assert full.status == 429 and full.headers["Retry-After"] == "1" and full.json["error"]["code"] == "engine_busy"
    holding.close()
    for path in ("/v1/nothing", "/v1"):
        assert (await fronts.ask("GET", path)).json["error"]["code"] == "unknown_path"
    odd = await fronts.ask("POST", "/v1/completions", {}, Expect="miracles")
    assert odd.status == 417 and odd.json["error"]["code"] == "wrong_expect"


async def test_llama_swaps_paths(fronts: Fronts) -> None:
    fronts.write(one={}, two={"ttl": "1h"})
    await fronts.start()
    assert (await fronts.ask("GET", "/running")).json == {"running": []}
    await fronts.complete("one", "a")
    await fronts.complete("two", "a")
    running = (await fronts.ask("GET", "/running")).json["running"]
    assert [(each["model"], each["state"], each["ttl"]) for each in running] == [
        ("one", "ready", 900),
        ("two", "ready", 3600),
    ]
    assert (await fronts.ask("POST", "/api/models/unload/one")).body == b"OK"
    assert [each["model"] for each in (await fronts.ask("GET", "/running")).json["running"]] == ["two"]
    assert (await fronts.ask("GET", "/unload")).body == b"OK"
    assert (await fronts.ask("GET", "/running")).json == {"running": []}
    assert (await fronts.ask("GET", "/upstream/one/some%2Fpath?q")).json == {"path": "/some%2Fpath?q"}


async def test_unloading_waits_for_requests(fronts: Fronts) -> None:
    fronts.write(one={})
    await fronts.start()
    holding = await fronts.began("one", "hold")
    unloading = asyncio.create_task(fronts.ask("POST", "/api/models/unload/one"))
    await until(lambda: fronts.launcher.jobs[0].process.returncode is None)
    assert not unloading.done()
    holding.close()
    assert (await unloading).status == 200
    assert (await fronts.complete("one", "a b c")).json["choices"][0]["text"] == SAYS


async def test_unloading_all_ends_them_at_once(fronts: Fronts) -> None:
    """None waits for the requests of another."""
    fronts.write(one={}, two={})
    await fronts.start()
    holding = [await fronts.began(name, "hold") for name in ("one", "two")]
    unloading = asyncio.create_task(fronts.ask("GET", "/unload"))
    running = []
    async with asyncio.timeout(PATIENCE_S):
        while running != ["ending", "ending"]:
            running = [each["state"] for each in (await fronts.ask("GET", "/running")).json["running"]]
    for each in holding:
        each.close()
    assert (await unloading).status == 200


async def test_a_process_ends_after_its_ttl(fronts: Fronts) -> None:
    fronts.write(one={"ttl": "100ms"}, two={"ttl": "100ms"}, kept={"ttl": "100ms", "pin": True})
    await fronts.start()
    await fronts.complete("kept", "a")
    holding = await fronts.began("one", "hold")
    await fronts.complete("two", "a")
    kept, one, two = fronts.launcher.jobs
    await until(lambda: two.process.returncode is not None)
    assert one.process.returncode is None, "it has a request"
    holding.close()
    await until(lambda: one.process.returncode is not None)
    assert kept.process.returncode is None


async def test_an_engine_goes_on_while_the_daemon_is_away(fronts: Fronts, monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot be ended then, and requests must not wait for that."""
    looks, is_back = asyncio.Event(), asyncio.Event()

    async def reachable(job: PlainJob) -> bool:
        looks.set()
        return is_back.is_set()

    monkeypatch.setattr(PlainJob, "is_reachable", reachable)
    fronts.write(one={"ttl": "50ms"})
    await fronts.start()
    for _ in range(2):
        assert (await fronts.complete("one", "a b c")).json["choices"][0]["text"] == SAYS
        looks.clear()
        await looks.wait()
    (job,) = fronts.launcher.jobs
    is_back.set()
    await until(lambda: job.process.returncode is not None)


async def test_a_token_is_for_the_front_alone(fronts: Fronts) -> None:
    token = fronts.directory / "token"
    token.write_text("a-long-token-of-ours")
    token.chmod(0o600)
    fronts.write(one={})
    await fronts.start(token_file=str(token))
    wrong = await fronts.complete("one", "echo")
    assert wrong.status == 401 and wrong.json["error"]["type"] == "authentication_error"
    body = {"model": "one", "prompt": "echo"}
    seen = await fronts.ask("POST", "/v1/completions", body, Authorization="Bearer a-long-token-of-ours")
    assert "Authorization" not in seen.json["headers"]


async def test_a_key_is_for_its_engine(fronts: Fronts) -> None:
    token, keys = fronts.directory / "token", fronts.directory / "keys"
    for file, text in ((token, "a-long-token-of-ours"), (keys, "# ann\na-long-key-of-ann-s\n")):
        file.write_text(text)
        file.chmod(0o600)
    fronts.write(one={"keys": "keys"}, two={})
    await fronts.start(token_file=str(token))
    ours, anns = ({"Authorization": f"Bearer {each}"} for each in ("a-long-token-of-ours", "a-long-key-of-ann-s"))
    listed = [(await fronts.ask("GET", "/v1/models", **header)).json["data"] for header in (ours, anns)]
    assert [[entry["id"] for entry in data] for data in listed] == [["one", "two"], ["one"]]
    seen = await fronts.ask("POST", "/v1/completions", {"model": "one", "prompt": "echo"}, **anns)
    assert "Authorization" not in seen.json["headers"]
    others = await fronts.ask("POST", "/v1/completions", {"model": "two", "prompt": "echo"}, **anns)
    assert others.status == 404 and "known: one" in others.json["error"]["message"], "as if it did not exist"
    assert (await fronts.ask("GET", "/v2", **anns)).status == 401, "a key is for engines"
    anthropics = {"X-API-Key": "a-long-key-of-ann-s"}
    seen = await fronts.ask("POST", "/v1/messages", {"model": "one", "prompt": "echo"}, **anthropics)
    assert seen.status == 200 and "X-API-Key" not in seen.json["headers"]
    for header in ({}, {"Authorization": "Bearer a-long-key-of-no-one"}, {"X-API-Key": "Bearer a-long-key-of-ann-s"}):
        assert (await fronts.ask("GET", "/v1/models", **header)).status == 401


async def test_keys_are_noticed_as_they_change(fronts: Fronts) -> None:
    """Of a file with a mistake nothing is taken, and it is corrected without a change of the file of engines."""

    async def known(key: str) -> list[str]:
        listed = await fronts.ask("GET", "/v1/models", Authorization=f"Bearer {key}")
        return [entry["id"] for entry in listed.json["data"]]

    keys, (anns, bobs) = fronts.directory / "keys", ("a-long-key-of-ann-s", "a-long-key-of-bob-s")
    keys.write_text(anns)
    keys.chmod(0o600)
    fronts.write(one={"keys": "keys"}, two={})
    await fronts.start()
    keys.write_text("short")
    await until(lambda: any("stay as they are: the token in" in line for line in fronts.lines))
    assert [await known(anns), await known(bobs)] == [["one", "two"], ["two"]]
    keys.write_text(bobs)
    await until(lambda: "the file of engines is in effect" in fronts.lines)
    assert [await known(anns), await known(bobs)] == [["two"], ["one", "two"]]
    fronts.write(one={"keys": "keys"}, two={"keys": "others"})
    await until(lambda: any("cannot read the keys in" in line for line in fronts.lines))
    assert await known(bobs) == ["one", "two"]
    (fronts.directory / "others").touch(0o600)
    await until(lambda: fronts.lines.count("the file of engines is in effect") == 2)
    assert await known(bobs) == ["one"], "a file without keys is for nobody"
    assert len(fronts.lines) == 5, "each mistake is said once"


async def test_without_a_token_an_engine_with_keys_needs_one(fronts: Fronts) -> None:
    keys = fronts.directory / "keys"
    keys.write_text("a-long-key-of-ann-s")
    keys.chmod(0o644)
    fronts.write(one={"keys": "keys"}, two={})
    with pytest.raises(StartError, match="chmod 600"):
        await fronts.start()
    keys.chmod(0o600)
    await fronts.start()
    assert [entry["id"] for entry in (await fronts.ask("GET", "/v1/models")).json["data"]] == ["two"]
    assert (await fronts.complete("one", "a")).status == 404
    seen = await fronts.ask("GET", "/v1/models", Authorization="Bearer a-long-key-of-ann-s")
    assert [entry["id"] for entry in seen.json["data"]] == ["one", "two"]


async def test_pages_of_other_sites_are_refused(fronts: Fronts) -> None:
    fronts.write(one={})
    await fronts.start()
    answer = await fronts.ask("POST", "/v1/completions", {"model": "one"}, Origin="http://example.com")
    assert answer.status == 403 and answer.json["error"]["code"] == "wrong_origin"


async def test_what_users_see_and_wish(fronts: Fronts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("carpool.serve.engines.engines.REPORT_S", 0.02)
    fronts.write(one={"models": ["a", "b"]}, two={"pin": True})
    await fronts.start()
    await until(lambda: [state.state for state in fronts.states.values()] == ["off", "off"])
    assert fronts.states["one"].models == ["a", "b"] and fronts.states["two"].pinned
    assert fronts.states["one"].url == fronts.url
    fronts.wishes = {"two": "start", "none": "stop"}
    await until(lambda: fronts.states["two"].state == "ready")
    (job,) = fronts.launcher.jobs
    assert fronts.states["two"].job == job.number
    holding = await fronts.began("two", "hold")
    await until(lambda: fronts.states["two"].in_flight == 1)
    holding.close()
    await until(lambda: fronts.states["two"].in_flight == 0)
    fronts.wishes = {"two": "sleep"}
    await until(lambda: "T (stopped)" in Path(f"/proc/{job.number}/status").read_text())
    assert (await fronts.complete("two", "a")).status == 200, "a request wakes it up"
    fronts.wishes = {"two": "stop"}
    await until(lambda: fronts.states["two"].state == "off")


async def test_weights_that_are_only_mapped(fronts: Fronts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("carpool.serve.engines.engines.REPORT_S", 0.02)
    (fronts.directory / "weights").write_bytes(b"GGUF" + bytes(2 * MIB - 4))
    fronts.write(one={"preload": True})
    await fronts.start()
    await until(lambda: fronts.states and fronts.states["one"].mapped_bytes == {"gguf": 2 * MIB})
    fronts.wishes = {"one": "stop"}
    await until(lambda: fronts.states["one"].mapped_bytes == {})


async def test_an_engine_makes_room_unless_it_has_requests(fronts: Fronts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("carpool.serve.engines.engines.REPORT_S", 0.01)
    fronts.write(one={}, two={"preload": True})
    await fronts.start()
    holding = await fronts.began("one", "hold")
    await until(lambda: fronts.states["one"].in_flight == 1 and fronts.states["two"].state == "ready")
    fronts.wishes = {"one": MAKE_ROOM, "two": MAKE_ROOM}
    await until(lambda: fronts.states["two"].state == "off")
    assert fronts.states["two"].reason.startswith("the host store was full") and fronts.states["one"].state == "ready"
    assert (await fronts.complete("two", "a")).status == 200, "it starts again"
    assert fronts.states["two"].starts == 2 and fronts.states["two"].reason == ""
    holding.close()


async def test_a_request_while_another_keeps_its_engine_from_ending(fronts: Fronts) -> None:
    """It waits for the end of the process, and must not keep it from ending."""
    fronts.write(one={})
    await fronts.start()
    holding = await fronts.began("one", "hold")
    unloading = asyncio.create_task(fronts.ask("POST", "/api/models/unload/one"))
    while (await fronts.ask("GET", "/running")).json["running"][0]["state"] != "ending":
        pass
    late = asyncio.create_task(fronts.complete("one", "a b c"))
    while (await fronts.ask("GET", "/running")).json["running"][0]["in_flight"] < 2:
        pass
    holding.close()
    assert (await unloading).status == 200
    assert (await late).json["choices"][0]["text"] == SAYS
    assert len(fronts.launcher.jobs) == 2


async def test_a_request_while_its_engine_is_moved_out(fronts: Fronts, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine goes on after the request has come, however late the pause is."""
    monkeypatch.setattr("carpool.serve.engines.engines.REPORT_S", 0.02)
    begun, go_on = asyncio.Event(), asyncio.Event()
    order: list[str] = []

    async def pause(job: PlainJob) -> None:
        begun.set()
        await go_on.wait()
        order.append("pause")

    async def resume(job: PlainJob) -> None:
        order.append("resume")

    monkeypatch.setattr(PlainJob, "pause", pause)
    monkeypatch.setattr(PlainJob, "resume", resume)
    fronts.write(one={})
    await fronts.start()
    await fronts.complete("one", "a")
    fronts.wishes = {"one": "sleep"}
    await begun.wait()
    asking = asyncio.create_task(fronts.complete("one", "a"))
    while (await fronts.ask("GET", "/running")).json["running"][0]["in_flight"] < 1 and not asking.done():
        pass
    go_on.set()
    assert (await asking).status == 200
    assert order == ["pause", "resume"]


async def test_a_key_is_not_for_other_engines(fronts: Fronts) -> None:
    keys = fronts.directory / "keys"
    keys.touch(0o600)
    keys.write_text("a-long-key-of-ann-s")
    fronts.write(one={"keys": "keys"}, two={})
    await fronts.start()
    body = {"model": "two", "prompt": "echo"}
    seen = await fronts.ask("POST", "/v1/completions", body, Authorization="Bearer a-long-key-of-ann-s")
    assert "Authorization" not in seen.json["headers"]
    seen = await fronts.ask("POST", "/v1/completions", body, Authorization="Bearer of-the-engine")
    assert seen.json["headers"]["Authorization"] == "Bearer of-the-engine"


async def test_headers_of_a_connection_stay_there(fronts: Fronts) -> None:
    fronts.write(one={})
    await fronts.start()
    body = {"model": "one", "prompt": "echo"}
    headers = {"Connection": "keep-alive, X-Hop", "X-Hop": "1", "X-End": "2"}
    seen = (await fronts.ask("POST", "/v1/completions", body, **headers)).json["headers"]
    assert "X-Hop" not in seen and seen["X-End"] == "2"


async def test_a_file_that_is_being_written(fronts: Fronts, monkeypatch: pytest.MonkeyPatch) -> None:
    """An editor may empty the file, or move it away, before it writes it."""
    monkeypatch.setattr("carpool.serve.engines.engines.REPORT_S", 0.02)
    fronts.write(one={})
    text, looks, seen = fronts.file.read_text(), itertools.count(), 0

    def report(states: Mapping[str, EngineState]) -> EngineWishes:
        nonlocal seen
        fronts.states, seen = states, next(looks)
        if seen < 10:
            fronts.file.write_text("" if seen % 2 == 0 else text)
        return EngineWishes()

    monkeypatch.setattr(fronts, "_report", report)
    await fronts.start()
    await fronts.complete("one", "a")
    await until(lambda: seen > 9)
    assert (await fronts.ask("GET", "/running")).json["running"][0]["state"] == "ready"
    fronts.write(two={})
    await until(lambda: list(fronts.states) == ["two"])


async def test_an_engine_that_is_removed_ends_before_the_front(fronts: Fronts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("carpool.serve.engines.engines.REPORT_S", 0.02)
    begun, cancel = asyncio.Event(), PlainJob.cancel

    async def slowly(job: PlainJob) -> None:
        begun.set()
        await asyncio.sleep(0.2)
        await cancel(job)

    monkeypatch.setattr(PlainJob, "cancel", slowly)
    fronts.write(one={"preload": True})
    await fronts.start()
    await until(lambda: "engine one is ready" in fronts.lines)
    fronts.file.write_text("")
    await begun.wait()
    await fronts.stop()


async def test_a_front_that_stops_takes_no_more_requests(fronts: Fronts) -> None:
    fronts.write(one={}, two={})
    await fronts.start()
    holding = await fronts.began("one", "hold")
    await fronts.complete("two", "a")
    stopping = asyncio.create_task(fronts.stop(close=False))
    while (late := await fronts.complete("two", "a")).status == 200:
        pass
    assert late.status == 503 and late.json["error"]["code"] == "shutting_down"
    holding.close()
    await stopping


@pytest.mark.parametrize("path", ["/unload", "/upstream/one/v1/models", "/v1/models"])
async def test_pages_of_other_sites_end_no_engine(fronts: Fronts, path: str) -> None:
    """A picture in a page has no Origin."""
    fronts.write(one={})
    await fronts.start()
    assert (await fronts.ask("GET", path, **{"Sec-Fetch-Site": "cross-site"})).status == 403
    assert (await fronts.ask("GET", path, **{"Sec-Fetch-Site": "same-origin"})).status != 403


async def test_a_start_that_fails_in_another_way(fronts: Fronts, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client hears of it, and the next start waits, as after others that fail."""

    async def submit(launcher: PlainLauncher, request: SubmitRequest) -> PlainJob:
        raise ValueError("it cannot be written")

    monkeypatch.setattr(PlainLauncher, "submit", submit)
    fronts.write(one={})
    await fronts.start()
    for says in ("it cannot be written", "one does not start: "):
        answer = await fronts.complete("one", "a")
        assert answer.status == 502 and says in answer.json["error"]["message"]


async def test_a_variable_that_is_not_text_is_left_out(fronts: Fronts, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[SubmitRequest] = []
    submit = PlainLauncher.submit

    async def noted(launcher: PlainLauncher, request: SubmitRequest) -> PlainJob:
        seen.append(request)
        return await submit(launcher, request)

    monkeypatch.setattr(PlainLauncher, "submit", noted)
    monkeypatch.setenv("ODD", "\udcff")
    monkeypatch.setenv("EVEN", "\u00e9?")
    fronts.write(one={})
    await fronts.start()
    await fronts.complete("one", "a")
    assert "ODD" not in seen[0].env and seen[0].env["EVEN"] == "\u00e9?"


async def test_an_engine_that_dies_as_its_client_leaves(fronts: Fronts, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request is counted once."""
    write, written = web.StreamResponse.write, asyncio.Event()

    async def gone(answer: web.StreamResponse, data: bytes) -> None:
        if b"engine_lost" in data:
            written.set()
            raise aiohttp.ClientConnectionResetError("the client is gone")
        await write(answer, data)

    monkeypatch.setattr(web.StreamResponse, "write", gone)
    fronts.write(one={})
    await fronts.start()
    asking = asyncio.create_task(fronts.complete("one", "die", stream=True))
    await written.wait()
    asking.cancel()
    lines = (await fronts.ask("GET", "/metrics")).body.decode().splitlines()
    counted = [line for line in lines if line.startswith("carpool_engine_requests_total{")]
    assert counted == ['carpool_engine_requests_total{engine="one",result="client_gone"} 1.0']


async def test_an_engine_that_an_earlier_front_has_moved_out(fronts: Fronts, monkeypatch: pytest.MonkeyPatch) -> None:
    resumed: list[int] = []

    async def left(launcher: PlainLauncher) -> list[tuple[SimpleNamespace, PlainJob]]:
        request = SubmitRequest(spec.argv(port), "/", dict(os.environ), name="one")
        return [(SimpleNamespace(name="one", command=request.argv), await launcher.submit(request))]

    async def resume(job: PlainJob) -> None:
        resumed.append(job.number)

    monkeypatch.setattr(PlainLauncher, "left", left)
    monkeypatch.setattr(PlainJob, "resume", resume)
    fronts.write(one={})
    spec, port = read_engines(fronts.file)["one"], free_port()
    await fronts.start()
    for _ in range(2):
        assert (await fronts.complete("one", "a")).status == 200
    (job,) = fronts.launcher.jobs
    assert resumed == [job.number]
