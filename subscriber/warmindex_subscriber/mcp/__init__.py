"""MCP servers as a source of tools: connected to, listed, followed, called.

    the client's JSON --config--> servers --connection (one each)--> tools, changes, calls

What a server had listed stays when it goes away, and no server's fault is another's. The
official Python SDK (the extra `mcp`) does the protocol; nothing here is imported without it
being asked for.
"""
