"""Anchoring in a plain PyTorch loop: two lines of it are new. Digits, a few seconds on a CPU.

python examples/pytorch_loop.py
"""

import torch

from anchored import Anchoring, Preprocess, ReferenceSet, anchor, anchored_loss, data, fold, k_random
from anchored.models import resnet9

EPOCHS, BATCH = 4, 64


def main() -> float:
    torch.manual_seed(0)
    digits = data.load("digits", size=16)
    normalise = Preprocess(16, *data.channel_statistics(digits.train))
    images, labels = normalise(digits.train.images), digits.train.labels

    net = anchor(resnet9(10), init="fresh")  # new: a classifier of (reference, residual)
    references = ReferenceSet.from_images(images)
    plan = Anchoring(alpha=0.2, seed=0, references=references)

    optimiser = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4)
    steps = EPOCHS * (len(images) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 0.1, total_steps=steps)
    for step in range(steps):
        index = torch.randint(len(images), (BATCH,))
        x, y = images[index], labels[index]
        # new: the loss of tuples; a masked batch, [0, x - r], keeps its labels here as in the paper's code
        loss = anchored_loss(net, x, y, plan.draw(x, step), masked=plan.masked(step), masked_target="label")
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        schedule.step()

    net.eval()
    x, y = normalise(digits.test.images), digits.test.labels
    prediction = k_random(net, references, k=10, seed=0)(x)
    wrong = prediction.probs.argmax(1) != y
    assert prediction.std is not None
    print(f"accuracy with 10 references: {100 * float((~wrong).double().mean()):.1f} % of {len(y)} test images")
    print(
        f"spread over references: {prediction.std[~wrong].mean():.5f} where right, {prediction.std[wrong].mean():.5f}"
    )

    plain = fold(net, references.mean)  # an ordinary classifier, at the cost of the original
    with torch.no_grad():
        accuracy = 100 * float((plain(x).argmax(1) == y).double().mean())
    print(f"accuracy with one reference, folded: {accuracy:.1f} %")
    return accuracy


if __name__ == "__main__":
    main()
