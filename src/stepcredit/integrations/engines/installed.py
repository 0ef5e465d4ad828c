"""Which training engines are installed, and which versions of them the integrations were made for."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata

from stepcredit.core.errors import OptionError


@dataclass(frozen=True, slots=True)
class Engine:
    """A training engine.

    Attributes:
        name: of its distribution and its module.
        oldest: first version supported.
        below: first version that is not, None where none is known.
    """

    name: str
    oldest: tuple[int, ...]
    below: tuple[int, ...] | None

    @property
    def supported(self) -> str:
        """The supported versions as pip writes them."""
        upper = "" if self.below is None else f",<{_dotted(self.below)}"
        return f">={_dotted(self.oldest)}{upper}"

    def supports(self, version: str) -> bool:
        """Whether a version is supported; what follows the numbers (``.dev0``, ``+cpu``) does not count."""
        numbers = _numbers(version)
        return numbers >= self.oldest and (self.below is None or numbers < self.below)

    def installed(self) -> str | None:
        """The installed version, None where there is none."""
        try:
            return metadata.version(self.name)
        except metadata.PackageNotFoundError:
            return None


VERL = Engine("verl", (0, 9), (0, 10))
TRL = Engine("trl", (1, 0), (2,))
ENGINES = (VERL, TRL)
"""Every engine that has an integration."""


def check_version(engine: Engine, version: str) -> None:
    """Refuse a version that the integration was not made for.

    Raises:
        OptionError: another version.
    """
    if not engine.supports(version):
        raise OptionError(
            f"{engine.name} {version} is installed; this version of stepcredit works with "
            f"{engine.name}{engine.supported}: pip install '{engine.name}{engine.supported}'"
        )


def _numbers(version: str) -> tuple[int, ...]:
    numbers = []
    for part in version.split("+")[0].split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
