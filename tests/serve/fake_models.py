"""A model that takes a given time: for figures that are about the gate."""

import threading
import time
from typing import Any

from samgraph.serve.image_sessions import ImageSession
from samgraph.serve.schema import Mask, MaskReply, PredictReply


class Slow:
    """Stands in for `ImageSession.predict`; counts how many run at the same time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.calls = self.running = self.most = 0
        self._lock = threading.Lock()
        self.hold = threading.Event()
        self.hold.set()

    def __call__(self, session: ImageSession, body: Any) -> PredictReply:
        with self._lock:
            self.calls += 1
            self.running += 1
            self.most = max(self.most, self.running)
        time.sleep(self.seconds)
        self.hold.wait(600)
        with self._lock:
            self.running -= 1
        mask = MaskReply(Mask((1, 1), "1"), 1.0, (0, 0, 1, 1), 1)
        return PredictReply([mask], 0, "t")
