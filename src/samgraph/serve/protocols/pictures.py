"""Images inside JSON: base64 text or data URIs, encoded once and kept for the next click."""

import base64
import binascii
import hashlib
from collections import OrderedDict

from samgraph.media.image.reading import encode_image
from samgraph.predict.image.encoded import EncodedImage
from samgraph.serve.protocols.clicks import Mask
from samgraph.serve.replies import RequestError
from samgraph.untrusted.text import shown

CACHE_BYTES = 512 << 20
ADDRESSES = ("http://", "https://", "file://", "ftp://", "s3://", "gs://")


def decode_base64(text: str, what: str = "the image") -> bytes:
    """The bytes of base64 text or of a data URI (`data:image/png;base64,...`).

    Raises:
        RequestError: It is neither; an address or a path is never followed.
    """
    data = text
    if text[:5].lower() == "data:":
        head, comma, data = text.partition(",")
        if not comma or not head.lower().endswith(";base64"):
            raise RequestError(400, f"{what} is a data URI that is not base64")
    elif text[:8].lower().startswith(ADDRESSES):
        raise RequestError(
            400,
            f"{what} is an address, `{shown(text, 80)}`, and this server fetches none",
            hint="send the file itself, as base64",
        )
    try:
        found = base64.b64decode(data.translate(_BREAKS), validate=True)
    except (binascii.Error, ValueError) as error:
        raise RequestError(400, f"{what} is not base64", hint="a path is not taken") from error
    if not found:
        raise RequestError(400, f"{what} is empty")
    return found


def data_uri(mask: Mask) -> str:
    """A mask as a data URI of a PNG, 0 and 255."""
    picture = encode_image(mask.astype("uint8") * 255)
    return "data:image/png;base64," + base64.b64encode(picture).decode("ascii")


def digest(data: bytes) -> str:
    """The cache key of an image."""
    return hashlib.sha256(data).hexdigest()


class EncodedImages:
    """Encoded images by key, the least recently used dropped first; for one event loop."""

    def __init__(self, most_bytes: int = CACHE_BYTES) -> None:
        self._most, self._bytes = most_bytes, 0
        self._images: OrderedDict[str, EncodedImage] = OrderedDict()

    def __len__(self) -> int:
        return len(self._images)

    def __contains__(self, key: str) -> bool:
        return key in self._images

    @property
    def nbytes(self) -> int:
        """The bytes of all images."""
        return self._bytes

    def get(self, key: str) -> EncodedImage | None:
        """The image, if it is still there."""
        image = self._images.get(key)
        if image is not None:
            self._images.move_to_end(key)
        return image

    def put(self, key: str, image: EncodedImage) -> None:
        """Cache an image; others are evicted to make room. The newest always stays."""
        self.drop(key)
        self._images[key] = image
        self._bytes += _nbytes(image)
        while self._bytes > self._most and len(self._images) > 1:
            self.drop(next(iter(self._images)))

    def drop(self, key: str) -> None:
        """Drop an image, if it is cached."""
        image = self._images.pop(key, None)
        if image is not None:
            self._bytes -= _nbytes(image)

    def drop_all(self, prefix: str) -> None:
        """Drop the images whose keys have this prefix."""
        for key in [key for key in self._images if key.startswith(prefix)]:
            self.drop(key)


def _nbytes(image: EncodedImage) -> int:
    return image.embedding.features.nbytes + image.pixels.nbytes


_BREAKS = {ord(mark): None for mark in "\r\n"}
