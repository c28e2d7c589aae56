"""Click on objects in napari (`pip install "napari[all]"`): points become masks as they are added.

    python examples/napari/click.py photo.jpg
    python examples/napari/click.py photo.jpg --model sam2.1-tiny

Add points to the layer `clicks`: each asks for what is under it. Press O for points outside of the
object (and again for inside), N for the next object. Masks go to the labels layer `objects`.
"""

import argparse
from typing import Any

import numpy as np

import samgraph
from samgraph.errors import PromptError

INSIDE, OUTSIDE = "limegreen", "red"


class Clicking:
    """An image, its points, and the labels they ask for.

    A point knows its object and its sign, as features of the layer; so points may be moved and
    removed. napari's points are (row, column); those of samgraph are (x, y).
    """

    def __init__(self, viewer: Any, image: Any) -> None:
        self.viewer, self.image, self.number = viewer, image, 1
        height, width = image.size_hw
        viewer.add_image(image.pixels, name=image.name)
        self.labels = viewer.add_labels(np.zeros((height, width), np.int32), name="objects")
        self.points = viewer.add_points(
            np.zeros((0, 2)),
            name="clicks",
            size=max(height, width) / 80,
            features={"object": np.zeros(0, np.int64), "inside": np.zeros(0, np.bool_)},
        )
        self._asked: dict[int, Any] = {}  # the points that each object was last asked for by
        self._set_next(inside=True)
        self.points.events.data.connect(self._changed)
        viewer.bind_key("n", self.next_object)
        viewer.bind_key("o", self.outside)

    def next_object(self, viewer: Any = None) -> None:
        """Further points belong to another object."""
        self.number = max([0, *self._asked]) + 1
        self._set_next(inside=True)

    def outside(self, viewer: Any = None) -> None:
        """Further points are outside of the object; or inside again."""
        self._set_next(inside=not self._is_inside)

    def _set_next(self, inside: bool) -> None:
        """What the next point will be."""
        self._is_inside = inside
        self.points.feature_defaults = {"object": self.number, "inside": inside}
        self.points.current_face_color = INSIDE if inside else OUTSIDE

    def _changed(self, event: Any = None) -> None:
        """Points were added, moved or removed: ask again for the objects that this concerns."""
        points, known = np.asarray(self.points.data), self.points.features
        owners = np.asarray(known["object"], np.int64)[: len(points)]
        signs = np.asarray(known["inside"], np.int64)[: len(points)]
        if len(owners) < len(points):
            return  # the layer is still at it, and will tell again
        for number in {*self._asked, *owners.tolist()}:
            mine = owners == number
            asked = points[mine].tolist(), signs[mine].tolist()
            if self._asked.get(number) != asked:
                self._asked[number] = asked
                self._predict(number, points[mine][:, ::-1], signs[mine])

    def _predict(self, number: int, points: Any, signs: Any) -> None:
        """The mask of one object, written into the labels where no other object is."""
        labels = np.where(self.labels.data == number, 0, self.labels.data)
        if len(points):
            try:
                result = self.image.predict(points=points, labels=signs, multimask=len(points) == 1)
            except PromptError as error:
                self.viewer.status = error.what
                return
            labels[result.mask & (labels == 0)] = number
            self.viewer.status = f"object {number}: {result.scores.max():.2f}"
        self.labels.data = labels


def main() -> None:
    """Open napari on an image."""
    import napari

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("image")
    parser.add_argument("--model", help="a released model by name; else the built-in one")
    given = parser.parse_args()
    viewer = napari.Viewer(title="samgraph")
    Clicking(viewer, samgraph.load(given.model).image(given.image))
    napari.run()


if __name__ == "__main__":
    main()
