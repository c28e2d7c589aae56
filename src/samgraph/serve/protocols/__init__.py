"""Annotation tools speak to the server in their own protocols.

    osam.py                    osam: /api/generate
    roboflow.py                Roboflow inference: /sam2/embed_image, /sam2/segment_image
    x_anylabeling*.py          X-AnyLabeling's remote server: /v1/...
    label_studio*.py           Label Studio's ML backend: /health, /setup, /predict, /webhook

They are independent. Images come as bytes inside JSON and are encoded once; no path and
no address from a client is followed, unless the operator named its host (`remote.py`).
"""

from starlette.routing import Route

from samgraph.serve.protocols import (
    label_studio,
    osam,
    roboflow,
    x_anylabeling,
    x_anylabeling_video,
)
from samgraph.serve.protocols.backend import Backend

PROTOCOLS = (label_studio, x_anylabeling, x_anylabeling_video, roboflow, osam)


def routes(backend: Backend) -> list[Route]:
    """The routes of all tools."""
    return [route for protocol in PROTOCOLS for route in protocol.routes(backend)]
