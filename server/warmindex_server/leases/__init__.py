"""Leases: what a replica holds is tied to its being heard from.

    table     which leases run, and which are over: pure
    resyncs   which producers owe a report
    keeper    ends the leases that are over, by ordinary records

Leases are journaled when they are set, replaced and ended; what renews them is a matter of
this server's clock, so after a start each of them runs anew, once.
"""
