"""Whatever runs offline: measured data, fits, accuracy reports.  Nothing of the product imports it."""
