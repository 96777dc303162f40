"""The form that begins a campaign."""

from __future__ import annotations

from typing import Any

from django import forms

from campaigns.models import MOST_TOKENS, Campaign
from campaigns.services.campaigns import (
    LEAST_STEPS,
    MOST_CAP,
    MOST_PARALLEL,
    MOST_TRIALS,
    CampaignRequest,
    model_missing,
)
from launches.services.choices import MOST_STEPS, TOOLS

HOUR_S = 3600.0


class CampaignForm(forms.Form):
    backend = forms.ChoiceField(
        choices=Campaign.Backend.choices, initial=Campaign.Backend.MODELLED, label="Run trials on"
    )
    most_trials = forms.IntegerField(min_value=1, max_value=MOST_TRIALS, initial=20, label="Maximum trials")
    parallel = forms.IntegerField(min_value=1, max_value=MOST_PARALLEL, initial=1, label="Trials in parallel")
    most_hours = forms.FloatField(min_value=0.001, required=False, label="Time limit (h)")
    most_dollars = forms.FloatField(min_value=0.01, required=False, label="Cost limit ($)")
    dollars_per_chip_hour = forms.FloatField(min_value=0.0001, required=False, label="Price per chip-hour ($)")
    expert_step_time_s = forms.FloatField(
        min_value=1e-6,
        required=False,
        label="Best hand-tuned step time (s)",
        help_text="Shown in the plot as a reference line.",
    )
    most_tokens = forms.IntegerField(
        min_value=1,
        max_value=MOST_CAP,
        initial=MOST_TOKENS,
        required=False,
        label="Token limit",
        help_text="Of the language model, input plus output, where it chooses trials.",
    )
    tool = forms.ChoiceField(
        choices=tuple(TOOLS.items()), required=False, initial=CampaignRequest.tool, label="Training program",
        help_text="Used only on the team's cluster, set under Settings, Launching.",
    )  # fmt: skip
    steps = forms.IntegerField(
        min_value=LEAST_STEPS, max_value=MOST_STEPS, required=False, initial=CampaignRequest.steps,
        label="Steps per trial", help_text="Used only on the team's cluster.",
    )  # fmt: skip
    to_budget = forms.BooleanField(required=False, label="Use the whole budget, even after convergence")
    use_language_model = forms.BooleanField(required=False, label="Let the language model choose trials")
    keep_remat = forms.BooleanField(required=False, label="Keep rematerialisation")
    keep_weight_sharding = forms.BooleanField(required=False, label="Keep weight sharding")
    keep_micro_batches = forms.BooleanField(required=False, label="Keep micro-batches")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"label_suffix": "", **kwargs})
        if model_missing():
            self.fields["use_language_model"].disabled = True
            del self.fields["most_tokens"]
            self.fields["use_language_model"].label = "Let the language model choose trials (none is configured)"
        for name, field in self.fields.items():
            if not isinstance(field, forms.BooleanField):
                field.widget.attrs["class"] = "input"
            if isinstance(field, forms.IntegerField | forms.FloatField):
                # Complaints are ours, in words, and the same in every browser.
                attributes = {"class": "input", "inputmode": "decimal", "autocomplete": "off"}
                field.widget = forms.TextInput(attrs=attributes)
            if field.help_text:
                field.widget.attrs["aria-describedby"] = f"hint-{name}"

    def asked(self, server: str) -> CampaignRequest:
        """server: the address that the browser uses, to which the cluster reports where the team names no other."""
        given = {name: value for name, value in self.cleaned_data.items() if value not in ("", None)}
        hours = given.pop("most_hours", None)
        kept = {name: True for name in ("keep_remat", "keep_weight_sharding", "keep_micro_batches") if given.pop(name)}
        return CampaignRequest(**given, most_s=hours * HOUR_S if hours else None, constraints=kept, server=server)
