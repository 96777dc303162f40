"""A large site in an empty data folder: teams, users, experiments, proposals, events, records, passages.

`python -m bench.population FOLDER [--scale 0.1]`.  The shipped profiles are analysed and asked about as a user would;
their rows are then copied with other names, dates, numbers and decisions.  Teams are of unequal size, as they are: the
k-th has a share in proportion to 1/k.  The folder is one that `asap run` takes (ASAP_HOME).
"""

from __future__ import annotations

from bench.population.build import PASSWORD, Sizes, build, database

__all__ = ["PASSWORD", "Sizes", "build", "database"]
