"""What the server counts, for Prometheus at `/metrics`."""

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """Counters, gauges and histograms of one server."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "samgraph_requests", "Replies by endpoint and status.", ["endpoint", "status"],
            registry=registry,
        )  # fmt: skip
        self.seconds = Histogram(
            "samgraph_request_seconds", "Time to the beginning of a reply.", ["endpoint"],
            buckets=SECONDS, registry=registry,
        )  # fmt: skip
        self.shed = Counter(
            "samgraph_shed", "Requests refused or given up, by reason.", ["reason"],
            registry=registry,
        )  # fmt: skip
        self.queue_seconds = Histogram(
            "samgraph_queue_seconds", "Time a request waited for the model.",
            buckets=SECONDS, registry=registry,
        )  # fmt: skip
        self.compute_seconds = Histogram(
            "samgraph_compute_seconds", "Time a request used the model.",
            buckets=SECONDS, registry=registry,
        )  # fmt: skip
        self.frames = Counter("samgraph_tracked_frames", "Frames tracked.", registry=registry)
        self.uploaded = Counter("samgraph_uploaded_bytes", "Bytes received.", registry=registry)
        self.working = Gauge("samgraph_working", "Requests at work.", registry=registry)
        self.waiting = Gauge("samgraph_waiting", "Requests that wait.", registry=registry)
        self.sessions = Gauge("samgraph_sessions", "Sessions on disk.", registry=registry)
        self.loaded = Gauge("samgraph_sessions_loaded", "Sessions in memory.", registry=registry)
        self.bytes = Gauge("samgraph_sessions_bytes", "Bytes of sessions.", registry=registry)
        self.tracks = Gauge("samgraph_tracks", "Videos being tracked.", registry=registry)

    def text(self) -> bytes:
        """All of it, in the text format of Prometheus."""
        return generate_latest(self.registry)
