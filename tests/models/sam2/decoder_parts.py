"""The mask decoder and what video makes of it, under the names of the golden files."""

from collections.abc import Iterator, Mapping

import numpy as np

from samgraph import ops
from samgraph.graph import Array, Scope, Tensor
from samgraph.models import family
from samgraph.models.sam2 import graphs, mask_decoder, prompts
from samgraph.models.sam2.layers import to_tokens
from samgraph.models.sam2.memory_encoder import MASK_SCALE, MASK_SHIFT
from samgraph.models.sam2.tracker_config import TrackerConfig
from samgraph.models.sam2.two_way import two_way
from tests.golden.reading import Golden, disc_mask
from tests.models.sam2.bench import Bench, Outputs, rows

Named = Iterator[tuple[str, Array]]
Points = tuple[Array, Array]

# The cases of the decoder, by their number of points, so that each group is one call; and all of
# them in one call, where absent points fill the shorter lists.
GROUPS: dict[str, Mapping[str, str]] = {
    "click": {
        "point1_multi": "pe_point1",
        "point1_single": "pe_point1",
        "point1_mask_single": "pe_point1",
    },
    "box": {"boxes_b6_single_repeat": "dec_boxes_b6_single_repeat"},
    "three": {"boxpoint_single": "pe_box_as_points", "points_b2_multi_repeat": "pe_points_b2"},
}
GROUPS["all"] = {case: prefix for group in GROUPS.values() for case, prefix in group.items()}
# The cases of the sister models.
GROUPS["sister"] = {
    **GROUPS["click"],
    "box_single": "pe_box",
    "box_multi": "pe_box",
    "box_point_single": "pe_box_point",
    "points_b2_multi_repeat": "pe_points_b2",
}
GROUPS["sister_box"] = {
    "box_single": "pe_box",
    "box_multi": "pe_box",
    "points_b2_multi_repeat": "pe_points_b2",
}
GROUPS["sister_three"] = {"box_point_single": "pe_box_point"}
FINE = {"fine_0": "in_feat_s0", "fine_1": "in_feat_s1"}
# What video asks for: prompted or not, with a mask or not, and whether several masks are wanted.
HEADS: Mapping[str, tuple[bool, bool, bool]] = {
    "pt_multi": (True, False, True),
    "none_multi": (False, False, True),
    "pt_mask_single": (True, True, False),
}
NOTHING: Points = (np.zeros((1, 1, 2), np.float32), np.full((1, 1), -1, np.int64))


def points_of(golden: Golden, prefix: str) -> Points:
    """The points of a case and their labels."""
    xy, labels = golden.input(f"{prefix}_coords"), golden.input(f"{prefix}_labels")
    return xy.astype(np.float32), labels.astype(np.int64)


def decoder(group: str, golden: Golden, bench: Bench) -> Named:
    """The insides of the decoder, up to the pointer of each mask."""
    given = _inputs(group, golden, bench.config)
    outputs = bench.run(_insides, _open(bench.config), **given)
    chosen = {"masks": outputs.pop("best_mask"), "ious": outputs.pop("best_iou")}
    pointers = outputs.pop("pointers")
    for case, index in _rows(group, golden).items():
        found = {name: array[index] for name, array in outputs.items()}
        kept = slice(0, 1)
        if "multi" in case:
            kept = slice(1, None)
            found |= {"masks": found["all_masks"][:, kept], "ious": found["all_ious"][:, kept]}
        else:
            found |= {name: array[index] for name, array in chosen.items()}
        found |= {
            "sam_tokens": found["all_mask_tokens"][:, kept],
            "ptr_proj": pointers[index][:, kept],
        }
        yield from ((f"dec_{case}_{name}", array) for name, array in found.items())


def decode(group: str, golden: Golden, bench: Bench) -> Named:
    """The decode graph on the same cases.

    Every second image comes without `no_mem_embed`, which the graph is told to add.
    """
    given = _inputs(group, golden, bench.config)
    no_memory = np.arange(len(given["points"])) % 2 == 0
    missing = bench.weights["no_mem_embed"].reshape(1, -1, 1, 1)
    given["embedding"] = given["embedding"] - np.where(no_memory[:, None, None, None], missing, 0)
    outputs = bench.graph("decode", **given, no_memory=no_memory)
    seen = outputs["object_score"] > 0
    best_mask, pointer = uncovered(outputs, seen), outputs["pointer"]
    for case, index in _rows(group, golden).items():
        names = {"all_masks": "masks", "all_ious": "ious"}
        names |= {name: name for name in ("stability", "object_score")}
        found = {name: outputs[key][index] for name, key in names.items()}
        if "multi" in case:
            found |= {name: outputs[name][index][:, 1:] for name in ("masks", "ious")}
        else:
            found |= {"masks": best_mask[index], "ious": outputs["best_iou"][index]}
            if seen[index].all():
                found["ptr_proj"] = pointer[index][:, None]
        yield from ((f"dec_{case}_{name}", array) for name, array in found.items())


