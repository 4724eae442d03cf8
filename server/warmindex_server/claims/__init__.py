"""Claims: who computes what, so that one caller in the fleet computes each.

base      what claims are: the promises that the server relies on
table     the rules, pure: who holds which key until when
waiters   the calls that wait for somebody else's key
here      both, and when to look at the clock
memory    the claims of a server that is alone
redis     those of servers that share a Redis
"""
