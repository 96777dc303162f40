"""The ASAP paper's three experiments as TPU profiles, rebuilt from the numbers it prints.

`python -m evaluation.samples` writes them.  docs/reconstruction.md says of each number whether it is
printed, derived or assumed.  Nothing here knows which sharding turned out better.
"""
