"""Claims: who computes what, so that one caller in the fleet computes each.

    base      what claims are: the promises that the server relies on
    table     the rules, pure: who holds which key until when
    waiters   the calls that wait for somebody else's key
    memory    both for a server that is alone

A server that shares its journal with others needs claims that it shares with them too.
"""
