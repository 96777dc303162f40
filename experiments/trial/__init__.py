"""`asap trial`: the reference step of a configuration on the devices at hand, timed after warm-up and recorded."""
