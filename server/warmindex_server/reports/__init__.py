"""Reports: all that a producer holds, replaced by what a stream lists.

    entries --> staging --> additions   what the index lacks, or has otherwise
                   |
                   +------> bags        what it has already, packed: who is not in them goes

Nothing changes while a report comes in. At its end one record is journaled: the difference
to what the index held, on the condition that it has held that since the report began.
"""
