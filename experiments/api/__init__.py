"""REST: experiments, profiles, runs, events, and the performance model."""
