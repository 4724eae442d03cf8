"""warmindex-mcp: one MCP server in place of many, with two tools: find_tool and call_tool.

    a client --find_tool--> names of the session's own tools, by meaning and by words
             --call_tool--> the server that has it

The many tools of the servers behind it are not put before the model; it is given the few
that fit what it wants. Found and called are the tools of the configured servers and nothing
else. The index makes a start quick and is never needed, nor is the embedder: words find too.
"""
