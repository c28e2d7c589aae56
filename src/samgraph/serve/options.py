"""How a server runs: its address, who may use it, and its limits."""

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

from samgraph.errors import OptionError
from samgraph.media.image.reading import MAX_PIXELS
from samgraph.predict.video.policies.table import DEFAULT, find_policy

MEGABYTE = 1 << 20
DAY = 24 * 3600.0
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
FEWEST_TOKEN_CHARACTERS = 8


def default_folder() -> Path:
    """Where sessions are kept: the user's data folder."""
    import platformdirs

    return Path(platformdirs.user_data_dir("samgraph")) / "sessions"


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Options of a server.

    Args:
        host: The address to listen on; any but this machine's own needs a token.
        port: The port; 0 for a free one.
        token: What clients must show; None where only this machine may connect.
        folder: Where sessions are kept.
        max_upload_mb: The largest file accepted.
        max_body_mb: The largest JSON body accepted.
        max_tool_body_mb: The largest body of an annotation tool, which sends images inside JSON.
        max_pixels: The most pixels of an image, and of a frame.
        max_sessions: The most sessions on disk; the least recently used are deleted first.
        max_disk_mb: The most megabytes of sessions on disk.
        max_loaded: The most sessions in memory; others are loaded when they are used again.
        idle_seconds: Sessions not used for this long are deleted.
        working: Requests that use the model at the same time.
        waiting: Requests that may wait for it; others are answered with 503.
        queue_seconds: How long a request may wait before it is answered with 504.
        body_seconds: How long a client may be silent while it sends a body.
        max_jobs: The most exports, running and finished, that are kept.
        max_objects: The most objects of a video.
        policy: What frames of videos read of memory; see `samgraph.predict.video.policies.table`.
        allow_hosts: Hosts whose files are fetched for annotation tools; none by default.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = field(default=None, repr=False)
    folder: Path = field(default_factory=default_folder)
    max_upload_mb: float = 16384
    max_body_mb: float = 32
    max_tool_body_mb: float = 256
    max_pixels: int = MAX_PIXELS
    max_sessions: int = 200
    max_disk_mb: float = 65536
    max_loaded: int = 8
    idle_seconds: float = 30 * DAY
    working: int = 2
    waiting: int = 16
    queue_seconds: float = 30.0
    body_seconds: float = 30.0
    max_jobs: int = 8
    max_objects: int = 255
    policy: str = DEFAULT
    allow_hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        find_policy(self.policy)
        for name in ("max_sessions", "max_loaded", "working", "max_jobs", "max_objects"):
            if getattr(self, name) < 1:
                raise OptionError(f"`{name}` must be at least 1", got=getattr(self, name))
        sizes = ("max_upload_mb", "max_body_mb", "max_tool_body_mb", "max_disk_mb")
        for name in (*sizes, "max_pixels", "idle_seconds"):
            if not getattr(self, name) > 0:
                raise OptionError(f"`{name}` must be more than 0", got=getattr(self, name))
        if self.waiting < 0:
            raise OptionError("`waiting` must not be negative", got=self.waiting)
        if not 0 <= self.port <= 65535:
            raise OptionError("there is no such port", got=self.port, expected="0 to 65535")
        if self.token is None and not self.is_local:
            raise OptionError(
                f"the address `{self.host}` can be reached by others",
                hint="set a token with --token, which clients must then show",
            )
        if self.token is not None and len(self.token) < FEWEST_TOKEN_CHARACTERS:
            raise OptionError(
                "the token is too short", expected=f"at least {FEWEST_TOKEN_CHARACTERS} characters"
            )

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the address."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def max_upload_bytes(self) -> int:
        """The largest file accepted, in bytes."""
        return int(self.max_upload_mb * MEGABYTE)

    @property
    def max_body_bytes(self) -> int:
        """The largest JSON body accepted, in bytes."""
        return int(self.max_body_mb * MEGABYTE)

    @property
    def max_tool_body_bytes(self) -> int:
        """The largest body of an annotation tool, in bytes."""
        return int(self.max_tool_body_mb * MEGABYTE)
