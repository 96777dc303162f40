"""What has been tried: the optimization database of changes with both sides measured, failures included."""
