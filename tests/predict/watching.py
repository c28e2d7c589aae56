"""Counting what a model is made to do."""

from typing import Any

from samgraph.models.family import Features
from samgraph.predict.video.session import TrackingSession
from samgraph.predict.video.video import Video


class Counts:
    """How often frames were encoded, and objects tracked, since the last call."""

    def __init__(self, session: TrackingSession) -> None:
        self.encoded = self.tracked = 0
        model = session.model
        encode, remember = model.encode, model.encode_memory

        def counted_encode(image: Any) -> Features:
            self.encoded += 1
            return encode(image)

        def counted_remember(*given: Any, is_prompted: bool) -> Any:
            self.tracked += 0 if is_prompted else len(given[1])
            return remember(*given, is_prompted=is_prompted)

        watched: Any = Watched(model, encode=counted_encode, encode_memory=counted_remember)
        session.model = watched
        if isinstance(session, Video):
            session.encoded.model = watched

    def take(self) -> tuple[int, int]:
        """Frames encoded and objects tracked; both start again at zero."""
        found = self.encoded, self.tracked
        self.encoded = self.tracked = 0
        return found


class Watched:
    """A model with some of its methods replaced."""

    def __init__(self, model: Any, **methods: Any) -> None:
        self._model = model
        self.__dict__.update(methods)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)
