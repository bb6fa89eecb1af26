"""The choice of a port: the requested one or none; else the previous one, the default, any."""

import socket
from collections.abc import Iterator

import pytest
from anchorwatch.core.errors import BadSettings, Refused
from anchorwatch.mesh.ports import PortRequest, any_free, choose, is_free


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def request_for(default: int, requested: int | None = None, previous: int | None = None) -> PortRequest:
    return PortRequest("the gateway", "--port", default, requested, previous)


def test_default_port_is_chosen_if_it_is_free() -> None:
    free = any_free()
    assert choose(request_for(free)).port == free
    assert choose(request_for(free)).note == ""


def test_choice_of_another_port_is_explained(taken: int) -> None:
    chosen = choose(request_for(taken))
    assert chosen.port != taken
    assert (
        chosen.note
        == f"port {taken} is taken, so the gateway listens on {chosen.port} (choose one with --port)"
    )


def test_restart_keeps_the_port(taken: int) -> None:
    free = any_free()
    assert choose(request_for(taken, previous=free)) == choose(request_for(free))


def test_requested_port_is_chosen_or_refused(taken: int) -> None:
    free = any_free()
    assert choose(request_for(1, requested=free, previous=2)).port == free
    with pytest.raises(Refused, match=f"port {taken} for the gateway is taken") as refused:
        choose(request_for(1, requested=taken))
    assert refused.value.exit_code == 5
    assert "--port" in refused.value.hint


def test_port_zero_is_any_free_port_and_survives_a_restart(taken: int) -> None:
    first = choose(request_for(taken, requested=0)).port
    assert first != taken
    assert choose(request_for(taken, requested=0, previous=first)).port == first


def test_excluded_port_is_never_chosen() -> None:
    free = any_free()
    assert choose(request_for(free), excluded={free}).port != free


def test_port_with_a_listener_is_not_free(taken: int) -> None:
    assert not is_free(taken)


@pytest.mark.parametrize("host", ["256.1.1.1", "203.0.113.7"])
def test_foreign_host_is_refused_with_the_name_of_its_setting(host: str) -> None:
    with pytest.raises(BadSettings, match=f"nothing can listen on {host}") as refused:
        choose(request_for(any_free()), host)
    assert "ANCHORWATCH_HOST" in refused.value.hint
