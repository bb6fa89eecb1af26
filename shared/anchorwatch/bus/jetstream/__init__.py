"""The bus on NATS JetStream: the only package that imports nats.

- `bus`: the parts together; `client`, `wire`: nats-py and its fast path; `connection`, `link`, `calls`: one connection
- `api`: JetStream's API and errors; `streams`, `consumers`, `kv`, `objects`, `publishing`, `reads`: one part each
- `responders`: subscriptions; `clock`: the server's time

A user needs permission to subscribe to ``<inbox>.>`` and to publish to the subjects that it stores to, and to these
(``KV_<bucket>`` and ``OBJ_<store>`` are the streams of buckets and object stores):

- publish, publish_batch: none; ``$JS.API.STREAM.NAMES`` to distinguish a missing stream from one without a leader
- last, range: ``$JS.API.DIRECT.GET.<stream>``
- consumer: ``$JS.API.CONSUMER.INFO.<stream>.<durable>``, ``$JS.API.CONSUMER.CREATE.<stream>.<durable>`` (with
  ``.<filter>`` when there is one filter), ``$JS.API.CONSUMER.MSG.NEXT.<stream>.<durable>``, ``$JS.ACK.<stream>.<durable>.>``
- an ephemeral consumer: the same with ``*`` for its name, and ``$JS.API.CONSUMER.DELETE.<stream>.*``
- bucket: get ``$JS.API.DIRECT.GET.KV_<bucket>.$KV.<bucket>.>``; writing ``$KV.<bucket>.>``; keys as an ephemeral consumer;
  revision ``$JS.API.STREAM.INFO.KV_<bucket>``
- object_store: ``$O.<store>.>``, ``$JS.API.DIRECT.GET.OBJ_<store>`` and below it; delete ``$JS.API.STREAM.PURGE.OBJ_<store>``
- ensure_…: ``$JS.API.STREAM.INFO.<stream>``, ``$JS.API.STREAM.CREATE.<stream>``
- stream_state, consumer_states, purge: ``$JS.API.STREAM.INFO``, ``CONSUMER.LIST``, ``STREAM.PURGE`` ``.<stream>``
- server_time_ms: ``$SYS.REQ.USER.INFO``; without it, this machine's clock is used
"""

from anchorwatch.bus.jetstream.bus import JetStreamBus, connect

__all__ = ["JetStreamBus", "connect"]
