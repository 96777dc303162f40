from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:  # models cannot be imported before pytest has configured Django
    from tests.backend.factories import People, Stored


@pytest.fixture(autouse=True)
def data_folder(tmp_path: Path, settings: Any) -> Path:
    settings.ASAP_HOME = tmp_path
    return tmp_path


@pytest.fixture
def people(db: None, layers: list[Any]) -> People:
    from tests.backend.factories import make_people

    return layers[0] if layers else make_people()


@pytest.fixture
def ready(people: People, layers: list[Any]) -> Stored:
    from tests.backend.factories import make_ready

    return layers[1] if layers else make_ready(people)


@pytest.fixture
def approved(people: People, ready: Stored) -> Any:
    """Proposal 1: data 16 instead of data 4 · seq 4, 1.25× predicted, 1.1–1.4× in 80 %, approved."""
    from proposals.services import reviews

    proposal = ready.plan.proposals.get(rank=1)
    proposal.data["predicted"] |= {"speedup_low80": 1.1, "speedup_high80": 1.4, "sigma": 0.05}
    proposal.save()
    reviews.decide(proposal, people.reviewer, "approved")
    return proposal
