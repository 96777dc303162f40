"""The page of HBM: over the program, over time, and the buffers alive at the peak."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from django.shortcuts import render

from accounts.models import Role
from accounts.permissions import MemberRequest, require
from experiments import hbm as drawing
from experiments.pages import experiment_page
from experiments.services import profiles


@require(Role.VIEWER, "GET")
def hbm(request: MemberRequest, pk: int) -> HttpResponse:
    """What fills the device's memory, and what sets its peak."""
    page = experiment_page(request, pk)
    shown: dict[str, Any] = {"memory": None, "reason": "Nothing has been uploaded yet."}
    if page.run is not None:
        try:
            value = profiles.load(page.run.profile)
        except profiles.NotIngested as error:
            shown["reason"] = str(error)
        else:
            memory = value.memory
            shown = {"memory": memory, "reason": value.not_measured.get("memory", "")}
            if memory.schedule is not None:
                shown |= {
                    "schedule": memory.schedule,
                    "heap": drawing.heap_area(memory.schedule),
                    "kinds": drawing.by_kind(memory.schedule),
                    "modules": drawing.by_module(memory.schedule),
                    "buffers": [
                        (buffer, drawing.module_of(buffer), drawing.KINDS[buffer.kind])
                        for buffer in memory.schedule.buffers
                    ],
                    "statement": drawing.statement(memory),
                }
            if memory.allocator is not None:
                shown |= {"curve": memory.allocator, "allocated": drawing.allocator_area(memory.allocator)}
    return render(request, "experiments/hbm.html", page.context("hbm", **shown))
