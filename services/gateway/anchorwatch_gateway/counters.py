"""The gateway's own figures, in a registry of their own."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge


class Counters:
    """What `/metrics` shows. Counters grow with each request; gauges are set when they are asked for."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.inputs = Counter(
            "anchorwatch_inputs",
            "Inputs by what became of the request: accepted, replayed, conflict",
            ["result"],
            registry=self.registry,
        )
        for result in ("accepted", "replayed", "conflict"):
            self.inputs.labels(result)
        self.events = Counter("anchorwatch_events_published", "Events published", registry=self.registry)
        self.requests = Counter(
            "anchorwatch_http_requests",
            "Requests by route and status",
            ["method", "route", "status"],
            registry=self.registry,
        )
        self.lag = self._gauge(
            "consumer_lag", "Messages not yet handled, by durable consumer", "stream", "consumer"
        )
        self.sessions = self._gauge("sessions", "Sessions by status", "status")
        self.effects = self._gauge("effects", "Effects by state", "state")
        self.letters = self._gauge(
            "dead_letters", "Messages that could not be handled, by service and state", "service", "state"
        )
        self.stuck = self._gauge(
            "runs_without_progress_max", "The most turns in a row without progress, of all sessions"
        )
        self.refused = self._gauge(
            "inputs_refused", "Inputs refused since too many waited in a session that was held"
        )
        self.switches = self._gauge("kill_switches_on", "Kill switches that are on, by scope", "scope")
        self.damaged = self._gauge("damaged_records", "Journal records that cannot be trusted")
        self.tokens = self._gauge("model_tokens", "Tokens that models used, in all sessions, ever", "kind")
        self.cost = self._gauge("model_cost", "What that cost, in the unit of the prices")
        self.behind = self._gauge("projection_lag", "Journal records that memory has not read yet")
        self.up = self._gauge("memory_up", "1 when the memory service answers")

    def count_request(self, method: str, route: str, status: int) -> None:
        """An answer went out (status 0: the client left before)."""
        known = method if method in ("GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "OPTIONS") else "other"
        self.requests.labels(known, route, str(status or 499)).inc()

    def _gauge(self, name: str, help_: str, *labels: str) -> Gauge:
        return Gauge(f"anchorwatch_{name}", help_, labels, registry=self.registry)
