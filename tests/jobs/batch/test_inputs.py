"""Inputs from folders, patterns, manifests and prompt files; each once, in bounded memory."""

import importlib.util
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from samgraph.errors import ImageError, PromptError
from samgraph.jobs.batch import manifests
from samgraph.jobs.batch.inputs import Input, InputOptions, find_inputs
from samgraph.jobs.batch.manifests import LONGEST_LINE
from samgraph.jobs.batch.plan import Plan
from samgraph.jobs.batch.remote import read_remote
from samgraph.jobs.batch.tasks import failure_of, video_prompts
from tests.peak import peak_bytes

has_parquet = pytest.mark.skipif(
    importlib.util.find_spec("pyarrow") is None, reason="pyarrow is missing: pip install pyarrow"
)
has_fsspec = pytest.mark.skipif(
    importlib.util.find_spec("fsspec") is None, reason="fsspec is missing: pip install fsspec"
)
ROWS: list[dict[str, Any]] = [
    {"path": "a.png", "box": [1.0, 2.0, 30.0, 40.0], "label": "cat"},
    {"path": "a.png", "points": [[5.0, 6.0]], "negatives": [[1.0, 1.5]]},
    {"path": "sub/b.png"},
    {"path": "c.mp4", "box": [1.0, 2.0, 3.0, 4.0], "frame": 3, "object": "cup"},
]
PROMPTS = [
    [{"box": [1.0, 2.0, 30.0, 40.0], "label": "cat"},
     {"points": [[5.0, 6.0]], "negatives": [[1.0, 1.5]]}],
    [],
    [{"box": [1.0, 2.0, 3.0, 4.0], "frame": 3, "object": "cup"}],
]  # fmt: skip
CSV = (
    "path,x0,y0,x1,y1,points,negatives,label,frame,object\n"
    "a.png,1,2,30,40,,,cat,,\na.png,,,,,5 6,1 1.5,,,\n\nsub/b.png,,,,,,,,,\n"
    "c.mp4,1,2,3,4,,,,3,cup\n"
)


def found(*patterns: object, **options: Any) -> list[Input]:
    return list(find_inputs(map(str, patterns), InputOptions(**options)))


def said(inputs: list[Input]) -> list[list[dict[str, Any]]]:
    """The prompts, but for where they were read."""
    return [
        [{k: v for k, v in row.items() if k != "where"} for row in one.prompts] for one in inputs
    ]


def write_manifest(path: Path, rows: list[dict[str, Any]]) -> Path:
    if path.suffix == ".parquet":
        import pyarrow as pa
        from pyarrow import parquet

        parquet.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize(
    "suffix", [".csv", ".jsonl", ".ndjson", pytest.param(".parquet", marks=has_parquet)]
)
def test_manifests_of_every_kind_say_the_same(suffix: str, tmp_path: Path) -> None:
    manifest = tmp_path / f"list{suffix}"
    if suffix == ".csv":
        manifest.write_text(CSV)
    elif suffix == ".parquet":
        names = {name for row in ROWS for name in row}
        write_manifest(manifest, [{n: row.get(n) for n in sorted(names)} for row in ROWS])
    else:
        write_manifest(manifest, ROWS)

    inputs = found(manifest)

    assert [one.name for one in inputs] == ["a.png", "sub/b.png", "c.mp4"]
    assert [one.path for one in inputs] == [str(tmp_path / one.name) for one in inputs]
    assert said(inputs) == PROMPTS
    assert "2 of" in inputs[0].prompts[0]["where"] or "1 of" in inputs[0].prompts[0]["where"]


def test_a_row_may_have_several_prompts(tmp_path: Path) -> None:
    prompts = [{"box": [1, 2, 3, 4], "object": 1}, {"points": [[1, 2]], "object": "2"}]
    manifest = write_manifest(tmp_path / "a.jsonl", [{"path": "a.mp4", "prompts": prompts}])

    (one,) = found(manifest)

    assert [row.object_id for row in one.rows] == [1, 2]
    assert one.rows[0].box == (1.0, 2.0, 3.0, 4.0)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"path": "a.png", "box": [1, 2]}', "a box is four numbers"),
        ('{"path": "a.png", "box": [1, 2, 3, true]}', "no number"),
        ('{"path": "a.png", "box": [1, 2, 3, 1e999]}', "not JSON"),
        ('{"path": "a.png", "points": [[1, 2, 3]]}', "pairs of x and y"),
        ('{"path": "a.png", "points": "1 2 3"}', "pairs of x and y"),
        ('{"path": "a.png", "frame": -1}', "a frame is a whole number"),
        ('{"path": "a.png", "object": {}}', "a number or a name"),
        ('{"path": "a.png", "label": 7}', "a short text"),
        ('{"path": "a.png", "colour": "red"}', "`colour`"),
        ('{"path": "a\\u0000.png"}', "which file"),
        ('{"path": 7}', "which file"),
        ('{"box": [1, 2, 3, 4]}', "which file"),
        ("[]", "is not an object"),
        ("{", "is not JSON"),
        ('{"path": "a.png", "path": "b.png"}', "is not JSON"),
        ('{"path": "a.png", "prompts": [{"path": "b.png"}]}', "`path`"),
        ('{"path": "s3://bucket/a.png"}', "--remote"),
        ('{"path": "' + "a" * LONGEST_LINE + '"}', "too long"),
    ],
)
def test_a_bad_row_is_refused_in_a_sentence(line: str, message: str, tmp_path: Path) -> None:
    manifest = tmp_path / "a.jsonl"
    manifest.write_text('{"path": "good.png"}\n' + line + "\n")

    with pytest.raises(PromptError, match=message) as caught:
        found(manifest)
    assert "line 2" in str(caught.value)


