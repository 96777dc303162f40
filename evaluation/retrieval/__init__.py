"""How well retrieval answers labelled questions."""