def decode_prepared(golden: Golden, bench: Bench, group: str = "all") -> Named:
    """One image prepared, then every case without a mask at once."""
    given = _inputs(group, golden, bench.config)
    missing = bench.weights["no_mem_embed"].reshape(1, -1, 1, 1)
    image = bench.graph(
        "prepare_image",
        embedding=golden.input("in_image_embed") - missing,
        **_fine(golden, bench.config, 1),
    )
    prompt = {name: given[name] for name in ("points", "labels")}
    outputs = bench.graph("decode_prepared", **image, **prompt)
    for case, index in _rows(group, golden).items():
        if "_mask_" in case:
            continue
        yield f"dec_{case}_all_masks", outputs["masks"][index]
        yield f"dec_{case}_all_ious", outputs["ious"][index]
        yield f"dec_{case}_stability", outputs["stability"][index]
        yield f"dec_{case}_object_score", outputs["object_score"][index]


def uncovered(outputs: Outputs, seen: Array) -> Array:
    """The chosen masks without the rule for absent objects, which must be exactly -1024."""
    chosen = np.argmax(outputs["ious"] == outputs["best_iou"], axis=1)
    raw = outputs["masks"][np.arange(len(chosen)), chosen][:, None]
    covered = outputs["best_mask"]
    return np.where(seen[..., None, None], covered, raw + (covered - graphs.HIDDEN_LOGIT))


def _inputs(group: str, golden: Golden, config: TrackerConfig) -> Outputs:
    """All cases of a group as one batch."""
    cases = GROUPS[group]
    prompted = _filled([points_of(golden, prefix) for prefix in cases.values()])
    per_case = [len(xy) for xy, _ in prompted]
    count = sum(per_case)
    has_mask = np.repeat(["_mask_" in case for case in cases], per_case)
    mask = np.zeros((count, 1, config.mask_size, config.mask_size), np.float32)
    mask[has_mask] = golden.input("in_mask_prompt")
    return {
        "embedding": rows(golden.input("in_image_embed"), count),
        **_fine(golden, config, count),
        "points": np.concatenate([xy for xy, _ in prompted]),
        "labels": np.concatenate([labels for _, labels in prompted]),
        "mask": mask,
        "has_mask": has_mask,
        "multimask": np.repeat(["multi" in case for case in cases], per_case),
    }


def _fine(golden: Golden, config: TrackerConfig, count: int) -> Outputs:
    """The maps of high resolution, where the model has any."""
    names = [name for name in config.feature_maps if name in FINE]
    return {name: rows(golden.input(FINE[name]), count) for name in names}


def _filled(prompted: list[Points]) -> list[Points]:
    """The same points in lists of one length; those put in are absent, wherever they are."""
    longest = max(xy.shape[1] for xy, _ in prompted)
    found = []
    for xy, labels in prompted:
        more = ((0, 0), (0, longest - xy.shape[1]))
        padded = np.pad(xy, (*more, (0, 0)), constant_values=33.3)
        found.append((padded, np.pad(labels, more, constant_values=family.ABSENT)))
    return found


def _rows(group: str, golden: Golden) -> dict[str, slice]:
    """Which rows of the batch belong to each case."""
    found, start = {}, 0
    for case, prefix in GROUPS[group].items():
        stop = start + len(golden.input(f"{prefix}_coords"))
        found[case], start = slice(start, stop), stop
    return found


def _open(config: TrackerConfig) -> dict[str, str]:
    """The types of the decode graph: any number of prompts and points."""
    types = {value.name: str(value.type) for value in graphs.decode(config).inputs}
    del types["no_memory"]
    return types


