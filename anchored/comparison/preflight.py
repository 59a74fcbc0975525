"""What results will not show, or show wrongly, said before the work: few steps, few images, mirrored letters."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from anchored.arms.arm import ArmSettings
from anchored.comparison.settings import Comparison
from anchored.data.base import Data, Images, ImageSet
from anchored.method.references import Anchoring
from anchored.system.errors import InputError

FEW_STEPS = 20
FEW_IMAGES = 100


def few_steps(arm: ArmSettings, seeds: Sequence[int], n: int) -> Iterator[str]:
    """What a run of few steps cannot show, in words."""
    recipe = arm.config.recipe
    steps = n // min(recipe.batch_size, n) * recipe.epochs
    if steps < FEW_STEPS:
        yield (
            f"each run takes only {steps} step{'s' * (steps != 1)} (batches of {min(recipe.batch_size, n)} of {n:,} "
            "images): too few to learn anything, so the results compare little more than initialisations; use more "
            "--epochs or a smaller --batch-size"
        )
    if arm.config.alpha > 0:
        for seed in seeds:
            plan = Anchoring(recipe.alpha, seed, source="batch", schedule=arm.config.schedule)
            if steps <= 1000 and not any(plan.masked(step) for step in range(steps)):
                yield (
                    f"none of the {steps} steps of seed {seed} is masked at alpha {recipe.alpha}, so masking is the "
                    "same as vanilla there; use more steps or --schedule periodic"
                )


def other_model(arm: ArmSettings) -> Iterator[str]:
    """That a recipe is made for another model than the one it trains."""
    recipe, model = arm.config.recipe, arm.config.model
    if recipe.model is not None and model != recipe.model:
        size = f" at {recipe.image_size} px" if recipe.image_size else ""
        yield f"the recipe {recipe.name} is made for {recipe.model}{size}; it trains {model} here"


def few_images(settings: Comparison, n: int) -> Iterator[str]:
    """That accuracies over few test images are coarse."""
    limited = settings.limit is not None and settings.limit < n
    count = min(n, settings.limit or n)
    if count < FEW_IMAGES:
        what = f"--limit {count}" if limited else f"{count} test images"
        yield f"{what}: accuracies over so few are coarse, one image is {100 / count:.2g} points"


def mirrored(augmentation: str, classes: Sequence[str]) -> Iterator[str]:
    """That training mirrors images of classes that may be characters."""
    if "flip" in augmentation and all(len(name) == 1 for name in classes):
        named = ", ".join(classes[:3])
        yield (
            f"images are mirrored at random, and the classes are named {named}, ...: if these are digits, letters or "
            "signs, which mirrored mean something else, pass --augmentation crop"
        )


def known_anomalies(spec: str, anomalies: ImageSet, data: Data) -> Iterator[str]:
    """That anomalies are images of the data set, byte for byte. Raises InputError where half of them or more are.

    Only of data in memory: others would have to be decoded for it.
    """
    if not (isinstance(data.train, ImageSet) and isinstance(data.test, ImageSet)):
        return
    odd = list(_digests(anomalies))
    known = {digest for part in (data.test, data.train) for digest in _digests(part)}.intersection(odd)
    count = sum(digest in known for digest in odd)
    if 2 * count >= len(odd):
        raise InputError(
            f"--anomalies holds images of no known class; {count:,} of the {len(odd):,} images of {spec} are images of "
            f"{data.name}."
        )
    if count:
        yield f"{count:,} of the {len(odd):,} anomalies of {spec} are images of {data.name} itself"


def _digests(images: Images) -> Iterator[bytes]:
    if not isinstance(images, ImageSet):
        return
    for image in images.images.cpu().contiguous().numpy():
        yield hashlib.blake2b(image.data, digest_size=16).digest()
