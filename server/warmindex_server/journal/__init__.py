"""Journals: what happened, in order, kept as safely as the user has chosen."""
