from __future__ import annotations

from typing import Any

import pytest
import timm
import torch
import torchvision
from torch import Tensor, nn

from anchored.arms.recipe import Recipe
from anchored.arms.recipe_choice import recipe
from anchored.method.core import anchor
from anchored.models import resnet9, resnet18, wrn40_2
from anchored.system.errors import InputError
from anchored.training.optimisers import (
    average,
    averaged,
    freeze,
    head,
    layers,
    optimiser,
    parameter_groups,
    set_lr,
    train_mode,
)

VIT = {"img_size": 16, "patch_size": 8, "embed_dim": 8, "depth": 3, "num_heads": 2, "num_classes": 4}


def named(net: nn.Module, groups: list[dict[str, Any]]) -> dict[str, tuple[float, float]]:
    """(weight decay, lr scale) of every parameter by name."""
    names = {id(parameter): name for name, parameter in net.named_parameters()}
    return {
        names[id(parameter)]: (group["weight_decay"], group["lr_scale"])
        for group in groups
        for parameter in group["params"]
    }


def small_vit() -> nn.Module:
    return timm.models.VisionTransformer(**VIT)  # type: ignore[arg-type]


def tuned(**fields: Any) -> Recipe:
    return Recipe("r", epochs=2, **fields)


# --- weight decay


def test_one_group_in_the_order_of_the_network_where_everything_decays_alike() -> None:
    net = resnet9(10)
    made = optimiser(net, recipe("cifar_resnet18"))
    assert isinstance(made, torch.optim.SGD) and len(made.param_groups) == 1
    group = made.param_groups[0]
    assert all(a is b for a, b in zip(group["params"], net.parameters(), strict=True))
    assert (group["weight_decay"], group["momentum"], group["nesterov"], group["lr"]) == (5e-4, 0.9, False, 0.1)


def test_norms_biases_and_embeddings_decay_by_values_of_their_own() -> None:
    net = small_vit()
    values = named(
        net,
        parameter_groups(
            net,
            tuned(weight_decay=0.3, norm_weight_decay=0.1, bias_weight_decay=0.02, embedding_weight_decay=0.0),
        ),
    )
    assert len(values) == len(list(net.parameters()))
    expected = {
        "cls_token": 0.0,
        "pos_embed": 0.0,
        "patch_embed.proj.weight": 0.3,
        "patch_embed.proj.bias": 0.02,
        "blocks.1.norm1.weight": 0.1,
        "blocks.1.norm1.bias": 0.1,
        "blocks.2.attn.qkv.weight": 0.3,
        "blocks.2.attn.qkv.bias": 0.02,
        "head.weight": 0.3,
    }
    assert {name: values[name][0] for name in expected} == expected
    assert {scale for _, scale in values.values()} == {1.0}


def test_every_kind_of_parameter_of_the_papers_networks() -> None:
    with torch.device("meta"):
        swin, vit = torchvision.models.swin_v2_t(), torchvision.models.vit_b_16()
    groups = parameter_groups(swin, recipe("imagenet_swin_v2_t"))
    values = named(swin, groups)
    assert len(groups) == 2 and len(values) == len(list(swin.parameters()))
    for name, parameter in swin.named_parameters():
        assert values[name] == ((0.05 if parameter.ndim > 1 else 0.0), 1.0), name
    one = parameter_groups(vit, recipe("imagenet_vit_b_16"))
    assert len(one) == 1 and one[0]["weight_decay"] == 0.3, "torchvision's recipe for it spares nothing"
    spared = named(vit, parameter_groups(vit, tuned(embedding_weight_decay=0.0, weight_decay=0.3)))
    assert {name for name, (decay, _) in spared.items() if decay == 0} == {"class_token", "encoder.pos_embedding"}
    with torch.device("meta"):
        first = torchvision.models.swin_t()
    tables = named(first, parameter_groups(first, tuned(embedding_weight_decay=0.0)))
    spared_names = {name for name, (decay, _) in tables.items() if decay == 0}
    assert spared_names and all(name.endswith("relative_position_bias_table") for name in spared_names)


