"""What the process measures of itself, for Prometheus."""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from api.readiness import Standing
    from api.routing import Route

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
CONTENT_TYPE = CONTENT_TYPE_LATEST
PARTS = ("log", "database", "projections")
UNKNOWN = "(none)"
PROJECTIONS = {
    "lag_events": "Events to be projected; +Inf from 1,000 on, or if it never ran.",
    "lag_seconds": "Age of the oldest event to be projected; +Inf if it never ran.",
    "position": "Position of the log up to which it is projected.",
    "parked": "Conversations whose events wait, for one of them could not be projected.",
    "generation": "How often it was built.",
}
REBUILDS = {
    "done": "Events folded by the rebuild that is under way.",
    "total": "Events that the rebuild under way folds in all.",
    "rate": "Events that the rebuild under way folds in a second.",
}


class Telemetry:
    """The metrics of one application; routes are named by their templates, so that their number is bounded."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        labels = ("method", "route")
        self._requests = Counter(
            "rejoinder_requests", "Requests answered.", (*labels, "status"), registry=self.registry
        )
        self._seconds = Histogram(
            "rejoinder_request_seconds",
            "Time to the answer of requests that don't stream.",
            labels,
            buckets=BUCKETS,
            registry=self.registry,
        )
        self._streams = Gauge("rejoinder_open_streams", "Open event streams.", ("route",), registry=self.registry)
        self._ready = Gauge(
            "rejoinder_ready",
            "1 for a part that is fit to work, 0 for one that is not.",
            ("part",),
            registry=self.registry,
        )
        self._log_position = Gauge(
            "rejoinder_log_position",
            "Position of the newest event; its rate is that of appends.",
            registry=self.registry,
        )
        self._projections = {
            field: Gauge(f"rejoinder_projection_{field}", meaning, ("projection",), registry=self.registry)
            for field, meaning in PROJECTIONS.items()
        }
        self._rebuilds = {
            field: Gauge(f"rejoinder_projection_rebuild_{field}", meaning, ("projection",), registry=self.registry)
            for field, meaning in REBUILDS.items()
        }
        self._status = Gauge(
            "rejoinder_projection_status",
            "1 for the status that the projection has.",
            ("projection", "status"),
            registry=self.registry,
        )

    @contextmanager
    def in_progress(self, route: Route | None) -> Iterator[None]:
        """Count a stream for as long as it is open."""
        if route is None or not route.stream:
            yield
            return
        with self._streams.labels(route.path).track_inprogress():
            yield

    def finished(self, method: str, route: Route | None, status: int, seconds: float) -> None:
        """Count an answered request."""
        known = method if route else UNKNOWN
        path = route.path if route else UNKNOWN
        self._requests.labels(known, path, str(status)).inc()
        if route is not None and not route.stream:
            self._seconds.labels(known, path).observe(seconds)

    def take(self, found: Standing) -> None:
        """Note how things stand."""
        for part in PARTS:
            self._ready.labels(part).set(part not in found.unready)
        if found.head is not None:
            self._log_position.set(found.head)
        for gauge in (self._status, *self._rebuilds.values()):
            gauge.clear()
        for projection in found.projections:
            self._status.labels(projection["name"], projection["status"]).set(1)
            for field, gauge in self._projections.items():
                value = projection[field]
                gauge.labels(projection["name"]).set(math.inf if value is None else value)
            for field, gauge in self._rebuilds.items():
                if rebuild := projection["rebuild"]:
                    gauge.labels(projection["name"]).set(rebuild[field])

    def exposition(self) -> bytes:
        """Return everything in Prometheus' text format."""
        return generate_latest(self.registry)


TELEMETRY: web.AppKey[Telemetry] = web.AppKey("telemetry", Telemetry)


def telemetry_of(request: web.Request) -> Telemetry:
    """Return the application's metrics."""
    return request.app[TELEMETRY]
