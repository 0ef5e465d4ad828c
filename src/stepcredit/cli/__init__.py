"""The command line: one file a verb; parse, call, print.

Exit status: 0 done, 2 the user's mistake (one sentence on standard error), 130 interrupted.
"""

from __future__ import annotations

import sys

from cyclopts import App
from cyclopts.exceptions import CycloptsError

from stepcredit import __version__
from stepcredit.core.errors import StepcreditError

USER_MISTAKE = 2
INTERRUPTED = 130

VERBS = {
    "train": "stepcredit.cli.train:train",
    "evaluate": "stepcredit.cli.evaluate:evaluate",
    "assign": "stepcredit.cli.assign:assign",
    "methods": "stepcredit.cli.methods:methods",
    "envs": "stepcredit.cli.envs:envs",
    "play": "stepcredit.cli.play:play",
    "replay": "stepcredit.cli.replay:replay",
}
"""Every verb and the function behind it, imported only when it is called."""


def make_app() -> App:
    """The command-line application."""
    app = App(
        name="stepcredit",
        help="Train language-model agents with step-level credit, or assign it to anybody's rollouts.",
        version=__version__,
        exit_on_error=False,
        print_error=False,
    )
    for verb, target in VERBS.items():
        app.command(target, name=verb)
    return app


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit."""
    try:
        make_app()(arguments)
    except (StepcreditError, CycloptsError) as error:
        print(f"stepcredit: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(USER_MISTAKE)
    except KeyboardInterrupt:
        print("stepcredit: interrupted; what was finished is kept.", file=sys.stderr)
        sys.exit(INTERRUPTED)
