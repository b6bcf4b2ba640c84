"""The same population in plain PyTorch: batched tensors, a Python loop over steps, no gradients.

What one would write without JAX. Parameters of one individual are a row; episodes are (P, R, ...).
"""

import math

import torch


def positional_table(rows: int, width: int) -> torch.Tensor:
    """Sines in even columns, cosines in odd ones."""
    row, column = torch.arange(rows)[:, None], torch.arange(width)[None, :]
    angle = row / 10000 ** (2 * (column // 2) / width)
    return torch.where(column % 2 == 0, angle.sin(), angle.cos()).float()


class Agents:
    """P AttentionNeuron agents of 913 parameters, from the rows of a (P, 913) tensor."""

    def __init__(self, vectors: torch.Tensor):
        """Cut the vectors up, in the order of the authors' files."""
        shapes = [(32, 2), (32, 8), (32,), (32,), (32, 8), (32, 8), (1, 16), (1,)]
        parts = torch.split(vectors, [math.prod(shape) for shape in shapes], dim=1)
        parts = [part.reshape(-1, *shape) for part, shape in zip(parts, shapes, strict=True)]
        self.weight_ih, self.weight_hh, bias_ih, bias_hh, query, self.key, *rest = parts
        self.bias = (bias_ih + bias_hh)[:, None, None, :]
        # (P, 16, 32) queries; folded with the keys they are (P, 16, 8), as in our own engine
        self.attention = positional_table(16, 8) @ query.mT @ self.key
        self.weight, self.offset = rest

    def step(self, seen, action, hidden, cell):
        """One step of (P, R, 5) readings, (P, R, 1) actions and (P, R, 5, 8) memories."""
        told = action[..., None].expand_as(seen[..., None])
        inputs = torch.cat([seen[..., None], told], dim=-1)
        gates = (
            torch.einsum("prni,pgi->prng", inputs, self.weight_ih)
            + torch.einsum("prnh,pgh->prng", hidden, self.weight_hh)
            + self.bias
        )
        enter, forget, candidate, leave = gates.chunk(4, dim=-1)
        cell = forget.sigmoid() * cell + enter.sigmoid() * candidate.tanh()
        hidden = leave.sigmoid() * cell.tanh()
        attention = torch.einsum("prnh,pmh->prmn", hidden, self.attention).tanh()
        code = torch.einsum("prmn,prn->prm", attention, seen).tanh()
        action = (torch.einsum("prm,pam->pra", code, self.weight) + self.offset[:, None]).tanh()
        return action, hidden, cell


@torch.inference_mode()
def returns(vectors: torch.Tensor, starts: torch.Tensor, steps: int) -> torch.Tensor:
    """Compute returns (P, R) of P agents on CartPoleSwingUpHarder from R starts (R, 4)."""
    agents = Agents(vectors)
    population, rollouts = len(vectors), len(starts)
    x, v, angle, spin = starts.T[:, None, :].expand(4, population, rollouts)
    hidden = cell = torch.zeros(population, rollouts, 5, 8)
    action = torch.zeros(population, rollouts, 1)
    total, alive = torch.zeros(2, population, rollouts)
    alive = alive + 1
    for _ in range(steps):
        seen = torch.stack([x, v, angle.cos(), angle.sin(), spin], dim=-1)
        action, hidden, cell = agents.step(seen, action, hidden, cell)
        force = 10 * action[..., 0] - 0.1 * v
        sine, cosine = angle.sin(), angle.cos()
        swing = 0.3 * spin**2 * sine
        push = (-2 * swing + 14.73 * sine * cosine + 4 * force) / (4 - 1.5 * cosine**2)
        turn = (-3 * swing * cosine + 58.92 * sine + 6 * force * cosine) / (2.4 - 0.9 * cosine**2)
        x, v = x + 0.01 * v, v + 0.01 * push
        angle, spin = angle + 0.01 * spin, spin + 0.01 * turn
        total = total + alive * (angle.cos() + 1) / 2 * (math.pi / 2 * x / 2.4).cos()
        alive = alive * (x.abs() <= 2.4)
    return total
