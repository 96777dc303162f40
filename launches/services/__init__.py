"""What the product does to run both arms of a proposal and to take in what they report."""
