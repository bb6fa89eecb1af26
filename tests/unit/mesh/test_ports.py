"""Which port is chosen: the one asked for or none; else last time's, the usual one, any."""

import socket
from collections.abc import Iterator

import pytest
from anchorwatch.core.errors import BadSettings, Refused
from anchorwatch.mesh.ports import Wish, any_free, choose, is_free


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def wish(usual: int, asked: int | None = None, remembered: int | None = None) -> Wish:
    return Wish("the gateway", "--port", usual, asked, remembered)


def test_the_usual_port_is_taken_when_it_is_free() -> None:
    free = any_free()
    assert choose(wish(free)).port == free
    assert choose(wish(free)).note == ""


def test_another_than_the_usual_one_is_said(taken: int) -> None:
    chosen = choose(wish(taken))
    assert chosen.port != taken
    assert (
        chosen.note
        == f"port {taken} is taken, so the gateway listens on {chosen.port} (choose one with --port)"
    )


def test_a_restart_keeps_the_port(taken: int) -> None:
    free = any_free()
    assert choose(wish(taken, remembered=free)) == choose(wish(free))


def test_exactly_the_port_that_was_asked_for_or_none(taken: int) -> None:
    free = any_free()
    assert choose(wish(1, asked=free, remembered=2)).port == free
    with pytest.raises(Refused, match=f"port {taken} for the gateway is taken") as refused:
        choose(wish(1, asked=taken))
    assert refused.value.exit_code == 5
    assert "--port" in refused.value.hint


def test_zero_is_any_free_port_and_the_same_again_after_a_restart(taken: int) -> None:
    first = choose(wish(taken, asked=0)).port
    assert first != taken
    assert choose(wish(taken, asked=0, remembered=first)).port == first


def test_two_servers_never_get_one_port() -> None:
    free = any_free()
    assert choose(wish(free), besides={free}).port != free


def test_a_port_that_somebody_listens_on_is_not_free(taken: int) -> None:
    assert not is_free(taken)


@pytest.mark.parametrize("host", ["256.1.1.1", "203.0.113.7"])
def test_a_host_that_is_not_this_machine_is_said_with_its_setting(host: str) -> None:
    with pytest.raises(BadSettings, match=f"nothing can listen on {host}") as refused:
        choose(wish(any_free()), host)
    assert "ANCHORWATCH_HOST" in refused.value.hint
