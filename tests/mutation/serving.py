"""Safeguards of the gateway, the observer, memory, the bus, the fleet, and the planner's mailboxes."""

from __future__ import annotations

from tests.mutation.mutation import one

_MAILBOX = "tests/unit/planner/test_mailbox.py::"
_WIRE = "shared/anchorwatch/bus/jetstream/wire.py"
_PUBLISHING = "shared/anchorwatch/bus/jetstream/publishing.py"
_CLIENT = "shared/anchorwatch/bus/jetstream/client.py"
_CLIENT_TESTS = "tests/unit/bus/test_client.py::"
_STORE = "services/memory/anchorwatch_memory/store.py"
_ROUTING = "services/observer/anchorwatch_observer/routing.py"
_CLOUDEVENTS = "shared/anchorwatch/codec/cloudevents.py"
_HOOKS = "services/gateway/anchorwatch_gateway/hooks.py"
_SCHEMA = "shared/anchorwatch/executor/schema.py"

SERVING = (
    one(
        "a signature of GitHub is compared in its first characters",
        _HOOKS,
        'good = _same(headers.get(GITHUB_SIGNATURE, ""), expected)',
        'good = _same(headers.get(GITHUB_SIGNATURE, "")[:70], expected[:70])',
        "tests/unit/gateway/test_hooks.py::test_request_with_another_signature_is_refused",
    ),
    one(
        "a hook reads a request before its signature",
        _HOOKS,
        "        verify(state.hook, headers, body)\n",
        "",
        "tests/integration/gateway/test_hooks.py::test_request_without_a_valid_signature_stores_nothing",
    ),
    one(
        "a hook without a signature is open",
        "shared/anchorwatch/service/hooks.py",
        '        if isinstance(given, dict) and "signature" not in given:',
        '        given = {"signature": "open", **given}\n        if isinstance(given, dict) and "signature" not in given:',
        "tests/unit/service/test_hooks.py::test_file_that_cannot_work_is_refused",
    ),
    one(
        "a repeated alert with newer values is another event",
        "shared/anchorwatch/service/events.py",
        '    if "fingerprint" in said:',
        "    if not said:",
        "tests/integration/gateway/test_hooks.py::test_repeated_alert_is_one_event_and_its_end_another",
    ),
    one(
        "an attribute of an event may begin a new line",
        _CLOUDEVENTS,
        "    if odd := _ODD.search(value):",
        "    if odd := re.search(r'\\x00', value):",
        "tests/unit/codec/test_cloudevents.py::test_invalid_event_is_refused_with_the_reason",
    ),
    one(
        "a header of an event is decoded whatever its bytes are",
        _CLOUDEVENTS,
        'unquote(value, errors="strict")',
        "unquote(value)",
        "tests/unit/codec/test_cloudevents.py::test_odd_header_value_is_refused",
    ),
    one(
        "the token check compares only the first eight characters",
        "services/gateway/anchorwatch_gateway/guard.py",
        "hmac.compare_digest(given, self._expected)",
        "hmac.compare_digest(given[:15], self._expected[:15])",
        "tests/unit/gateway/test_guard.py::test_request_without_token_is_refused",
    ),
    one(
        "a burst acks redelivered inputs",
        "services/planner/anchorwatch_planner/mailbox.py",
        'if each.cause.kind == "in" and each.cause.attempt == 1]',
        'if each.cause.kind == "in"]',
        f"{_MAILBOX}test_burst_acks_no_redelivered_input",
    ),
    one(
        "a burst acks outcomes",
        "services/planner/anchorwatch_planner/mailbox.py",
        'if each.cause.kind == "in" and each.cause.attempt == 1]',
        "if each.cause.attempt == 1]",
        f"{_MAILBOX}test_burst_acks_no_outcome",
    ),
    one(
        "a worker of the fleet inherits the settings of the mesh",
        "packs/fleet/anchorwatch_fleet/yard/processes.py",
        'if not name.startswith("ANCHORWATCH_")}',
        'if not name.startswith("ANCHORWATCH_NATS_")}',
        "tests/unit/fleet/test_worker_environment.py",
    ),
    one(
        "memory enters a message twice",
        _STORE,
        "                if stored.sequence <= position.sequence:",
        "                if stored.sequence < position.sequence:",
        "tests/unit/memory/test_store.py::test_content_is_independent_of_batch_boundaries",
    ),
    one(
        "memory keeps half of a batch that failed",
        _STORE,
        '"COMMIT" if kind is None else "ROLLBACK"',
        '"COMMIT"',
        "tests/unit/memory/test_store.py::test_failed_batch_leaves_the_file_unchanged",
    ),
    one(
        "the observer acks an event that a session did not take",
        _ROUTING,
        "            item.error = error\n\n    async def _try_body",
        "            pass\n\n    async def _try_body",
        "tests/sim/test_dead_letters.py::test_poison_is_shown_and_a_thousand_later_items_pass[observer]",
    ),
    one(
        "another event with a used id is dropped without a record",
        _ROUTING,
        "            await self._accept(ref, refused_input_id(event), refused, now_ms)",
        "            del refused",
        "tests/sim/test_events.py::test_another_event_with_a_used_id_is_listed_as_refused",
    ),
    one(
        "a line of the server is split at a publisher's form feed",
        "shared/anchorwatch/bus/jetstream/wire.py",
        'line.split(b" ")',
        "line.split()",
        "tests/unit/bus/test_client.py::test_subject_of_any_bytes_is_read",
    ),
    one(
        "an event's names are not checked",
        "shared/anchorwatch/service/events.py",
        '        return f"{error.message}; {error.hint}"',
        '        del error\n        return ""',
        "tests/unit/service/test_events.py::test_subject_with_an_odd_name_is_malformed",
    ),
    one(
        "an event of an unknown workspace is routed as any other",
        _ROUTING,
        "if not self._agents.knows(item.event.workspace):",
        "if False:",
        "tests/sim/test_events.py::test_events_of_unknown_workspaces_cost_no_own_request",
    ),
    one(
        "the observer removes events that it has not routed yet",
        "services/observer/anchorwatch_observer/space.py",
        "[str(CONSUMER.durable)].ack_floor_sequence + 1",
        "[str(CONSUMER.durable)].delivered_sequence + 10_000",
        "tests/sim/test_events.py::test_full_stream_is_routed_before_it_is_emptied",
    ),
    one(
        "the observer removes an event that a dead letter needs",
        "services/observer/anchorwatch_observer/space.py",
        "                needed = min(needed, letter.address.sequence)",
        "                continue",
        "tests/sim/test_events.py::test_full_stream_keeps_every_event_that_was_not_routed",
    ),
    one(
        "a stream at its limit drops its oldest messages",
        "shared/anchorwatch/bus/jetstream/streams.py",
        '"discard": "new" if limits.bytes_max > 0 else "old"',
        '"discard": "old"',
        "tests/conformance/test_streams.py::test_full_stream_refuses_new_messages_and_loses_none",
    ),
    one(
        "a publisher can guess the id of a probe's event",
        "services/observer/anchorwatch_observer/probing.py",
        'return f"{change_id}{_SEAL_MARK}{proof.hex()[:_SEAL_CHARS]}"',
        "return change_id",
        "tests/sim/test_events.py::test_publisher_cannot_take_the_id_of_a_probes_event",
    ),
    one(
        "the server's answer `duplicate` is believed",
        "shared/anchorwatch/service/event_publisher.py",
        "if not ack.duplicate:",
        "if ack:",
        "tests/unit/service/test_event_publisher.py",
    ),
    one(
        "the server's dedupe window is again one of two minutes for all publishers",
        "shared/anchorwatch/topology/streams.py",
        "dedupe_window_s=DEDUPE_WINDOW_S_MIN",
        "dedupe_window_s=DEDUPE_WINDOW_S",
        "tests/sim/test_events.py::test_two_publishers_may_use_one_message_id",
    ),
    one(
        "one bad event blocks its batch",
        _ROUTING,
        "        except Exception:  # noqa: BLE001 - the caller then accepts each alone\n"
        "            return False\n",
        "        except ZeroDivisionError:\n            return False\n",
        "tests/sim/test_dead_letters.py::test_defect_in_one_of_several_events_ends_no_observer",
    ),
    one(
        "a publish loses its fence on the way",
        _PUBLISHING,
        'headers["Nats-Expected-Last-Subject-Sequence"] = ',
        'headers["Nats-Expected-Last-Subject"] = ',
        "tests/conformance/test_publish.py::test_one_of_many_writers_with_one_fence_wins",
    ),
    one(
        "a batch is committed message by message",
        _PUBLISHING,
        "if sequence == len(messages):",
        "if sequence:",
        "tests/conformance/test_batch.py::test_failed_fence_refuses_the_whole_batch",
    ),
    one(
        "a header value reaches into the next line",
        _WIRE,
        "{value.strip().translate(_NO_NEWLINES)}",
        "{value.strip()}",
        f"{_CLIENT_TESTS}test_sent_bytes_equal_those_of_nats_py",
    ),
    one(
        "a message that the socket cut is delivered early",
        _WIRE,
        "            if following > size:",
        "            if stop > size:",
        f"{_CLIENT_TESTS}test_messages_are_parsed_at_any_split",
    ),
    one(
        "an unexpected error ends the reconnecting",
        _CLIENT,
        "                if self.is_closed:\n                    return\n",
        "                raise\n",
        "tests/integration/test_jetstream_uvloop.py::test_client_reconnects_after_a_second_loss",
    ),
    one(
        "one bad message ends the reading",
        _CLIENT,
        "            failed(error)\n        return True",
        "            raise\n        return True",
        f"{_CLIENT_TESTS}test_one_bad_message_does_not_end_reading",
    ),
    one(
        "a schema fetches its references",
        _SCHEMA,
        "        offline=True,\n",
        "        offline=False,\n",
        "tests/unit/executor/test_schema.py::test_remote_reference_is_refused_unfetched",
    ),
    one(
        "a pattern may backtrack",
        _SCHEMA,
        "jsonschema_rs.RegexOptions()",
        "jsonschema_rs.FancyRegexOptions()",
        "tests/unit/executor/test_schema.py::test_pattern_without_an_automaton_is_refused",
    ),
    one(
        "a start forgets the settings of the last one",
        "shared/anchorwatch/mesh/mesh_settings.py",
        "now = here if forget or last is None else _merged(last, here)",
        "now = here",
        "tests/unit/mesh/test_mesh_settings.py::test_another_shell_starts_with_the_same_settings",
    ),
    one(
        "a crash test without a death in a call passes",
        "shared/anchorwatch/testing/crash_test/tried.py",
        "ok=bool(classes) and not idle,",
        "ok=True,",
        "tests/unit/testing/test_tried.py::test_crash_test_that_tried_too_little_fails[no-death-in-a-call]",
    ),
)
