"""Publishing events, as any NATS client may."""

from __future__ import annotations

import json
import secrets

from anchorwatch.bus.port import Message
from anchorwatch.core.errors import TooLarge
from anchorwatch.core.times import iso
from anchorwatch.edges import Edge, reached
from anchorwatch.topology.streams import RECORD_BYTES_MAX
from anchorwatch.topology.subjects import event as event_subject

from anchorwatch_gateway import kill_switches
from anchorwatch_gateway.bodies import NewEvent
from anchorwatch_gateway.parts import Parts
from anchorwatch_gateway.replies import Published

EVENT_BYTES_MAX = RECORD_BYTES_MAX - 8 * 1024
"""Below what the stream takes: an input's record holds the event, and headers come on top."""


async def publish(parts: Parts, workspace: str, new: NewEvent) -> Published:
    """Store the event as a CloudEvent.

    Raises:
        TooLarge: above the limit. Unavailable: not confirmed; sent again with the same id, it is the same event.
    """
    id_ = new.id or f"evt-{secrets.token_hex(12)}"
    content = {
        "specversion": "1.0",
        "id": id_,
        "source": new.source,
        "type": new.type,
        "time": iso(parts.clock.now_ms()),
        "datacontenttype": "application/json",
        "priority": new.priority,
        "data": new.data,
    }
    payload = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    if len(payload) > EVENT_BYTES_MAX:
        raise TooLarge(
            f"the event is {len(payload)} bytes, the limit is {EVENT_BYTES_MAX}",
            hint="send a reference to the data",
        )
    # An event's id is unique within its source only, while message ids are the whole stream's.
    message_id = f"{workspace}.{new.source}.{id_}"
    subject = event_subject(workspace, new.source, new.type)
    reached(Edge.GATEWAY_EVENT_BEFORE)
    ack = await parts.bus.publish(Message(subject, payload, message_id=message_id))
    reached(Edge.GATEWAY_EVENT_AFTER)
    parts.counters.events.inc()
    return Published(
        id=id_,
        sequence=ack.sequence,
        duplicate=ack.duplicate,
        kill_switches=await kill_switches.over_event(parts, workspace, f"{new.source}.{new.type}"),
    )
