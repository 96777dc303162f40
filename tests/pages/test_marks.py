"""What colours say: an axis has one shade on every card, a range is seen on every bar, a slowdown is no success."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

from experiments import bars
from experiments.models import Experiment
from experiments.templatetags.components import resource_class, stack_bar
from proposals.measured import Row
from proposals.models import Measurement
from proposals.templatetags.proposals import speedup_bar


@pytest.mark.parametrize("axis", ["tp", "zone"])
def test_an_op_has_the_shade_of_its_axis_in_the_breakdown(axis: str) -> None:
    roles = {"zone": "model"}
    experiment = Experiment(config={"mesh": {"axis_roles": roles}})
    op = SimpleNamespace(resource="ici", mesh_axis=axis)
    assert resource_class(op, experiment) == bars.term(f"ici:{axis}", 1.0, roles).css


def test_every_line_of_a_range_has_a_wider_one_of_the_page_below_it() -> None:
    drawn = stack_bar([bars.term("compute", 1.0)], 2.0, "Step", low=0.8, high=1.4)
    lines = [
        (css, re.sub(r' class="[^"]*"', "", rest)) for css, rest in re.findall(r'<line class="([^"]*)"([^/]*)/>', drawn)
    ]
    below = [rest for css, rest in lines if css == "whisk whisk--halo"]
    above = [rest for css, rest in lines if css == "whisk"]
    assert len(above) == 3
    assert below == above
    assert [css for css, _ in lines] == ["whisk whisk--halo"] * 3 + ["whisk"] * 3


@pytest.mark.parametrize(("measured", "css"), [(1.4, "f-measured"), (0.8, "f-loss")])
def test_a_measured_slowdown_is_not_marked_as_a_gain(measured: float, css: str) -> None:
    row = Row(Measurement(predicted_log_gain=0.26, speedup=measured), 1.0, 1.6)
    assert re.findall(r'<circle class="([^"]*)"', speedup_bar(row, 2.0)) == [css]
