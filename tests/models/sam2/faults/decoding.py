"""Faults of the mask decoder, and of what video makes of its answers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from samgraph import ops
from samgraph.graph import Builder, Graph, Scope, Tensor
from samgraph.models.sam2 import graphs, mask_decoder, two_way
from samgraph.models.sam2.config import Sam2Config
from tests.models.sam2.faults.planting import Patch, fault, wrap


def _tokens(patch: Patch, order: Sequence[slice]) -> None:
    def tokens(original: Any, at: Scope, config: Sam2Config) -> Tensor:
        start = original(at, config)
        return ops.concat([start[:, part] for part in order], axis=1)

    wrap(patch, mask_decoder, "output_tokens", tokens)


@fault("decoder:click")
def the_iou_token_before_the_score_token(patch: Patch) -> None:
    _tokens(patch, (slice(1, 2), slice(0, 1), slice(2, 6)))


@fault("decoder:click")
def the_mask_tokens_before_the_iou_token(patch: Patch) -> None:
    _tokens(patch, (slice(0, 1), slice(2, 6), slice(1, 2)))


@fault("decoder:click")
def a_first_layer_like_the_others(patch: Patch) -> None:
    """Layer 0 adds positions to its queries, and its self-attention has a shortcut."""

    def layer(original: Any, *given: Any, is_first: bool) -> Any:
        return original(*given, is_first=False)

    wrap(patch, two_way, "layer", layer)


def _attention(patch: Patch, kind: str, change: Callable[..., tuple[Tensor, Tensor]]) -> None:
    """Other keys and values in attentions of a kind, from their keys and values."""

    def attention(
        original: Any, at: Scope, config: Any, q: Any, k: Any, v: Any, *more: Any, **named: Any
    ) -> Any:
        if kind in at.path:
            k, v = change(k, v)
        return original(at, config, q, k, v, *more, **named)

    wrap(patch, two_way, "attention", attention)


@fault("decoder:click")
def values_with_positions_in_the_decoder(patch: Patch) -> None:
    _attention(patch, "token_to_image", lambda k, _: (k, k))


@fault("decoder:click")
def keys_without_positions_in_the_decoder(patch: Patch) -> None:
    _attention(patch, "token_to_image", lambda _, v: (v, v))


@fault("decoder:click", "decode:all")
def image_to_token_keys_without_positions(patch: Patch) -> None:
    _attention(patch, "image_to_token", lambda _, v: (v, v))


@fault("decoder:click")
def fine_features_left_out(patch: Patch) -> None:
    def upscale(original: Any, at: Scope, config: Sam2Config, x: Tensor, fine: Any) -> Any:
        return original(at, config, x, (fine[0] * 0.0, fine[1]))

    wrap(patch, mask_decoder, "upscale", upscale)


@fault("decoder:click", "decode_prepared")
def fine_features_by_columns(patch: Patch) -> None:
    def upscale(original: Any, at: Scope, config: Sam2Config, x: Tensor, fine: Any) -> Any:
        return original(at, config, x, tuple(y.transpose(0, 1, 3, 2) for y in fine))

    wrap(patch, mask_decoder, "upscale", upscale)


def _handed(patch: Patch, change: Mapping[str, str]) -> None:
    """What a prepared image hands on for one value is another one: kind and name of each."""

    def hoist(original: Any, *given: Any, **named: Any) -> tuple[Graph, Graph]:
        shared, rest = original(*given, **named)
        outputs = dict(shared.outputs)
        first = "sam_mask_decoder.transformer.layers.0.cross_attn_"
        swapped = {first + name: outputs[first + other] for name, other in change.items()}
        return replace(shared, outputs=tuple((outputs | swapped).items())), rest

    wrap(patch, graphs, "hoist_shared", hoist)


@fault("decode_prepared")
def keys_and_queries_of_a_prepared_image_swapped(patch: Patch) -> None:
    _handed(patch, {"token_to_image.k": "image_to_token.q", "image_to_token.q": "token_to_image.k"})


@fault("decode_prepared")
def keys_for_values_of_a_prepared_image(patch: Patch) -> None:
    _handed(patch, {"token_to_image.v": "token_to_image.k"})


@fault("decoder:click")
def networks_of_the_masks_in_another_order(patch: Patch) -> None:
    def predict(original: Any, at: Scope, config: Sam2Config, tokens: Tensor, x: Tensor) -> Any:
        reversed_tokens = ops.concat([tokens[:, i : i + 1] for i in (3, 2, 1, 0)], axis=1)
        return original(at, config, reversed_tokens, x)

    wrap(patch, mask_decoder, "predict_masks", predict)


@fault("decoder:click")
def ious_without_a_sigmoid(patch: Patch) -> None:
    patch.setattr(ops, "sigmoid", lambda x: x)


@fault("decoder:box")
def a_lower_demand_on_stability(patch: Patch) -> None:
    patch.setattr(mask_decoder, "STABILITY_WANTED", 0.95)


@fault("decoder:box")
def stability_over_a_wider_band(patch: Patch) -> None:
    patch.setattr(mask_decoder, "STABILITY_DELTA", 0.5)


@fault("decoder:box")
def mask_0_however_unstable(patch: Patch) -> None:
    patch.setattr(mask_decoder, "STABILITY_WANTED", -1.0)


@fault("decoder:box", "heads:pt_multi", "heads:none_multi", config="test2")
def the_best_of_all_four_masks(patch: Patch) -> None:
    def best(original: Any, decoded: Any, multimask: Tensor, stability: Tensor) -> Tensor:
        return ops.reduce(decoded.ious, (1,), how="argmax")

    wrap(patch, mask_decoder, "best_index", best)


# What video makes of an answer.


def _answers(patch: Patch, *, best_token: bool, keep_pointer: bool) -> None:
    def answers(
        original: Any, builder: Builder, config: Sam2Config, decoded: Any, multimask: Tensor
    ) -> dict[str, Tensor]:
        found: dict[str, Tensor] = original(builder, config, decoded, multimask)
        stability = mask_decoder.stability(decoded.masks)
        best = mask_decoder.best_index(decoded, multimask, stability)[:, None]
        index = best if best_token else ops.where(multimask[:, None], best, 0)
        token = ops.gather(decoded.tokens, index, 1, batch=1)[:, 0]
        pointer = mask_decoder.pointer(builder.scope(), config, token)
        if not keep_pointer:
            pointer = ops.where(decoded.object_score > 0.0, pointer, found["pointer"])
        return found | {"pointer": pointer}

    wrap(patch, graphs, "_answers", answers)


@fault("heads:pt_mask_single", "mask_prompt", config="test2")
def a_pointer_from_the_mask_that_replaced_mask_0(patch: Patch) -> None:
    _answers(patch, best_token=True, keep_pointer=False)


@fault("heads:none_multi")
def a_pointer_of_a_hidden_object(patch: Patch) -> None:
    _answers(patch, best_token=False, keep_pointer=True)


@fault("heads:none_multi")
def a_mask_of_a_hidden_object(patch: Patch) -> None:
    patch.setattr(graphs, "HIDDEN_LOGIT", -32.0)


@fault("mask_prompt")
def a_mask_prompt_made_smaller_without_smoothing(patch: Patch) -> None:
    def resize(original: Any, x: Tensor, size: Any, **named: Any) -> Any:
        return original(x, size, **named | {"antialias": False})

    wrap(patch, ops, "resize", resize)
