"""Every adapter keeps the laws of the conformance kit."""

import pytest

from deep_agent_mcp.harness.models.conformance import LAWS, Law, NotConforming, verify
from tests.fake_vendors import FakeChat
from tests.models.stages import STAGES, vendor

pytest.importorskip("pydantic_ai", reason="the extra `models` is not installed")
pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "y")


@pytest.mark.exhaustive(cases=48)
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name.replace(" ", "_"))
@pytest.mark.parametrize("adapter", STAGES)
async def test_an_adapter_keeps_the_laws(adapter: str, law: Law) -> None:
    await law.verify(STAGES[adapter])


async def test_a_model_that_breaks_a_law_is_told_which() -> None:
    mute = vendor("openai:my-model", FakeChat, "/v2")  # asks where nobody answers
    with pytest.raises(NotConforming, match="deltas add up to the answer"):
        await verify(mute)
