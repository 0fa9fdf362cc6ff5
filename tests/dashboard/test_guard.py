from __future__ import annotations

from carpool.dashboard.guard import LINK_S, MOST_LINKS, Links


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


def test_unused_links_do_not_pile_up() -> None:
    links = Links()
    first = links.new()
    for _ in range(MOST_LINKS):
        links.new()
    assert links.exchange(first) is None


def test_links_of_another_process_are_none() -> None:
    assert Links().exchange(Links().new()) is None
