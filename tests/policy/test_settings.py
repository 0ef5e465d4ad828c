"""Settings refuse what does not fit, in one sentence."""

from __future__ import annotations

import subprocess
import sys

import pytest

from stepcredit.core.errors import OptionError
from stepcredit.policy.settings import OBJECTIVES, ImitateSettings, Objective, UpdateSettings, find_objective


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Objective(surrogate="clop"), "Unknown surrogate 'clop'. Did you mean 'clip'?"),  # type: ignore[arg-type]
        (lambda: Objective(aggregation="token"), "Unknown aggregation 'token'. Did you mean 'token-mean'?"),  # type: ignore[arg-type]
        (lambda: Objective(penalty="kl"), "Unknown penalty 'kl'"),  # type: ignore[arg-type]
        (lambda: Objective(dual_clip=1.0), "dual_clip is 1.0; expected a number above 1"),
        (lambda: Objective(clip_low=-0.1), "clip_low is -0.1; expected a finite number of at least 0"),
        (lambda: Objective(clip_high=float("nan")), "clip_high is nan"),
        (lambda: Objective(norm_length=0), "norm_length is 0; expected a finite number of at least 1"),
        (lambda: UpdateSettings(epochs=0), "epochs is 0"),
        (lambda: UpdateSettings(lr=float("inf")), "lr is inf"),
        (lambda: UpdateSettings(minibatch=0), "minibatch is 0"),
        (lambda: ImitateSettings(observation_weight=-1.0), "observation_weight is -1.0"),
        (lambda: ImitateSettings(micro_batch_tokens=0), "micro_batch_tokens is 0"),
        (lambda: find_objective("gpo"), "Unknown objective 'gpo'. Did you mean"),
    ],
)
def test_refusals(make, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(OptionError) as caught:
        make()
    assert str(caught.value).startswith(message)


def test_presets_are_found_by_name() -> None:
    assert {name: find_objective(name) for name in OBJECTIVES} == dict(OBJECTIVES)


def test_settings_need_no_torch() -> None:
    code = "import sys, stepcredit.policy.settings; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
