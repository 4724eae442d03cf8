"""Subscribers: sources of events (catalogues, MCP servers, engines) and their publisher."""