def test_fine_tuning_spares_vectors_as_before() -> None:
    net = anchor(small_vit(), example=torch.rand(2, 3, 16, 16))
    made = optimiser(net, recipe("finetune"))
    assert isinstance(made, torch.optim.AdamW)
    for name, (decay, _) in named(net, made.param_groups).items():
        assert decay == (0.05 if net.get_parameter(name).ndim > 1 else 0.0), name


# --- layer-wise learning rates


def test_layers_of_a_timm_model_are_its_own() -> None:
    plain = layers(small_vit())
    by_hand = {"cls_token": 0, "pos_embed": 0, "patch_embed.proj.weight": 0, "blocks.0.norm1.weight": 1}
    by_hand |= {"blocks.2.mlp.fc2.bias": 3, "norm.weight": 3, "head.weight": 4}
    assert {name: plain[name] for name in by_hand} == by_hand
    net = anchor(small_vit(), example=torch.rand(2, 3, 16, 16))
    assert {name.replace(".layer.", ".").removeprefix("net."): layer for name, layer in layers(net).items()} == plain


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (
            torchvision.models.vit_b_16,
            {
                "class_token": 0,
                "conv_proj.weight": 0,
                "encoder.layers.encoder_layer_0.ln_1.bias": 1,
                "encoder.layers.encoder_layer_11.mlp.0.weight": 12,
                "encoder.ln.weight": 13,
                "heads.head.weight": 13,
            },
        ),
        (
            torchvision.models.resnet18,
            {"conv1.weight": 0, "bn1.bias": 0, "layer1.0.conv1.weight": 1, "layer4.1.bn2.bias": 8, "fc.weight": 9},
        ),
        (
            torchvision.models.swin_v2_t,
            {"features.0.0.weight": 0, "features.1.0.norm1.weight": 2, "features.1.1.mlp.0.weight": 3, "head.bias": 17},
        ),
        (torchvision.models.convnext_tiny, {"features.1.0.block.0.weight": 2, "features.1.0.layer_scale": 2}),
        (lambda: wrn40_2(10), {"0.weight": 0, "1.conv1.weight": 1, "18.conv2.weight": 18, "23.weight": 20}),
    ],
)
def test_layers_of_other_models_are_their_blocks(make: Any, expected: dict[str, int]) -> None:
    with torch.device("meta"):
        found = layers(make())
    assert {name: found[name] for name in expected} == expected
    order = list(found.values())
    assert order == sorted(order) and set(order) == set(range(max(order) + 1))


def test_learning_rates_fall_towards_the_stem() -> None:
    net = torchvision.models.resnet18(num_classes=4)
    made = optimiser(net, tuned(optimiser="adamw", layer_decay=0.5, norm_weight_decay=0.0))
    depth, values = layers(net), named(net, made.param_groups)
    assert {name: scale for name, (_, scale) in values.items()} == {name: 0.5 ** (9 - depth[name]) for name in values}
    set_lr(made, 0.01)
    rates = {id(parameter): group["lr"] for group in made.param_groups for parameter in group["params"]}
    assert rates[id(net.fc.weight)] == 0.01 and rates[id(net.conv1.weight)] == 0.01 * 0.5**9
    made.load_state_dict(made.state_dict())
    assert {group["lr_scale"] for group in made.param_groups} == {0.5**n for n in range(10)}, "kept in checkpoints"


# --- frozen parts


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: resnet18(10), "13"),
        (small_vit, "head"),
        (lambda: torchvision.models.mobilenet_v3_small(num_classes=3), "classifier.3"),
        (lambda: timm.create_model("resnet10t", num_classes=3), "fc"),
    ],
)
def test_the_head_is_found(make: Any, name: str) -> None:
    net = make()
    assert head(net) is net.get_submodule(name)


