"""Anchoring in a LightningModule, in one process or several. Digits, a few seconds on a CPU.

pip install 'anchored[lightning]'; python examples/lightning_module.py
"""

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

from anchored import Anchoring, Preprocess, ReferenceSet, anchor, anchored_loss, data, one_random
from anchored.models import resnet9


class AnchoredClassifier(lightning.LightningModule):
    """Any classifier, anchored and trained with reference masking."""

    def __init__(self, model: torch.nn.Module, references: ReferenceSet) -> None:
        super().__init__()
        self.net = anchor(model, init="fresh")
        self.plan = Anchoring(alpha=0.2, seed=0, references=references)

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        x, y = batch
        # By the step alone: every process masks the same ones, and takes its own part of the references.
        step = self.global_step
        reference = self.plan.draw(x, step, rank=self.global_rank, world=self.trainer.world_size)
        return anchored_loss(self.net, x, y, reference, masked=self.plan.masked(step), masked_target="label")

    def configure_optimizers(self) -> dict[str, object]:
        optimiser = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 0.1, total_steps=steps)
        return {"optimizer": optimiser, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def main() -> float:
    lightning.seed_everything(0, verbose=False)
    digits = data.load("digits", size=16)
    normalise = Preprocess(16, *data.channel_statistics(digits.train))
    images, labels = normalise(digits.train.images), digits.train.labels

    model = AnchoredClassifier(resnet9(10), ReferenceSet.from_images(images))
    loader = DataLoader(TensorDataset(images, labels), batch_size=64, shuffle=True, drop_last=True)
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    lightning.Trainer(max_epochs=4, accelerator="cpu", devices=1, **quiet).fit(model, loader)

    assert model.plan.references is not None
    predict = one_random(model.net.eval(), model.plan.references)
    right = predict(normalise(digits.test.images)).logits.argmax(1) == digits.test.labels
    accuracy = 100 * float(right.double().mean())
    print(f"accuracy: {accuracy:.1f} % of {len(right)} test images")
    return accuracy


if __name__ == "__main__":
    main()
