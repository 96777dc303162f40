"""Put the profiles that ship with the product into a team, to be explored on the first start."""

from __future__ import annotations

from contextlib import ExitStack

from django.core.files import File
from django.db import IntegrityError

from accounts.models import Team
from experiments.models import Experiment, Origin
from experiments.samples.samples import SAMPLES
from experiments.services import uploads

_ORIGINS = {"measured": Origin.RECORDED, "reconstructed": Origin.RECONSTRUCTED}


def load_into(team: Team) -> list[Experiment]:
    """Upload every shipped profile that the team does not have, labelled with how it came to be; the new experiments.

    They are queued like any upload; nothing is read here.
    """
    present = set(Experiment.objects.filter(team=team).exclude(sample="").values_list("sample", flat=True))
    # The list shows the newest first, and the first sample should be on top.
    return [loaded for sample in reversed(SAMPLES) if sample.key not in present and (loaded := _load(team, sample.key))]


def _load(team: Team, key: str) -> Experiment | None:
    sample = next(sample for sample in SAMPLES if sample.key == key)
    with ExitStack() as opened:
        files = [File(opened.enter_context(path.open("rb")), name=path.name) for path in sample.files]
        try:
            return uploads.receive(
                team,
                None,
                files,
                sample.config.read_text(encoding="utf-8"),
                sample.title,
                origin=_ORIGINS[sample.provenance],
                label=sample.label,
                sample=sample.key,
            )
        except IntegrityError:  # another start loads it at this moment
            return None