def test_a_network_without_a_head_is_refused() -> None:
    with pytest.raises(InputError, match="no linear layer to be its head"):
        freeze(nn.Sequential(nn.Conv2d(3, 4, 1), nn.Flatten()), "head")


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4),
        nn.Sequential(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5)),
        nn.Flatten(),
        nn.Linear(64, 3),
    )


@pytest.mark.parametrize(
    ("trainable", "anchored", "moved"),
    [
        ("head", False, {"4.weight", "4.bias"}),
        ("head", True, {"4.weight", "4.bias"}),
        ("stem_head", False, {"0.weight", "0.bias", "4.weight", "4.bias"}),
        ("stem_head", True, {"0.weight", "0.bias", "4.weight", "4.bias"}),
        ("all", True, None),
    ],
)
def test_only_the_trainable_part_moves(trainable: str, anchored: bool, moved: set[str] | None) -> None:
    torch.manual_seed(0)
    net = anchor(network(), example=torch.rand(2, 3, 8, 8)) if anchored else network()
    made = optimiser(net, tuned(trainable=trainable))
    train_mode(net)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    x, reference = torch.rand(2, 6, 3, 8, 8).unbind()
    for _ in range(2):
        logits = net(x, reference) if anchored else net(x)
        made.zero_grad()
        logits.square().sum().backward()
        made.step()
    changed = {name for name, value in net.state_dict().items() if not torch.equal(value, before[name])}
    assert {name.removeprefix("net.").replace(".layer.", ".") for name in changed} == (
        moved or {name.removeprefix("net.").replace(".layer.", ".") for name in before}
    ), "weights and running statistics"


def test_frozen_parts_are_in_eval_mode() -> None:
    net = network()
    freeze(net, "stem_head")
    train_mode(net)
    assert [module.training for module in net] == [True, False, False, True, True]  # type: ignore[attr-defined]
    assert not any(module.training for module in net[2].modules()), "dropout inside frozen parts as well"  # type: ignore[index]
    whole = train_mode(network())
    assert all(module.training for module in whole.modules())


# --- the average of the weights


class Indexed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(3))
        self.register_buffer("index", torch.arange(1000))
        self.register_buffer("running", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


def test_no_decay_no_average() -> None:
    net = Indexed()
    assert averaged(net, tuned()) is None
    average(None, net, tuned(), 0, 0.0)


def test_the_average_forgets_over_the_same_images_as_torchvisions() -> None:
    swin = recipe("imagenet_swin_v2_t")
    assert swin.ema_keep == pytest.approx(1 - 0.00002 * 1024 * 32 / 300)
    assert tuned(ema_decay=0.0).ema_keep == 0 and tuned(ema_decay=0.5, batch_size=1024).ema_keep == 0
    with pytest.raises(InputError, match="no ema decay"):
        _ = tuned().ema_keep


def test_weights_and_buffers_are_averaged_and_index_tables_copied() -> None:
    made = Recipe("r", epochs=100, batch_size=2, ema_decay=0.5, ema_steps=3, warmup=2)
    keep = 1 - 0.5 * 2 * 3 / 100
    net = Indexed()
    averages = averaged(net, made)
    assert averages is not None
    expected = 0.0
    for step in range(60):
        value = float(step + 1)
        with torch.no_grad():
            net.weight.fill_(value)
            net.running.fill_(2 * value)  # type: ignore[operator]
        epoch = step / 10
        average(averages, net, made, step, epoch)
        if step % 3 == 0:
            expected = value if epoch < 2 else keep * expected + (1 - keep) * value
    module = averages.module
    torch.testing.assert_close(module.weight.data, torch.full((3,), expected))
    torch.testing.assert_close(module.running, torch.full((3,), 2 * expected))
    assert torch.equal(module.index, torch.arange(1000)), "not 6.99999 stored as 6"
    assert module.index.dtype == torch.int64
