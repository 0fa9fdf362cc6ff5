from __future__ import annotations

import functools

import pytest

from carpool.daemon.api.routes import ROUTES
from carpool.dashboard.forwards import FORWARDS, PREFIX, find_forward
from carpool.dashboard.guard import LINK_S, MOST_LINKS, Links

#: What the page must never do for whoever has got hold of it, or never needs.
KEPT_BACK = {
    ("POST", "/v1/jobs"),
    ("POST", "/v1/submissions"),
    ("POST", "/v1/retries"),
    ("POST", "/v1/history"),
    ("GET", "/v1/jobs/{id}/wait"),
    ("POST", "/v1/clean"),
    ("PUT", "/v1/devices/{device}"),
    ("PUT", "/v1/models/{name}"),
    ("PUT", "/v1/engines"),
    ("POST", "/v1/jobs/{id}/busy"),
    ("GET", "/v1/models/{name}"),
    ("GET", "/v1/models/{name}/environment"),
    ("DELETE", "/v1/models/{name}"),
    ("PUT", "/v1/serving"),
    ("GET", "/metrics"),
    ("GET", "/v1/log-level"),
    ("PUT", "/v1/log-level"),
    ("POST", "/v1/shutdown"),
}
#: What stands in paths for parts that vary.
GIVEN = {"{id}": "7", "{device}": "host0", "{name}": "host0", "{wish}": "stop"}


def forwarded(method: str, path: str, query: str = "") -> bool:
    return find_forward(method, PREFIX + path, query) is not None


def test_each_route_is_forwarded_or_kept_back_on_purpose() -> None:
    for route in ROUTES:
        path = (
            route.path.replace("{id}", "7")
            .replace("{device}", "host0")
            .replace("{name}", "m")
            .replace("{wish}", "stop")
        )
        query = "limit=5" if path == "/v1/events" else ""
        assert forwarded(route.method, path, query) != ((route.method, route.path) in KEPT_BACK), route.path


def _put(path: str, given: tuple[str, str]) -> str:
    return path.replace(*given)


def test_nothing_is_forwarded_that_the_daemon_does_not_have() -> None:
    routes = {(route.method, functools.reduce(_put, GIVEN.items(), route.path)) for route in ROUTES}
    for one in FORWARDS:
        path = one.path.replace("[0-9]{1,19}", "7").replace("[A-Za-z0-9._-]{1,100}", "host0")
        path = path.replace("(start|stop|sleep)", "stop")
        assert (one.method, path) in routes, one.path


@pytest.mark.parametrize(
    "path",
    [
        *("/v1/jobs/7/../../shutdown", "/v1/jobs/7%2f..%2f..%2fshutdown", "//v1/jobs", "/v1/jobs/", "/v1/jobs/7/wait"),
        *("/v1/jobs/7/logs%3ffollow=1", "/v1/jobs/-1", "/v1/jobs/7x", "/v1/devices/a%2fb/telemetry", "/V1/jobs", ""),
        "/v1/jobs/\u0667",
    ],
)
def test_odd_paths_are_not_forwarded(path: str) -> None:
    assert not any(forwarded(method, path) for method in ("GET", "POST", "PUT", "PATCH", "DELETE"))


def test_only_known_parameters_are_forwarded() -> None:
    assert forwarded("GET", "/v1/jobs", "phase=queued,running&limit=5")
    assert not forwarded("GET", "/v1/jobs", "limit=5&owner=0")
    assert not forwarded("GET", "/v1/jobs", "limit=5#x") and not forwarded("GET", "/v1/jobs", "limit=5 HTTP/1.1")
    assert not forwarded("GET", "/v1/events", ""), "an endless answer for each page"
    assert not forwarded("GET", "/v1/events", "limit=5&follow=1")


def test_a_link_is_good_once_and_for_a_while() -> None:
    now = [0.0]
    links = Links(lambda: now[0])
    link, late = links.new(), links.new()
    assert links.unused(link)
    token = links.exchange(link)
    assert token is not None and links.knows(token) and token != link
    assert links.exchange(link) is None and not links.unused(link)
    now[0] = LINK_S + 1
    assert not links.unused(late) and links.exchange(late) is None
    assert not links.knows(late) and not links.knows("") and not links.knows("\udcff")


def test_unused_links_do_not_pile_up_and_those_of_another_process_are_none() -> None:
    links = Links()
    first = links.new()
    for _ in range(MOST_LINKS):
        links.new()
    assert links.exchange(first) is None
    assert Links().exchange(links.new()) is None
