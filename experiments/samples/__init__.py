"""Profiles that ship with the product; `experiments.samples.samples` lists them."""
