"""The conformance kit: what every chat model promises, checked against yours.

    async def test_my_model():
        await verify(my_stage)

A `Stage` is your model in front of a provider that answers what a law asks for. `LAWS` holds the
laws one by one, for a parametrised test.
"""

from __future__ import annotations

from .laws import LAWS
from .stage import Call, Law, Provider, Scene, Stage

__all__ = ["LAWS", "Call", "Law", "NotConforming", "Provider", "Scene", "Stage", "verify"]


class NotConforming(AssertionError):
    """A model breaks laws; the text names each and how."""


async def verify(stage: Stage) -> None:
    """Check every law against a model.

    Args:
        stage: Sets up the model with a provider that answers the given scenes.

    Raises:
        NotConforming: Some laws are broken; the text names all of them.
    """
    broken: list[str] = []
    for law in LAWS:
        try:
            await law.verify(stage)
        except Exception as error:  # noqa: BLE001 - whatever it raises, the law is broken
            broken.append(f"- {law.name}: {type(error).__name__}: {error}")
    if broken:
        raise NotConforming(f"{len(broken)} of {len(LAWS)} laws are broken:\n" + "\n".join(broken))
