"""`warmindex-subscriber demo-kv`: what LookupRoute saves a fleet of engines, in half a minute.

engines     four engines without a model, with real caches and real events
policies    who serves a prompt: in turn, or by what LookupRoute says. Pure
score       prompts found in caches, over time. Pure
story       server, sidecars, and the same prompts through two fleets
screen      the story on a terminal
picture     the two policies over time, as a PNG
command     its command line
"""
