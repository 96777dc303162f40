"""How good proposals are on cases with a known answer."""