def _insides(
    at: Scope,
    config: TrackerConfig,
    embedding: Tensor,
    points: Tensor,
    labels: Tensor,
    mask: Tensor,
    has_mask: Tensor,
    multimask: Tensor,
    **maps: Tensor,
) -> dict[str, Tensor]:
    """Every step of the decoder, for points that are all there."""
    encoder, scope, count = at / "sam_prompt_encoder", at / "sam_mask_decoder", points.shape[0]
    given = prompts.mask(encoder, config, mask)
    wanted = has_mask.reshape(count, 1, 1)
    dense = ops.where(wanted, to_tokens(given), prompts.no_mask(encoder, config))
    image = to_tokens(embedding) + dense
    sparse = prompts.points(encoder, config, points, labels)
    positions = prompts.dense_positions(encoder, config)
    tokens, seen = two_way(
        scope / "transformer",
        config,
        start_tokens(scope, config, sparse),
        image,
        positions,
        None,
    )
    fine = (maps["fine_0"], maps["fine_1"]) if maps else ()
    decoded = mask_decoder.decode(scope, config, image, fine, sparse, positions)
    stability = mask_decoder.stability(decoded.masks)
    best = mask_decoder.best_index(decoded, multimask, stability)[:, None]
    return {
        "tokens_out": tokens,
        "src_out": seen,
        "all_masks": decoded.masks,
        "all_ious": decoded.ious,
        "all_mask_tokens": decoded.tokens,
        "stability": stability,
        "object_score": decoded.object_score,
        "best_mask": ops.gather(decoded.masks, best, 1, batch=1),
        "best_iou": ops.gather(decoded.ious, best, 1, batch=1),
        "pointers": mask_decoder.pointer(at, config, decoded.tokens),
    }


def start_tokens(at: Scope, config: TrackerConfig, sparse: Tensor) -> Tensor:
    """What the transformer starts from: the tokens of the answers, then the prompt."""
    start = mask_decoder.output_tokens(at, config)
    shape = (sparse.shape[0], mask_decoder.OUTPUT_TOKENS, config.channels)
    return ops.concat([ops.expand(start, *shape), sparse], axis=1)


def heads(case: str, golden: Golden, bench: Bench) -> Named:
    """The decode graph as video uses it, on four images at once."""
    prompted, with_mask, multi = HEADS[case]
    prompt = points_of(golden, "pe_point1") if prompted else NOTHING
    mask = golden.input("in_mask_prompt") if with_mask else None
    outputs = _on_four_images(golden, bench, prompt, mask, multi=multi)
    ious = outputs["ious"][:, 1:] if multi else outputs["best_iou"]
    high = bench.run(enlarge, mask=outputs["best_mask"])["high"]
    for i in range(4):
        row = slice(i, i + 1)
        yield f"heads{i}_{case}_ious", ious[row]
        yield f"heads{i}_{case}_low", outputs["best_mask"][row]
        yield f"heads{i}_{case}_high", high[row]
        yield f"heads{i}_{case}_ptr", outputs["pointer"][row]
        yield f"heads{i}_{case}_score", outputs["object_score"][row]


def enlarge(at: Scope, config: TrackerConfig, mask: Tensor) -> dict[str, Tensor]:
    size = (config.image_size, config.image_size)
    return {"high": ops.resize(mask, size, how="bilinear")}


def mask_prompt(golden: Golden, bench: Bench) -> Named:
    """A mask given as the answer; an empty mask means that the object is absent."""
    size = bench.config.image_size
    masks = np.stack([disc_mask(size), np.zeros((size, size), np.bool_)])[:, None]
    shape = bench.graph("mask_prompt", mask=masks.astype(np.float32))
    outputs = _on_four_images(golden, bench, NOTHING, shape["prompt"][:1], multi=False)
    for i in range(4):
        yield f"maskout{i}_disc_low", shape["logits"][:1]
        yield f"maskout{i}_disc_ptr", outputs["pointer"][i : i + 1]
        yield f"maskout{i}_disc_score", _mask_score(masks[:1])
    yield "maskout0_empty_low", shape["logits"][1:]
    yield "maskout0_empty_ptr", bench.weights["no_obj_ptr"]
    yield "maskout0_empty_score", _mask_score(masks[1:])


def _mask_score(masks: Array) -> Array:
    """The object score that a mask prompt stands for: plus or minus ten."""
    present = masks.reshape(len(masks), -1).max(axis=1, keepdims=True)
    return np.where(present, MASK_SCALE + MASK_SHIFT, MASK_SHIFT).astype(np.float32)


def _on_four_images(
    golden: Golden, bench: Bench, prompt: Points, mask: Array | None, *, multi: bool
) -> Outputs:
    side = bench.config.mask_size
    given = np.zeros((1, 1, side, side), np.float32) if mask is None else mask
    images = [golden.input(f"in_image_embed{i}") for i in range(4)]
    return bench.graph(
        "decode",
        embedding=np.concatenate(images),
        **_fine(golden, bench.config, 4),
        points=rows(prompt[0], 4),
        labels=rows(prompt[1], 4),
        mask=rows(given, 4),
        has_mask=np.full(4, mask is not None),
        no_memory=np.full(4, False),
        multimask=np.full(4, multi),
    )