@has_parquet
def test_a_small_parquet_file_takes_little_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand rows of one text are one text in the file; the values of a list, a few bytes."""
    import pyarrow as pa
    from pyarrow import parquet

    path = tmp_path / "a.parquet"
    labels = pa.DictionaryArray.from_arrays(pa.array([0] * 500, pa.int32()), ["a" * 2_000_000])
    table = pa.table({"path": ["a.png"] * 500, "label": labels})
    parquet.write_table(table, path, compression="zstd", store_schema=False)
    assert path.stat().st_size < 2000
    before = peak_bytes()
    with pytest.raises(PromptError, match="short text"):
        found(path)
    assert peak_bytes() - before < 200e6

    rows = [{"path": "a.png", "points": [[1.0, 2.0]] * 100}] * 10
    write_manifest(path, rows)
    assert len(found(path)) == 1
    monkeypatch.setattr(manifests, "MOST_VALUES", 2000)
    with pytest.raises(PromptError, match="row group that is too large"):
        found(path)


@has_parquet
def test_damaged_columns_do_not_end_the_process(tmp_path: Path) -> None:
    path = write_manifest(tmp_path / "a.parquet", [{"path": "a.png", "prompts": [{"frame": 1}]}])
    good = bytearray(path.read_bytes())
    for at in range(len(good) - 500, len(good) - 8):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with suppress(PromptError):
            found(path)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.csv", b"\xff\xfe"), ("a.csv", b""), ("a.csv", b"x,y\n1,2\n"), ("a.csv", b"path\n\0\n"),
        ("a.csv", b"path,x0,x0,y0,x1,y1\na.png,1,2,3,4,5\n"),
        ("a.jsonl", b"\xff\n"),
        pytest.param("a.parquet", b"PAR1 no", marks=has_parquet),
    ],
)  # fmt: skip
def test_a_file_that_is_no_manifest_is_refused(name: str, data: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)

    with pytest.raises(PromptError):
        found(tmp_path / name)


def test_folders_are_searched_deeply_and_patterns_are_matched(tmp_path: Path) -> None:
    for name in ("b.png", "a.JPG", "deep/er/c.webp", "x.mp4", "note.txt", ".hidden.png"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    assert [one.name for one in found(tmp_path)] == ["a.JPG", "b.png", "deep/er/c.webp"]
    videos = ["x.mp4", "deep/er"]
    assert [one.name for one in found(tmp_path, is_video=True)] == videos
    assert found(tmp_path / "deep/er", is_video=True)[0].name == "er"
    (one,) = found(tmp_path / "deep" / "*", is_video=True)
    assert one.path == str(tmp_path / "deep/er")
    with pytest.raises(ImageError, match=r"gone.png` does not exist"):
        found(tmp_path / "gone.png")
    assert [one.path for one in found(tmp_path / "*.png")] == [str(tmp_path / "b.png")]
    with pytest.raises(ImageError, match="nothing matches"):
        found(tmp_path / "*.gif")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ImageError, match="holds no videos"):
        found(tmp_path / "empty", is_video=True)


def test_prompts_from_a_coco_file_and_from_yolo_labels(tmp_path: Path) -> None:
    images = tmp_path / "in"
    images.mkdir()
    for name in "abc":
        (images / f"{name}.png").touch()
    coco = {
        "images": [{"id": 1, "file_name": "a.png"}, {"id": 2, "file_name": "b.png"}],
        "categories": [{"id": 1, "name": "cat"}],
        "annotations": [
            {"image_id": 1, "category_id": 1, "bbox": [1, 2, 10, 20]},
            {"image_id": 2, "category_id": 1, "bbox": [3, 4, 10, 20]},
            {"image_id": 1, "category_id": 1, "bbox": [5, 6, 10, 20]},
        ],
    }
    (tmp_path / "boxes.json").write_text(json.dumps(coco))
    labels = tmp_path / "labels"
    labels.mkdir()
    (labels / "b.txt").write_text("0 0.5 0.5 0.2 0.2\n")

    by_coco = found(images, prompts=str(tmp_path / "boxes.json"))
    by_yolo = found(images, prompts=str(labels))

    assert [[row.box for row in one.rows] for one in by_coco] == [
        [(1, 2, 11, 22), (5, 6, 15, 26)], [(3, 4, 13, 24)], [],
    ]  # fmt: skip
    assert [[row.is_relative for row in one.rows] for one in by_yolo] == [[], [True], []]
    (labels / "z.txt").write_text("0 0.5 0.5 0.2 0.2\n")
    with pytest.raises(PromptError, match="not given"):
        found(images, prompts=str(labels))


def test_rows_of_one_object_on_one_frame_are_one_prompt(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"path": "c.mp4", "object": "cup", "box": [1.0, 2.0, 3.0, 4.0]},
        {"path": "c.mp4", "object": "cup", "points": [[5.0, 6.0]]},
        {"path": "c.mp4", "object": "cup", "negatives": [[7.0, 8.0]], "frame": 2},
        {"path": "c.mp4", "object": "cup", "points": [[9.0, 9.0]], "frame": 2},
    ]
    (one,) = found(write_manifest(tmp_path / "a.jsonl", rows))

    said = {key: prompt.described() for key, prompt in video_prompts(one).items()}

    assert said == {
        ("cup", 0): {
            "points": ((5.0, 6.0),), "labels": (1,), "box": (1.0, 2.0, 3.0, 4.0), "mask": None,
        },
        ("cup", 2): {
            "points": ((7.0, 8.0), (9.0, 9.0)), "labels": (0, 1), "box": None, "mask": None,
        },
    }  # fmt: skip
    (twice,) = found(write_manifest(tmp_path / "b.jsonl", [rows[0], rows[0] | {"label": "x"}]))
    with pytest.raises(PromptError, match="`cup` has two boxes on frame 0"):
        video_prompts(twice)


def test_a_plan_has_every_input_once_with_all_its_prompts(tmp_path: Path) -> None:
    odd = os.fsdecode(b"/x/\xff\n.png")
    box, points = {"box": [1, 2, 3, 4]}, {"points": [[1, 2]]}
    given = [Input("/x/a", "a", (box,)), Input(odd, odd), Input("/x/a", "a", (points, box))]

    plan = Plan(tmp_path / "plan", given, lambda one: one.name != "b")
    again = list(plan)

    assert again == [Input("/x/a", "a", (box, points)), Input(odd, odd)]
    assert plan.count == 2
    assert len({one.stem for one in again}) == 2
    plan.close()
    assert not list(tmp_path.iterdir())


def test_what_is_left_out_is_decided_with_all_prompts(tmp_path: Path) -> None:
    given = [Input("/x/a", "a"), Input("/x/b", "b"), Input("/x/a", "a", ({"box": [1, 2, 3, 4]},))]

    plan = Plan(tmp_path / "plan", given, lambda one: bool(one.prompts))

    assert [one.name for one in plan] == ["a"]
    assert plan.count == 1


@has_fsspec
def test_addresses_are_listed_and_named_by_manifests_when_allowed(tmp_path: Path) -> None:
    import fsspec

    system = fsspec.filesystem("memory")
    for name in ("b.png", "a.png", "c.txt"):
        system.pipe(f"/shop/{name}", b"")
    manifest = write_manifest(tmp_path / "a.jsonl", [{"path": "memory://shop/a.png"}])

    listed = found("memory://shop")
    matched = found("memory://shop/b*")
    named = found(manifest, remote=True)

    assert [one.path for one in listed] == ["memory:///shop/a.png", "memory:///shop/b.png"]
    assert [one.path for one in matched] == ["memory:///shop/b.png"]
    assert [one.path for one in named] == ["memory://shop/a.png"]
    for bad in ("memory://a::memory://b", "reference://x", "ssh://host/x"):
        with pytest.raises(ImageError):
            found(bad)


@has_fsspec
def test_an_address_that_cannot_be_reached_may_be_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from fsspec.implementations.memory import MemoryFileSystem

    with pytest.raises(ImageError) as missing:
        read_remote("memory://shop/gone.png")

    def unreachable(*_: object, **__: object) -> None:
        raise RuntimeError("the endpoint does not answer")

    monkeypatch.setattr(MemoryFileSystem, "_open", unreachable)
    with pytest.raises(ImageError, match="does not answer") as passing:
        read_remote("memory://shop/a.png")

    assert [failure_of(error.value).may_pass for error in (missing, passing)] == [False, True]
