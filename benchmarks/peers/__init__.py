"""Peers in Python: one module each, run by ``serve.py`` in a process of its own.

A module has ``prepare(problem)``: a function that computes the case once, or None where the peer has nothing
for it.  Results go into the arrays of the problem; what is returned instead, by name, is copied there before
results are compared.  Nothing here imports the rest of this project.
"""
