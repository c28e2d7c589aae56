"""Every fault, by name."""

from tests.models.sam2.faults import decoding, encoding, prompting, remembering
from tests.models.sam2.faults.planting import FAULTS

MODULES = (encoding, prompting, decoding, remembering)

__all__ = ["FAULTS", "MODULES"]
