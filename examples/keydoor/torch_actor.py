"""The actor with torch: gradients by autograd, averaged over the ranks by gloo.

roost launch colocated.yaml --on 2x4 workers.actor.class=torch_actor:TorchActor
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch.distributed as dist
from components import Actor, Weights
from grid import Array
from policy import ENDS, SHAPES, new_weights

import torch


class TorchActor(Actor):
    def reset(self, seed: int) -> None:
        if not dist.is_initialized():
            dist.init_process_group("gloo")  # where the ranks meet is in the environment
        self.version = 0
        self.tensor = torch.tensor(new_weights(seed), requires_grad=True)
        self.optimizer = torch.optim.Adam([self.tensor], lr=self.rate, maximize=True)

    def gradients(self) -> Any:
        """The gradient stays here, averaged over all ranks: there is nothing to hand on."""
        batch = {name: torch.from_numpy(np.array(values)) for name, values in self.batch.items()}
        table = self.table(batch["seen"].double())
        chosen = table.gather(1, batch["actions"][:, None])[:, 0]
        proximal = batch.get("proximal", batch["behaviour"])
        worth = torch.exp(proximal - batch["behaviour"]).clamp(max=2.0)
        ratio, advantage = torch.exp(chosen - proximal), batch["advantage"] * worth
        clipped = ratio.clamp(1 - self.clip, 1 + self.clip)
        gain = torch.minimum(ratio * advantage, clipped * advantage)
        gain = gain - self.entropy * (table.exp() * table).sum(dim=1)
        self.optimizer.zero_grad()
        ((gain * batch["counts"]).sum() / batch["counts"].sum()).backward()
        dist.all_reduce(self.tensor.grad)
        self.tensor.grad /= self.world_size

    def table(self, seen: Any) -> Any:
        """Log-probabilities of all actions."""
        sizes = np.diff(ENDS, prepend=0).tolist()
        parts = [part.view(shape) for part, shape in zip(self.tensor.split(sizes), SHAPES, strict=True)]
        w1, b1, w2, b2, w3, b3 = parts
        second = torch.tanh(torch.tanh(seen @ w1 + b1) @ w2 + b2)
        return torch.log_softmax(second @ w3 + b3, dim=1)

    def apply(self, gradients: list[Any]) -> None:
        self.optimizer.step()

    def weights(self) -> Weights:
        vector: Array = self.tensor.detach().numpy()
        return self.version, vector
