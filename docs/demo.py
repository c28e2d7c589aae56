"""The demo: the built-in model cuts out, segments everything and tracks; then writes a report.

    python docs/demo.py [--out FOLDER] [--readme]

Needs no network. Writes pictures and `demo/index.html` into FOLDER (default: `out`). With
`--readme` it also makes the pictures of the README.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from demo_clip import CAT, COFFEE, Clip, cup_mask, make_clip
from demo_report import Step, write_report
from PIL import Image

import samgraph
from samgraph.evaluate.davis import box_of, region_similarity
from samgraph.media.drawing import cutout, draw_boxes, draw_points, overlay
from samgraph.media.image.reading import read_image
from samgraph.predict.image.result import Result

CAT_CLICK = (200, 100)
CUP_BOX, SPOON = (168, 12, 412, 310), (385, 275)
ON_CUP = [(290, 150), (290, 240), (225, 275)]
HOLES, SPECKS, RADIUS = (
    2000,
    500,
    4,
)  # areas of holes and islands, and radius of smoothing, in pixels
GAP = 12
FRAME_MILLISECONDS = 90
README_WIDTH, README_ANIMATION_WIDTH = 960, 360
README_FOLDER = COFFEE.parent

Pixels = np.ndarray[Any, np.dtype[np.uint8]]


def cleaned(result: Result) -> Result:
    """Masks with holes filled, islands removed and edges smoothed."""
    return result.fill_holes(HOLES).drop_specks(SPECKS).smooth(RADIUS)


def cut_out_cat(model: samgraph.Model, out: Path) -> Step:
    """One click."""
    start = time.perf_counter()
    image = model.image(CAT)
    result = cleaned(image.predict(points=[CAT_CLICK]))
    result.save(out / "cat.png", "cutout")
    seconds = time.perf_counter() - start
    shown = draw_points(result.overlay(), [CAT_CLICK], [1])
    return Step(
        "One click cuts out a cat",
        "The green dot is the prompt; the rest of the photograph is transparent.",
        (_pair(shown, cutout(image.pixels, result.mask), out / "cut-cat.jpg", "click and mask"),),
        f"samgraph segment docs/media/{CAT.name} --point {_commas(CAT_CLICK)} \\\n"
        f"    --fill-holes {HOLES} --drop-specks {SPECKS} --smooth {RADIUS} \\\n"
        "    --format cutout -o cat.png",
        f'model = samgraph.load()\nimage = model.image("docs/media/{CAT.name}")\n'
        f"result = image.predict(points=[{CAT_CLICK}])\n"
        f"result = result.fill_holes({HOLES}).drop_specks({SPECKS}).smooth({RADIUS})\n"
        'result.save("cat.png", "cutout")',
        seconds,
    )


def cut_out_cup(model: samgraph.Model, out: Path) -> Step:
    """A box, positive clicks and a negative one, measured against an outline drawn by hand."""
    start = time.perf_counter()
    image = model.image(COFFEE)
    points, labels = [*ON_CUP, SPOON], [1] * len(ON_CUP) + [0]
    result = cleaned(image.predict(box=CUP_BOX, points=points, labels=labels, multimask=False))
    result.save(out / "cup.png", "cutout")
    seconds = time.perf_counter() - start
    shown = draw_points(draw_boxes(result.overlay(), [CUP_BOX], [2]), points, labels)
    return Step(
        "A box and positive clicks on a cup, a negative click on the spoon before it",
        "Green dots are positive, red dots negative. Compared with an outline drawn by hand, the "
        "mask has",
        (_pair(shown, cutout(image.pixels, result.mask), out / "cut-cup.jpg", "prompt and mask"),),
        f"samgraph segment docs/media/{COFFEE.name} --box {_commas(CUP_BOX)} \\\n"
        f"    --fill-holes {HOLES} --drop-specks {SPECKS} --smooth {RADIUS} \\\n"
        f"    {' '.join(f'--point {_commas(point)}' for point in ON_CUP)} \\\n"
        f"    --negative {_commas(SPOON)} --format cutout -o cup.png",
        f'image = model.image("docs/media/{COFFEE.name}")\n'
        f"result = image.predict(box={CUP_BOX}, points={points},\n"
        f"                       labels={labels}, multimask=False)\n"
        f"result = result.fill_holes({HOLES}).drop_specks({SPECKS}).smooth({RADIUS})\n"
        'result.save("cup.png", "cutout")',
        seconds,
        {"IoU": region_similarity(cup_mask(), result.mask)},
    )


def segment_everything(model: samgraph.Model, out: Path, points_per_side: int) -> Step:
    """No prompt at all."""
    start = time.perf_counter()
    everything = model.everything(
        COFFEE,
        points_per_side=points_per_side,
        min_mask_region_area=SPECKS,
        progress=False,
    )
    seconds = time.perf_counter() - start
    everything.save(out / "everything.json", "coco")
    path = out / "everything.jpg"
    _write(path, _side_by_side(read_image(COFFEE), everything.overlay(0.55)))
    count = points_per_side**2
    return Step(
        "Everything in a photograph, with no prompt",
        f"Each of {count} points of a grid is a prompt; masks with low scores and duplicates are "
        f"dropped, and {len(everything)} masks stay.",
        ((path, "the photograph, and a colour for each mask"),),
        f"samgraph everything docs/media/{COFFEE.name} \\\n"
        f"    --points-per-side {points_per_side} --min-area {SPECKS} -o everything.jpg",
        f'everything = model.everything("docs/media/{COFFEE.name}",\n'
        f"                              points_per_side={points_per_side},\n"
        f"                              min_mask_region_area={SPECKS})\n"
        'everything.save("everything.jpg")',
        seconds,
    )


def track(model: samgraph.Model, out: Path, clip: Clip) -> Step:
    """A box on the first frame, measured on every frame."""
    folder = clip.save(out / "clip")
    box = tuple(int(side) for side in box_of(clip.masks[0]))
    found = []
    start = time.perf_counter()
    with model.video(folder) as video:
        video.add(frame=0, object=1, box=box)
        found = [frame.mask(1) for frame in video.track()]
    seconds = time.perf_counter() - start
    drawn = [overlay(frame, mask[None]) for frame, mask in zip(clip.frames, found, strict=True)]
    drawn[0] = draw_boxes(drawn[0], [box], [2])
    video_file, strip = out / "track.webp", out / "track.jpg"
    _write_animation(video_file, drawn)
    _write(strip, _strip(drawn))
    return Step(
        "An object tracked through a clip",
        f"A box on the first of {len(found)} frames is the prompt, and the cup is tracked while it "
        "moves, tilts and grows. Against the true masks, mean over the frames after the first,",
        ((video_file, "the mask of every frame"), (strip, "frames from start to end")),
        f"samgraph track {folder.as_posix()} --box {_commas(box)} -o masks/",
        f'video = model.video("{folder.as_posix()}")\n'
        f"video.add(frame=0, object=1, box={box})\n"
        "for frame in video.track():\n    frame.masks, frame.present",
        seconds,
        {"IoU": mean_overlap(clip, found)},
    )


def mean_overlap(clip: Clip, found: Sequence[np.ndarray[Any, np.dtype[np.bool_]]]) -> float:
    """Mean IoU over the frames after the first that show the object."""
    pairs = [(t, f) for t, f in zip(clip.masks[1:], found[1:], strict=True) if t.any()]
    return float(np.mean([region_similarity(*pair) for pair in pairs]))


def run(model: samgraph.Model, out: Path, *, points_per_side: int = 16) -> tuple[Path, list[Step]]:
    """Run all steps; returns the report and the steps."""
    start = time.perf_counter()
    out = out / "demo"
    out.mkdir(parents=True, exist_ok=True)
    steps = []
    for work in (
        lambda: cut_out_cat(model, out),
        lambda: cut_out_cup(model, out),
        lambda: segment_everything(model, out, points_per_side),
        lambda: track(model, out, make_clip()),
    ):
        steps.append(work())
        figures = "".join(f", {name} {value:.2f}" for name, value in steps[-1].figures.items())
        print(f"{steps[-1].seconds:6.1f} s  {steps[-1].title}{figures}", flush=True)
    config = model.config
    report = write_report(
        out / "index.html",
        "samgraph: click, segment, track",
        f"All of this was computed on this machine by {config.name}, the model inside the "
        "package. Nothing was downloaded.",
        steps,
        f"samgraph {samgraph.__version__}, {model!r}; {time.perf_counter() - start:.0f} s in "
        "all, the first run compiles the model. Photographs: CC0, see docs/media/README.md.",
    )
    return report, steps


def write_readme_pictures(out: Path) -> list[Path]:
    """The pictures of the README, from those of a run."""
    made = []
    for name in ("cut-cat.jpg", "cut-cup.jpg", "everything.jpg", "track.jpg"):
        with Image.open(out / "demo" / name) as picture:
            picture.thumbnail((README_WIDTH, README_WIDTH))
            path = README_FOLDER / f"demo-{name}"
            picture.save(path, quality=85, optimize=True, progressive=True)
            made.append(path)
    with Image.open(out / "demo" / "track.webp") as animation:
        count = animation.n_frames
        frames = [np.asarray(_small(animation, number)) for number in range(count)]
    made.append(README_FOLDER / "demo-track.webp")
    _write_animation(made[-1], frames, quality=45)
    return made


def main() -> None:
    """Run the demo and print where the report is."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out"), help="where to write")
    parser.add_argument("--readme", action="store_true", help="also the README's pictures")
    arguments = parser.parse_args()
    try:
        _show(arguments.out, readme=arguments.readme)
    except BrokenPipeError:  # nobody reads on
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        raise SystemExit(f"the demo cannot write to {arguments.out}: {error}") from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def _show(out: Path, *, readme: bool) -> None:
    start = time.perf_counter()
    model = samgraph.load()
    print(f"{time.perf_counter() - start:6.1f} s  {model}", flush=True)
    report, _ = run(model, out)
    if readme:
        for path in write_readme_pictures(out):
            print(f"wrote {path} ({path.stat().st_size // 1000} kB)")
    print(f"{time.perf_counter() - start:6.1f} s in all\n\nopen {report.resolve()}")


