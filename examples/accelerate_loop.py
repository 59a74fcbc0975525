"""Anchoring with Accelerate: the same script on one device, several, or in mixed precision. Digits, seconds on a CPU.

python examples/accelerate_loop.py
accelerate launch --cpu --num_processes 2 examples/accelerate_loop.py
"""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

from anchored import Anchoring, Preprocess, ReferenceSet, anchor, anchored_loss, data, one_random
from anchored.models import resnet9

EPOCHS, BATCH = 4, 64


def main(mixed_precision: str = "no") -> float:
    accelerator = Accelerator(mixed_precision=mixed_precision)
    torch.manual_seed(0)
    digits = data.load("digits", size=16)
    normalise = Preprocess(16, *data.channel_statistics(digits.train))
    images, labels = normalise(digits.train.images), digits.train.labels

    net = anchor(resnet9(10), init="fresh")
    references = ReferenceSet.from_images(images)
    plan = Anchoring(alpha=0.2, seed=0, references=references)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4)
    loader = DataLoader(TensorDataset(images, labels), BATCH, shuffle=True, drop_last=True)
    net, optimiser, loader = accelerator.prepare(net, optimiser, loader)

    step = 0
    for _ in range(EPOCHS):
        for x, y in loader:
            # Every process draws its part of the references of the whole batch, and masks the same steps.
            r = plan.draw(x, step, rank=accelerator.process_index, world=accelerator.num_processes)
            accelerator.backward(anchored_loss(net, x, y, r, masked=plan.masked(step), masked_target="label"))
            optimiser.step()
            optimiser.zero_grad()
            step += 1

    predict = one_random(accelerator.unwrap_model(net), references)
    x, y = normalise(digits.test.images).to(accelerator.device), digits.test.labels.to(accelerator.device)
    accuracy = 100 * float((predict(x).probs.argmax(1) == y).double().mean())
    accelerator.print(f"accuracy with one reference: {accuracy:.1f} % of {len(y)} test images")
    return accuracy


if __name__ == "__main__":
    main()
