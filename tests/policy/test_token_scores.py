"""Log-probability and entropy of tokens against plain operations, and their gradient."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from stepcredit.policy.token_scores import token_scores


def plain(logits: Tensor, temperature: Tensor, row: Tensor, column: Tensor) -> tuple[Tensor, Tensor]:
    logp = torch.log_softmax(logits / temperature[:, None], -1)
    entropy = -(logp.exp() * logp.masked_fill(torch.isinf(logp), 0.0)).sum(-1)
    return logp[row, column], entropy[row]


@pytest.fixture
def case() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    logits = torch.randn(3, 5, dtype=torch.float64)
    logits[1, 2] = -torch.inf
    temperature = torch.tensor([1.0, 0.5, 2.0], dtype=torch.float64)
    return logits, temperature, torch.tensor([0, 1, 1, 1, 2]), torch.tensor([4, 0, 3, 3, 1])


def test_hand_computed() -> None:
    logits = torch.tensor([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0]]).log()
    logprob, entropy = token_scores(logits, torch.ones(2), torch.tensor([0, 1]), torch.tensor([2, 0]))
    assert logprob.tolist() == pytest.approx([-0.693147, 0.0], abs=1e-6)
    assert entropy.tolist() == pytest.approx([1.029653, 0.0], abs=1e-6)


@pytest.mark.parametrize("of_entropy", [0.0, 0.7])
def test_values_and_gradient_equal_plain_operations(
    case: tuple[Tensor, Tensor, Tensor, Tensor], of_entropy: float
) -> None:
    weight = torch.tensor([1.0, -2.0, 0.5, 3.0, -1.0], dtype=torch.float64)
    results = []
    for scores in (token_scores, plain):
        logits = case[0].clone().requires_grad_()
        logprob, entropy = scores(logits, *case[1:])
        (gradient,) = torch.autograd.grad((weight * logprob + of_entropy * weight.square() * entropy).sum(), logits)
        results.append((logprob.detach(), entropy.detach(), gradient))
    for got, expected in zip(*results, strict=True):
        assert torch.allclose(got, expected, rtol=1e-12, atol=1e-12)
    assert results[0][2][1, 2] == 0


def test_finite_differences(case: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    logits = case[0].nan_to_num(neginf=-3.0).requires_grad_()
    assert torch.autograd.gradcheck(lambda scores: token_scores(scores, *case[1:]), (logits,))
