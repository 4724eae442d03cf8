"""warmindex: an event-driven index of what a fleet has already computed."""

__version__ = "0.1.0"
