"""`warmindex demo`: in half a minute, why this exists. Runs a real server and subscriber."""
