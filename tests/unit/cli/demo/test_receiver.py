"""The demo's receiver records requests, checks their signatures, and can leave one without an answer."""

from __future__ import annotations

import json
import socket
import threading
from datetime import UTC, datetime

import httpx2
from anchorwatch.testing.receiver import Receiver
from standardwebhooks import Webhook

from tests.support.waiting import until

SECRET = "whsec_" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldY"
OTHER = "whsec_" + "WFdWVVRTUlFQT05NTEtKSUhHRkVEQ0JB"


def send(receiver: Receiver, webhook_id: str, record: int = 7, secret: str = SECRET) -> httpx2.Response:
    body = json.dumps({"type": "turn_ended", "data": {"record": record}})
    now = datetime.now(UTC)
    headers = {
        "webhook-id": webhook_id,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Webhook(secret).sign(webhook_id, now, body),
    }
    return httpx2.post(receiver.url, content=body, headers=headers, trust_env=False, timeout=5)


def failure_of(receiver: Receiver) -> bool:
    """Whether the request ends without an answer."""
    try:
        send(receiver, "7-demo")
    except httpx2.TransportError:
        return True
    return False


def test_arrivals_are_recorded_in_order() -> None:
    with Receiver(SECRET) as receiver:
        assert send(receiver, "7-demo").status_code == 204
        assert send(receiver, "9-demo", 9).status_code == 204
        arrivals = receiver.arrivals
    assert [(each.webhook_id, each.record, each.signed, each.accepted) for each in arrivals] == [
        ("7-demo", 7, True, True),
        ("9-demo", 9, True, True),
    ]


def test_wrong_signature_is_recorded() -> None:
    with Receiver(SECRET) as receiver:
        send(receiver, "7-demo", secret=OTHER)
        assert [each.signed for each in receiver.arrivals] == [False]


def test_held_request_gets_no_answer() -> None:
    with Receiver(SECRET) as receiver:
        failures: list[bool] = []
        receiver.hold_next()
        assert not receiver.holding
        sending = threading.Thread(target=lambda: failures.append(failure_of(receiver)))
        sending.start()
        until(lambda: receiver.holding)
        assert not failures
        receiver.release()
        sending.join(5)
        assert failures == [True]
        assert send(receiver, "7-demo").status_code == 204
        assert [each.accepted for each in receiver.arrivals] == [False, True]


def test_content_without_a_record_is_record_0() -> None:
    with Receiver(SECRET) as receiver:
        httpx2.post(receiver.url, content=b"what", trust_env=False, timeout=5)
        assert [(each.record, each.signed) for each in receiver.arrivals] == [(0, False)]


def test_interrupted_request_is_not_an_arrival() -> None:
    with Receiver(SECRET) as receiver:
        host, port = receiver.url.removeprefix("http://").removesuffix("/notify").split(":")
        with socket.create_connection((host, int(port))) as link:
            link.sendall(b"POST /notify HTTP/1.0\r\ncontent-length: 100\r\n\r\n{")
            link.shutdown(socket.SHUT_WR)
            assert link.recv(1) == b""
        assert receiver.arrivals == ()
