"""The edge: validate, call, translate. Nothing is decided here."""
