"""`samgraph volume`: from a scan on disk to a mask on disk, and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from samgraph.cli.options import ModelChoice
from samgraph.predict.model import Model
from tests.cli.running import Outcome, call
from tests.media.volume.drawn import phantom, write_series
from tests.predict.colour_model import SIDE, ColourModel
from tests.predict.volume.test_volume import balls

Run = Callable[..., Outcome]
BOX = ("--box", "4,4,36,36", "--slice", 5)


@pytest.fixture
def volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `samgraph volume` in a folder with `scan.npy`, with a model that sees colours."""
    monkeypatch.setattr(ModelChoice, "load", lambda choice: Model(ColourModel()))
    monkeypatch.chdir(tmp_path)
    np.save("scan.npy", balls())
    return lambda *arguments: call(monkeypatch, ["volume", *arguments])


def test_a_box_on_a_slice_becomes_a_mask_of_the_volume(volume: Run) -> None:
    done = volume("scan.npy", *BOX, "-o", "mask.npy")

    assert done.code == 0, done.err
    assert np.array_equal(np.load("mask.npy"), balls() == 200)
    count = int((balls() == 200).sum())
    assert done.text.splitlines() == [
        "wrote mask.npy",
        f"object 1: {count:,} voxels, slices 1 to 9",
    ]


def test_objects_on_slices_of_their_own_and_a_summary_as_json(volume: Run) -> None:
    prompts = ["--point", "20,20@3:5", "--box", "38,25,62,46@8:small"]

    done = volume("scan.npy", *prompts, "--json", "-o", "mask.npy")

    assert done.code == 0, done.err
    labels = np.load("mask.npy")
    assert np.array_equal(labels, np.select([balls() == 90, balls() == 200], [1, 5]))
    found = json.loads(done.text)
    assert found["output"] == "mask.npy"
    assert [row["object"] for row in found["objects"]] == [5, "small"]
    assert found["objects"][0] == {
        "object": 5,
        "label": 5,
        "voxels": int((balls() == 200).sum()),
        "cubic_millimetres": None,
        "slices": [1, 9],
    }


def test_axis_window_range_and_components(volume: Run) -> None:
    cut = balls(gap=True)
    np.save("turned.npy", cut.transpose(1, 2, 0))
    options = ["--axis", "2", "--window", "127.5,255", "--box", "4,4,36,36@7"]

    assert volume("turned.npy", *options, "--quiet", "-o", "a.npy").text == ""
    volume("turned.npy", *options, "--all-components", "--end", 8, "-o", "b.npy")

    wanted = (cut == 200).transpose(1, 2, 0)
    assert np.array_equal(np.load("a.npy")[..., 5:], wanted[..., 5:])
    assert not np.load("a.npy")[..., :5].any()
    assert np.array_equal(np.load("b.npy")[..., :9], wanted[..., :9])
    assert not np.load("b.npy")[..., 9:].any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["scan.npy", "--box", "4,4,9,9", "-o", "m.npy"], "not said which slice"),
        (["scan.npy", "--slice", 5, "-o", "m.npy"], "nothing to track|say where the object is"),
        (["scan.npy", *BOX, "-o", "m.png"], "has no suffix of a volume"),
        (["scan.npy", *BOX, "-o", "none/m.npy"], "make the folder first"),
        (["none.npy", *BOX, "-o", "m.npy"], "does not exist"),
        (["scan.npy", "--box", "4,4,9,9@12", "-o", "m.npy"], "there is no slice 12"),
        (["scan.npy", *BOX, "--axis", "axial", "-o", "m.npy"], "has no orientation"),
        (["scan.npy", *BOX, "--axis", "up", "-o", "m.npy"], "is not 0, 1, 2, axial"),
        (["scan.npy", *BOX, "--window", "kidney", "-o", "m.npy"], "is not LEVEL,WIDTH or one of"),
        (["scan.npy", *BOX, "--window", "40,-4", "-o", "m.npy"], "width of a window is above 0"),
        (["scan.npy", *BOX, "--start", 6, "-o", "m.npy"], "is prompted on slice 5"),
        (["scan.npy", *BOX, "--max-voxels", 9, "-o", "m.npy"], "at most 9"),
        (["scan.npy", *BOX, "--series", 4, "-o", "m.npy"], "only a folder has DICOM series"),
        ([".", *BOX, "-o", "m.npy"], "no DICOM images|pydicom, which is not installed"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    volume: Run, arguments: list[object], message: str
) -> None:
    done = volume(*arguments)

    assert done.code == 2, done.err
    assert any(part in done.err for part in message.split("|")), done.err
    assert not Path("m.npy").exists()


def test_nothing_is_loaded_for_a_prompt_that_cannot_be(
    volume: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(choice: ModelChoice) -> None:
        raise AssertionError("the model was loaded")

    monkeypatch.setattr(ModelChoice, "load", load)

    assert volume("scan.npy", "--box", "4,4,9,9@99", "-o", "m.npy").code == 2


def test_nifti_in_and_out_keeps_the_place(volume: Run, tmp_path: Path) -> None:
    nibabel = pytest.importorskip("nibabel", reason="nibabel is not installed: samgraph[volume]")
    affine = np.array([[0, 0, 3.0, -72], [-0.7, 0, 0, 90], [0, 0.8, 0, -126], [0, 0, 0, 1]])
    nibabel.save(nibabel.Nifti1Image(balls().T, affine), tmp_path / "scan.nii.gz")

    done = volume("scan.nii.gz", *BOX, "-o", "mask.nii.gz")

    assert done.code == 0, done.err
    mask = nibabel.load(tmp_path / "mask.nii.gz")
    assert np.array_equal(mask.affine, nibabel.load(tmp_path / "scan.nii.gz").affine)
    assert np.array_equal(np.asarray(mask.dataobj), (balls() == 200).T)
    count = int((balls() == 200).sum())
    assert f"({count * 0.7 * 0.8 * 3 / 1000:.2f} ml)" in done.text
    turned = volume("scan.nii.gz", *BOX, "--axis", "sagittal", "-o", "again.nii")
    assert turned.code == 0, turned.err
    assert np.array_equal(np.asarray(nibabel.load("again.nii").dataobj), (balls() == 200).T)


def test_a_dicom_series_becomes_a_nifti_mask_in_its_place(volume: Run, tmp_path: Path) -> None:
    reason = "not installed: samgraph[volume]"
    nibabel = pytest.importorskip("nibabel", reason=reason)
    pytest.importorskip("pydicom", reason=reason)
    write_series(tmp_path / "series", balls().astype(np.int16))

    options = ["--window", "127.5,255", "--series", 4]
    done = volume("series", *BOX, *options, "-o", "mask.nii.gz")

    assert done.code == 0, done.err
    mask = nibabel.load(tmp_path / "mask.nii.gz")
    assert np.array_equal(np.asarray(mask.dataobj), (balls() == 200).T)
    wanted = np.array([[-0.75, 0, 0, -10], [0, -0.5, 0, 20], [0, 0, 2.5, 100], [0, 0, 0, 1]])
    assert np.allclose(mask.affine, wanted)
    assert mask.header.get_xyzt_units()[0] == "mm"
    assert phantom().shape != balls().shape == (12, SIDE, SIDE)


def test_prompts_are_on_slices_and_those_of_a_video_on_frames(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scan, clip = (call(monkeypatch, [name, "--help"]).text for name in ("volume", "track"))

    assert "--box X0,Y0,X1,Y1[@SLICE][:OBJECT]" in scan
    assert "@FRAME" not in scan
    assert "--box X0,Y0,X1,Y1[@FRAME][:OBJECT]" in clip