def _pair(shown: Pixels, cut: Pixels, path: Path, caption: str) -> tuple[Path, str]:
    """A picture of prompt and mask beside the cut-out, with a caption."""
    _write(path, _side_by_side(shown, _on_squares(cut)))
    return path, f"{caption}; the cut-out, on squares where it is transparent"


def _on_squares(cut: Pixels) -> Pixels:
    """A transparent picture on a chequerboard."""
    y, x = np.indices(cut.shape[:2]) // 12
    squares = np.where((x + y) % 2, 255, 225).astype(np.uint8)
    alpha = cut[:, :, 3:] / np.float32(255)
    return (cut[:, :, :3] * alpha + squares[:, :, None] * (1 - alpha)).astype(np.uint8)


def _side_by_side(*pictures: Pixels) -> Pixels:
    gap = np.full((pictures[0].shape[0], GAP, 3), 255, np.uint8)
    parts = [part for picture in pictures for part in (gap, picture)]
    return np.concatenate(parts[1:], axis=1)


def _strip(frames: list[Pixels], columns: int = 4, rows: int = 2) -> Pixels:
    """Some of the frames, evenly spread, in rows."""
    chosen = np.linspace(0, len(frames) - 1, columns * rows).round().astype(int)
    small = [np.asarray(Image.fromarray(frames[i]).reduce(2)) for i in chosen]
    lines = [_side_by_side(*small[i * columns : (i + 1) * columns]) for i in range(rows)]
    gap = np.full((GAP, lines[0].shape[1], 3), 255, np.uint8)
    return np.concatenate([lines[0], gap, *lines[1:]])


def _write(path: Path, pixels: Pixels) -> None:
    Image.fromarray(pixels).save(path, quality=88)


def _write_animation(path: Path, frames: list[Pixels], quality: int = 70) -> None:
    first, *others = (Image.fromarray(frame) for frame in frames)
    first.save(
        path,
        save_all=True,
        append_images=others,
        duration=FRAME_MILLISECONDS,
        loop=0,
        quality=quality,
    )


def _small(animation: Image.Image, number: int) -> Image.Image:
    animation.seek(number)
    frame = animation.convert("RGB")
    frame.thumbnail((README_ANIMATION_WIDTH, README_ANIMATION_WIDTH))
    return frame


def _commas(numbers: Sequence[float]) -> str:
    return ",".join(f"{number:g}" for number in numbers)


if __name__ == "__main__":
    main()
