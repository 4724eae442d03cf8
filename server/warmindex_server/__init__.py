"""The warmindex server: journal -> index -> watch, behind gRPC."""
