"""Running, comparing, measuring and searching candidates.

Candidate code never runs inside our process: ``harness`` writes a program, ``runner`` compiles and runs
it under limits, ``verify`` and ``measure`` interpret what it reports, ``search`` decides what to try.
"""
