"""The commands of `warmindex`, one module each: `add_to` adds it, `run` does it."""
