"""`samgraph segment`: files in, files out, and the exit code."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from samgraph.formats import read_coco, read_cvat, read_label_studio, read_labelme, read_yolo
from samgraph.media.image.reading import read_image
from tests.cli.running import Outcome
from tests.predict.pictures import encoded, picture

Command = Callable[..., Outcome]


def pixels(data: bytes | Path) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    raw = data.read_bytes() if isinstance(data, Path) else data
    return np.asarray(Image.open(io.BytesIO(raw)))


def test_a_click_gives_a_mask(folder: Path, samgraph: Command) -> None:
    done = samgraph("segment", "a.png", "--point", "40,50", "-o", "mask.png")

    assert done.code == 0
    assert done.text == "a.png: 1 mask, 160x120, best 0.78 -> mask.png\n"
    expected = encoded().predict(points=[(40, 50)]).mask
    assert np.array_equal(pixels(folder / "mask.png") > 0, expected)


def test_without_an_output_the_file_is_named_after_the_image(
    folder: Path, samgraph: Command
) -> None:
    samgraph("segment", "a.png", "--point", "40,50")
    samgraph("segment", "a.png", "--point", "40,50", "--format", "cutout")
    samgraph("segment", "a.png", "--point", "40,50", "--format", "overlay")
    samgraph("segment", "a.png", "--point", "40,50", "--format", "coco")

    names = {path.name for path in folder.iterdir()}
    assert names >= {"a_mask.png", "a_cutout.png", "a_overlay.jpg", "a.json"}


def test_negative_clicks_boxes_and_masks_count(folder: Path, samgraph: Command) -> None:
    mask = np.zeros((120, 160), np.uint8)
    mask[30:70, 20:60] = 255
    Image.fromarray(mask).save("start.png")

    done = samgraph(
        "segment", "a.png", "--box", "17,27,63,73", "--point", "40,50", "--negative", "4,110",
        "--mask", "start.png", "-o", "mask.png",
    )  # fmt: skip

    assert done.code == 0
    expected = encoded().predict(
        points=[(40, 50), (4, 110)],
        labels=[1, 0],
        box=(17, 27, 63, 73),
        mask=mask > 0,
        multimask=False,
    )
    assert np.array_equal(pixels(folder / "mask.png") > 0, expected.mask)


def test_several_boxes_are_several_objects(folder: Path, samgraph: Command) -> None:
    boxes = ("--box", "17,27,63,73", "--box", "100,66,136,102")

    done = samgraph("segment", "a.png", *boxes, "-o", "out.json", "--label", "thing")

    assert done.code == 0
    (image,) = read_coco(folder / "out.json")
    assert [segment.label for segment in image.segments] == ["thing", "thing"]


def test_all_masks_are_written_on_request(folder: Path, samgraph: Command) -> None:
    done = samgraph("segment", "a.png", "--point", "40,50", "--all", "-o", "m.png")

    assert done.code == 0
    assert sorted(path.name for path in folder.glob("m*")) == ["m_1.png", "m_2.png", "m_3.png"]


def test_masks_are_cleaned_on_request(folder: Path, samgraph: Command) -> None:
    clean = ("--fill-holes", "20", "--drop-specks", "20", "--smooth", "1")

    done = samgraph("segment", "a.png", "--point", "40,50", *clean, "-o", "mask.png")

    assert done.code == 0
    best = encoded().predict(points=[(40, 50)]).best
    expected = best.fill_holes(20).drop_specks(20).smooth(1).mask
    assert np.array_equal(pixels(folder / "mask.png") > 0, expected)


def test_streams_go_in_and_out(folder: Path, samgraph: Command) -> None:
    data = (folder / "a.png").read_bytes()

    done = samgraph("segment", "-", "--point", "40,50", "-o", "-", stdin=data)

    assert done.code == 0
    assert np.array_equal(pixels(done.out) > 0, encoded().predict(points=[(40, 50)]).mask)
    assert done.err == "-: 1 mask, 160x120, best 0.78\n"


def test_a_document_goes_to_standard_output(folder: Path, samgraph: Command) -> None:
    done = samgraph(
        "segment", "a.png", "b.png", "--point", "40,50", "-o", "-", "--format", "polygons"
    )

    assert done.code == 0
    assert [image["image"] for image in json.loads(done.text)] == ["a.png", "b.png"]


def test_patterns_and_folders(folder: Path, samgraph: Command) -> None:
    done = samgraph("segment", "?.png", "--point", "40,50", "-o", "out/", "--format", "labelme")

    assert done.code == 0
    assert sorted(path.name for path in (folder / "out").iterdir()) == ["a.json", "b.json"]
    read = read_labelme(folder / "out" / "a.json")
    assert np.array_equal(read.segments[0].mask, encoded().predict(points=[(40, 50)]).mask)


def test_annotation_tools_read_what_is_written(folder: Path, samgraph: Command) -> None:
    given = ("segment", "a.png", "b.png", "--point", "40,50", "--label", "cat")

    assert samgraph(*given, "-o", "all.xml").code == 0
    assert samgraph(*given, "-o", "tasks.json", "--format", "label-studio").code == 0
    done = samgraph(*given, "-o", "labels/", "--format", "yolo")

    mask = encoded().predict(points=[(40, 50)]).mask
    for images in (read_cvat("all.xml"), read_label_studio("tasks.json")):
        assert [image.name for image in images] == ["a.png", "b.png"]
        assert np.array_equal(images[0].segments[0].mask, mask)
        assert images[0].segments[0].label == "cat"
    assert done.text.endswith("wrote labels/classes.txt\n")
    assert sorted(path.name for path in Path("labels").iterdir()) == [
        "a.txt", "b.txt", "classes.txt",
    ]  # fmt: skip
    (segment,) = read_yolo("labels/a.txt", (120, 160)).segments
    assert segment.label == "cat"


def test_one_file_holds_many_images(folder: Path, samgraph: Command) -> None:
    done = samgraph("segment", "a.png", "b.png", "--point", "40,50", "-o", "all.json")

    assert done.code == 0
    assert done.text.endswith("wrote all.json\n")
    assert [image.name for image in read_coco(folder / "all.json")] == ["a.png", "b.png"]


def test_a_batch_goes_on_after_a_bad_file(folder: Path, samgraph: Command) -> None:
    done = samgraph(
        "segment", "a.png", "bad.png", "none.png", "b.png", "--point", "40,50", "-o", "out"
    )

    assert done.code == 3
    assert sorted(path.name for path in (folder / "out").iterdir()) == ["a.png", "b.png"]
    assert "error: `bad.png` is not an image of a format that is read" in done.err
    assert "error: `none.png` does not exist" in done.err
    assert done.err.endswith("2 of 4 images failed: `bad.png`, `none.png`\n")


def test_one_picture_cannot_hold_many_images(folder: Path, samgraph: Command) -> None:
    done = samgraph("segment", "a.png", "b.png", "--point", "40,50", "-o", "one.png")

    assert done.code == 2
    assert "`one.png` has room for one image as png" in done.err
    assert "name a folder: `-o one/`" in done.err
    assert not (folder / "one.png").exists()


def test_only_bad_files_are_bad_input(folder: Path, samgraph: Command) -> None:
    assert samgraph("segment", "bad.png", "--point", "40,50").code == 2
    assert samgraph("segment", "bad.png", "none.png", "--point", "40,50").code == 2
    assert samgraph("segment", "x*.png", "--point", "40,50").code == 2


def test_a_summary_comes_as_json(folder: Path, samgraph: Command) -> None:
    done = samgraph("segment", "a.png", "bad.png", "--point", "40,50", "--json")

    assert done.code == 3
    summary = json.loads(done.text)
    (image,) = summary["images"]
    assert (image["image"], image["width"], image["height"]) == ("a.png", 160, 120)
    best = encoded().predict(points=[(40, 50)]).best
    (mask,) = image["masks"]
    assert mask["area"] == best.areas[0]
    assert mask["score"] == pytest.approx(best.scores[0], abs=1e-5)
    assert [entry["image"] for entry in summary["failed"]] == ["bad.png"]
    assert not (folder / "a_mask.png").exists()


def test_an_image_is_never_overwritten(folder: Path, samgraph: Command) -> None:
    before = (folder / "a.png").read_bytes()

    done = samgraph("segment", "a.png", "--point", "40,50", "-o", "./a.png")

    assert done.code == 2
    assert "is one of the images" in done.err
    assert (folder / "a.png").read_bytes() == before


def test_two_images_of_one_name_do_not_share_a_file(folder: Path, samgraph: Command) -> None:
    (folder / "more").mkdir()
    Image.fromarray(picture()).save(folder / "more" / "a.png")

    done = samgraph("segment", "a.png", "more/a.png", "--point", "40,50", "-o", "out/")

    assert done.code == 3
    assert "holds the result of another image" in done.err


BAD = {
    "no prompt": ((), "there is no prompt"),
    "a point that is none": (("--point", "here"), "`here` is not 2 numbers"),
    "not a number": (("--point", "nan,5"), "is not 2 numbers"),
    "a point outside": (("--point", "500,5"), "is outside the image"),
    "a box upside down": (("--box", "60,60,10,10"), "is upside down"),
    "points and boxes": (("--point", "4,5", "--box", "1,2,3,4", "--box", "5,6,7,8"), "one object"),
    "no suffix": (("--point", "4,5", "-o", "out"), "end it with a slash: `-o out/`"),
    "an unknown suffix": (("--point", "4,5", "-o", "out.xyz"), "does not say what to write"),
    "a wrong suffix": (("--point", "4,5", "-o", "a.jpg", "--format", "coco"), "cannot hold"),
    "a missing folder": (("--point", "4,5", "-o", "no/such/m.png"), "mkdir -p"),
    "a mask of another size": (("--mask", "small.png"), "wrong size"),
    "a mask with colours": (("--mask", "a.png"), "does not hold one number per pixel"),
    "a mask that is missing": (("--mask", "none.png"), "`none.png` does not exist"),
    "both on standard output": (("--point", "4,5", "-o", "-", "--json"), "both need"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_clear_error(name: str, folder: Path, samgraph: Command) -> None:
    Image.fromarray(np.zeros((5, 5), np.uint8)).save("small.png")
    arguments, message = BAD[name]

    done = samgraph("segment", "a.png", *arguments)

    assert done.code == 2
    assert message in done.err
    assert "Traceback" not in done.err
    assert done.out == b""


def test_empty_standard_input_is_an_error(folder: Path, samgraph: Command) -> None:
    done = samgraph("segment", "-", "--point", "4,5", "-o", "m.png")

    assert done.code == 2
    assert "nothing on standard input" in done.err


def test_an_interruption_keeps_what_was_done(
    folder: Path, samgraph: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[object] = []

    def interrupted(*args: object, **kwargs: object) -> object:
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return read_image(*args, **kwargs)  # type: ignore[arg-type]  # what it was given

    monkeypatch.setattr("samgraph.predict.image.encoded.read_image", interrupted)

    done = samgraph("segment", "a.png", "b.png", "--point", "40,50", "-o", "all.json")

    assert done.code == 130
    assert [image.name for image in read_coco(folder / "all.json")] == ["a.png"]


def test_several_formats_are_written_in_one_run(folder: Path, samgraph: Command) -> None:
    prompt, formats = ("--point", "40,50"), ("--format", "overlay", "--format", "coco")

    into = samgraph("segment", "a.png", "b.png", *prompt, *formats, "-o", "new/")
    beside = samgraph("segment", "a.png", *prompt, *formats, "--json")
    here = samgraph("segment", "a.png", *prompt, *formats)
    alone = samgraph("segment", "a.png", "b.png", *prompt, "--format", "coco", "-o", "one.json")
    file = samgraph("segment", "a.png", *prompt, *formats, "-o", "a.jpg")

    assert (into.code, beside.code, here.code, alone.code, file.code) == (0, 0, 0, 0, 2)
    written = sorted(str(path.relative_to("new")) for path in Path("new").rglob("*.*"))
    assert written == ["coco/annotations.json", "overlay/a.jpg", "overlay/b.jpg"]
    assert Path("new/coco/annotations.json").read_bytes() == Path("one.json").read_bytes()
    assert Path("a_overlay.jpg").is_file()
    assert [image.name for image in read_coco("a.json")] == ["a.png"]
    assert "several formats need a folder" in file.err


def test_an_unknown_model_is_an_error(folder: Path, samgraph: Command) -> None:
    done = samgraph("segment", "a.png", "--point", "4,5", "--model", "none.safetensors")

    assert done.code == 2
    assert "there is no file `none.safetensors`" in done.err
