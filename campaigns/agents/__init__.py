"""Agents of tuning campaigns that a language model plays.  They know no Django."""
