"""How good answers about a run are: questions with known answers, marked."""
