"""The formalism as plain data: expressions, combine operators, MDH programs, diagnostics.

The core imports none of the other packages of this project; everything else meets here.
"""
