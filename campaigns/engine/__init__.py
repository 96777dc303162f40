"""The loop of a tuning campaign: pool, bottleneck analysis, strategy generation, validation, failures.  Pure."""
