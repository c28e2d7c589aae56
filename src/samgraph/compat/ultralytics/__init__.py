"""SAM 2 as ultralytics calls it: `from samgraph.compat.ultralytics import SAM`.

    model = SAM("sam2.1_b.pt")
    results = model("bus.jpg", points=[900, 370], labels=[1])
    results[0].masks.xy, results[0].boxes.xyxy
    results[0].save("out.jpg")

Sources are paths of images, videos or folders, Pillow images, arrays in the order of OpenCV (blue,
green, red), or lists of them. Without a prompt, everything in the image is segmented. A video given
to `SAM` is segmented frame by frame with the same prompts; `SAM2VideoPredictor` tracks.

Differs from the original: addresses are not fetched; released weights are Meta's, downloaded once
and checked; `boxes.conf` is the model's score of each mask. `samgraph-nano` is a model, too.
"""

from samgraph.compat.ultralytics.model import SAM, SAM2VideoPredictor
from samgraph.compat.ultralytics.results import Boxes, Masks, Results

__all__ = ["SAM", "Boxes", "Masks", "Results", "SAM2VideoPredictor"]
