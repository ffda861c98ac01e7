"""Handwritten digits: a small neural network in numpy, trained on the 1,797 scans that scikit-learn brings.

One hidden layer, minibatch SGD with momentum, inputs jittered by noise.  Everything random comes from one generator whose
state is in every checkpoint, so that a run that was stopped anywhere and resumed ends with the very same weights, bit for
bit, as one that was left alone.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from typing import IO, Annotated

# One thread: the order in which a sum is added up is then the same wherever the run continues, and so is the sum.
for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import numpy as np  # noqa: E402
from numpy.typing import NDArray  # noqa: E402

import tenure  # noqa: E402

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Spec:
    epochs: Annotated[int, "passes over the training set"] = 5
    hidden: Annotated[int, "neurons of the hidden layer"] = 48
    batch: Annotated[int, "images per step"] = 64
    lr: Annotated[float, "learning rate"] = 0.1
    momentum: Annotated[float, "how much of the last step stays in the next"] = 0.9
    noise: Annotated[float, "standard deviation of the jitter on the inputs, whose range is 0 to 1"] = 0.05
    test_share: Annotated[float, "share of the images kept aside for the test"] = 0.25
    seed: Annotated[int, "of all that is random"] = 0
    checkpoint_every: Annotated[int, "steps between two checkpoints"] = 20
    pace: Annotated[float, "seconds to wait in each step, to make a demonstration slow"] = 0.0

    def __post_init__(self) -> None:
        for name in ("epochs", "hidden", "batch", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)} is less than 1")
        if not 0 < self.test_share < 1:
            raise ValueError(f"test_share: {self.test_share} is not between 0 and 1")

    def same_training(self) -> dict[str, object]:
        """What must not change when a run is resumed: all but how long and how fast."""
        return {
            name: value for name, value in asdict(self).items() if name not in ("epochs", "pace", "checkpoint_every")
        }


class Network:
    """64 inputs, one hidden layer of rectified units, ten outputs.  `weights` and `velocity` are all of its state."""

    def __init__(self, hidden: int, rng: np.random.Generator) -> None:
        self.weights: dict[str, Array] = {
            "w1": rng.normal(0.0, np.sqrt(2 / 64), (64, hidden)),
            "b1": np.zeros(hidden),
            "w2": rng.normal(0.0, np.sqrt(2 / hidden), (hidden, 10)),
            "b2": np.zeros(10),
        }
        self.velocity: dict[str, Array] = {name: np.zeros_like(value) for name, value in self.weights.items()}

    def forward(self, images: Array) -> tuple[Array, Array]:
        """The hidden activations, and the log-probabilities of the ten digits."""
        hidden = np.maximum(images @ self.weights["w1"] + self.weights["b1"], 0.0)
        logits = hidden @ self.weights["w2"] + self.weights["b2"]
        logits -= logits.max(axis=1, keepdims=True)
        return hidden, logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))

    def loss(self, images: Array, labels: Labels) -> float:
        _, scores = self.forward(images)
        return float(-scores[np.arange(len(labels)), labels].mean())

    def accuracy(self, images: Array, labels: Labels) -> float:
        return float((self.forward(images)[1].argmax(axis=1) == labels).mean())

    def step(self, images: Array, labels: Labels, lr: float, momentum: float) -> float:
        """One step of SGD with momentum.  The loss is that before the step."""
        hidden, scores = self.forward(images)
        rows = np.arange(len(labels))
        loss = float(-scores[rows, labels].mean())
        slope = np.exp(scores)
        slope[rows, labels] -= 1.0
        slope /= len(labels)
        back = (slope @ self.weights["w2"].T) * (hidden > 0)
        slopes = {"w1": images.T @ back, "b1": back.sum(axis=0), "w2": hidden.T @ slope, "b2": slope.sum(axis=0)}
        for name, value in slopes.items():
            self.velocity[name] = momentum * self.velocity[name] - lr * value
            self.weights[name] += self.velocity[name]
        return loss

    def sha256(self) -> str:
        return hashlib.sha256(b"".join(self.weights[name].tobytes() for name in sorted(self.weights))).hexdigest()


def load(test_share: float, seed: int) -> tuple[Array, Labels, Array, Labels]:
    """Training images and labels, then those of the test; pixels from 0 to 1."""
    from sklearn.datasets import load_digits

    data = load_digits()
    images, labels = data.data.astype(np.float64) / 16.0, data.target.astype(np.int64)
    order = np.random.default_rng(seed).permutation(len(labels))
    kept = order[: int(len(order) * test_share)], order[int(len(order) * test_share) :]
    return images[kept[1]], labels[kept[1]], images[kept[0]], labels[kept[0]]


class Training:
    """The state between two steps: network, generator, and where in which shuffled pass it is."""

    def __init__(self, spec: Spec, count: int) -> None:
        self.spec, self.step = spec, 0
        self.rng = np.random.default_rng(spec.seed)
        self.network = Network(spec.hidden, self.rng)
        self.order = np.arange(count)

    def save(self, file: IO[bytes]) -> None:
        arrays = {f"weights.{name}": value for name, value in self.network.weights.items()}
        arrays |= {f"velocity.{name}": value for name, value in self.network.velocity.items()}
        about = {"step": self.step, "rng": self.rng.bit_generator.state, "spec": self.spec.same_training()}
        np.savez(file, order=self.order, about=np.array(json.dumps(about)), **arrays)

    def restore(self, file: IO[bytes]) -> None:
        """Go on from a checkpoint.  Raises ValueError if it is of another training."""
        with np.load(file, allow_pickle=False) as saved:
            about = json.loads(str(saved["about"]))
            if about["spec"] != self.spec.same_training():
                raise ValueError(
                    f"the checkpoint is of another training: {about['spec']}, not {self.spec.same_training()}"
                )
            self.step, self.order = about["step"], saved["order"]
            self.rng.bit_generator.state = about["rng"]
            for name in self.network.weights:
                self.network.weights[name] = saved[f"weights.{name}"]
                self.network.velocity[name] = saved[f"velocity.{name}"]


@tenure.study(keep=3)
def digits(run: tenure.Run, spec: Spec) -> float:
    """Train a small network on scikit-learn's digits; returns its accuracy on the test images."""
    with run.phase("load"):
        images, labels, test_images, test_labels = load(spec.test_share, spec.seed)
    training = Training(spec, len(labels))
    network = training.network

    checkpoint = run.resume()
    if checkpoint is not None:
        with checkpoint.open() as file:
            training.restore(file)

    steps_a_pass = max(1, len(labels) // spec.batch)  # the few images left over would make one wild step
    with run.phase("train"):
        while training.step < spec.epochs * steps_a_pass:
            if run.stopping:
                run.checkpoint(training.step, training.save)
                run.check()
            place = training.step % steps_a_pass
            if place == 0:
                training.order = training.rng.permutation(len(labels))
            chosen = training.order[place * spec.batch : (place + 1) * spec.batch]
            jitter = training.rng.normal(0.0, spec.noise, (len(chosen), 64))
            loss = network.step(images[chosen] + jitter, labels[chosen], spec.lr, spec.momentum)
            training.step += 1
            run.log(step=training.step, loss=loss)
            if training.step % spec.checkpoint_every == 0:
                run.checkpoint(training.step, training.save)
            run.sleep(spec.pace)

    with run.phase("test"):
        accuracy = network.accuracy(test_images, test_labels)
    run.artifact("weights.npz", lambda file: np.savez(file, **network.weights))
    run.result(
        accuracy=accuracy, final_loss=network.loss(images, labels), weights_sha256=network.sha256(), steps=training.step
    )
    return accuracy


if __name__ == "__main__":
    digits.main()
